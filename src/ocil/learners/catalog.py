"""What is known of the built-in methods without importing them, or torch.

`python -m ocil.learners.catalog` writes catalog.json from the classes; a test says when that is
due. Help, listings, the layers of settings and job ids are made from it. A setting's first default
stays in it as `frozen` for good, so that ids of finished runs never change.
"""

from __future__ import annotations

import ast
import dataclasses
import functools
import inspect
import itertools
import json
import textwrap
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from ocil.settings import Field, Method, Settings, fields_of

if TYPE_CHECKING:
    from ocil.learners.learner import Learner


@functools.cache
def read() -> tuple[dict[str, Field], dict[str, Method]]:
    """The shared settings, and the methods by id."""
    place = files("ocil.learners").joinpath("catalog.json")
    found = json.loads(place.read_text(encoding="utf-8")) if place.is_file() else {}
    shared = {name: _field(entry) for name, entry in found.get("shared", {}).items()}
    methods = {}
    for name, entry in found.get("methods", {}).items():
        own = {key: _field(value) for key, value in entry["fields"].items()}
        methods[name] = Method(name, **(entry | {"fields": shared | own}))
    return shared, methods


def _field(entry: dict[str, Any]) -> Field:
    frozen = entry.get("frozen", entry["default"])
    lists = {key: tuple(entry.get(key, ())) for key in ("types", "choices", "was", "search")}
    return Field(**{**entry, **lists, "frozen": frozen})


def describe(learner: type[Learner], known: Mapping[str, Field] | None = None) -> Method:
    """A learner's class as plain data; `known` fields keep their frozen defaults."""
    fields = documented(learner.settings_type, known or {})
    facts = (learner.title, learner.paper, learner.year, learner.needs_tasks)
    presets = learner.presets or {"default": {}}
    return Method(
        learner.method, *facts, learner.memory_policy, learner.own_readout, fields, presets
    )


def documented(kind: type, known: Mapping[str, Field] = MappingProxyType({})) -> dict[str, Field]:
    """The fields of a class of settings with their help."""
    told = _docs(kind)
    return {
        name: field._replace(
            frozen=known[name].frozen if name in known else field.default, help=told.get(name, "")
        )
        for name, field in fields_of(kind).items()
    }


def _docs(kind: type) -> dict[str, str]:
    """The text under each field, in one line."""
    found: dict[str, str] = {}
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(field.default):
            group = _docs(type(field.default)).items()
            found |= {f"{field.name}.{key}": text for key, text in group}
    for base in reversed(kind.__mro__[:-1]):
        try:
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        except (OSError, TypeError, SyntaxError, ValueError):  # made without a file
            continue
        body = getattr(tree, "body", [])
        for field, text in itertools.pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                name, value = ast.unparse(field.target), getattr(text.value, "value", None)
                if isinstance(value, str):
                    found[name] = " ".join(value.split())
    return found


def content() -> dict[str, Any]:
    """What catalog.json should hold: shared settings once, then what is each method's own."""
    from ocil.learners import registry

    known, methods = read()
    shared, entries = documented(Settings, known), {}
    for name in registry.built_in():
        found = describe(registry.get(name), methods[name].fields if name in methods else known)
        own = {key: _plain(f) for key, f in found.fields.items() if f != shared.get(key)}
        entries[name] = {k: v for k, v in found._asdict().items() if k != "method"}
        entries[name]["fields"] = own
    return {"shared": {key: _plain(field) for key, field in shared.items()}, "methods": entries}


def _plain(field: Field) -> dict[str, Any]:
    """A field without what goes without saying."""
    usual = Field((), (), None, field.default)
    entry = field._asdict() | {"limits": {}}  # the class itself checks them
    return {k: v for k, v in entry.items() if k == "default" or v != getattr(usual, k)}


def _written(value: Any, space: str = "") -> str:
    """JSON with a line for each setting and each preset: an object of plain values is one line."""
    if not isinstance(value, dict) or not any(isinstance(v, dict) for v in value.values()):
        return json.dumps(value)
    each = (f"{space} {json.dumps(k)}: {_written(v, space + ' ')}" for k, v in value.items())
    return "{\n" + ",\n".join(each) + f"\n{space}}}"


if __name__ == "__main__":
    Path(__file__).with_name("catalog.json").write_text(
        _written(content()) + "\n", encoding="utf-8"
    )
