"""The code of README, tutorial and guide runs, and what they point to exists."""

from __future__ import annotations

import importlib
import importlib.util
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from xml.etree import ElementTree

import numpy as np
import pytest

import ocil as package
from ocil import checks, learners
from ocil.commands.figure import Kind
from ocil.learners import registry
from ocil.run.folder import RunFolder
from ocil.study.grid import OWN_STREAMS, shipped
from ocil.study.jobs import Job

ROOT = Path(package.__file__).parents[2]
DOCS = ROOT / "docs"
# ```language title="file to write"
BLOCK = re.compile(r'^```(\w+)(?: title="([^"]+)")?\n(.*?)^```$', re.MULTILINE | re.DOTALL)

pytestmark = pytest.mark.skipif(not DOCS.exists(), reason="an installed package has no docs")


def blocks(page: Path) -> list[tuple[str, str, str]]:
    """(language, file to write or "", text) of every block of code."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def run_python(page: Path, **names: object) -> dict[str, Any]:
    """Carry out the Python of a page, block after block; returns all names it has made."""
    for language, file, text in blocks(page):
        if language == "python" and not file:
            exec(compile(text, str(page), "exec"), names)
    return names


@pytest.fixture
def own_learners(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Work in a folder of our own, where src/ocil/learners counts as a part of the package."""
    monkeypatch.chdir(tmp_path)
    more = str(tmp_path / "src" / "ocil" / "learners")
    monkeypatch.setattr(learners, "__path__", [*learners.__path__, more])
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith("ocil.learners."):
            del sys.modules[name]


