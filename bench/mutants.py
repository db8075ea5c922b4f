"""Deliberate faults, one at a time, and which of them the tests notice: `make mutants`.

300 faults are drawn at random (`mutants_draw.py` says which kinds there are and what is left out by
rule) and 100 are chosen by hand (`mutants_chosen.toml`), over the packages below. For each, the
tests of the fast suite that execute the line run on a copy of the sources that holds the fault
(`mutants_run.py`); what survives is listed in results/bench/mutants.md.

The map from tests to lines is kept in .mutants/, which git ignores; only what has changed since is
traced again. `--again` skips the faults that a test noticed before, and those for which there are
as many tests as then, to see what new tests change.
"""

from __future__ import annotations

import argparse
import collections
import hashlib
import importlib
import json
import os
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

from mutants_draw import Fault, faults_of
from mutants_run import Outcome, Test, Tree, can_notice, read_map, run_all

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("mixture", "losses", "memory", "learners", "run", "data")
NOT_CODE = ("sources.py", "names.py", "__init__.py")  # tables of facts and lists of names
CACHE = ROOT / ".mutants"
REPORT = ROOT / "results" / "bench" / "mutants.md"
CHOSEN = ROOT / "bench" / "mutants_chosen.toml"
HEAVY = (
    "torch", "numpy", "scipy.special", "scipy.optimize", "sklearn.base", "sklearn.datasets",
    "hypothesis", "PIL.Image", "safetensors.torch", "rich.progress", "rich.table",
    "filelock", "pyarrow.parquet", "jinja2",
)  # fmt: skip
BARS = {"random": 0.95, "chosen": 0.85}


def sources() -> list[str]:
    found = [p for name in PACKAGES for p in sorted((ROOT / "src/ocil" / name).rglob("*.py"))]
    kept = [p for p in found if p.name not in NOT_CODE]
    return [str(p.relative_to(ROOT)) for p in [*kept, ROOT / "src/ocil/classifier.py"]]


def random_faults(count: int, seed: int) -> list[Fault]:
    """So many of all faults that can be made, each as likely, in order of their place.

    A fault is drawn by the hash of what it is, so that an edit elsewhere draws no others.
    """
    met: collections.Counter[tuple[str, str]] = collections.Counter()
    ranked = []
    for fault in (fault for file in sources() for fault in faults_of(ROOT, file)):
        met[fault.file, fault.what] += 1
        name = f"{seed} {fault.file} {fault.what} {met[fault.file, fault.what]}"
        if not fault.alike:
            ranked.append((hashlib.sha256(name.encode()).hexdigest(), fault))
    return sorted(fault for _, fault in sorted(ranked)[:count])


def chosen_faults() -> list[Fault]:
    """Those of the list; a text that is not found exactly once stops everything."""
    found = []
    for row in tomllib.loads(CHOSEN.read_text())["fault"]:
        source = (ROOT / row["file"]).read_text()
        if source.count(row["old"]) != 1:
            raise SystemExit(f"{row['file']} has {source.count(row['old'])} times: {row['old']}")
        start = source.index(row["old"])
        first = source.count("\n", 0, start) + 1
        last = first + row["old"].rstrip().count("\n")
        end = start + len(row["old"])
        inside = row.get("inside", True)
        found.append(Fault(row["file"], start, end, row["new"], first, last, inside, row["breaks"]))
    return found


# -------------------------------------------------------------------- which test executes what


def digest(*paths: Path) -> str:
    return hashlib.sha256(b"".join(p.read_bytes() for p in paths)).hexdigest()


def files_now() -> dict[str, str]:
    """A digest for every file that tests run: sources, and test files with their conftests."""
    found = {}
    for path in [*(ROOT / "src").rglob("*.py"), *(ROOT / "tests").rglob("test_*.py")]:
        helpers = [p / "conftest.py" for p in path.parents if p.is_relative_to(ROOT / "tests")]
        name = str(path.relative_to(ROOT))
        found[name] = digest(path, *(h for h in helpers if h.exists()))
    return found


def up_to_date(workers: int) -> list[Test]:
    """The map; the test files that changed, or that touch a changed source, are traced again."""
    CACHE.mkdir(exist_ok=True)
    stamp, now = CACHE / "files.json", files_now()
    before = json.loads(stamp.read_text()) if stamp.exists() else {}
    kept = [t for t in read_map(CACHE.glob("map.jsonl*")) if t.file in now]
    changed = {name for name, value in now.items() if before.get(name) != value}
    stale = {t.file for t in kept if t.file in changed or changed & set(t.lines)}
    stale |= {name for name in changed if name.startswith("tests/")}
    stale |= {name for name in changed if ">>> " in (ROOT / name).read_text()}
    if stale:
        print(f"Tracing {len(stale)} files of tests.", flush=True)
        # Unknown until they are traced, so that a trace that is broken off is made again.
        stamp.write_text(json.dumps({n: v for n, v in before.items() if n not in stale}))
        trace(sorted(stale), workers, [t for t in kept if t.file not in stale])
        stamp.write_text(json.dumps(now))
    return read_map(CACHE.glob("map.jsonl*"))


