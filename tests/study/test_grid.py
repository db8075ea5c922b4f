"""From a TOML file to jobs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ocil.errors import OcilError
from ocil.settings import to_mapping
from ocil.study.grid import Study, job_of_record, read_study, shipped


@pytest.fixture
def study(tmp_path: Path) -> Callable[[str], Study]:
    def read(text: str) -> Study:
        path = tmp_path / "my.toml"
        path.write_text(text)
        return read_study(path)

    return read


GRID = """
name = "a-study"
[base]
data = "digits"
batch = [5, 10]
[[grid]]
method = ["er", "joint"]
memory = [10, 20]
seed = [0, 1, 2]
[[grid]]
method = "finetune"
batch = 7
"""


def test_every_combination_is_a_job(study: Callable[[str], Study]) -> None:
    found = study(GRID)
    assert found.name == "a-study"
    assert len(found.plans) == 2 * 2 * 2 * 3 + 1
    first, second = found.plans[:2]
    assert (first.method, first.settings.memory, first.settings.seed) == ("er", 10, 0)
    assert (second.settings.seed, second.settings.batch) == (1, 5)  # the last list is the fastest
    last = found.plans[-1]
    assert (last.method, last.settings.batch, last.settings.memory) == ("finetune", 7, None)
    assert {plan.study for plan in found.plans} == {"a-study"}
    assert len({plan.job for plan in found.plans}) == 25


def test_the_protocol_and_presets_are_used(study: Callable[[str], Study]) -> None:
    text = '[[grid]]\nmethod = "er"\ndata = ["digits", "mnist"]\npreset = "reference"\n'
    digits, mnist = study(text).plans
    assert (digits.settings.memory, mnist.settings.memory) == (100, 500)
    assert digits.settings.skip_first  # type: ignore[attr-defined]
    assert digits.preset.startswith("reference")


def test_a_job_that_occurs_twice_is_one(study: Callable[[str], Study]) -> None:
    text = '[[grid]]\nmethod = "er"\nseed = [0, 1, 0]\n[[grid]]\nmethod = "er"\nseed = [1, 2]\n'
    assert [plan.settings.seed for plan in study(text).plans] == [0, 1, 2]


def test_the_file_names_a_study_without_a_name(study: Callable[[str], Study]) -> None:
    assert study('[[grid]]\nmethod = "er"\n').name == "my"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", r"has no \[\[grid\]\]"),
        ("grid = 5", r"has no \[\[grid\]\]"),
        ("grid = [5]", "must be tables"),
        ('base = 5\n[[grid]]\nmethod = "er"', "must be tables"),
        ("[grdi]\nx = 1", r"Unknown key 'grdi' in .*my.toml. Did you mean 'grid'"),
        ("[[grid]]\nseed = 1", "names no method"),
        ("[[grid]]\nmethod = 5", "names no method"),
        ('[[grid]]\nmethod = "eer"', "Unknown method 'eer'. Did you mean 'er'"),
        ('[[grid]]\nmethod = "er"\nmemroy = 5', "Unknown setting 'memroy' in .*my.toml. Did you"),
        ('[[grid]]\nmethod = "er"\nseed = ["a"]', "Setting seed in .*my.toml is 'a'"),
        ('[[grid]]\nmethod = "er"\ndata = {a = 1}', "Setting data in .*my.toml"),
        ('[[grid]]\nmethod = "er"\ndata = "mnits"', "Did you mean 'mnist'"),
        ('[[grid]]\nmethod = "er"\nmemory = [5, 0]', "memory is 0 but must be at least 1"),
        ('[[grid]]\nmethod = "er"\npreset = "x"', "Unknown preset 'x'"),
        ('[[grid]]\nmethod = "er"\nseed = []', "describes no job"),
        ('name = "../x"\n[[grid]]\nmethod = "er"', "lower-case letters"),
        ('name = 5\n[[grid]]\nmethod = "er"', "lower-case letters"),
        ("x = ", "is not valid TOML"),
        (
            '[[grid]]\nmethod = "er"\n'
            + "".join(f"{k} = {list(range(1, 60))}\n" for k in ("seed", "memory", "batch")),
            "describes 2.05e\\+05 jobs, at most 100000 are read; shorten its lists",
        ),
    ],
)
def test_a_bad_file_is_one_sentence(study: Callable[[str], Study], text: str, said: str) -> None:
    with pytest.raises(OcilError, match=said) as caught:
        study(text)
    assert "\n" not in str(caught.value)


def test_shipped_studies_are_read_by_name_and_suggested() -> None:
    assert "tune-er-mnist" in shipped()
    for name in shipped():
        found = read_study(Path(name))
        assert found.name == name
        assert found.plans
    with pytest.raises(OcilError, match=r"no study 'tune-er-mnits'. Did you mean 'tune-er-mnist'"):
        read_study(Path("tune-er-mnits"))


def test_the_job_of_a_record_is_found_again(study: Callable[[str], Study]) -> None:
    plan = study('[[grid]]\nmethod = "er"\nseed = 3\n').plans[0]
    record: dict[str, Any] = {"method": "er", "settings": to_mapping(plan.settings)}
    assert job_of_record(record) == plan.job
    del record["settings"]["eval_every"]  # made before this setting existed
    expected = plan.settings.eval_every == type(plan.settings)().eval_every
    assert (job_of_record(record) == plan.job) == expected
    record["settings"] |= {"seed": 4}
    assert job_of_record(record) != plan.job
    assert job_of_record({"method": "gone", "settings": {}}) is None


@pytest.mark.parametrize("text", ["dual.eps = [0.1, 1]", "dual = {eps = [0.1, 1]}"])
def test_options_of_a_group_vary_like_others(study: Callable[[str], Study], text: str) -> None:
    head = '[base]\ndual.ascents = 2\n[[grid]]\nmethod = "otc"\nobjective = "dual"\n'
    found = [plan.settings.dual for plan in study(head + text).plans]
    assert [(s.eps, s.ascents) for s in found] == [(0.1, 2), (1.0, 2)]


def test_another_preset_makes_another_study_of_the_methods_that_have_it() -> None:
    usual, other = read_study(Path("table-mnist")), read_study(Path("table-mnist"), "paper")
    assert other.name == "table-mnist-paper"
    assert {plan.method for plan in other.plans} == {"otc"} < {plan.method for plan in usual.plans}
    assert not {plan.job for plan in other.plans} & {plan.job for plan in usual.plans}
    assert {plan.preset.split("/")[0] for plan in other.plans} == {"paper"}
    # the study's single value gives way to the preset's, what it varies stays
    assert {plan.settings.readout for plan in other.plans} == {"mahalanobis"}
    assert {plan.settings.memory for plan in other.plans} == {500, 1500}


def test_settings_are_changed_for_all_jobs() -> None:
    changes = ["memory=[100, 200]", "tau=0.5", "retrieval=uniform"]
    found = read_study(Path("table-mnist"), None, changes)
    assert found.name == "table-mnist-memory-100-200-tau-0-5-retrieval-uniform"
    assert {plan.settings.memory for plan in found.plans} == {100, 200}
    settings = [to_mapping(plan.settings) for plan in found.plans]
    assert {(s["tau"], s["retrieval"]) for s in settings} == {(0.5, "uniform")}
    assert {plan.method for plan in found.plans} < {p.method for p in usual_plans()}


def test_long_names_of_changed_studies_differ() -> None:
    names = set()
    for choice in ("centroids", "random", "components"):
        changes = ["memory=100", "tau=0.5", "retrieval=uniform", "replay=10", f"choice={choice}"]
        names.add(read_study(Path("table-mnist"), "paper", changes).name)
    assert len(names) == 3 and all(len(name) <= 64 for name in names)


def usual_plans() -> list[Any]:
    return list(read_study(Path("table-mnist")).plans)


@pytest.mark.parametrize(
    ("preset", "changes", "said"),
    [
        ("papr", [], "has preset papr"),
        (None, ["tua=1"], "has setting tua"),
        (None, ["tau"], "names no value"),
        (None, ["tau=-1"], "tau is -1"),
    ],
)
def test_a_change_that_fits_no_job_is_refused(preset: Any, changes: list[str], said: str) -> None:
    with pytest.raises(OcilError, match=said):
        read_study(Path("table-mnist"), preset, changes)
