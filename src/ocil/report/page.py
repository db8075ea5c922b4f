"""The page: one HTML file that shows groups of runs and asks no network for anything.

It is complete without scripts; plotly, which it carries, adds tooltips and zooming.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from ocil.errors import OcilError
from ocil.files import make_folder, write_atomic
from ocil.report.beside import write_figures, write_tables
from ocil.report.groups import Record, group
from ocil.report.web.bundle import bundle, part
from ocil.report.web.cards import PLACE, Place
from ocil.report.web.data import embedded
from ocil.report.web.gallery import Gallery, markup
from ocil.report.web.sections import section
from ocil.report.web.svg import marks

PAGE = "index.html"
MOST_OPEN = 4  # groups; with more, a page starts with their cards closed


def write_page(
    records: Sequence[tuple[Path, Record]], out_dir: Path | str, figures: bool = False
) -> Path:
    """Write OUT_DIR/index.html and OUT_DIR/tables for (path, record) pairs of `find_records`.

    With `figures` also OUT_DIR/figures: every picture as PDF and PNG.
    """
    if not records:
        raise OcilError("There is no record to report; run `ocil run` first or name its folder.")
    out_dir = Path(out_dir)
    gallery = Gallery(files=figures)
    page = render_page(records, out_dir, gallery)
    make_folder(out_dir)
    write_tables([record for _, record in records], out_dir / "tables")
    if figures:
        write_figures(gallery.named, out_dir / "figures")
    write_atomic(out_dir / PAGE, page.encode())  # last, so that what it links to is there
    return out_dir / PAGE


def render_page(
    records: Sequence[tuple[Path, Record]], out_dir: Path, gallery: Gallery | None = None
) -> str:
    """The text of the page; the links to the records are relative to out_dir."""
    try:
        import jinja2
    except ImportError:
        raise OcilError(
            "The page needs jinja2; install it with `pip install ocil[report]`."
        ) from None
    from ocil.report.beside import ENDINGS, by_place, table_names

    gallery = gallery or Gallery()
    groups = group({**r, PLACE: Place(path, _link(path, out_dir))} for path, r in records)
    sections = []
    for number, members in enumerate(by_place(groups)):
        files = [
            (title, [(ENDINGS[e], f"tables/{name}.{e}") for e in ENDINGS])
            for title, name in table_names(number, members)
        ]
        sections.append(section(number, members, gallery, files))
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(part),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    own = bundle()
    return environment.get_template("page.html.j2").render(
        sections=sections,
        runs=sum(len(g.records) for g in groups),
        groups=len(groups),
        few=len(groups) <= MOST_OPEN,
        policy=own.policy,
        style=markup(own.style),
        script=markup(own.script),
        plotly=own.plotly,
        marks=markup(marks()),
        charts=markup(embedded(gallery.data)),
    )


def _link(path: Path, out_dir: Path) -> str:
    try:
        return quote(os.fsencode(Path(os.path.relpath(path, out_dir)).as_posix()))
    except ValueError:  # another drive on Windows
        return path.resolve().as_uri()