@pytest.fixture
def quick_studies(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs of a study in this process: starting one for each is tested elsewhere, and slow."""

    def run_jobs(jobs: list[Job], *_: object) -> None:
        for job in jobs:
            if job.state == "waiting":
                RunFolder(job.folder).create(job.plan)
                package.resume_run(job.folder)
                job.state = "finished"

    monkeypatch.setattr("ocil.commands.study.run_jobs", run_jobs)


def test_the_guide_to_own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = run_python(DOCS / "own-data.md")
    assert {"model", "faces", "tuned", "stream"} <= set(names)


@pytest.mark.usefixtures("own_learners", "quick_studies")
def test_the_tutorial(ocil: Callable[..., Any], tmp_path: Path) -> None:
    page, names = DOCS / "tutorial.md", dict[str, Any]()
    for language, file, text in blocks(page):
        if file:
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / file).write_text(text)
        elif language == "python":
            exec(compile(text, str(page), "exec"), names)
        elif language == "toml":
            tomllib.loads(text)
        for line in text.splitlines() if language == "sh" else ():
            if "tensorboard" in line and not importlib.util.find_spec("tensorboard"):
                continue
            said = ocil(*shlex.split(line)[1:])
            assert said.code == 0, f"{line}: {said.err}"
            if "--dry-run" in line:  # the runs above count, as the page says
                assert "4 jobs, 2 finished, 2 to run" in said.out
    methods = {record["method"] for _, record in names["find_records"]("runs")}
    assert methods == {"er", "otc", "er-smooth"}
    assert (tmp_path / "page" / "index.html").exists()


def test_the_readme(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """On forty digits of each class: it learns a class that it has never heard of."""
    monkeypatch.chdir(tmp_path)
    digits = package.load_data("digits")
    rows = np.concatenate([np.flatnonzero(digits.train_labels == c)[:40] for c in range(10)])
    few = {"train_images": digits.train_images[rows], "train_labels": digits.train_labels[rows]}
    monkeypatch.setattr(package, "load_data", lambda _: replace(digits, **few), raising=False)
    run_python(ROOT / "README.md")
    before, after, score = capsys.readouterr().out.split("]\n")
    assert "9" not in before
    assert "-1" in before
    assert after.count("9") > 0.8 * len(re.findall(r"\d", after))
    assert float(score) > 0.8
    assert sorted(package.load(tmp_path / "my.ocil").classes_) == list(range(10))


def test_a_method_as_the_page_on_the_architecture_shows_it() -> None:
    checks.a_batch_of_one(run_python(DOCS / "architecture.md")["MyMethod"])


PAGES = ("README.md", "CONTRIBUTING.md", "docs/**/*.md", "results/**/*.md")


@pytest.mark.parametrize(
    "page", sorted(p for pattern in PAGES for p in ROOT.glob(pattern)), ids=lambda p: p.name
)
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s#]+)", BLOCK.sub("", page.read_text(encoding="utf-8")))
    inside = [link for link in links if not re.match(r"\w+:", link)]
    assert [link for link in inside if not (page.parent / link).exists()] == []


@pytest.mark.parametrize("name", ["overview.svg", "mark.svg"])
def test_a_drawing_is_whole_and_needs_nothing_else(name: str) -> None:
    drawing = (DOCS / name).read_text(encoding="utf-8")
    root = ElementTree.fromstring(drawing)
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert not re.search(r"<script|<image|@import|@font-face", drawing)
    used = set(re.findall(r'href="([^"]*)"', drawing)) | set(re.findall(r"url\(([^)]*)\)", drawing))
    ids = {f"#{element.get('id')}" for element in root.iter() if element.get("id")}
    assert used <= ids


def test_cards_say_what_the_modules_say(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(DOCS)
    import cards

    due = [
        name
        for name in sorted(set(registry.built_in()) - cards.WITHOUT)
        if (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8") != cards.card(name)
    ]
    assert due == [], "run `python docs/cards.py`"


@pytest.mark.parametrize("name", sorted(set(registry.built_in()) - {"finetune", "joint"}))
def test_a_card_says_what_differs_what_it_costs_and_whom_to_cite(name: str) -> None:
    card = (DOCS / "methods" / f"{name}.md").read_text(encoding="utf-8")
    assert re.search(r"Differs from|Ours by default", card)
    assert re.search(r"^\| mlp \| \d+ \| [\d.]+ \| |Cost: no gradient", card, re.MULTILINE)
    cited = card.partition("## Citation\n\n")[2]
    assert re.fullmatch(r"\w.+ (\d{4}|\d{4}\.\d{5})\.\n", cited)


def test_every_method_has_a_card() -> None:
    cards = {card.stem for card in (DOCS / "methods").glob("*.md")}
    assert cards - {"index"} == set(registry.names()) - {"finetune", "joint"}


# ------------------------------------------------------------------ from the paper to the code


def cells_of(page: Path) -> list[str]:
    """All code of the tables of a page."""
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return re.findall(r"`([^`]+)`", "\n".join(rows))


def commands_in(start: str) -> list[str]:
    return sorted({cell for cell in cells_of(DOCS / "paper.md") if cell.startswith(start)})


@pytest.mark.parametrize("name", commands_in("ocil."))
def test_what_the_page_on_the_paper_names_is_there(name: str) -> None:
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:cut]))
        except ModuleNotFoundError:
            continue
        for part in parts[cut:]:
            found = getattr(found, part)
        return
    raise AssertionError(name)


@pytest.mark.parametrize("command", commands_in("pytest "))
def test_the_tests_that_the_page_on_the_paper_names_are_there(command: str) -> None:
    file, *more = command.split()[1:]
    names = re.findall(r"^def (test_\w+)", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)
    assert [name for name in names if not more or more[1] in name]


@pytest.mark.parametrize("command", [*commands_in("ocil run"), *commands_in("--")])
def test_runs_of_the_page_on_the_paper(
    command: str, ocil: Callable[..., Any], tmp_path: Path
) -> None:
    usual = ["run", "otc", "--preset", "paper", "--data", "digits", "--memory", "100"]
    words = usual + shlex.split(command) if command.startswith("--") else shlex.split(command)[1:]
    few = ["--limit-per-class", "10", "--eval-every", "0"]
    assert ocil(*words, *few, "--out", tmp_path / "run").code == 0


@pytest.mark.slow
@pytest.mark.usefixtures("quick_studies")
@pytest.mark.parametrize("command", commands_in("ocil study"))
def test_studies_of_the_page_on_the_paper(
    command: str, ocil: Callable[..., Any], tmp_path: Path
) -> None:
    """On a few digits in place of their own data."""
    few = ["data=digits", "limit_per_class=8", "memory=40", "seed=100", "eval_every=0", "epochs=1"]
    words = [word for change in few for word in ("--set", change)]
    assert ocil(*shlex.split(command)[1:], *words, "--out", tmp_path).code == 0
    assert list(tmp_path.glob("*/*/record.json"))


# ------------------------------------------------------------------ words about results

CODE = re.compile(r"`[^`]*`")
# Decimals, percentages, counts of points and tables: numbers belong to what is made from records.
NUMBER = re.compile(
    r"\d\.\d|\d ?%|^\||\b(?:\d+|two|three|four|five|six|seven|eight|nine|ten) points?\b"
    r"|\b\d+ of 100\b|\b(?:loses|has|ends at|falls to|against) \d",
    re.MULTILINE,
)
WORDS = sorted((ROOT / "results").glob("*/README.md"))


def hand_written() -> dict[str, str]:
    """Where -> what people wrote about results."""
    found = {page.parent.name: page.read_text(encoding="utf-8") for page in WORDS}
    notes = tomllib.loads((ROOT / "results" / "notes.toml").read_text(encoding="utf-8"))
    return found | {"notes.toml": "\n".join(note["sentence"] for note in notes["note"])}


def unknown_names(words: str) -> list[str]:
    """Settings (`name=value`, `--name`), studies and figures in code that do not exist today."""
    settings = {name for method in registry.names() for name in registry.info(method).fields}
    found = []
    for code in CODE.findall(words):
        for name in re.findall(r"(?<!\S)(?:--)?([a-z][\w.-]*)=|--([\w.-]+)", code.strip("`")):
            known = (name[0] or name[1]).replace("-", "_")
            found += [] if known in settings else [code]
        asked = re.match(r"`ocil (study|figure) (\S+?)[ `]", code)
        known = (*shipped(), OWN_STREAMS) if asked and asked[1] == "study" else get_args(Kind)
        if asked and asked[2] not in known:
            found.append(code)
    return found


@pytest.mark.parametrize(("place", "words"), hand_written().items(), ids=hand_written())
def test_words_about_results_have_no_numbers_and_todays_names(place: str, words: str) -> None:
    assert NUMBER.findall(CODE.sub("", words)) == [], "numbers belong to generated tables"
    assert unknown_names(words) == []
    if place != "notes.toml":
        assert "(RESULTS.md)" in words, "a reader looks for the numbers"


@pytest.mark.parametrize(
    "words",
    ["OTC has 66.9 on average.", "two points above ER", "falls from 96 % to 63 %", "| er | 36 |",
     "60 of 100 right", "ER has 97"],
)  # fmt: skip
def test_a_number_among_words_about_results_is_found(words: str) -> None:
    assert NUMBER.search(CODE.sub("", words))


def test_settings_are_no_results() -> None:
    words = "500 images a class, memory 200, batches of 10 + 64, `lr=5e-4`, `ema=0.995`, seeds 100"
    assert not NUMBER.search(CODE.sub("", words))
    assert unknown_names(words) == []


@pytest.mark.parametrize(
    "code", ["`admission=flood, pairing=one`", "`--watched 16`", "`ocil study no-such`"]
)
def test_a_name_of_yesterday_is_found(code: str) -> None:
    assert unknown_names(code)
