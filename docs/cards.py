"""Write the cards of the methods: `python docs/cards.py`.

A card is the docstring of the method's module (idea, formula, symbols, differences), what a step
was measured to cost, and whom to cite. Nothing in it is written by hand; a test says when one is
due.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from ocil.learners import registry

ROOT = Path(__file__).resolve().parents[1]
CARDS = ROOT / "docs" / "methods"
WITHOUT = {"finetune", "joint"}  # floor and ceiling need no card


def card(method: str) -> str:
    """The text of a card."""
    file = ROOT / "src" / "ocil" / "learners" / f"{method.replace('-', '_')}.py"
    about = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    first = about.partition("\n")[0]
    place = file.relative_to(ROOT).as_posix()
    memory = " --memory 500" if registry.info(method).fields["memory"].default else ""
    parts = [
        f"# {first.partition(' (')[0]}",
        f"`ocil run {method} --data mnist{memory}`; code: `{place}`",
        about.strip().replace("docs/paper.md", "[docs/paper.md](../paper.md)"),
        *cost(method),
        f"## Citation\n\n{citation(method, first)}",
    ]
    if (ROOT / "docs" / f"{method}.md").is_file():
        parts.insert(3, f"More: [options and details](../{method}.md).")
    return "\n\n".join(parts) + "\n"


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


def citation(method: str, first: str) -> str:
    """Authors and title as the method gives them; where it appeared, from the docstring's line."""
    known, told = registry.info(method), first.partition(" (")[2].partition(")")[0]
    where = re.search(r", ((?:[A-Z]\w*[A-Z]|arXiv).*)", told)
    return f"{known.paper}. {where[1] if where else known.year}." if known.paper else f"{told}."


if __name__ == "__main__":
    for name in sorted(set(registry.built_in()) - WITHOUT):
        (CARDS / f"{name}.md").write_text(card(name), encoding="utf-8")
