"""Fields of settings: what a dataclass says of its values, and the same as plain data.

A field that is a frozen dataclass itself is a group: the options of one part, declared in the file
that uses them. In plain data they are called GROUP.OPTION, such as "dual.eps".
"""

from __future__ import annotations

import dataclasses
import functools
import math
import operator
import types
import typing
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeVar

from ocil.errors import OcilError, suggest

# result: decides what is learned. measure: what is looked at on the way. keep: what is written
# beside the record. machine: how the run is carried out. name: stands for other settings.
Role = Literal["result", "measure", "keep", "machine", "name"]
Only = Mapping[str, Sequence[str]]


def setting(
    default: Any,
    *,
    role: Role = "result",
    costs: bool = True,
    only: Only = MappingProxyType({}),
    was: Sequence[str] = (),
    search: Sequence[Any] = (),
    **limits: float,
) -> Any:
    """A field. `costs`: whether it changes the time of a batch. Limits: low, high, above, below.

    Without limits a number must be at least 0; every number must be finite. `only`: other settings
    and the values of theirs with which this one has an effect. `was`: former names. `search`: what
    `ocil tune` tries; two numbers are the ends of a range, other values are choices.
    """
    known = {"role": role, "costs": costs, "only": only, "was": was, "limits": limits}
    known["search"] = tuple(search)
    return dataclasses.field(default=default, metadata=known)


@dataclass(frozen=True)
class Checked:
    """A dataclass of settings whose values are within their limits and have an effect."""

    def __post_init__(self) -> None:
        fields, values = fields_of(type(self)), to_mapping(self)
        for name, value in values.items():
            fields[name].check_range(name, value)
        for name, why in without_effect(fields, values).items():
            if values[name] != fields[name].default:
                raise OcilError(why)


S = TypeVar("S", bound=Checked)
RULES = {
    "above": ("above", operator.gt),
    "low": ("at least", operator.ge),
    "below": ("below", operator.lt),
    "high": ("at most", operator.le),
}


class Field(NamedTuple):
    """What is known of a setting without the code of its method."""

    types: tuple[str, ...]  # of bool, int, float, str, none (and, for flags, Path and tuple)
    choices: tuple[Any, ...]  # what else it may be
    default: Any
    frozen: Any  # its first default: that of records made before it existed, and of job ids
    role: Role = "result"
    costs: bool = True
    help: str = ""
    only: Only = MappingProxyType({})  # with which values of others it has an effect
    was: Sequence[str] = ()  # former names
    limits: Mapping[str, float] = MappingProxyType({})
    search: Sequence[Any] = ()  # what `ocil tune` tries

    @property
    def wanted(self) -> str:
        return " or ".join([*self.types, *map(repr, self.choices)])

    def coerced(self, key: str, value: Any, where: str) -> Any:
        """Exactly what the field takes (and an int where a float is asked for), or one sentence."""
        if type(value) is int and abs(value) >= 2**64:
            bits = value.bit_length()
            raise OcilError(f"Setting {key} in {where} has {bits} bits but must be below 2^63.")
        plain = {bool: "bool", int: "int", float: "float", str: "str", type(None): "none"}
        if plain.get(type(value)) in self.types:
            return value
        if type(value) is int and "float" in self.types:
            return float(value)
        if isinstance(value, str) and value in self.choices:
            return value
        raise OcilError(f"Setting {key} in {where} is {_shown(value)} but must be {self.wanted}.")

    def check_range(self, name: str, value: Any) -> None:
        """One sentence for a number that is not finite or beyond a limit, or a word not known."""
        if isinstance(value, str) and "str" not in self.types and value not in self.choices:
            hint, known = suggest(value, self.choices), " or ".join(self.choices)
            raise OcilError(f"Setting {name} is '{value}' but must be {known}.{hint}")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return
        bounds = self.limits if "above" in self.limits else {"low": 0, **self.limits}
        sound = all(RULES[key][1](value, limit) for key, limit in bounds.items())
        if not sound or not math.isfinite(value) or (isinstance(value, int) and value >= 2**63):
            wanted = [f"{RULES[key][0]} {limit}" for key, limit in bounds.items()]
            wanted += ["finite"] if isinstance(value, float) else ["below 2^63"] if sound else []
            raise OcilError(f"Setting {name} is {value} but must be {' and '.join(wanted)}.")


