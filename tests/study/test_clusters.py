"""Studies elsewhere: Ray and SLURM carry out the same jobs, and what is lost is done again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run
from ocil.study import places
from ocil.study.grid import read_study
from ocil.study.jobs import LOST, Ended, Job, run_jobs
from ocil.study.local import carry_out, order
from ocil.study.ray import Ray, Task
from ocil.study.slurm import Slurm, needs

STUDY = """
name = "tiny"
[base]
data = "digits"
limit_per_class = 100
width = 16
eval_every = 0
checkpoint_every = 10
epochs = 5
[[grid]]
method = "er"
seed = [0, 1, 2, 3]
"""
TIMES = {"seconds", "images_per_second", "peak_memory_mb"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(STUDY)
    return path


def records(out: Path) -> dict[str, Any]:
    """By job, without what differs from run to run."""
    found = [json.loads(path.read_bytes()) for path in out.rglob("record.json")]
    return {r["job"]: {k: v for k, v in r.items() if k not in TIMES} for r in found}


def one_by_one(file: Path, out: Path) -> dict[str, Any]:
    """The records of a study carried out in this process."""
    for plan in read_study(file).plans:
        folder = RunFolder(out / plan.job[:16])
        folder.create(plan)
        resume_run(folder.path)
    return records(out)


# ------------------------------------------------------------------ words


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--on", "rya"), "--on is 'rya' but must be local, ray, ray:ADDRESS or slurm. Did you"),
        (("--on", "local:2"), "--on is 'local:2' but must be"),
        (("--on", "slurm:there"), "must be slurm, or slurm:local to try it here"),
        (("--on", "ray", "--per-gpu", "0"), "--per-gpu is 0 but must be at least 1"),
        (("--on", "slurm", "--slurm", "timeout_min"), "--slurm timeout_min names no value"),
    ],
)
def test_bad_words(
    ocil: Callable[..., Any], file: Path, tmp_path: Path, words: tuple[str, ...], said: str
) -> None:
    found = ocil("study", file, "--out", tmp_path / "out", *words)
    assert found.is_sentence(), found
    assert said in found.err


@pytest.mark.parametrize(("place", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_missing_package_is_one_sentence_that_names_the_extra(
    ocil: Callable[..., Any],
    file: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    place: str,
    package: str,
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    found = ocil("study", file, "--out", tmp_path / "out", "--on", place)
    assert found.is_sentence(), found
    assert f"--on {place} needs {package}; install it with `pip install ocil[cluster]`" in found.err


def test_without_slurm_there_is_a_sentence(
    ocil: Callable[..., Any], file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("submitit")
    monkeypatch.setenv("PATH", str(tmp_path))
    found = ocil("study", file, "--out", tmp_path / "out", "--on", "slurm")
    assert found.is_sentence(), found
    assert "start the study where `sbatch` is" in found.err


@pytest.mark.parametrize(
    ("on", "workers", "count"),
    [("local", None, 1), ("local", 99, 2), ("ray", None, 2), ("ray:there:1", None, None),
     ("ray:there:1", 99, 99), ("slurm", None, None)],
)  # fmt: skip
def test_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch, on: str, workers: int | None, count: int | None
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert places.at_a_time(on, workers) == count


# ------------------------------------------------------------------ what is handed over


def test_an_order_is_plain_text_that_holds_on_any_machine(
    plan: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OCIL_DATA", "data")
    told = order(Job(plan(threads=2), Path("out")), None)
    assert json.loads(json.dumps(told)) == {
        "folder": str(tmp_path / "out"),
        "data_dir": None,
        "environment": {"OMP_NUM_THREADS": "2", "OCIL_DATA": str(tmp_path / "data")},
    }
    told = order(Job(plan(threads="auto"), Path("out")), Path("mine"))
    assert told["data_dir"] == str(tmp_path / "mine")
    assert told["environment"] == {}


def test_a_worker_that_is_told_to_stop_stops_its_process(
    tmp_path: Path, plan: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("ocil.study.local.time", SimpleNamespace(sleep=interrupt))
    began: list[subprocess.Popen[bytes]] = []
    start = subprocess.Popen

    def started(*words: Any, **options: Any) -> subprocess.Popen[bytes]:
        began.append(start(*words, **options))
        return began[-1]

    monkeypatch.setattr(subprocess, "Popen", started)
    folder = RunFolder(tmp_path / "out")
    folder.create(plan())
    with pytest.raises(KeyboardInterrupt):
        carry_out(json.dumps(order(Job(plan(), folder.path), None)))
    assert began[0].returncode is not None
    assert not folder.record.exists()


class Lost(Exception):
    """As Ray's own for a worker that is gone."""


