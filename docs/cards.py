"""Write the upper part of every card in docs/methods: `python docs/cards.py`.

It is the docstring of the method's module (idea, formula, symbols, differences) and what a step was
measured to cost; what stands below the line is written by people and kept. A test says when a card
is due.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ocil.learners import registry

ROOT = Path(__file__).resolve().parents[1]
CARDS = ROOT / "docs" / "methods"
LINE = "<!-- Above this line: made by docs/cards.py. Below: written by hand. -->"
WITHOUT = {"finetune", "joint"}  # floor and ceiling need no card


def card(method: str) -> str:
    """The text of a card, with what is written by hand in the present one."""
    file = ROOT / "src" / "ocil" / "learners" / f"{method.replace('-', '_')}.py"
    told = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first, _, rest = told.partition("\n")
    title = re.split(r" \(|\.$| for a ", first)[0]
    about = f"{first}\n{rest}".strip()
    place = file.relative_to(ROOT).as_posix()
    memory = " --memory 500" if registry.info(method).fields["memory"].default else ""
    example = f"`ocil run {method} --data mnist{memory}`; code: `{place}`"
    path = CARDS / f"{method}.md"
    present = path.read_text(encoding="utf-8") if path.is_file() else ""
    by_hand = present.partition(LINE)[2].lstrip()
    parts = [f"# {title}", example, about, *cost(method), LINE, by_hand]
    return "\n\n".join(parts)


def cost(method: str) -> list[str]:
    """What a step costs with each net it was measured with; none for a method that was not."""
    rows = [
        f"| {net} | {known['images']:g} | {known['time']:.2f} | {known['bytes'] / 1e6:.2f} |"
        for net in ("mlp", "resnet18")
        if (known := registry.measured_costs(net).get(method))
    ]
    head = (
        "| net | images through the net | time against ER's | MB held |\n| :-- | --: | --: | --: |"
    )
    table = "\n".join([head, *rows])
    told = "One gradient step a batch of 10 + 64, measured by `bench/methods.py`."
    return ["## Cost of a step", told, table] if rows else []


if __name__ == "__main__":
    for name in sorted(set(registry.built_in()) - WITHOUT):
        (CARDS / f"{name}.md").write_text(card(name), encoding="utf-8")