def _shown(value: Any) -> str:
    """A value for a sentence; what is long, or cannot be written, is cut short."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # an integer of thousands of digits within
        text = type(value).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."


Fields = Mapping[str, Field]


@functools.cache
def fields_of(kind: type) -> dict[str, Field]:
    """The fields of a dataclass of settings, in order."""
    hints = typing.get_type_hints(kind)
    found = {}
    for field in dataclasses.fields(kind):
        hint, known = hints[field.name], field.metadata
        if dataclasses.is_dataclass(hint):
            for name, part in fields_of(hint).items():  # pyright: ignore[reportArgumentType]
                value, only = getattr(field.default, name), {**known["only"], **part.only}
                found[f"{field.name}.{name}"] = part._replace(
                    default=value, frozen=value, only=only
                )
            continue
        union = typing.get_origin(hint) in (types.UnionType, typing.Union)
        options = typing.get_args(hint) if union else (hint,)
        literal = [o for o in options if typing.get_origin(o) is Literal]
        found[field.name] = Field(
            tuple(_named(o) for o in options if o not in literal),
            tuple(value for option in literal for value in typing.get_args(option)),
            field.default,
            field.default,
            known.get("role", "result"),
            known.get("costs", True),
            only=known.get("only", {}),
            was=tuple(known.get("was", ())),
            limits=known.get("limits", {}),
            search=known.get("search", ()),
        )
    return found


def _named(option: Any) -> str:
    kind = typing.get_origin(option) or option
    return "none" if kind is type(None) else kind.__name__


def from_mapping(kind: type[S], values: Mapping[str, Any], where: str = "the settings") -> S:
    """Build settings from plain data; an unknown key or a wrong type is an error that says so."""
    flat, given = checked(fields_of(kind), values, where), {}
    for field in dataclasses.fields(kind):
        if field.name in flat:
            given[field.name] = flat[field.name]
        elif own := {k: v for k, v in flat.items() if k.startswith(f"{field.name}.")}:
            own = {key.removeprefix(f"{field.name}."): value for key, value in own.items()}
            given[field.name] = dataclasses.replace(typing.cast(Any, field.default), **own)
    return kind(**given)


def checked(fields: Fields, values: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The values if all keys are known and all types are right; ranges are checked later.

    Options of a group may stand in a table of their own: {"dual": {"eps": 1}} is {"dual.eps": 1}.
    """
    groups = {name.split(".")[0] for name in fields if "." in name}
    flat = dotted(values, groups)
    for key in flat:
        if key not in fields:
            now = [f" It is now {name}." for name, field in fields.items() if key in field.was]
            hint = (now or [suggest(key, fields)])[0]
            raise OcilError(f"Unknown setting '{key}' in {where}.{hint}")
    return {key: fields[key].coerced(key, value, where) for key, value in flat.items()}


def dotted(values: Mapping[str, Any], groups: Container[str]) -> dict[str, Any]:
    """Tables of these groups as single keys.

    >>> dotted({"lr": 0.1, "dual": {"eps": 1}}, ["dual"])
    {'lr': 0.1, 'dual.eps': 1}
    """
    flat: dict[str, Any] = {}
    for key, value in values.items():
        table = value if key in groups and isinstance(value, Mapping) else None
        flat |= {key: value} if table is None else {f"{key}.{k}": v for k, v in table.items()}
    return flat


def to_mapping(settings: Any) -> dict[str, Any]:
    """All values by name; those of a group as "dual.eps"."""
    found: dict[str, Any] = {}
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if dataclasses.is_dataclass(value):
            found |= {f"{field.name}.{key}": part for key, part in to_mapping(value).items()}
        else:
            found[field.name] = value
    return found


def without_effect(fields: Fields, values: Mapping[str, Any]) -> dict[str, str]:
    """The settings that others leave without effect, each with a sentence that says so."""
    found: dict[str, str] = {}
    for name, field in fields.items():
        for key, among in field.only.items():
            if key in values and values[key] not in among:
                found[name] = (
                    f"Setting {name} has no effect with {key} = {values[key]}; it needs {key} = "
                    f"{' or '.join(among)}."
                )
    return found