class Raised(Lost):
    """As Ray's own for an exception in a task."""

    cause = None


@pytest.mark.parametrize(
    ("result", "end"),
    [
        ('[0, ""]', Ended(0, "")),
        ('[75, "Busy."]', Ended(75, "Busy.")),
        (Lost("it was killed"), Ended(LOST, "A Ray worker was lost: it was killed.")),
        (Raised("no module"), Ended(1, "A Ray worker failed: no module.")),
    ],
)
def test_how_a_task_of_ray_ended(result: str | Exception, end: Ended) -> None:
    def get(_: object) -> str:
        if isinstance(result, Exception):
            raise result
        return result

    ready: list[object] = []
    errors = SimpleNamespace(RayTaskError=Raised, RayError=Lost)
    ray = SimpleNamespace(wait=lambda *_, timeout: (ready, []), get=get, exceptions=errors)
    task = Task(ray, "a reference")
    assert task.ended() is None
    ready.append("a reference")
    assert task.ended() == end


def test_resources_follow_the_settings(plan: Callable[..., Any]) -> None:
    ray = object.__new__(Ray)
    nodes = [{"Resources": {"CPU": 4.0}}, {"Resources": {}}]
    ray.ray = SimpleNamespace(nodes=lambda: nodes, cluster_resources=lambda: {"CPU": 12.0})
    ray.per_gpu, ray.workers = 4, None
    one, two, most = (Job(plan(threads=n), Path()) for n in (1, 2, "auto"))
    gpu = Job(plan(device="cuda"), Path())
    asked = [ray.needs(job) for job in (two, most, gpu)]
    assert asked == [{"num_cpus": 2}, {"num_cpus": 4}, {"num_cpus": 1, "num_gpus": 0.25}]
    assert (ray.room([]), ray.room([one]), ray.room([two])) == (24, 23, 11)
    ray.workers = 3
    assert ray.room([one]) == 2
    assert [needs(job) for job in (two, most, gpu)] == [
        {"cpus_per_task": 2},
        {},
        {"cpus_per_task": 1, "gpus_per_node": 1},
    ]


# ------------------------------------------------------------------ real clusters


