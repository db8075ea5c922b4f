"""The page's scripts: our own and plotly.js, and the policy that lets nothing else run.

plotly.js is packed (gzip, base64) to less than half its size and unpacked by our script when the
first picture comes into view. The policy names both scripts by their SHA-256, so a script that
slipped in through a record would not run even if it were not escaped.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from ocil.errors import OcilError

_SCRIPTS = ("tables.js", "plots.js", "page.js")
_POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; "
    "img-src data: blob:; base-uri 'none'; form-action 'none'"
)


@dataclass(frozen=True)
class Bundle:
    """What the template inlines."""

    style: str
    script: str
    plotly: str  # packed
    policy: str


@cache
def bundle() -> Bundle:
    """Read and pack once; the same input gives the same text."""
    script, plotly = "\n".join(part(name) for name in _SCRIPTS), _plotly()
    packed = gzip.compress(plotly.encode(), compresslevel=9, mtime=0)
    return Bundle(
        style=part("page.css"),
        script=script,
        plotly=base64.b64encode(packed).decode(),
        policy=_POLICY.format(scripts=" ".join(_sum(code) for code in (script, plotly))),
    )


def part(name: str) -> str:
    """A file of this folder."""
    return (files("ocil.report.web") / name).read_text(encoding="utf-8")


def _plotly() -> str:
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise OcilError(
            "The page needs plotly; install it with `pip install ocil[report]`."
        ) from None
    # a browser reads any line end of an inline script as \n before it takes the sum
    return get_plotlyjs().replace("\r\n", "\n").replace("\r", "\n")


def _sum(code: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}'"
