"""A study: count first, skip what is finished, continue what was killed, report what failed."""

from __future__ import annotations

import io
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace
from typing import IO, Any

import pytest

from ocil.errors import OcilError, Stopped
from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run
from ocil.study import jobs, local
from ocil.study.grid import read_study
from ocil.study.jobs import Job, run_jobs
from ocil.study.local import Local, Process

Ocil = Callable[..., Any]

STUDY = """
name = "tiny"
[base]
data = "digits"
limit_per_class = 6
memory = 20
width = 16
eval_every = 0
[[grid]]
method = "er"
seed = [0, 1]
lr = [{lr}]
"""


class InProcess:
    """Stands for a worker process and carries its job out in this one."""

    calls: list[str]

    def __init__(self, words: list[str], stderr: IO[bytes], **_: Any) -> None:
        assert words[1:4] == ["-m", "ocil", "resume"]
        self.calls.append(words[4])
        self.code, said = 0, ""
        try:
            resume_run(Path(words[4]))
        except OcilError as error:
            self.code, said = 2, f"ocil: {error}\n"
        stderr.write(said.encode())

    def poll(self) -> int:
        return self.code

    def terminate(self) -> None:
        """It has ended already."""

    wait = poll


@pytest.fixture
def workers(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Workers in this process; the folders they were given."""
    calls: list[str] = []
    monkeypatch.setattr(InProcess, "calls", calls, raising=False)
    pipes = {"PIPE": -1, "DEVNULL": -3}
    monkeypatch.setattr(local, "subprocess", SimpleNamespace(Popen=InProcess, **pipes))
    monkeypatch.setattr(local, "POLL", 0.0)
    return calls


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY.format(lr=0.001))
    return path


def record_files(out: Path) -> list[Path]:
    return sorted(out.rglob("record.json"))


def test_a_dry_run_counts_and_runs_nothing(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    said = ocil("study", file, "--dry-run", "--out", tmp_path / "out")
    assert said.code == 0
    assert "Study tiny: 2 jobs, 0 finished, 2 to run in about" in said.out
    assert " er     digits " in said.out
    assert said.out.count("\n") < 12  # two seeds are one line
    assert not workers
    assert not (tmp_path / "out").exists()


def test_finished_jobs_are_skipped(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    assert len(workers) == 2
    jobs = {plan.job for plan in read_study(file).plans}
    found = [json.loads(path.read_bytes()) for path in record_files(out)]
    assert {record["job"] for record in found} == jobs
    assert {record["study"] for record in found} == {"tiny"}
    assert {path.parent.name for path in record_files(out)} == {job[:16] for job in jobs}
    said = ocil("study", file, "--out", out)
    assert said.code == 0
    assert "Study tiny: 2 jobs, 2 finished." in said.out
    assert len(workers) == 2
    assert "digits, test images" in said.out
    accuracy = fmean(record["final_average_accuracy"] for record in found)
    [row] = [line for line in said.out.splitlines() if line.split()[:1] == ["er"]]
    assert f"{accuracy:.2f} ±" in row
    assert "command" not in said.out  # no table of jobs that are left: there is none


def test_a_finished_job_leaves_its_record_and_no_checkpoints(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    assert len(record_files(out)) == 2
    assert not list(out.rglob("*.safetensors"))


def test_a_job_finished_in_another_study_is_copied(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    other = tmp_path / "other.toml"
    other.write_text(STUDY.format(lr="0.001, 0.002").replace('"tiny"', '"other"'))
    said = ocil("study", other, "--out", out)
    assert said.code == 0
    assert "Study other: 4 jobs, 2 finished, 2 to run" in said.out
    assert len(workers) == 4
    assert len(record_files(out / "other")) == 4
    for path in record_files(out / "tiny"):
        copied = out / "other" / path.parent.name / "record.json"
        assert json.loads(copied.read_bytes()) == json.loads(path.read_bytes())


def latents_of(out: Path) -> list[Path]:
    return sorted(out.rglob("latents.safetensors"))


def test_a_study_keeps_the_latents_with_the_records_and_copies_both(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    out = tmp_path / "out"
    file.write_text(STUDY.format(lr=0.001) + "latents = true\n")
    assert ocil("study", file, "--out", out).code == 0
    assert [path.parent for path in latents_of(out)] == [p.parent for p in record_files(out)]
    other = tmp_path / "other.toml"
    other.write_text(file.read_text().replace('"tiny"', '"other"'))
    assert ocil("study", other, "--out", out).code == 0
    assert len(workers) == 2
    for path in latents_of(out / "tiny"):
        assert (out / "other" / path.parent.name / path.name).read_bytes() == path.read_bytes()


@pytest.mark.parametrize("name", ["tiny", "other"])
def test_a_record_without_latents_does_not_finish_a_job_that_wants_them(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str], name: str
) -> None:
    """Neither another study's nor this one's own from before it wanted them."""
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    before = {path: path.read_bytes() for path in record_files(out)}
    file.write_text(STUDY.format(lr=0.001).replace('"tiny"', f'"{name}"') + "latents = true\n")
    said = ocil("study", file, "--out", out)
    assert said.code == 0, said.err
    assert f"Study {name}: 2 jobs, 0 finished, 2 to run" in said.out
    assert len(workers) == 4
    assert len(latents_of(out / name)) == 2
    assert all(path.read_bytes() == content for path, content in before.items())
    assert "2 jobs, 2 finished." in ocil("study", file, "--out", out).out
    assert len(workers) == 4


def test_a_failed_job_is_reported_and_the_others_are_done(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    file.write_text(STUDY.format(lr="1e30, 0.001") + 'optimizer = "sgd"\n')
    said = ocil("study", file, "--out", tmp_path / "out")
    assert said.is_sentence(), said
    assert "2 of 4 jobs failed; the first: ocil: The loss became" in said.err
    assert len(record_files(tmp_path / "out")) == 2
    assert len(workers) == 4  # what fails by itself is not tried again at once
    ocil("study", file, "--out", tmp_path / "out")
    assert len(workers) == 6  # but by the next call


def test_a_damaged_record_does_not_count(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    record_files(out)[0].write_text("{")
    assert "1 finished, 1 to run" in ocil("study", file, "--dry-run", "--out", out).out
    said = ocil("study", file, "--out", out)  # nothing is overwritten unasked
    assert said.is_sentence()
    assert "1 of 2 jobs failed" in said.err
    assert "is damaged" in said.err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("nowhere.toml",), "Cannot read nowhere.toml"),
        (("nowhere",), "There is no study 'nowhere'. Shipped: "),
        (("tune-er-mnist", "--workers", "0"), "--workers is 0 but must be at least 1"),
        ((), "ocil study"),
    ],
)
def test_bad_words(ocil: Ocil, words: tuple[str, ...], said: str) -> None:
    found = ocil("study", *words)
    assert found.is_sentence(), found
    assert said in found.err


def test_ctrl_c_ends_with_its_exit_code(
    ocil: Ocil, tmp_path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, workers: list[str]
) -> None:
    def interrupt(*_: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(local, "time", SimpleNamespace(sleep=interrupt))
    said = ocil("study", file, "--out", tmp_path / "out")
    assert said.code == 130
    assert said.err == "ocil: Stopped; the same command continues the study.\n"


def test_a_job_that_another_process_is_at_is_left_to_it(
    tmp_path: Path, plan: Callable[..., Any], run: Callable[..., Any], workers: list[str]
) -> None:
    """As two studies with the same OUT do, or a study after one that was killed."""
    folder = RunFolder(tmp_path / "out")
    folder.create(plan())
    both = [Job(plan(), folder.path), Job(plan(seed=1), tmp_path / "second")]
    seen: list[tuple[str, str]] = []
    with ExitStack() as other:
        other.enter_context(folder.locked())

        def watch(now: list[Job]) -> None:
            seen.append((now[0].state, now[0].message))
            if now[1].state == "finished" and not folder.record.exists():
                record = (tmp_path / "second" / "record.json").read_bytes()
                folder.record.write_bytes(record)  # the other process ends
                folder.checkpoints.mkdir()
                other.close()

        run_jobs(both, Local(1, None), watch)
    assert workers == [str(tmp_path / "second")]
    assert seen[0] == ("waiting", "(another process is working on it)")
    assert seen[-1] == ("finished", "")
    assert not folder.checkpoints.exists()


# ------------------------------------------------------------------ progress


@pytest.mark.parametrize(
    ("events", "progress"),
    [
        (None, (0, 0)),
        (b"", (0, 0)),
        (b'{"step": 0, "steps": 90}\n{"step": 30}\n', (30, 90)),
        (b'{"step": 0, "steps": 90}\n{"step": 30}\n5\n[[[\n{"st', (30, 90)),
    ],
)
def test_progress_is_read_from_the_events(
    tmp_path: Path, events: bytes | None, progress: tuple[int, int]
) -> None:
    if events is not None:
        (tmp_path / "events.jsonl").write_bytes(events)
    assert RunFolder(tmp_path).progress() == progress


class Dead(Process):
    """A worker that has ended."""

    def __init__(self, code: int) -> None:
        self.end, self.process = None, SimpleNamespace(poll=lambda: code)  # type: ignore[assignment]
        self.errors = io.BytesIO(b"some words\n" * 10_000 + b"ocil: The last line.\n")


@pytest.mark.parametrize(
    ("code", "attempts", "state"),
    [
        (0, 1, "finished"),
        (2, 1, "failed"),
        (1, 1, "failed"),
        (-9, 1, "waiting"),
        (-15, 4, "waiting"),
        (143, 1, "waiting"),  # asked to stop by somebody else: it has written a checkpoint
        (75, jobs.MAX_ATTEMPTS, "waiting"),  # another process was quicker: no attempt of this one
        (-9, jobs.MAX_ATTEMPTS, "failed"),
    ],
)
def test_how_a_worker_ended(
    tmp_path: Path, plan: Callable[..., Any], code: int, attempts: int, state: str
) -> None:
    job = Job(plan(), tmp_path, state="running", attempts=attempts, worker=Dead(code))
    jobs._check(job)
    assert job.state == state
    assert (job.message == "ocil: The last line.") == (state == "failed")


# ------------------------------------------------------------------ real processes


def test_a_killed_worker_goes_on_and_ctrl_c_leaves_a_study_that_can_be_finished(
    tmp_path: Path,
    plan: Callable[..., Any],
    run: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first worker is killed with SIGKILL; its successor is there when Ctrl-C comes."""
    monkeypatch.setattr(local, "POLL", 0.02)
    changes = {"epochs": 3, "limit_per_class": 100, "eval_every": 0, "checkpoint_every": 10}
    folder = tmp_path / "out"

    def saved() -> list[int]:
        return [e["step"] for e in RunFolder(folder).read_events() if e["event"] == "checkpoint"]

    killed: list[int] = []

    def watch(jobs: list[Job]) -> None:
        job = jobs[0]
        if not killed and saved():
            assert isinstance(job.worker, Process)
            job.worker.process.kill()
            killed.append(len(saved()))
        elif killed and job.attempts == 2 and len(saved()) > killed[0] + 1:
            os.kill(os.getpid(), signal.SIGINT)

    job = Job(plan(**changes), folder)
    with pytest.raises(Stopped, match="the same command continues the study"):
        run_jobs([job], Local(1, None), watch)
    assert job.attempts == 2
    assert isinstance(job.worker, Process)
    assert (
        job.worker.process.returncode == 128 + signal.SIGTERM
    )  # it was asked, and wrote a checkpoint
    assert not (folder / "record.json").exists()

    again = Job(plan(**changes), folder)
    run_jobs([again], Local(1, None), lambda _: None)
    assert (again.state, again.attempts) == ("finished", 1)
    resumed = [e["step"] for e in RunFolder(folder).read_events() if e["event"] == "resume"]
    assert len(resumed) == 2
    assert 0 < resumed[0] < resumed[1]
    record = json.loads((folder / "record.json").read_bytes())
    alone = run("alone", **changes | {"checkpoint_every": 0})
    assert record["state_sha256"] == alone["state_sha256"]


def test_a_record_of_this_study_counts_under_any_folder_name(
    ocil: Ocil, tmp_path: Path, file: Path, workers: list[str]
) -> None:
    """As it has one from before a setting was added, which changed the ids."""
    out = tmp_path / "out"
    assert ocil("study", file, "--out", out).code == 0
    first = record_files(out)[0].parent
    first.rename(first.with_name("0123456789abcdef"))
    said = ocil("study", file, "--out", out)
    assert "2 jobs, 2 finished" in said.out
    assert len(record_files(out)) == 2


def test_a_worker_that_complains_a_lot_is_not_blocked(
    tmp_path: Path, plan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, within_seconds: None
) -> None:
    """A pipe that nobody reads takes 64 kilobytes and then stops its writer."""
    worker = tmp_path / "worker"
    code = "import sys; sys.stderr.write('x' * 199 + chr(10)); sys.stderr.write('y' * 200_000)"
    worker.write_text(f'#!/bin/sh\nexec {sys.executable} -c "{code}; sys.exit(2)"\n')
    worker.chmod(0o755)
    monkeypatch.setattr(local.sys, "executable", str(worker))
    job = Job(plan(), tmp_path / "job")
    run_jobs([job], Local(1, None), lambda _: None)
    assert job.state == "failed"
    assert len(job.message) <= 2000 and job.message.endswith("yyy")
