# SPDX-License-Identifier: Apache-2.0
"""The fault programme: every enumeration of faults in full, power losses, each fuzzer for a limited time, seeded
faults, and trainings with randomly drawn faults.

usage: nightly.py [--minutes N] [--fuzz-minutes N] [--soak-minutes N] [--only PART]
                            runs the programs in build/test and build/fuzz (scripts/test --nightly=N builds them), and
                            continues where it stopped; parts are "faults", "power loss", "fuzzing", "seeded faults" and
                            "soak"
       nightly.py --corpus  stores the findings of the fuzzers in tests/fuzz/corpus

Fuzzers run at the same time as the other parts, on the processors that those do not use. build/nightly/state.json
records what has been done. It is reset when everything has been done, or if the sources have changed. The reports are
build/nightly/report.md and report.json.
"""
import argparse
import concurrent.futures
import filecmp
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/abi"))
from seeded_faults import FAULTS  # noqa: E402

HERE = ROOT / "build/nightly"
CORPUS = ROOT / "tests/fuzz/corpus"
NOT_CAUGHT = "nothing", "the compiler: choose another fault"
MOST_BYTES = 28 << 10  # the limit for the corpus of one target in the repository


def number(pattern, text):
    return sum(int(found) for found in re.findall(pattern, text, flags=re.M))


running = set()  # leaders of separate sessions, which Ctrl-C does not reach


def kill(leader):
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass


def end(number, _):
    """End immediately. The results so far have been saved."""
    for leader in list(running):
        kill(leader)
    os._exit(128 + number)


def run(command, log, seconds, env=None):
    """Run a command. Return its exit status, or None if it exceeded the time. All processes that it has started end
    with it."""
    with open(log, "ab") as out, subprocess.Popen(command, stdout=out, stderr=out, cwd=HERE, start_new_session=True,
                                                  env={**os.environ, **(env or {})}) as process:
        running.add(process.pid)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None
        finally:
            running.discard(process.pid)
            kill(process.pid)


# ---- Units: each is done as a whole, but for fuzzing and the soak, which go on.

class Enumeration:
    """A test program that runs all of its trials."""

    def __init__(self, test):
        self.part = "power loss" if test["name"] == "power_loss" else "faults"
        self.name, self.test = test["name"], test

    def go_on(self, unit, seconds):
        log = HERE / f"{self.name}.log"
        log.unlink(missing_ok=True)
        status = run(self.test["cmd"], log, seconds, {**self.test["env"], "ZERO_TEST_NIGHTLY": "1"})
        if status is None:
            return
        text = log.read_text(encoding="utf-8", errors="replace")
        failed = number(r"^\[  FAILED  \] (\d+) tests?, listed below", text)
        unit.update(done=True, trials=number(r"^trials: (\d+)", text), violations=failed or int(status != 0))


class Fuzzing:
    """A fuzzer that runs for a given total number of seconds."""
    part = "fuzzing"

    def __init__(self, program, seconds):
        self.name, self.program, self.seconds = program.name.removeprefix("fuzz_"), program, seconds

    def go_on(self, unit, seconds):
        found = HERE / "corpus" / self.name
        unpack(self.name, found)
        seconds = min(seconds, self.seconds - unit["seconds"])
        log = HERE / f"fuzz_{self.name}.log"
        log.unlink(missing_ok=True)
        # The fuzzer checks the time between two inputs.
        status = run(["nice", "-n", "19", self.program, found, f"-max_total_time={max(int(seconds), 1)}", "-print_final_stats=1", "-timeout=60",
                      "-max_len=4096", "-rss_limit_mb=4096", f"-artifact_prefix={HERE}/{self.name}-"], log, seconds + 120,
                     {"UBSAN_OPTIONS": "print_stacktrace=1"})
        text = log.read_text(encoding="utf-8", errors="replace")
        unit["trials"] += number(r"^stat::number_of_executed_units: +(\d+)", text)
        unit["violations"] += int(status != 0)
        unit["done"] = status != 0 or unit["seconds"] + seconds >= self.seconds - 1


class Soak:
    """Trainings with randomly drawn faults, for a given total number of seconds."""
    part = "soak"

    def __init__(self, test, seconds):
        self.name, self.test, self.seconds = test["name"], test, seconds

    def go_on(self, unit, seconds):
        seconds = min(seconds, self.seconds - unit["seconds"])
        log = HERE / f"{self.name}.log"
        log.unlink(missing_ok=True)
        # The soak test checks the time between two trainings, and draws another seed each time.
        status = run(self.test["cmd"], log, seconds + 120, {**self.test["env"], "ZERO_SOAK_SECONDS": str(int(seconds))})
        text = log.read_text(encoding="utf-8", errors="replace")
        kinds = unit.setdefault("kinds", {})
        for count, kind in re.findall(r"^faults: (\d+) (.+)$", text, flags=re.M):
            kinds[kind] = kinds.get(kind, 0) + int(count)
        unit["trials"] = sum(kinds.values())
        unit["violations"] += int(status != 0)
        unit["done"] = status != 0 or unit["seconds"] + seconds >= self.seconds - 1


