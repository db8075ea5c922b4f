"""Two source trees, one machine: do they learn the same, bit for bit?

    python bench/two_trees.py OLD [CASE ...]      # OLD: a commit or tag; the other tree is this one

Every case is a short run on digits, or a Classifier fed in odd chunks. The old tree runs it first
and its outcomes are kept in .two-trees/, so that a later comparison only runs the new tree. The
new tree repeats the old tree's *records* (`ocil run --like`), so that reading older settings is
compared as well. Equal means: the same evaluations, the same diagnostics, the same state_sha256.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[1]
KEPT = HERE / ".two-trees"
SHORT = {"data": "digits", "limit_per_class": 24, "memory": 60, "eval_every": 7}
SMALL_NET = {"net": "resnet18", "width": 4, "limit_per_class": 8}
PAPER = {"preset": "paper", "seed_points": 8}  # early components: the objectives have work


def otc(**settings: Any) -> dict[str, Any]:
    return {"method": "otc", **settings}


# Settings in the words of the old tree; every value of every option of OTC occurs somewhere.
RUNS: dict[str, dict[str, Any]] = {
    **{
        name: {"method": name}
        for name in (
            "aser", "bic", "bic-ac", "co2l", "cope", "derpp", "er", "er-ace", "finetune", "geodl",
            "gsa", "joint", "mose", "ocm", "onpro", "otc", "sbs", "scr",
        )
    },
    "er-two-epochs": {"method": "er", "epochs": 2, "steps": 2, "optimizer": "sgd", "lr": 0.05,
                      "momentum": 0.5, "retrieval": "balanced", "views": 2},
    "er-resnet": {"method": "er", **SMALL_NET},
    "er-bfloat16": {"method": "er", **SMALL_NET, "net": "resnet18-global", "precision": "bfloat16"},
    "mose-resnet": {"method": "mose", **SMALL_NET},
    "bic-ac-resnet": {"method": "bic-ac", **SMALL_NET},
    "derpp-offline": {"method": "derpp", "epochs": 3, "retrieval": "balanced"},
    "geodl-offline": {"method": "geodl", "epochs": 2},
    "aser-shapley": {"method": "aser", "update": "shapley", "score": "extreme"},
    "sbs-probability": {"method": "sbs", "hit": "probability", "no_average": True},
    "otc-paper": otc(preset="paper"),
    "otc-paper-literal": otc(preset="paper-literal", seed_points=8),
    "otc-offline": otc(preset="offline", epochs=2, schedule="steps"),
    "otc-em": otc(objective="em", average="stepwise", choice="components", watched=8, tau=0.3),
    "otc-batch-em": otc(objective="batch-em", em_passes=3, choice="random", seed_points=10),
    "otc-fit-task": otc(fit="task", em_passes=5, asymmetric=True, distill=1.0, views=2),
    "otc-fit-refit": otc(fit="refit", refit_every=5, em_passes=2, reseed_every=0),
    "otc-debiased": otc(**PAPER, objective="debiased", floor=0.01, eps=0.3, descents=2),
    "otc-nll": otc(**PAPER, objective="nll", components=2, preserve_features="sum"),
    "otc-phi": otc(**PAPER, cost="euclidean", samples=6, temperature=0.8, potential_steps=2,
                   preserve_features="mean", window=8),
    "otc-flood": otc(admission="flood", choice="centroids", preserve=0.0, components=1),
    "otc-queue": otc(queue=32, window=8, shrinkage=0.4, reseed_every=20),
    "otc-apart": otc(window=0, preserve_form="printed", preserve_features="one", fused=False,
                     ema=0.0, readout="mahalanobis"),
    "otc-refresh": otc(refresh=True, reoffer=False, epochs=2, watched=16),
    "otc-resnet": otc(**SMALL_NET, readout="product"),
}  # fmt: skip
STOPPED = (
    "er",
    "otc",
    "gsa",
    "bic",
    "otc-phi",
)  # stopped in the middle and resumed by the new tree

CLASSIFIERS: dict[str, dict[str, Any]] = {
    "classifier-otc": {"method": "otc"},
    "classifier-er": {"method": "er", "steps": 2, "retrieval": "balanced"},
    "classifier-identity": {"method": "otc", "net": "identity"},
    "classifier-module": {"method": "otc", "net": "module"},
    "classifier-frozen": {"method": "otc", "net": "frozen"},
}


def main(words: list[str]) -> int:
    if words[:1] == ["--drive"]:
        return _drive(json.loads(Path(words[1]).read_text()), Path(words[2]))
    if not words:
        sys.exit("Name the commit or tag of the old tree: python bench/two_trees.py TAG [CASE ...]")
    old, wanted = _checkout(words[0]), words[1:]
    names = [*RUNS, *CLASSIFIERS, *(f"{name}-stopped" for name in STOPPED)]
    cases = [name for name in names if not wanted or name in wanted]
    outcomes = old / ".outcomes"
    _run_tree(old, [c for c in cases if not c.endswith("-stopped")], outcomes, like=None)
    fresh = KEPT / "new"
    shutil.rmtree(fresh, ignore_errors=True)
    _run_tree(HERE, cases, fresh, like=outcomes)
    wrong = [name for name in cases if not _equal(name, outcomes, fresh)]
    print(f"{len(cases) - len(wrong)} of {len(cases)} equal.")
    return int(bool(wrong))


def _checkout(commit: str) -> Path:
    """The old tree, below .two-trees/ and named by its commit."""
    known = subprocess.run(
        ["git", "-C", HERE, "rev-parse", f"{commit}^{{commit}}"],
        check=True, capture_output=True, text=True,
    ).stdout.strip()  # fmt: skip
    tree = KEPT / known[:12]
    if not tree.exists():
        subprocess.run(["git", "-C", HERE, "worktree", "prune"], check=True)
        subprocess.run(
            ["git", "-C", HERE, "worktree", "add", "--detach", "-q", tree, known], check=True
        )
    return tree


def _run_tree(tree: Path, cases: list[str], out: Path, like: Path | None) -> None:
    """Run what has no outcome yet, in one process a core; the interpreter starts once for all."""
    out.mkdir(parents=True, exist_ok=True)
    left = [name for name in cases if not (out / name / "outcome.json").exists()]
    workers = []
    for share in (left[::2], left[1::2]):
        job = out / f"job-{len(workers)}.json"
        job.write_text(json.dumps({"cases": share, "like": str(like) if like else None}))
        call = [sys.executable, __file__, "--drive", str(job), str(out)]
        paths = {"PYTHONPATH": str(tree / "src"), "OMP_NUM_THREADS": "1"}
        workers.append(subprocess.Popen(call, env=os.environ | paths, cwd=out))
    if sum(worker.wait() != 0 for worker in workers):
        sys.exit(f"A worker of {tree} failed.")


def _equal(name: str, old: Path, new: Path) -> bool:
    found = []
    for place, case in ((old, name.removesuffix("-stopped")), (new, name)):
        file = place / case / "outcome.json"
        found.append(json.loads(file.read_text()) if file.exists() else {"error": "no outcome"})
    apart = sorted(k for k in {*found[0], *found[1]} if found[0].get(k) != found[1].get(k))
    if apart or "error" in found[1]:
        print(f"{name}: other {', '.join(apart)}. {found[1].get('error', '')}")
        return False
    return True


# ------------------------------------------------------------------ inside one of the trees


def _drive(job: dict[str, Any], out: Path) -> int:
    """Run cases with whichever ocil is on the path; each outcome is a small JSON file."""
    for name in job["cases"]:
        folder = out / name
        shutil.rmtree(folder, ignore_errors=True)
        try:
            found = _classifier(name) if name in CLASSIFIERS else _run(name, folder, job["like"])
        except (Exception, SystemExit) as error:
            found = {"error": f"{type(error).__name__}: {error}"}
        folder.mkdir(exist_ok=True)
        (folder / "outcome.json").write_text(json.dumps(found))
    return 0


def _run(name: str, folder: Path, like: str | None) -> dict[str, Any]:
    case = name.removesuffix("-stopped")
    if like is None:
        words = ["run", *_flags(RUNS[case])]
    else:
        words = ["run", "--like", str(Path(like) / case / "record.json")]
    if name != case:
        _stop_in_the_middle()
        _command(*words, "--out", str(folder), code=143)
        words = ["resume", str(folder)]
        _command(*words)
    else:
        _command(*words, "--out", str(folder))
    record = json.loads((folder / "record.json").read_text())
    return {k: record.get(k) for k in ("evaluations", "inside", "state_sha256", "stream_sha256")}


def _flags(case: dict[str, Any]) -> list[str]:
    given = SHORT | {k: v for k, v in case.items() if k != "method"}
    if case["method"] in ("finetune", "joint"):
        del given["memory"]
    if given.pop("no_average", False):
        given["ema"] = 0.0
    if case["method"] != "er" and case["method"] != "otc":
        given.pop("views", None)
    words = [case["method"]]
    for key, value in given.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            words += [f"--{flag}", str(value)]
    return words


def _stop_in_the_middle() -> None:
    """SIGTERM for this process once the next run has learned eleven batches."""
    import signal

    from ocil.session import Session

    learn, count = Session.learn, [0]

    def counted(self: Any, *args: Any, **kwargs: Any) -> Any:
        count[0] += 1
        if count[0] == 11:
            Session.learn = learn
            os.kill(os.getpid(), signal.SIGTERM)
        return learn(self, *args, **kwargs)

    Session.learn = counted


def _command(*words: str, code: int = 0) -> None:
    from ocil.cli import main as ocil

    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            ocil(list(words))
    except SystemExit as stop:
        if stop.code != code:
            raise RuntimeError(f"exit {stop.code}: {said.getvalue()[-400:]}") from None


def _classifier(name: str) -> dict[str, Any]:
    """Odd chunks, saved and loaded in the middle; state, labels and probabilities at the end."""
    import hashlib
    import tempfile

    import numpy as np
    import torch
    from sklearn.datasets import load_digits

    import ocil
    from ocil.settings import Settings

    given = dict(CLASSIFIERS[name])
    if "steps" in given and hasattr(Settings, "updates"):  # its name in the new tree
        given["updates"] = given.pop("steps")
    if hasattr(Settings, "anchor"):  # the default of the new tree has one
        given |= {"anchor": "none", "effort": "fixed", "jury": False, "scale": False}
    method, kind, net = given.pop("method"), given.pop("net", "mlp"), None
    if kind in ("module", "frozen"):
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Linear(64, 20), torch.nn.ReLU())
        net.requires_grad_(kind == "module")
    torch.set_num_threads(1)
    x, y = load_digits(return_X_y=True)
    x, y = (x / 16).astype(np.float32)[:300], y[:300]
    order = np.argsort(y, kind="stable")
    model = ocil.Classifier(method, memory=60, net=net or kind, seed=5, **given)
    start, size = 0, 1
    while start < len(x):
        rows = order[start : start + size]
        model.partial_fit(x[rows], [str(label) for label in y[rows]])
        start, size = start + size, size % 23 + 3
        if start > 150 and net is None and isinstance(model.state_sha256(), str):
            with tempfile.TemporaryDirectory() as folder:
                model.save(f"{folder}/a.ocil")
                model = ocil.load(f"{folder}/a.ocil")
    model.flush()
    shares = np.ascontiguousarray(model.predict_proba(x[:50]))
    return {
        "state_sha256": model.state_sha256(),
        "classes": model.classes_.tolist(),
        "probabilities": hashlib.sha256(shares.tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
