#!/usr/bin/env python3
"""Verifies the models of this folder with Spin: exhaustively, and that they would notice what they are there to
notice.

  check.py            everything (about four minutes on two cores)
  check.py NAME...    only these runs; --list prints their names
  check.py --keep DIR leaves the generated verifiers and error trails there

A run passes when
  verify   the search was complete and found no error
  planted  the search found an error: the variant has a bug that must not go unnoticed
  reach    the search found the state asked for: the model really goes there

Needs spin and gcc. Exit code 0: all passed, 1: not, 2: usage.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence

FOLDER = pathlib.Path(__file__).resolve().parent
LIMIT_S = 400
MEMORY_MB = 1900  # of one run; two go side by side


@dataclasses.dataclass(frozen=True)
class Run:
    name: str
    kind: str  # verify | planted | reach
    defines: tuple[str, ...]
    cycles: bool = False  # look for infinite runs too
    what: str = ""
    model: str = "two_phase_commit.pml"


def orphans(name: str, kind: str, *defines: str, what: str = "") -> Run:
    return Run(name, kind, defines, what=what, model="orphans.pml")


def epochs(name: str, kind: str, *defines: str, what: str = "") -> Run:
    return Run(name, kind, defines, what=what, model="epochs.pml")


def cut(name: str, kind: str, *defines: str, what: str = "") -> Run:
    return Run(name, kind, defines, what=what, model="cut.pml")


SMALL = ("N=2", "CRASHES=1")
RUNS = [
    Run("crashes", "verify", ("N=3", "CRASHES=2"), what="3 participants, 2 crashes, every message again and late"),
    Run("links", "verify", ("N=3", "CRASHES=1", "BREAKS=1"),
        what="3 participants, a crash, a broken link, every message again and late"),
    Run("timers", "verify", ("N=2", "CRASHES=2", "BREAKS=1", "TIMERS=1"),
        what="2 participants, 2 crashes, a broken link, an early timer, every message again and late"),
    Run("ends", "verify", ("N=2", "CRASHES=2", "BREAKS=1", "DUPLICATES=0"), cycles=True,
        what="2 participants, 2 crashes, a broken link, late messages: no run is infinite"),
    Run("early", "verify", ("N=3", "CRASHES=1", "EARLY=1"),
        what="3 participants, any asked to prepare with their operations, a crash, every message again and late"),
    Run("early-timers", "verify", ("N=2", "CRASHES=2", "BREAKS=1", "TIMERS=1", "EARLY=1"),
        what="the same of 2, 2 crashes, a broken link, an early timer"),
    Run("early-ends", "verify", ("N=2", "CRASHES=2", "BREAKS=1", "EARLY=1", "DUPLICATES=0"), cycles=True,
        what="the same of 2, 2 crashes, a broken link, late messages: no run is infinite"),
    orphans("orphans", "verify", "N=3", "CRASHES=3", "BREAKS=1",
            what="3 participants that keep nothing, 3 crashes, a broken link, any stalls"),
    epochs("epochs", "verify", what="workers with two transactions and one, of both kinds"),
    epochs("epochs-raised", "verify", "TRANSACTIONS=1", "MAX_G=4", what="a transaction each, G goes further"),
    epochs("epochs-overflow", "verify", "LONGS=0", "MAX_G=3", "OVERFLOWS=1", what="workers raise G too"),
    epochs("epochs-kills", "verify", "OTHERS=0", "MAX_G=3", "KILLS=2", "LOGGER_KILLS=2",
           what="one worker, killed twice, and its logger twice"),
    epochs("epochs-kills-of-one", "verify", "LONGS=0", "KILLS=1", "LOGGER_KILLS=2",
           what="an island is killed beside another, and the logger twice"),
    epochs("epochs-several", "verify", "LOOKS_AGAIN", what="workers that read after they have changed something"),
    cut("cut", "verify", "RAISES=1", what="2 islands, 2 transactions, a loss of power that keeps any part"),
    cut("cut-raised", "verify", "RAISES=2", "ANY_PART=0", what="2 islands, 2 transactions, 3 epochs, a loss of power"),
    cut("cut-kills", "verify", "RAISES=1", "KILLS=1", "ANY_PART=0", what="a kill of an island, a loss of power"),
    cut("cut-twice", "verify", "RAISES=1", "LOSSES=2", "ANY_PART=0", what="two losses of power, also in recovery"),
    cut("cut-three", "verify", "N=3", "RAISES=1", "ANY_PART=0", what="3 islands, 2 transactions, a loss of power"),
    cut("cut-three-often", "verify", "N=3", "T=1", "KILLS=1", "LOSSES=2", "ANY_PART=0",
        what="3 islands, a transaction on all, a kill, two losses of power"),
    Run("forgets-before-acks", "planted", SMALL + ("PREMATURE_FORGET",)),
    Run("yes-after-restart", "planted", SMALL + ("VOTE_YES_AFTER_RESTART",)),
    Run("presumes-one-phase", "planted", SMALL + ("PRESUME_ONE_PHASE",)),
    Run("decides-before-durable", "planted", SMALL + ("DECIDE_BEFORE_DURABLE",)),
    Run("acknowledges-before-durable", "planted", SMALL + ("ACKNOWLEDGE_BEFORE_DURABLE",)),
    Run("aborts-in-doubt", "planted", SMALL + ("ABORT_IN_DOUBT",)),
    Run("never-asks", "planted", SMALL + ("NEVER_ASK",)),
    Run("prepares-too-early", "planted", SMALL + ("PREPARE_TOO_EARLY",)),
    Run("votes-read-early", "planted", SMALL + ("EARLY=1", "READ_VOTES_EARLY")),
    Run("counts-earlier-lives", "planted", SMALL + ("EARLY=1", "COUNTS_EARLIER_LIVES")),
    orphans("gives-up-by-a-clock", "planted", "GIVES_UP_BY_A_CLOCK"),
    orphans("acknowledges-unapplied", "planted", "ACKNOWLEDGES_UNAPPLIED"),
    orphans("orphans-abort-at-once", "planted", "ABORTS_AT_ONCE"),
    orphans("links-not-read-to-the-end", "planted", "NOT_READ_TO_THE_END"),
    orphans("answers-while-it-may-still-hear", "planted", "ANSWERS_EARLY"),
    orphans("ignores-who-else-is-gone", "planted", "IGNORE_GONE"),
    orphans("keeps-old-answers", "planted", "KEEPS_OLD_ANSWERS"),
    orphans("forgets-commits", "planted", "FORGETS_COMMITS"),
    epochs("g-before-the-lock", "planted", "G_BEFORE_THE_LOCK"),
    epochs("no-second-read-of-g", "planted", "NO_SECOND_READ"),
    epochs("tails-before-holds", "planted", "TAILS_BEFORE_HOLDS"),
    epochs("g-after-holds", "planted", "G_AFTER_HOLDS", "OVERFLOWS=1"),
    epochs("hold-released-early", "planted", "HOLD_RELEASED_EARLY"),
    epochs("two-epochs-of-a-redo-only-record", "planted", "TWO_EPOCHS"),
    epochs("one-epoch-but-it-suspends", "planted", "READS_AFTER_FIRST_CHANGE"),
    epochs("counter-overflows-alone", "planted", "OVERFLOWS_ALONE", "OVERFLOWS=1"),
    epochs("epoch-before-sync", "planted", "EPOCH_BEFORE_SYNC"),
    epochs("epoch-may-fall", "planted", "EPOCH_MAY_FALL", "MAX_G=3"),
    epochs("answers-before-epoch-is-synced", "planted", "ANSWERS_BEFORE_EPOCH_SYNCED"),
    epochs("page-before-epoch", "planted", "PAGE_BEFORE_EPOCH"),
    epochs("page-before-epoch-is-synced", "planted", "PAGE_BEFORE_EPOCH_SYNCED"),
    epochs("starts-before-drained", "planted", "STARTS_BEFORE_DRAINED", "KILLS=1"),
    epochs("lsn-reset", "planted", "SAME_G_AFTER_KILL", "KILLS=1"),
    epochs("new-logger-trusts-what-is-written", "planted", "TRUSTS_WHAT_IS_WRITTEN", "LOGGER_KILLS=1"),
    epochs("new-logger-publishes-what-it-finds", "planted", "PUBLISHES_WHAT_IT_FINDS", "LOGGER_KILLS=1"),
    cut("answers-at-commit", "planted", "ANSWERS_AT_COMMIT"),
    cut("cut-at-what-islands-claim", "planted", "CUT_AT_ISLANDS_MINIMUM"),
    cut("cut-not-recorded", "planted", "CUT_NOT_RECORDED", "LOSSES=2"),
    cut("epochs-come-again", "planted", "EPOCHS_COME_AGAIN", "LOSSES=2"),
    cut("read-vote-without-epoch", "planted", "READ_VOTES_WITHOUT_EPOCH"),
    cut("next-life-forgets-commits", "planted", "NEXT_LIFE_FORGETS_COMMITS", "KILLS=1"),
    cut("yes-before-prepare", "planted", "YES_BEFORE_PREPARE", "LOSSES=0", "KILLS=1"),
    cut("commit-reads-g-early", "planted", "COMMIT_READS_G_EARLY"),
    cut("end-reads-g-early", "planted", "END_READS_G_EARLY"),
    Run("committed", "reach", SMALL + ("REACH=answer==COMMITTED&&coordinator==DONE&&commit_durable",)),
    Run("unknown", "reach", SMALL + ("REACH=answer==UNKNOWN",)),
    Run("recovered-coordinator", "reach", SMALL + ("REACH=coordinator==COMMITTING&&coordinator_restarted",)),
    Run("recovered-in-doubt", "reach", SMALL + ("REACH=p[0].machine==PREPARED&&!p[0].same_life",)),
    Run("recovered-decider", "reach", SMALL + ("REACH=p[0].machine==DECIDED_C&&!p[0].same_life",)),
    Run("voted-while-others-execute", "reach", SMALL + ("EARLY=1", "REACH=p[1].vote==YES&&!p[0].executed")),
    Run("asked-again", "reach", SMALL + ("EARLY=1", "REACH=p[0].prepare_early!=0&&p[0].vote==READ")),
    Run("commit-without-answer", "reach", SMALL + ("REACH=commit_durable&&answer==0",)),
    orphans("aborted-with-a-fellow-gone", "reach", "REACH=p[0].state==ABORTED&&p[0].gone!=0&&p[0].doubt!=0"),
    orphans("told-by-a-fellow", "reach", "REACH=p[0].state==COMMITTED&&p[0].gone!=0&&coordinator==CDEAD"),
    orphans("share-lost", "reach", "REACH=coordinator==CDONE&&p[0].state==DEAD&&p[1].state==COMMITTED"),
    epochs("epoch-over-while-it-ran", "reach", "REACH=w[0].step==PUBLISH&&t[0].change.epoch&&t[0].source",
           "LOOKS_AGAIN", "LONGS=0"),
    epochs("stale-hold", "reach", "REACH=w[0].hold<=durable", "MAX_G=3"),
    epochs("undo-of-a-page-at-home", "reach", "REACH=page&1&&MAY_GO_HOME&&t[0].commit.epoch>epoch_written"),
    cut("lazy-answer-lost", "reach", "REACH=box==CUT_MADE&&IS_COMMITTED(0)&&VOID(t[0].commit.epoch)"),
    cut("lost-beside-a-survivor", "reach",
        "REACH=box==CUT_MADE&&t[0].answered&&COUNTS(t[0].commit)&&IS_COMMITTED(1)&&VOID(t[1].commit.epoch)"),
    cut("in-doubt-finds-a-commit", "reach",
        "REACH=box==UP&&cut[0].next>0&&t[0].state==COMMITTING&&B(0,1).state==PREPARED"),
    cut("in-doubt-finds-none", "reach", "REACH=box==UP&&cut[0].next>0&&t[0].state==GONE&&B(0,1).state==PREPARED"),
    cut("dark-again-before-it-opened", "reach", "REACH=box==CUT_MADE&&cut[1].next>0", "LOSSES=2"),
]


class Broken(Exception):
    """A tool failed."""


def call(command: Sequence[str], folder: pathlib.Path, limit_s: float = LIMIT_S) -> str:
    try:
        done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise Broken(f"'{command[0]}' took longer than {limit_s} s") from error
    if done.returncode != 0:
        raise Broken(f"'{' '.join(command)}' failed with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.stdout


def verify(run: Run, folder: pathlib.Path) -> tuple[bool, str]:
    """Returns (passed, one line about it)."""
    folder.mkdir(parents=True)
    shutil.copy(FOLDER / run.model, folder)
    # The file by its plain name, so that trails and messages say it too. Spin hands the definitions to a shell.
    call(["spin", "-a", *(f"-D'{define}'" for define in run.defines), run.model], folder)
    optimize = "-O1" if run.kind == "verify" else "-O0"
    call(["gcc", "-w", optimize, "-DNP" if run.cycles else "-DSAFETY", "-DNOREDUCE", f"-DMEMLIM={MEMORY_MB}",
          "-o", "pan", "pan.c"], folder)
    begin = time.monotonic()
    # -m: depth of the search; -w: size of its hash table, 2^w entries.
    text = call(["./pan", "-m200000", "-w24" if run.kind == "verify" else "-w18"] + ["-l"] * run.cycles, folder)
    seconds = time.monotonic() - begin
    errors = re.search(r"errors: (\d+)", text)
    states = re.search(r"(\d+) states, stored", text)
    memory = re.search(r"([\d.]+)\s+total actual memory usage", text)
    if not (errors and states and memory):
        raise Broken(f"pan said:\n{text}")
    numbers = f"{int(states[1]):>10,} states {float(memory[1]):6.0f} MB {seconds:6.1f} s"
    if run.kind != "verify":
        if errors[1] == "0":
            return False, f"{numbers}  nothing was found"
        found = re.search(r"pan:\d+: (.*)", text)
        return True, f"{numbers}  {found[1] if found else ''}"
    for incomplete in ("max search depth too small", "Search not completed", "out of memory", "memory limit"):
        if incomplete in text and errors[1] == "0":
            return False, f"{numbers}  incomplete: {incomplete}"
    if errors[1] != "0":
        found = re.search(r"pan:\d+: (.*)", text)
        return False, (f"{numbers}  {found[1] if found else 'an error'}\n"
                       f"    see it: {__file__} --keep DIR {run.name}; cd DIR/{run.name}; ./pan -r")
    return True, f"{numbers}  {run.what}"


def guarded(run: Run, folder: pathlib.Path) -> tuple[bool, str]:
    try:
        return verify(run, folder)
    except Broken as error:
        return False, str(error)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR")
    arguments = parser.parse_args()
    if arguments.list:
        for run in RUNS:
            print(f"{run.name:28} {run.kind:8} {' '.join(run.defines)}")
        return 0
    known = {run.name for run in RUNS}
    for name in arguments.names:
        if name not in known:
            parser.error(f"no run is called '{name}'; --list prints their names")
    for tool in ("spin", "gcc"):
        if shutil.which(tool) is None:
            print(f"check.py: '{tool}' is not installed; run deploy/install-packages.sh, or apt-get install {tool}",
                  file=sys.stderr)
            return 1
    runs = [run for run in RUNS if not arguments.names or run.name in arguments.names]
    failed = 0
    with tempfile.TemporaryDirectory(prefix="islands-spin-") as scratch:
        folder = pathlib.Path(scratch)
        if arguments.keep:
            arguments.keep.mkdir(parents=True, exist_ok=True)
            folder = arguments.keep.resolve()
            for run in runs:
                shutil.rmtree(folder / run.name, ignore_errors=True)
        with concurrent.futures.ThreadPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
            futures = [pool.submit(guarded, run, folder / run.name) for run in runs]
            for run, future in zip(runs, futures):
                passed, line = future.result()
                failed += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {run.kind:8} {run.name:28} {line}", flush=True)
    print(f"{len(runs) - failed} of {len(runs)} passed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