class Seeded:
    """A fault in a copy of the sources. A test program that knows that code, or any other test program, must fail."""
    part = "seeded faults"
    tree, log = HERE / "seeded", HERE / "seeded.log"
    build = tree / "build/test"  # at the depth of other build folders, whose objects a cache may have

    def __init__(self, number_of, fault):
        self.file, self.old, self.new, self.first = fault
        self.name = f"{number_of}, {self.file}"

    def go_on(self, unit, seconds):
        deadline = time.monotonic() + seconds
        copy_sources(self.tree)  # this removes the previous fault
        if not self.is_built(deadline):
            return
        file = self.tree / "src" / self.file
        file.write_text(file.read_text(encoding="utf-8").replace(self.old, self.new), encoding="utf-8")
        caught = self.caught_by(deadline)
        if caught is not None:
            unit.update(done=True, trials=1, violations=int(caught in NOT_CAUGHT), caught_by=caught)

    def call(self, deadline, *command):
        return run(command, self.log, max(deadline - time.monotonic(), 0))

    def is_built(self, deadline):
        """Also build libraries that programs load without naming them as dependencies."""
        built = self.tree / "build/built"
        if not built.exists() or built.read_text(encoding="utf-8") != revision():
            setup = ["meson", "setup", self.build, self.tree, "-Dwerror=true", "-Db_ndebug=false", "-Dtests=enabled",
                     "-Dcuda=disabled", "-Doptimization=1", "-Dbench=disabled"]
            if not (self.build / "build.ninja").exists() and self.call(deadline, *setup) != 0:
                return False
            if self.call(deadline, "ninja", "-C", self.build) != 0 or not self.is_sound(deadline):
                return False
            built.write_text(revision(), encoding="utf-8")
        return True

    def is_sound(self, deadline):
        """Return whether the tests that the list names pass without a fault. Otherwise they would prove nothing."""
        named = {name for *_, first in FAULTS for name in first.split()}
        for test in tests_of(self.build):
            if test["name"] not in named or not test["cmd"][0].startswith(str(self.build)):
                continue
            status = run(test["cmd"], self.log, max(deadline - time.monotonic(), 0), test["env"])
            if status not in (0, 77, None):
                sys.exit(f"{test['name']} fails without a fault: {self.log}")
            if status is None:
                return False
        return True

    def caught_by(self, deadline):
        """Return the first test that fails, or one of NOT_CAUGHT. Return None if the time was exceeded."""
        tests = [test for test in tests_of(self.build) if test["cmd"][0].startswith(str(self.build))]
        first = [test for name in self.first.split() for test in tests if test["name"] == name]
        for some in (first, [test for test in tests if test not in first]):
            programs = {os.path.relpath(test["cmd"][0], self.build) for test in some}
            built = self.call(deadline, "ninja", "-C", self.build, *programs)
            if built != 0:
                return None if built is None else NOT_CAUGHT[1]
            for test in some:
                left = deadline - time.monotonic()
                status = run(test["cmd"], self.log, max(min(left, test["timeout"]), 0),
                             {**test["env"], "GTEST_FAIL_FAST": "1"})
                if status is None and left < test["timeout"]:
                    return None
                if status not in (0, 77):  # 77 means skipped
                    return test["name"] if status is not None else f"{test['name']}, which hangs"
        return NOT_CAUGHT[0]


def copy_sources(tree):
    """Copy only files that differ, so that little is rebuilt."""
    for name in subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines():
        ours, copy = ROOT / name, tree / name
        if not ours.is_file() or (copy.is_file() and filecmp.cmp(ours, copy, shallow=False)):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ours, copy)


def tests_of(build):
    return json.loads(subprocess.check_output(["meson", "introspect", "--tests", build]))


def units(arguments):
    tests = [test for test in tests_of(ROOT / "build/test") if any(suite.endswith(":fault") for suite in test["suite"])]
    enumerations = [Enumeration(test) for test in tests if test["name"] != "soak"]
    soak = [Soak(test, 60 * arguments.soak_minutes) for test in tests if test["name"] == "soak"]
    programs = [ROOT / "build/fuzz/tests/fuzz" / f"fuzz_{corpus.stem}" for corpus in sorted(CORPUS.glob("*.txt"))]
    fuzzers = [Fuzzing(program, 60 * arguments.fuzz_minutes) for program in programs if program.exists()]
    seeded = [Seeded(i, fault) for i, fault in enumerate(FAULTS, 1)]
    return sorted(enumerations, key=lambda unit: unit.part) + fuzzers + seeded + soak


# ---- Corpora: in the repository a file a target, with an input a line, as tests/fuzz/replay.cpp reads it.

def unpack(name, folder):
    folder.mkdir(parents=True, exist_ok=True)
    for i, line in enumerate((CORPUS / f"{name}.txt").read_text(encoding="ascii").splitlines()):
        (folder / f"kept-{i}").write_bytes(line.encode().decode("unicode_escape").encode("latin-1"))


