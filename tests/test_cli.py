"""The command line: layers of settings, help without torch, exit codes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ocil as package
from ocil import cli
from ocil.cli import COMMANDS
from ocil.commands.run import plan_from_words
from ocil.errors import OcilError, Stopped
from ocil.learners import registry
from ocil.settings import to_mapping

Ocil = Callable[..., Any]

WITHOUT_TORCH = """
import sys
import ocil
from ocil.cli import main
assert "torch" not in sys.modules, "import ocil"
for words in (["--help"], ["--version"], ["methods"], ["run", "otc", "--help"],
              ["show", {run!r}], ["show", {above!r}],
              ["report", {above!r}, "--out", {page!r}], ["results", {above!r}]):
    try:
        main(words)
    except SystemExit as stop:
        assert not stop.code, (words, stop.code)
    assert "torch" not in sys.modules, words
"""


def test_nothing_but_learning_loads_torch(run: Callable[..., Any], tmp_path: Path) -> None:
    run("runs/first")
    script = WITHOUT_TORCH.format(
        run=str(tmp_path / "runs/first"), above=str(tmp_path / "runs"), page=str(tmp_path / "page")
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert f"ocil {package.__version__}" in done.stdout
    assert (tmp_path / "page" / "index.html").exists()


def test_help_teaches_every_command(ocil: Ocil) -> None:
    for words in ((), ("--help",), ("-h",), ("help",)):
        said = ocil(*words)
        assert said.code == 0
        assert all(f"ocil {command}" in said.out for command in COMMANDS)


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_has_help(ocil: Ocil, command: str) -> None:
    said = ocil(command, "--help")
    assert said.code == 0
    assert f"ocil {command}" in said.out


def test_the_help_of_a_method_lists_its_settings_with_their_defaults(ocil: Ocil) -> None:
    said = ocil("run", "er", "--data", "mnist", "--help")
    assert said.code == 0
    for flag in ("--memory", "--skip-first", "--out", "--data-dir", "--config"):
        assert flag in said.out
    assert "for methods without one. [500]" in " ".join(said.out.split())


def test_the_version(ocil: Ocil) -> None:
    assert ocil("--version").out == f"ocil {package.__version__}\n"


def test_the_table_of_methods_fits_a_narrow_terminal(
    ocil: Ocil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    out = ocil("methods").out
    assert "…" not in out
    [row] = [line for line in out.splitlines() if line.startswith("bic-ac")]
    assert row.split()[:6] == ["bic-ac", "Szatkowski+", "2025", "yes", "reservoir", "confident"]
    [row] = [line for line in out.splitlines() if line.startswith("joint")]
    assert row.split()[:4] == ["joint", "–", "no", "reservoir"]
    assert "as many as a reservoir admits" in ocil("methods", "otc").out


def test_methods_and_data_are_listed(ocil: Ocil) -> None:
    assert "finetune" in ocil("methods").out
    assert "fashion" in ocil("data", "list").out
    assert "bundled" in ocil("data", "get", "digits").out
    assert ocil("data", "check", "digits").code == 0


@pytest.mark.parametrize("shell", ["bash", "zsh"])
def test_completion_is_a_script_that_the_shell_takes(ocil: Ocil, shell: str) -> None:
    script = ocil("completion", shell).out
    for word in ("resume", "finetune", "fashion-mnist", "--limit-per-class", "--out"):
        assert word in script
    done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("ocil resum", "resume"),
        ("ocil run fin", "finetune"),
        ("ocil run er --data mni", "mnist"),
        ("ocil run er --limit", "--limit-per-class"),
        ("ocil data chec", "check"),
        ("ocil data get fash", "fashion-mnist"),
    ],
)
def test_completion_completes(ocil: Ocil, words: str, found: str) -> None:
    ask = f"\nCOMP_WORDS=({words}); COMP_CWORD={len(words.split()) - 1}; _ocil\n"
    script = ocil("completion", "bash").out + ask + 'echo "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert done.stdout.strip() == found


# ------------------------------------------------------------------ layers


@pytest.fixture
def presets(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {
        "big": {"batch": 21, "updates": 2},
        "big/mnist": {"batch": 22, "epochs": 3},
        "big/mnist/77": {"batch": 23, "width": 9},
    }
    known = registry.info("er")
    monkeypatch.setattr(registry, "info", lambda method: known._replace(presets=own))


@pytest.mark.usefixtures("presets")
def test_flags_win_over_toml_over_preset_over_protocol(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text('preset = "big"\ndata = "mnist"\nmemory = 77\nprobe = 5\nlr = 1\n')
    plan, places = plan_from_words("er", ["--config", str(config), "--lr", "0.25", "--out", "o"])
    s = plan.settings
    assert (s.replay, s.augment) == (64, "affine")  # default, protocol of mnist
    assert (s.updates, s.epochs, s.width, s.batch) == (2, 3, 9, 23)  # presets, the special last
    assert (s.probe, s.lr) == (5, 0.25)
    assert plan.preset == "big/mnist/77"
    assert places.out == Path("o")
    flags = ["--config", str(config), "--memory=78", "--data", "mnist"]
    other = plan_from_words("er", flags)[0]
    assert (other.preset, other.settings.batch, other.settings.memory) == ("big/mnist", 22, 78)
    digits = plan_from_words("er", ["--config", str(config), "--data", "digits"])[0]
    assert (digits.preset, digits.settings.batch) == ("big", 21)


def test_the_protocol_of_a_data_set_is_used() -> None:
    assert plan_from_words("er", [])[0].settings.memory == 100
    assert plan_from_words("er", ["--data", "mnist"])[0].settings.memory == 500
    assert plan_from_words("finetune", ["--data", "mnist"])[0].settings.memory is None
    assert plan_from_words("joint", ["--data", "mnist"])[0].settings.order == "joint"


def test_a_toml_file_may_name_its_own_method_only(tmp_path: Path) -> None:
    config = tmp_path / "a.toml"
    config.write_text('method = "er"\nseed = 3\n')
    assert plan_from_words("er", ["--config", str(config)])[0].settings.seed == 3
    with pytest.raises(OcilError, match="is for another method than joint"):
        plan_from_words("joint", ["--config", str(config)])


# ------------------------------------------------------------------ a run by command


def test_run_show_and_resume(
    ocil: Ocil, tmp_path: Path, small: dict[str, Any], flags: Callable[..., list[str]]
) -> None:
    out = tmp_path / "first"
    said = ocil("run", "er", *flags(small), "--out", out)
    assert (said.code, said.err) == (0, "")
    assert "Accuracy in percent" in said.out
    shown = ocil("show", out)
    assert shown.code == 0
    assert said.out.startswith(shown.out.rstrip())
    again = ocil("resume", out)
    assert (again.code, "is finished" in again.err) == (2, True)
    assert ocil("show", tmp_path).code == 0


def test_a_record_is_repeated_and_compared(ocil: Ocil, run: Callable[..., Any], tmp_path: Path):
    run("first")
    file = tmp_path / "first" / "record.json"
    said = ocil("run", "--like", str(file), "--out", str(tmp_path / "second"))
    assert (said.code, "every bit of the state is equal" in said.out) == (0, True), said.out
    record = json.loads(file.read_text())
    record["evaluations"][-1]["correct"][0] += -1 if record["evaluations"][-1]["correct"][0] else 1
    record |= {"state_sha256": "0" * 64, "processor": "an abacus"}
    file.write_text(json.dumps(record))
    said = ocil("run", "--like", str(file), "--out", str(tmp_path / "third"))
    assert said.code == 0
    assert "It came out otherwise" in " ".join(said.out.split())
    assert "Processor then: an abacus" in " ".join(said.out.split())
    record["data"] = record["settings"]["data"] = "photos-0123abcd"
    file.write_text(json.dumps(record))
    said = ocil("run", "--like", str(file))
    assert (said.code, "--data" in said.err) == (2, True)


def test_a_run_names_its_folder_by_its_settings(
    ocil: Ocil, tmp_path: Path, small: dict[str, Any], flags: Callable[..., list[str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert ocil("run", "er", *flags(small | {"seed": 4, "limit_per_class": 3})).code == 0
    (folder,) = (tmp_path / "runs").iterdir()
    job = json.loads((folder / "record.json").read_bytes())["job"]
    assert folder.name == f"er-digits-m30-s4-{job[:8]}"


# ------------------------------------------------------------------ how commands end


def failing(error: BaseException) -> Callable[[list[str]], None]:
    def fail(words: list[str]) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code", "said"),
    [
        (OcilError("Mend it."), 2, "ocil: Mend it.\n"),
        (Stopped(15, "Stopped; go on."), 143, "ocil: Stopped; go on.\n"),
        (Stopped(2, "Stopped; go on."), 130, "ocil: Stopped; go on.\n"),
        (KeyboardInterrupt(), 130, "ocil: Interrupted.\n"),
        (ValueError("what"), 1, "ocil: Unexpected ValueError: what (--debug shows where).\n"),
        (
            PermissionError(13, "Permission denied", "/x"),
            2,
            "ocil: Cannot use /x: Permission denied; check that it exists and that you may use "
            "it.\n",
        ),
    ],
)
def test_exit_codes(
    ocil: Ocil, monkeypatch: pytest.MonkeyPatch, error: Exception, code: int, said: str
) -> None:
    monkeypatch.setattr(cli, "_dispatch", failing(error))
    found = ocil("run")
    assert (found.code, found.err) == (code, said)
    assert "Traceback" in ocil("run", "--debug").err


def test_a_reader_that_goes_away_is_no_error() -> None:
    call = f"{sys.executable} -m ocil --help | head -1 > {os.devnull}; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", call], capture_output=True, text=True)
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--watched 16", "Unknown flag --watched. It is now --mixture-replay."),
        ("--fit task", "Unknown flag --fit. It is now --objective."),
        ("--window 8", "Unknown flag --window. It is now --window.points."),
        ("--no-reoffer", "Unknown flag --no-reoffer. It is now --offer-every-epoch."),
        ("--dual.esp 1", "Unknown flag --dual.esp. Did you mean '--dual.eps'?"),
        ("--dual.eps 0.3", "Setting dual.eps has no effect with objective = sinkhorn;"),
        ("--objective em --em.passes 3", "Setting em.passes has no effect with objective = em;"),
    ],
)
def test_flags_of_groups_and_former_flags(words: str, said: str) -> None:
    with pytest.raises(OcilError) as caught:
        plan_from_words("otc", words.split())
    assert str(caught.value).startswith(said)
    plan, _ = plan_from_words("otc", ["--objective", "dual", "--dual.eps", "0.3"])
    assert to_mapping(plan.settings)["dual.eps"] == 0.3
