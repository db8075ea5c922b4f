"""Records made before a setting existed, beside records that have it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ocil.errors import OcilError
from ocil.learners import registry
from ocil.settings import to_mapping

Record = Mapping[str, Any]


def completed(records: Iterable[Record]) -> list[Record]:
    """The records, where those of one method have the same settings.

    A setting that a record lacks is at what is now its default, as in job ids. The method is
    loaded only if its records differ in what they have, since that takes a second.
    """
    given = list(records)
    names: dict[str, list[frozenset[str]]] = {}
    for record in given:
        names.setdefault(record["method"], []).append(frozenset(record["settings"]))
    added: dict[str, dict[str, Any]] = {}
    for method, found in names.items():
        late = frozenset.union(*found) - frozenset.intersection(*found)
        added[method] = {k: v for k, v in _defaults(method).items() if k in late} if late else {}
    return [
        {**record, "settings": {**more, **record["settings"]}} if more else record
        for record in given
        for more in [added[record["method"]]]
    ]


def _defaults(method: str) -> dict[str, Any]:
    """Of a method that is installed; nothing is known of others."""
    try:
        return to_mapping(registry.get(method).settings_type())
    except (OcilError, ImportError):
        return {}