def keep_corpus():
    for corpus in CORPUS.glob("*.txt"):
        found, least = HERE / "corpus" / corpus.stem, HERE / "least" / corpus.stem
        unpack(corpus.stem, found)
        shutil.rmtree(least, ignore_errors=True)
        least.mkdir(parents=True)
        subprocess.run([ROOT / "build/fuzz/tests/fuzz" / f"fuzz_{corpus.stem}", "-merge=1", least, found],
                       stderr=subprocess.DEVNULL, check=True)
        lines = set(corpus.read_text(encoding="ascii").splitlines())
        for data in sorted((file.read_bytes() for file in least.iterdir()), key=len):
            line = data.decode("latin-1").encode("unicode_escape").decode()
            if line and sum(map(len, lines)) + len(line) < MOST_BYTES:
                lines.add(line)
        corpus.write_text("".join(line + "\n" for line in sorted(lines)), encoding="ascii")
        print(f"{corpus.stem}: {len(lines)} inputs")


# ---- The run.

def revision():
    def git(*words):
        return subprocess.check_output(["git", *words], cwd=ROOT)

    changes = git("diff", "HEAD")
    return git("describe", "--always").decode().strip() + (f"-{hashlib.sha1(changes).hexdigest()[:7]}" if changes else "")


def report(state):
    parts = {}
    for unit in state["units"].values():
        total = parts.setdefault(unit["part"], {"done": 0, "of": 0, "trials": 0, "seconds": 0, "violations": 0})
        total["of"] += 1
        for key in ("done", "trials", "seconds", "violations"):
            total[key] += unit[key]
    lines = [f"# The fault programme, at {state['revision']}", "", "| part | done | trials | violations | minutes |",
             "| --- | --- | --- | --- | --- |"]
    for part, total in parts.items():
        lines.append(f"| {part} | {total['done']} of {total['of']} | {total['trials']:,} | {total['violations']} | "
                     f"{total['seconds'] / 60:.1f} |")
    lines += ["", "| unit | part | trials | violations | minutes | caught by |",
              "| --- | --- | --- | --- | --- | --- |"]
    for name, unit in state["units"].items():
        lines.append(f"| {name}{'' if unit['done'] else ' (not done)'} | {unit['part']} | {unit['trials']:,} | "
                     f"{unit['violations']} | {unit['seconds'] / 60:.1f} | {unit.get('caught_by', '')} |")
    for unit in state["units"].values():
        if "kinds" in unit:
            lines += ["", f"| fault of the {unit['part']} | times |", "| --- | --- |"]
            lines += [f"| {kind} | {count:,} |" for kind, count in unit["kinds"].items()]
    (HERE / "report.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (HERE / "report.json").write_text(json.dumps({**state, "parts": parts}, indent=1) + "\n", encoding="utf-8")
    return parts


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--fuzz-minutes", type=float, default=10)
    parser.add_argument("--soak-minutes", type=float, default=60)
    parser.add_argument("--only", default="")
    parser.add_argument("--corpus", action="store_true")
    arguments = parser.parse_args()
    HERE.mkdir(parents=True, exist_ok=True)
    if arguments.corpus:
        return keep_corpus()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, end)
    deadline = time.monotonic() + 60 * arguments.minutes
    file = HERE / "state.json"
    state = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    if state.get("revision") != revision() or all(unit["done"] for unit in state["units"].values()):
        state = {"revision": revision(), "units": {}}
    todo = units(arguments)
    for one in todo:
        state["units"].setdefault(f"{one.part}: {one.name}", {"part": one.part, "done": False, "trials": 0,
                                                              "violations": 0, "seconds": 0})
    one_at_a_time = threading.Lock()  # guards the state and its files

    def go_through(lane):
        for one in lane:
            kept = state["units"][f"{one.part}: {one.name}"]
            began = time.monotonic()
            if kept["done"] or deadline - began < 1 or arguments.only not in ("", one.part):
                continue
            unit = json.loads(json.dumps(kept))
            one.go_on(unit, deadline - began)
            unit["seconds"] += round(time.monotonic() - began)
            print(f"{one.part}: {one.name}: {unit['trials']:,} trials, {unit['violations']} violations, "
                  f"{unit['seconds']} s{'' if unit['done'] else ', not done'}", flush=True)
            with one_at_a_time:
                kept.update(unit)
                report(state)
                file.write_text(json.dumps(state), encoding="utf-8")

    with concurrent.futures.ThreadPoolExecutor(2) as lanes:
        list(lanes.map(go_through, ([one for one in todo if one.part != "fuzzing"],
                                    [one for one in todo if one.part == "fuzzing"])))
    parts = report(state)
    print((HERE / "report.md").read_text(encoding="utf-8"))
    return int(any(total["violations"] for total in parts.values()))


if __name__ == "__main__":
    sys.exit(main())