def trace(files: list[str], workers: int, kept: list[Test]) -> None:
    for old in CACHE.glob("map.jsonl*"):
        old.unlink()
    rows = [
        {"test": t.name, "ok": True, "seconds": t.seconds}
        | {"lines": {f: sorted(numbers) for f, numbers in t.lines.items()}}
        for t in kept
    ]
    (CACHE / "map.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = [sys.executable, "-m", "pytest", "-p", "mutants_trace", "-n", str(workers), *files]
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        # In a copy, as the faults are: a test that only passes in the work tree notices nothing.
        tree = Tree(ROOT, Path(place) / "whole").place
        paths = os.pathsep.join([str(tree / "src"), str(tree / "bench")])
        env = os.environ | {"MUTANTS_TRACE": str(CACHE / "map.jsonl"), "PYTHONPATH": paths}
        subprocess.run(call, cwd=tree, env=env, check=False, stdout=subprocess.DEVNULL)


# -------------------------------------------------------------------- run and report


def key_of(fault: Fault) -> str:
    whole = (ROOT / fault.file).read_text()
    return hashlib.sha256(fault.apply(whole).encode() + fault.file.encode()).hexdigest()


def outcomes(faults: list[Fault], tests: list[Test], workers: int, again: bool) -> list[Outcome]:
    cache = CACHE / "outcomes.json"
    known = json.loads(cache.read_text()) if cache.exists() else {}
    keys = [key_of(fault) for fault in faults]
    every = [(i, fault, can_notice(fault, tests)) for i, fault in enumerate(faults)]
    past = {i: Outcome(*known[keys[i]]) for i, _, _ in every if again and keys[i] in known}
    done = {i: o for i, o in past.items() if o.noticed or o.tests == len(every[i][2])}
    todo = [row for row in every if row[0] not in done]
    with tempfile.TemporaryDirectory(prefix="mutants-") as place:
        trees = [Tree(ROOT, Path(place) / str(i)) for i in range(workers)]
        for i, outcome in run_all(trees, todo):
            done[i] = outcome
            known[keys[i]] = outcome
            cache.write_text(json.dumps(known))
            fault = faults[i]
            said = outcome.noticed or "NOT NOTICED"
            print(f"{len(done)}/{len(faults)} {fault.file}:{fault.line} {fault.what} - {said}")
            sys.stdout.flush()
    return [done[i] for i in range(len(faults))]


def package(fault: Fault) -> str:
    name = Path(fault.file).parent.name
    return "classifier" if name == "ocil" else name


def counts(faults: list[Fault], found: list[Outcome]) -> dict[str, tuple[int, int]]:
    """(noticed, made) of each package, and of all."""
    made, noticed = collections.Counter[str](), collections.Counter[str]()
    for fault, outcome in zip(faults, found, strict=True):
        for name in (package(fault), "all"):
            made[name] += 1
            noticed[name] += bool(outcome.noticed)
    return {name: (noticed[name], made[name]) for name in (*PACKAGES, "classifier", "all")}


def report(kinds: dict[str, tuple[list[Fault], list[Outcome]]], seed: int, how: str) -> str:
    tables = {kind: counts(*pair) for kind, pair in kinds.items()}
    lines = [
        "# Deliberate faults and whether the tests notice them",
        "",
        "Made by `make mutants` (`bench/mutants.py` says how): faults drawn at random with seed "
        f"{seed}, and others",
        "chosen by hand, one at a time; the tests of the fast suite that execute the line run on "
        "each.",
        f"The bars are {BARS['random']:.0%} of the random and {BARS['chosen']:.0%} of the chosen.",
        how,
        "",
        "| package | random: noticed of made | chosen: noticed of made |",
        "|---|---|---|",
    ]
    for name in (*PACKAGES, "classifier", "all"):
        cells = ["{} of {}".format(*tables[kind][name]) for kind in BARS]
        lines.append(f"| {name} | {cells[0]} | {cells[1]} |")
    shares = [f"{tables[k]['all'][0] / tables[k]['all'][1]:.1%} of the {k}" for k in BARS]
    lines += ["", f"Noticed: {' and '.join(shares)}.", ""]
    for kind, (faults, found) in kinds.items():
        lines += [f"## What survives of the {kind}", ""]
        for fault, outcome in zip(faults, found, strict=True):
            if not outcome.noticed:
                ran = f"{outcome.tests} tests run" if outcome.tests else "no test executes it"
                lines.append(f"- {fault.file}:{fault.line} {fault.what} ({ran})")
        lines.append("")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--random", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--again", action="store_true")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
    sys.dont_write_bytecode = True
    began = time.monotonic()
    kinds = {"random": random_faults(given.random, given.seed), "chosen": chosen_faults()}
    tests = up_to_date(given.workers)
    for name in HEAVY:
        importlib.import_module(name)
    both = outcomes([*kinds["random"], *kinds["chosen"]], tests, given.workers, given.again)
    split = len(kinds["random"])
    pairs = {"random": (kinds["random"], both[:split]), "chosen": (kinds["chosen"], both[split:])}
    how = f"One pass, {(time.monotonic() - began) / 60:.0f} minutes."
    if given.again:
        how = "Put together from several passes (`--again`)."
    text = report(pairs, given.seed, how)
    REPORT.write_text(text)
    print(text)
    for kind, bar in BARS.items():
        noticed, made = counts(*pairs[kind])["all"]
        if noticed < bar * made:
            raise SystemExit(f"Only {noticed} of {made} {kind} faults are noticed; see {REPORT}.")


if __name__ == "__main__":
    main()
