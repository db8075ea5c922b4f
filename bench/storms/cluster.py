"""A study on a Ray cluster of two nodes, in which runs, workers and nodes are killed at random."""

from __future__ import annotations

import json
import os
import random
import secrets
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ocil.run.folder import RunFolder
from ocil.run.loop import resume_run
from ocil.study.grid import read_study
from storms import Storm

STUDY = """
name = "storm"
[base]
data = "digits"
limit_per_class = 100
width = 16
eval_every = 0
checkpoint_every = 10
epochs = 20
[[grid]]
method = "er"
seed = [{seeds}]
"""
TIMES = {"seconds", "images_per_second", "peak_memory_mb", "commit", "dirty"}
NODE = {"node_ip_address": "127.0.0.1", "include_dashboard": False}
BETWEEN = (0.5, 5.0)  # seconds from one kill to the next


def kills(times: int, folder: Path) -> Storm:
    """So many kills; then the study is left alone until it ends."""
    storm, draw = Storm("kill in a study on Ray", times), random.Random(times)
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # loopback alone
    os.environ |= {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    from ray.cluster_utils import Cluster

    file, out = folder / "storm.toml", folder / "out"
    file.write_text(STUDY.format(seeds=", ".join(map(str, range(max(2, times // 2))))))
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(**NODE)
    words = [sys.executable, "-m", "ocil", "study", str(file), "--out", str(out)]
    words += ["--on", f"ray:{cluster.address}"]
    try:
        study = _start(words)
        done = 0
        while done < times and not _finished(file, out):
            time.sleep(draw.uniform(*BETWEEN))
            if study.poll() is not None:  # all its jobs have ended, some of them five times
                storm.count("times the study was started again")
                study = _start(words)
            what = draw.choice(("run", "run", "worker", "worker", "node"))
            if _kill(what, cluster, out, draw):
                done += 1
                storm.count(f"{what}s killed")
        storm.count("kills that came too late", False)
        storm.seen["kills that came too late"] += times - done
        while study.wait() or not _finished(file, out):
            storm.count("times the study was started again")
            study = _start(words)
    finally:
        cluster.shutdown()
    _compare(storm, file, out, folder / "alone")
    return storm


def _start(words: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _folders(file: Path, out: Path) -> list[RunFolder]:
    return [RunFolder(out / "storm" / plan.job[:16]) for plan in read_study(file).plans]


def _finished(file: Path, out: Path) -> bool:
    return all(folder.record.exists() for folder in _folders(file, out))


def _kill(what: str, cluster: Any, out: Path, draw: random.Random) -> bool:
    """Kill a run, the Ray worker that waits for one, or a node; False if none is there."""
    if what == "node":
        (node,) = cluster.worker_nodes
        cluster.remove_node(node, allow_graceful=False)
        cluster.add_node(**NODE)
        return True
    pids = []
    for folder in (out / "storm").glob("*"):
        events = RunFolder(folder).read_events()
        begun = [e["pid"] for e in events if e["event"] in ("start", "resume")]
        if begun and events[-1]["event"] != "end" and _is_run(begun[-1], folder):
            pids.append(begun[-1])
    if not pids:
        return False
    pid = draw.choice(pids)
    try:
        if what == "worker":
            pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
            if "ray::" not in Path(f"/proc/{pid}/cmdline").read_text():
                return False  # its worker is dead already
        os.kill(pid, signal.SIGKILL)
    except OSError:
        return False
    return True


def _is_run(pid: int, folder: Path) -> bool:
    """Whether a process is at work on a folder, and none that came after it by the same number."""
    try:
        return str(folder) in Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return False


def _compare(storm: Storm, file: Path, out: Path, alone: Path) -> None:
    """Records against those of runs in one piece, and how often each was computed."""
    for number, (folder, plan) in enumerate(
        zip(_folders(file, out), read_study(file).plans, strict=True)
    ):
        ends = [e for e in folder.read_events() if e["event"] == "end"]
        storm.check(len(ends) == 1, number, f"{len(ends)} ends of {folder.path.name}")
        right = RunFolder(alone / plan.job[:16])
        right.create(plan)
        resume_run(right.path)
        found, wanted = (
            {k: v for k, v in json.loads(f.record.read_bytes()).items() if k not in TIMES}
            for f in (folder, right)
        )
        odd = sorted(k for k in found | wanted if found.get(k) != wanted.get(k))
        name = folder.path.name
        storm.check(not odd, number, f"{name} differs from a run in one piece: {', '.join(odd)}")
        storm.count("records compared")
        resumed = sum(e["event"] == "resume" for e in folder.read_events())
        storm.seen["times a run went on"] = storm.seen.get("times a run went on", 0) + resumed
