"""Hostile text in records, models, data, studies, file names and words: it stays text everywhere.

Every command that prints or writes is given it, and what came out is read as its reader would
read it: a terminal, a browser, a Markdown renderer, LaTeX, a spreadsheet.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from markdown_it import MarkdownIt
from PIL import Image

from ocil import modelfile

pytest.importorskip("jinja2")
pytest.importorskip("plotly")

# Terminal sequences (OSC, CSI, the CSI of one byte), a change of writing direction, markup of
# HTML, Markdown, rich and LaTeX, formulas, and lines that would be taken for ours.
ESCAPES = "\x1b]0;own\x07\x1b[31m\x9b32m\u202e"
SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
LINKS = "[x](javascript:alert(3)) ![i](http://evil.example/i) <http://evil.example>"
MARKS = "|`b`**c**[bold]d[/bold][/]:skull:$x^{2$ \\input{/etc/passwd}"
HOSTILE = f"=cmd|' /C calc'!A0{ESCAPES}{SCRIPT}{LINKS}{MARKS}\r\nFORGED: all is well\n# FORGED\n"
LINK = f"javascript:alert(4)//{HOSTILE}"
NAME = HOSTILE.replace("/", "").encode()[:200].decode(errors="ignore")  # of a file or folder
HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")

Ocil = Callable[..., Any]


def hidden(content: str) -> list[str]:
    return [
        f"{m[0]!r} in {content[max(0, m.start() - 60) : m.start() + 20]!r}"
        for m in HIDDEN.finditer(content)
    ]


def terminal(said: str) -> list[str]:
    """Characters that steer a terminal, and lines that are not ours."""
    return hidden(said) + [line for line in said.splitlines() if re.match(r"\s*(# )?FORGED", line)]


class Page(HTMLParser):
    """Collects what a browser would run, fetch or follow outside of the page."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.alive: list[str] = re.findall(r"(?i)<script[^>]*>\s*alert", content)
        self.feed(content)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            there = name in ("href", "src", "action", "xlink:href", "srcset")
            away = re.match(r"\s*(javascript:|vbscript:|https?:|data:text|//)", value or "", re.I)
            if name.startswith("on") or (there and away):
                self.alive.append(f"<{tag} {name}={(value or '')[:60]}>")


def html(content: str) -> list[str]:
    return Page(content).alive + hidden(content)


def markdown(content: str) -> list[str]:
    """Through a renderer that lets HTML and every address pass."""
    reader = MarkdownIt("commonmark", {"html": True}).enable("table")
    reader.validateLink = lambda url: True  # type: ignore[method-assign]
    page = reader.render(content)
    strange = re.findall(r"<(?:img|script|iframe)\b[^>]*|<h\d>\W*FORGED", page)
    outside = re.sub(r"(?ms)^(`{3,})sh$.*?^\1$|^    .*?$", "", content)
    bare = re.findall(r"https?://evil.{9}", outside)  # GitHub makes links of them outside code
    return html(page) + strange + bare


def latex(content: str) -> list[str]:
    return re.findall(r"\\input.*", content) + hidden(content)


def spreadsheet(content: str) -> list[str]:
    cells = [cell for row in csv.reader(io.StringIO(content)) for cell in row]
    number = re.compile(r"[+-]?\d+(\.\d+)?(e[+-]?\d+)?")
    return [c for c in cells if re.match(r"\s*[=+@-]", c) and not number.fullmatch(c)] + hidden(
        content
    )


TARGETS = {".html": html, ".md": markdown, ".tex": latex, ".csv": spreadsheet}


def written(folder: Path, known: set[tuple[Path, int]]) -> list[str]:
    """What is alive in the new files below a folder, each read by its own reader."""
    found = []
    for path in sorted(folder.rglob("*")):
        version = path, path.stat().st_mtime_ns
        if path.suffix in TARGETS and "given" not in path.parts and version not in known:
            known.add(version)
            alive = TARGETS[path.suffix](path.read_text(encoding="utf-8"))
            found += [f"{path.relative_to(folder)}: {what}" for what in alive]
    return found


