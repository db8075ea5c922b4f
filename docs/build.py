"""What `make docs` does beside mkdocs: pages from outside docs/, a page a method, doctests as code.

Pages link to files as they lie in the repository. Those outside docs/ are taken into the site, so
that every link works in both places; a link to a file that does not exist fails the build.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
CARDS = "<!-- cards -->"
LINK = re.compile(r"(\]\()([^)\s#:]+)(#[^)\s]*)?(\))")


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """A folder's name in the navigation stands for its pages."""
    for entry in config.nav or []:
        for title, place in entry.items():
            if (folder := ROOT / "docs" / place).is_dir():
                pages = sorted(folder.glob("*.md"), key=lambda p: (p.stem != "index", p.stem))
                entry[title] = [f"{place}/{page.name}" for page in pages]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the results, and whatever pages link to outside docs/."""
    waiting = ["results/RESULTS.md"]
    for page in list(files.documentation_pages()):
        waiting += _outside(f"docs/{page.src_uri}")
    while waiting:
        path = waiting.pop()
        if files.get_file_from_path(path) is None:
            files.append(File.generated(config, path, abs_src_path=str(ROOT / path)))
            waiting += _outside(path) if path.endswith(".md") else []
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links as they are in the repository become links of the site."""
    here = page.file.src_uri
    source = here if page.file.generated_by else f"docs/{here}"

    def moved(link: re.Match[str]) -> str:
        target = _target(source, link[2]).removeprefix("docs/")
        if not files.get_file_from_path(target):
            return link[0]  # mkdocs complains
        inside = posixpath.relpath(target, posixpath.dirname(here) or ".")
        return f"{link[1]}{inside}{link[3] or ''}{link[4]}"

    return LINK.sub(moved, markdown.replace(CARDS, _cards()))


def _target(source: str, link: str) -> str:
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), link))


def _outside(source: str) -> list[str]:
    """Files of the repository, not in docs/, that a page links to."""
    links = LINK.findall((ROOT / source).read_text(encoding="utf-8"))
    targets = {_target(source, link) for _, link, _, _ in links}
    return sorted(
        t for t in targets if not t.startswith(("docs/", "..", "/")) and (ROOT / t).is_file()
    )


def _cards() -> str:
    """A list of the cards by their titles."""
    cards = sorted(p for p in (ROOT / "docs" / "methods").glob("*.md") if p.stem != "index")
    titles = [card.read_text(encoding="utf-8").split("\n", 1)[0].lstrip("# ") for card in cards]
    return "".join(
        f"- [{title}]({card.name}): `ocil run {card.stem}`\n"
        for card, title in zip(cards, titles, strict=True)
    )


class Doctests(griffe.Extension):
    """Examples in docstrings are code, not quotations."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        if obj.docstring and ">>>" in obj.docstring.value:
            example = re.compile(r"(?:^>>> .*\n(?:(?!\n).+\n?)*)+", re.MULTILINE)
            obj.docstring.value = example.sub(r"```pycon\n\g<0>\n```\n", obj.docstring.value + "\n")
