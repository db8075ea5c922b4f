"""Layers in their order, exact types, and a job id that follows what decides the result."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import torch

from ocil.data import SOURCES
from ocil.errors import OcilError
from ocil.files import read_toml
from ocil.learners import catalog, registry
from ocil.settings import (
    NOT_IN_JOB,
    Method,
    Settings,
    fields_of,
    from_mapping,
    job_id,
    resolve,
    setting,
    to_mapping,
    upgrade,
    with_role,
)

PROTOCOL = {"batch": 1, "replay": 1, "updates": 1, "epochs": 1, "width": 1, "probe": 1}
PRESETS: dict[str, dict[str, Any]] = {
    "default": {},
    "big": {"replay": 2, "updates": 2, "epochs": 2, "width": 2, "probe": 2},
    "big/mnist": {"updates": 3, "epochs": 3, "width": 3, "probe": 3},
    "big/mnist/700": {"epochs": 4, "width": 4, "probe": 4},
}


def method(kind: type[Settings] = Settings, presets: Any = None, name: str = "er") -> Method:
    return Method(name, "", "", None, False, "", "", fields_of(kind), presets or {})


TOML = {"preset": "big", "data": "mnist", "memory": 700, "width": 5, "probe": 5}
FLAGS = {"probe": 6}


def test_each_layer_wins_over_the_one_before() -> None:
    values, preset = resolve(method(presets=PRESETS), PROTOCOL, TOML, FLAGS)
    assert values["classes_per_task"] == Settings.classes_per_task  # a default
    names = ("batch", "replay", "updates", "epochs", "width", "probe")
    assert [values[name] for name in names] == [1, 2, 3, 4, 5, 6]
    assert preset == "big/mnist/700"


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({"preset": "big"}, "big"),
        ({"preset": "big", "data": "mnist"}, "big/mnist"),
        ({"preset": "big", "data": "mnist", "memory": 700}, "big/mnist/700"),
        ({"preset": "big", "data": "digits", "memory": 700}, "big"),
        ({}, "default"),
    ],
)
def test_the_most_special_preset_that_exists_is_named(given: dict[str, Any], used: str) -> None:
    values, preset = resolve(method(presets=PRESETS), {}, given)
    assert preset == used
    assert values["probe"] == PRESETS[used].get("probe", Settings.probe)


def test_memory_set_by_a_preset_or_the_protocol_chooses_the_special_preset() -> None:
    presets = {"default/mnist/700": {"lr": 0.5}}
    given = {"data": "mnist"}
    assert resolve(method(presets=presets), {"memory": 700}, given)[0]["lr"] == 0.5
    other = resolve(method(presets=presets), {"memory": 700}, given, {"memory": 8})[0]
    assert other["lr"] == Settings.lr
    by_preset = method(presets=presets | {"default/mnist": {"memory": 700}})
    assert resolve(by_preset, {"memory": 8}, given)[0]["lr"] == 0.5


def test_a_methods_own_default_wins_over_the_protocol_and_yields_to_presets() -> None:
    @dataclass(frozen=True)
    class Own(Settings):
        replay: int = 7

    values, _ = resolve(method(Own), {"replay": 1, "batch": 3})
    assert (values["replay"], values["batch"]) == (7, 3)
    assert resolve(method(Own, {"default": {"replay": 8}}), {})[0]["replay"] == 8


@pytest.mark.parametrize(
    ("key", "hint"), [("memroy", "memory"), ("learning_rate", ""), ("batch_", "batch")]
)
def test_an_unknown_key_suggests_the_nearest(key: str, hint: str) -> None:
    with pytest.raises(OcilError, match=f"Unknown setting '{key}' in my.toml") as caught:
        from_mapping(Settings, {key: 1}, "my.toml")
    assert (f"Did you mean '{hint}'" in str(caught.value)) == bool(hint)


@pytest.mark.parametrize(
    ("key", "value", "wanted"),
    [
        ("memory", "500", "int or none"),
        ("memory", 500.0, "int or none"),
        ("memory", True, "int or none"),
        ("seed", None, "int"),
        ("lr", "0.1", "float"),
        ("lr", False, "float"),
        ("validate", 1, "bool"),
        ("data", 5, "str"),
        ("data", ["mnist"], "str"),
        ("preset", {"a": 1}, "str"),
        ("order", "random", "'split' or 'joint'"),
        ("order", [], "'split' or 'joint'"),
        ("threads", "all", "int or 'auto'"),
        ("threads", True, "int or 'auto'"),
    ],
)
def test_a_wrong_type_is_said(key: str, value: Any, wanted: str) -> None:
    for attempt in (
        lambda: from_mapping(Settings, {key: value}, "the settings"),
        lambda: resolve(method(), {}, {key: value}),
    ):
        with pytest.raises(OcilError) as caught:
            attempt()
        said = str(caught.value)
        assert said == f"Setting {key} in the settings is {value!r} but must be {wanted}."


def test_right_types_are_kept_and_an_int_becomes_a_float() -> None:
    values = {"lr": 1, "memory": None, "threads": "auto", "order": "joint", "validate": True}
    settings = from_mapping(Settings, values)
    assert settings.lr == 1.0
    assert isinstance(settings.lr, float)
    assert (settings.memory, settings.threads, settings.order) == (None, "auto", "joint")


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("memory", 0),
        ("memory", -1),
        ("seed", -1),
        ("batch", 0),
        ("updates", 0),
        ("epochs", 0),
        ("limit_per_class", 0),
        ("classes_per_task", 0),
        ("replay", -1),
        ("probe", 0),
        ("threads", 0),
        ("checkpoint_every", -1),
        ("eval_every", -1),
        ("width", -1),
        ("ema", 1.0),
        ("ema", -0.1),
        ("ema", float("nan")),
        ("lr", 0.0),
        ("lr", float("nan")),
        ("lr", float("inf")),
        ("weight_decay", -1.0),
        ("weight_decay", float("nan")),
        ("weight_decay", float("inf")),
    ],
)
def test_a_value_out_of_range_is_said(key: str, value: Any) -> None:
    with pytest.raises(OcilError, match=rf"^Setting {key} is {value} but must be .*\.$"):
        from_mapping(Settings, {key: value})


def test_an_unknown_preset_suggests_and_lists_the_known() -> None:
    with pytest.raises(OcilError, match=r"'bgi'\. Did you mean 'big'\? Known: big, default\."):
        resolve(method(presets=PRESETS), {}, {"preset": "bgi"})


# ------------------------------------------------------------------ job id


def other_value(name: str) -> Any:
    """A value that differs from the default and is allowed."""
    value = getattr(Settings(), name)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        choices = fields_of(Settings)[name].choices
        return choices[-1] if choices else value + "x"
    return 3 if value is None else (value or 1) / 2 if isinstance(value, float) else value + 1


def job(**changes: Any) -> str:
    return job_id(method(), to_mapping(dataclasses.replace(Settings(), **changes)))


@pytest.mark.parametrize("name", fields_of(Settings))
def test_the_job_follows_what_decides_the_result_and_nothing_else(name: str) -> None:
    needs = {key: among[0] for key, among in fields_of(Settings)[name].only.items()}
    same = job(**{name: other_value(name)} | needs) == job(**needs)
    assert same == (name in NOT_IN_JOB or name == "preset")


def test_what_does_not_decide_the_result() -> None:
    assert {"checkpoint_every", "threads", "device", "latents"} == NOT_IN_JOB
    assert with_role("measure") == {"readout", "eval_every", "probe"}
    assert job_id(method(), {}) != job_id(method(name="joint"), {})


@pytest.mark.parametrize("name", sorted(NOT_IN_JOB - {"device"}))  # there may be no other device
def test_what_is_not_in_the_job_does_not_decide_the_result(name: str) -> None:
    from ocil.session import Session

    sums = set()
    for changes in ({}, {name: other_value(name)}):
        session = Session("er", registry.get("er").settings_type(width=4, **changes), (1, 4, 4))
        for step in range(3):
            x = torch.full((2, 1, 4, 4), step, dtype=torch.uint8)
            session.learn(x, [step, 0])
        sums.add(session.state().sha256())
    assert len(sums) == 1


@dataclass(frozen=True)
class Newer(Settings):
    shiny: int = 3


def test_a_new_setting_changes_no_id_and_older_settings_are_filled_up() -> None:
    old, whole = to_mapping(Settings(seed=4)), to_mapping(Newer(seed=4))
    wanted = job_id(method(), old)
    assert job_id(method(Newer), whole) == wanted == job_id(method(Newer), old)
    assert job_id(method(Newer), whole | {"shiny": 4}) != wanted
    assert job_id(method(Newer), dict(reversed(whole.items()))) == wanted
    assert upgrade(method(Newer), old) == whole


def test_a_new_default_changes_no_id() -> None:
    fields = fields_of(Settings) | {"lr": fields_of(Settings)["lr"]._replace(default=0.5)}
    later = method()._replace(fields=fields)
    assert job_id(later, {"lr": 5e-4}) == job_id(method(), {"lr": 5e-4}) == job_id(later, {})
    assert job_id(later, {"lr": 0.5}) == job_id(method(), {"lr": 0.5})


def test_the_catalog_is_what_the_classes_say() -> None:
    kept = json.loads(Path(catalog.__file__).with_name("catalog.json").read_text())
    found = json.loads(json.dumps(catalog.content()))
    assert found == kept, "run `python -m ocil.learners.catalog`"


@pytest.mark.parametrize("name", registry.names())
def test_the_catalog_tells_every_setting(name: str) -> None:
    known = registry.info(name)
    assert list(known.fields) and all(field.help for field in known.fields.values())
    plain = to_mapping(registry.get(name).settings_type())
    assert {key: field.default for key, field in known.fields.items()} == plain


IDS = """
import json, sys
from pathlib import Path
from ocil.learners import registry
from ocil.run.reading import find_records
from ocil.settings import job_id
records = find_records(Path(sys.argv[1]))
ids = {str(path): job_id(registry.info(r["method"]), r["settings"]) for path, r in records}
print(json.dumps([ids, "shiny" in registry.info("er").fields]))
"""


def test_a_setting_for_all_methods_is_one_line_and_changes_no_id(tmp_path: Path) -> None:
    """In a copy of the package: the field in settings.py, then the generated catalog."""
    root = Path(catalog.__file__).parents[3]
    copy = shutil.copytree(root / "src", tmp_path / "src")
    file = copy / "ocil" / "settings.py"
    place = "    seed: int = setting(0, costs=False)\n"
    text = file.read_text()
    assert text.count(place) == 1
    file.write_text(text.replace(place, f'    shiny: float = 0.5\n    """New."""\n{place}'))
    results = str(root / "results" / "table-mnist")

    def run(source: Path, *words: str) -> str:
        call = [sys.executable, *words]
        paths = os.environ | {"PYTHONPATH": str(source)}
        return subprocess.run(call, env=paths, capture_output=True, text=True, check=True).stdout

    before, known = json.loads(run(root / "src", "-c", IDS, results))
    assert len(before) > 100 and not known
    run(copy, "-m", "ocil.learners.catalog")
    assert json.loads(run(copy, "-c", IDS, results)) == [before, True]


@pytest.mark.parametrize("data", ["digits", "mnist", "cifar10"])
def test_a_method_without_presets_has_what_er_has(data: str) -> None:
    """What belongs to a data set is its protocol: no method has to know it."""
    source = SOURCES[data]
    mine, _ = resolve(method(), source.protocol, {"data": data})
    er, _ = registry.resolve("er", {"data": data})
    assert mine == {key: er[key] for key in mine}


# ------------------------------------------------------------------ groups


@dataclass(frozen=True)
class Engine:
    power: float = setting(1.0, above=0, was=("strength",))
    """Its power."""
    fuel: Literal["gas", "oil"] = setting("gas", only={"kind": ("burning",)})
    """What it burns."""


@dataclass(frozen=True)
class Car(Settings):
    kind: Literal["electric", "burning", "none"] = "electric"
    engine: Engine = setting(Engine(power=2.0), only={"kind": ("electric", "burning")})


def test_options_of_a_group_are_dotted_in_plain_data_and_fields_of_an_object() -> None:
    for given in ({"engine.power": 3}, {"engine": {"power": 3}}):
        car = from_mapping(Car, given)
        assert car.engine == Engine(power=3.0)
        assert to_mapping(car)["engine.power"] == 3.0
    assert from_mapping(Car, to_mapping(Car(engine=Engine(0.5)))) == Car(engine=Engine(0.5))
    assert Car().engine.power == fields_of(Car)["engine.power"].default == 2.0
    with pytest.raises(OcilError, match=r"'engine\.pwer'.* Did you mean 'engine\.power'"):
        from_mapping(Car, {"engine": {"pwer": 1}})
    with pytest.raises(OcilError, match=r"Setting engine\.power is 0\.0 but must be above 0"):
        from_mapping(Car, {"engine.power": 0})


def test_what_has_no_effect_is_refused_if_it_was_asked_for() -> None:
    said = r"Setting engine\.fuel has no effect with kind = electric; it needs kind = burning\."
    known = method(Car, {"default": {"kind": "burning", "engine.fuel": "oil"}})
    for attempt in (
        lambda: from_mapping(Car, {"engine.fuel": "oil"}),
        lambda: Car(engine=Engine(fuel="oil")),
        lambda: resolve(known, {}, {"kind": "electric", "engine.fuel": "oil"}),
    ):
        with pytest.raises(OcilError, match=said):
            attempt()
    # a preset's is left out, and no id depends on it
    values, _ = resolve(known, {}, {"kind": "electric"})
    assert values["engine.fuel"] == "gas"
    assert job_id(known, values) == job_id(known, values | {"engine.fuel": "oil"})
    burning, _ = resolve(known, {})
    assert job_id(known, burning) != job_id(known, burning | {"engine.fuel": "gas"})


def test_a_former_name_is_understood_in_files_and_named_elsewhere() -> None:
    assert upgrade(method(Car), {"strength": 5.0})["engine.power"] == 5.0
    with pytest.raises(OcilError, match=r"Unknown setting 'strength' .* It is now engine\.power"):
        from_mapping(Car, {"strength": 5.0})


OLD_OTC: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"fit": "task", "objective": "dual", "em_passes": 9},
     {"objective": "task-em", "em.passes": 9}),
    ({"fit": "refit", "refit_every": 5}, {"objective": "refit-em", "em.every": 5}),
    ({"objective": "em", "average": "stepwise"}, {"objective": "stepwise-em"}),
    ({"watched": 0, "window": 0, "seed_points": 0, "reseed_every": 0},
     {"mixture_replay": "all", "window.points": None, "start.points": "auto", "start.again": None}),
    ({"watched": 16, "window": 8, "queue": 32}, {"mixture_replay": 16, "window.points": 8,
                                                "window.queue": 32}),
    ({"objective": "dual", "eps": 0.3, "floor": 0.1, "samples": 0, "potential_steps": 2},
     {"dual.eps": 0.3, "dual.floor": 0.1, "dual.samples": None, "dual.ascents": 2}),
    ({"eps": 1.0, "relax": 0.5, "drift": 1.5, "floor": 1e-3}, {"dual.eps": 1.0}),
    ({"preserve_form": "printed", "preserve_features": "sum"}, {"preserve_form": "printed-sum"}),
    ({"preserve_form": "printed", "preserve_features": "one"}, {"preserve_form": "printed-first"}),
    ({"preset": "paper"}, {"preset": "paper-0.1"}),
    ({"preserve_features": "sum"}, {"preserve_form": "balanced"}),
    ({"admission": "flood", "reoffer": False},
     {"admission": "closest", "offer_every_epoch": False}),
]  # fmt: skip


@pytest.mark.parametrize(("old", "now"), OLD_OTC)
def test_otcs_settings_of_before_its_groups_are_understood(
    old: dict[str, Any], now: dict[str, Any]
) -> None:
    found = registry.upgraded("otc", old)
    assert set(found) == set(registry.info("otc").fields)
    assert found == registry.upgraded("otc", {}) | {"objective": "sinkhorn"} | now | {
        key: found[key] for key in ("objective",) if key in old and key not in now
    }


@pytest.mark.parametrize("old", [{"relax": 1.0}, {"eps": 0.7}, {"floor": 0.1}, {"ridge": 0.5}])
def test_what_otc_can_do_no_more_is_refused(old: dict[str, Any]) -> None:
    with pytest.raises(OcilError, match="Unknown setting"):
        registry.make_settings("otc", registry.upgraded("otc", old))


# ------------------------------------------------------------------ TOML


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"lr = ", "is not valid TOML"),
        (b"\xff\xfe", "is not valid TOML"),
        (None, "Cannot read"),
    ],
)
def test_a_bad_toml_file_is_one_sentence(tmp_path: Path, content: bytes | None, said: str) -> None:
    path = tmp_path / "a.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(OcilError, match=said) as caught:
        read_toml(path)
    assert "\n" not in str(caught.value)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("method", registry.names())
def test_no_method_takes_negative_or_endless_numbers(method: str) -> None:
    kind = registry.get(method).settings_type
    for name, value in to_mapping(kind()).items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        wrong = (-1, math.nan, math.inf) if isinstance(value, float) else (-1,)
        for number in wrong:
            with pytest.raises(OcilError, match=f"Setting {name} is"):
                from_mapping(kind, {name: number})