def wait_for(what: Callable[[], Any], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_node_and_then_the_study_itself_are_killed(
    two_nodes: Any, file: Path, tmp_path: Path, start_ocil: Callable[..., Any]
) -> None:
    """What is left is finished; no record differs from that of a run in one piece."""
    out = tmp_path / "out"
    words = ["study", file, "--out", out, "--on", f"ray:{two_nodes.address}"]

    def events(kind: str) -> int:
        folders = (out / "tiny").glob("*") if out.exists() else ()
        return sum(e["event"] == kind for f in folders for e in RunFolder(f).read_events())

    study = start_ocil(words, start_new_session=True)
    wait_for(lambda: events("start") >= 2 and events("checkpoint") >= 2)  # one on each node
    (node,) = two_nodes.worker_nodes
    two_nodes.remove_node(node, allow_graceful=False)
    wait_for(lambda: events("resume") >= 1)  # on the node that is left
    study.kill()
    study.communicate()
    assert len(records(out)) < 4
    again = start_ocil(words)
    said, complaints = again.communicate(timeout=300)
    assert again.returncode == 0, complaints
    assert "4 jobs" in said
    assert records(out) == one_by_one(file, tmp_path / "alone" / "tiny")
    assert events("end") == 4  # none was computed twice


def listening(root: int) -> set[str]:
    """Addresses, in hexadecimal, on which a process and those it started listen."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            parents[int(stat.parent.name)] = int(stat.read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    family = {root}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    inodes = set()
    for pid in family:
        for link in Path(f"/proc/{pid}/fd").glob("*"):
            try:
                inodes.add(os.readlink(link))
            except OSError:
                continue
    lines = [line.split() for name in ("tcp", "tcp6")
             for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    return {x[1].split(":")[0] for x in lines if x[3] == "0A" and f"socket:[{x[9]}]" in inodes}


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/net/tcp6").exists(), reason="reads Linux's list of sockets")
def test_a_cluster_on_this_machine_listens_on_loopback_alone_and_ctrl_c_keeps_checkpoints(
    ray_here: Any, file: Path, tmp_path: Path, start_ocil: Callable[..., Any]
) -> None:
    long = STUDY.replace("[0, 1, 2, 3]", "0").replace("epochs = 5", "epochs = 50000")
    file.write_text(long.replace("checkpoint_every = 10", "checkpoint_every = 300"))
    (plan,) = read_study(file).plans
    folder = RunFolder(tmp_path / "out" / "tiny" / plan.job[:16])
    study = start_ocil(["study", file, "--out", tmp_path / "out", "--on", "ray"])
    wait_for(lambda: any(e["event"] == "checkpoint" for e in folder.read_events()))
    seen = listening(study.pid)
    study.send_signal(signal.SIGINT)
    _, complaints = study.communicate(timeout=120)
    assert study.returncode == 130
    assert complaints.endswith("ocil: Stopped; the same command continues the study.\n")
    # 127.0.0.1 as IPv4 and within IPv6
    assert seen and seen <= {"0100007F", "0000000000000000FFFF00000100007F"}
    assert not folder.record.exists()
    with folder.locked():  # nobody is at work on it any more
        last = folder.read_events()[-1]
    assert last["event"] == "checkpoint" and last["step"] % 300  # made because it was asked


@pytest.mark.slow
def test_a_study_on_slurm_by_submitit_here(
    ocil: Callable[..., Any], file: Path, tmp_path: Path
) -> None:
    pytest.importorskip("submitit", reason="the extra `cluster` is not installed")
    file.write_text(STUDY.replace("[0, 1, 2, 3]", "0\nlr = [0.001, 1e30]"))
    said = ocil("study", file, "--out", tmp_path / "out", "--on", "slurm:local", "--workers", 2)
    assert "1 of 2 jobs failed; the first: ocil: The loss became" in said.err
    file.write_text(STUDY.replace("[0, 1, 2, 3]", "0\nlr = 0.001"))
    assert records(tmp_path / "out") == one_by_one(file, tmp_path / "alone" / "tiny")


@pytest.mark.slow
def test_a_slurm_job_whose_run_is_killed_goes_on(file: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit", reason="the extra `cluster` is not installed")
    job = Job(read_study(file).plans[0], tmp_path / "out")
    folder, killed = RunFolder(job.folder), list[int]()

    def watch(jobs: list[Job]) -> None:
        events = folder.read_events()
        if not killed and any(e["event"] == "checkpoint" for e in events):
            killed.append(events[0]["pid"])
            os.kill(killed[0], signal.SIGKILL)

    run_jobs([job], Slurm("local", None, None, tmp_path / ".slurm", {}), watch)
    assert (job.state, job.attempts) == ("finished", 2)
    assert [e["step"] > 0 for e in folder.read_events() if e["event"] == "resume"] == [True]