@pytest.fixture
def attack(
    ocil: Ocil, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str]]:
    """Run a command in tmp_path; nothing alive may come out of it. Gives its code and words."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    known: set[tuple[Path, int]] = set()

    def call(*words: object) -> tuple[int, str]:
        monkeypatch.setattr(logging.root, "handlers", [])  # pytest's keep ours away
        said = ocil(*words)
        assert terminal(said.out + said.err) == [], words
        assert "Traceback" not in said.err
        assert "Unexpected" not in said.err
        assert written(tmp_path, known) == []
        return said.code, said.out + said.err

    return call


def record(seed: int = 0, **changes: Any) -> dict[str, Any]:
    """Two tasks of one class, and hostile text wherever a record may hold some."""
    readouts = [HOSTILE, LINK]
    counts = {"correct": [5, 6], "total": [9, 9]}
    evaluations = [
        {"step": t + 1, "task": t, "readout": readout, "images": images, **counts}
        for t in (0, 1)
        for readout in readouts
        for images in ("all", "probe")
    ]
    texts = ("method", "preset", "study", "data", "data_fingerprint", "job", "stream_sha256")
    settings = {"seed": seed, "memory": 5, "data": HOSTILE, HOSTILE: HOSTILE, LINK: [HOSTILE]}
    return {
        "schema": 1,
        **dict.fromkeys(texts, HOSTILE),
        "split": "test",
        "memory": 5,
        "seed": seed,
        "settings": settings,
        "command": f"ocil run {HOSTILE}",
        "versions": {HOSTILE: HOSTILE},
        "commit": ESCAPES,
        "state_sha256": HOSTILE,
        "readout": HOSTILE,
        "readouts": readouts,
        "class_names": [HOSTILE, LINK],
        "tasks": [[0], [1]],
        "evaluations": evaluations,
        "inside": [{HOSTILE: HOSTILE, "task": HOSTILE, "step": HOSTILE}],
    } | changes


def keep(folder: Path, content: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "record.json").write_text(json.dumps(content))
    return folder


def test_records(attack: Any, tmp_path: Path) -> None:
    runs = tmp_path / "given"
    for seed in range(3):
        keep(runs / NAME / f"{seed}{NAME}", record(seed))
        keep(runs / "javascript:alert(5)" / str(seed), record(seed, method=LINK, data=LINK))
    keep(runs / "mixed" / "0", record(settings={"augment": HOSTILE}, split="validation"))
    (runs / "mixed" / "README.md").write_text(
        f"# {SCRIPT}\n\n{SCRIPT} [x](javascript:y)\n`{SCRIPT}`\n"
    )
    (runs / "broken").mkdir()
    (runs / "broken" / "record.json").write_text("{")
    for words in (
        ("show", runs),
        ("show", runs / NAME / f"0{NAME}"),
        ("show", runs / "mixed" / "0"),
        ("report", runs, "--out", tmp_path / "page"),
        ("figure", "through-tasks", runs, "--out", tmp_path / "a.png"),
        ("figure", "cost", runs, "--out", tmp_path / f"{NAME}.png"),
        ("figure", "centroids", runs / NAME),
        ("figure", "latent", runs),
        ("report", runs / NAME, "--out", tmp_path / NAME),
        ("results", runs),
    ):
        attack(*words)
    assert markdown((runs / "RESULTS.md").read_text(encoding="utf-8")) == []


def test_unfinished_and_damaged_runs(attack: Any, tmp_path: Path) -> None:
    run = tmp_path / NAME
    run.mkdir()
    (run / "settings.json").write_text("{}")
    (run / "events.jsonl").write_text(json.dumps({"step": HOSTILE, "steps": [HOSTILE]}) + "\n")
    code, said = attack("show", run)
    assert code == 2
    assert "of" in said
    attack("resume", run)
    note = {"schema": 1, "method": HOSTILE, "settings": {HOSTILE: 1}, "preset": "", "study": ""}
    (run / "settings.json").write_text(json.dumps(note))
    attack("resume", run)
    (run / "settings.json").write_text(json.dumps(note | {"method": "er"}))
    attack("resume", run)
    (run / "record.json").write_text(json.dumps(record(split=HOSTILE)))
    attack("show", run)


WORDS: list[tuple[str, ...]] = [
    (HOSTILE,),
    ("run", HOSTILE),
    ("run", "er", HOSTILE),
    ("run", "er", "--preset", HOSTILE),
    ("run", "er", f"--{HOSTILE}", "1"),
    ("run", "er", "--lr", HOSTILE),
    ("run", "er", "--net", HOSTILE),
    ("run", "er", "--data", HOSTILE),
    ("run", "er", "--data", HOSTILE, "--help"),
    ("run", "er", "--config", HOSTILE),
    ("run", "er", "--listen", HOSTILE),
    ("run", "er", "--listen", f"{HOSTILE}=x"),
    ("resume", HOSTILE),
    ("show", HOSTILE),
    ("report", HOSTILE),
    ("results", HOSTILE),
    ("figure", HOSTILE),
    ("figure", "cost", HOSTILE),
    ("figure", "cost", ".", "--out", HOSTILE),
    ("study", HOSTILE),
    ("study", f"{HOSTILE}.toml"),
    ("methods", HOSTILE),
    ("data", HOSTILE),
    ("data", "get", HOSTILE),
    ("data", "check", HOSTILE),
    ("data", "check", "mnist", "--data-dir", NAME),
    ("data", "list", "--data-dir", NAME),
    ("learn", HOSTILE, "--model", HOSTILE),
    ("learn", ".", "--model", "m.ocil", "--method", HOSTILE),
    ("predict", HOSTILE, HOSTILE),
    ("inspect", HOSTILE),
    ("completion", HOSTILE),
]


@pytest.mark.parametrize("words", WORDS, ids=lambda words: "-".join(w[:8] for w in words)[:40])
def test_words(attack: Any, tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / NAME).mkdir()
    code, _ = attack(*words)
    assert code == (0 if "--help" in words or "list" in words else 2)


@pytest.mark.parametrize(
    "content",
    [
        {HOSTILE: 1},
        {"name": HOSTILE, "grid": [{"method": "er"}]},
        {"grid": [{"method": HOSTILE}]},
        {"grid": [{"method": "er", "data": HOSTILE}]},
        {"grid": [{"method": "er", "preset": HOSTILE}]},
        {"grid": [{"method": "er", "net": HOSTILE}]},
        {"grid": [{"method": "er", "augment": HOSTILE}]},
        {"grid": [{"method": "er", HOSTILE: HOSTILE}]},
        {"grid": [{"method": "er", "seed": HOSTILE}]},
    ],
)
def test_studies(attack: Any, tmp_path: Path, content: dict[str, Any]) -> None:
    file = tmp_path / f"{NAME}.toml"
    file.write_text(_toml(content))
    assert attack("study", file, "--dry-run")[0] == 2
    settings = content.get("grid", [content])[0]
    if len(settings) == 1 and "method" in settings:
        settings = {"method": HOSTILE}
    file.write_text(_toml(settings))
    attack("run", "er", "--config", file, "--help")
    assert attack("run", "er", "--config", file)[0] == 2


def _toml(content: dict[str, Any]) -> str:
    lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in content.items() if k != "grid"]
    for grid in content.get("grid", []):
        lines += ["[[grid]]", *(f"{json.dumps(k)} = {json.dumps(v)}" for k, v in grid.items())]
    return "\n".join(lines)


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """Two classes of six pictures each, in folders and files with hostile names."""
    folder = tmp_path / NAME
    for c, label in enumerate((NAME, f"javascript:{NAME}"[:150])):
        (folder / label).mkdir(parents=True)
        for k in range(6):
            pixels = np.full((8, 8), 40 * k + 20 * c, np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{NAME[:100]}{k}.png")
    return folder


def test_own_data_and_models(attack: Any, tmp_path: Path, pictures: Path) -> None:
    files = sorted(pictures.rglob("*.png"))
    small = ("--memory", 4, "--width", 8, "--probe", 4, "--out", tmp_path / f"{NAME}-run")
    assert attack("run", "er", "--data", pictures, *small)[0] == 0
    attack("show", tmp_path / f"{NAME}-run")
    attack("report", tmp_path / f"{NAME}-run", "--out", tmp_path / "page")
    model = tmp_path / f"{NAME}.ocil"
    new = ("--method", "er", "--memory", 4)
    assert attack("learn", pictures, "--model", model, *new)[0] == 0
    assert attack("learn", pictures, "--model", model, *new)[0] == 2
    assert attack("predict", model, *files)[0] == 0
    said = attack("predict", model, *files, "--csv")[1]
    assert spreadsheet(said) == []
    assert attack("inspect", model)[0] == 0
    files[0].write_bytes(b"no picture")
    assert attack("predict", model, *files)[0] == 2
    assert attack("learn", pictures, "--model", model)[0] == 2


@pytest.mark.parametrize(
    "change",
    [
        {"method": HOSTILE},
        {"module": HOSTILE},
        {"dtype": HOSTILE},
        {"ocil": HOSTILE},
        {"shape": [HOSTILE]},
        {"counts": [HOSTILE]},
        {"settings": {"memory": HOSTILE, "net": HOSTILE}},
        {"settings": {HOSTILE: HOSTILE}},
        {"scalars": {"labels": [HOSTILE, LINK], "pending": HOSTILE}},
        {"scalars": HOSTILE},
        {HOSTILE: HOSTILE},
    ],
)
def test_notes_of_models(attack: Any, tmp_path: Path, change: dict[str, Any]) -> None:
    import ocil as package

    model = package.Classifier("er", memory=4)
    model.partial_fit(np.eye(12, 4, dtype=np.float32), ["a", "b"] * 6)
    path = tmp_path / "m.ocil"
    model.save(path)
    note, tensors = modelfile.read(path)
    merged = {
        key: {**note[key], **value} if isinstance(note.get(key), dict) and isinstance(value, dict)
        else value
        for key, value in change.items()
    }  # fmt: skip
    path.write_bytes(modelfile.dump({**note, **merged}, tensors))
    np.save(tmp_path / "x.npy", np.eye(2, 4, dtype=np.float32))
    for words in (("inspect", path), ("predict", path, tmp_path / "x.npy")):
        attack(*words)
