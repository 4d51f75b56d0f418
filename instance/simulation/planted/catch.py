#!/usr/bin/python3
"""Switches every planted bug on in turn and sees that a test finds it; without one, the same tests must pass.

    catch.py [--all] DIRECTORY [BUG]...      DIRECTORY holds the planted_* binaries; BUG: only these;
                                             --all: every test of a bug has to find it, not only the first
"""
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time

Test = tuple[str, ...]  # a binary and its arguments


def only(binary: str, test: str) -> Test:
    """This test of the binary."""
    return (binary, f"--gtest_filter={test}", "--gtest_fail_fast")


def executor(test: str) -> Test:
    return only("planted_executor", test)


def locks(test: str) -> Test:
    return only("planted_locks", test)


def in_doubt(test: str) -> Test:
    return only("planted_in_doubt", f"*/InDoubtTest.{test}*")


def orphans(test: str) -> Test:
    return only("planted_in_doubt", f"*/OrphansTest.{test}*")


EARLY = only("planted_in_doubt", "Cases/EarlyPrepare.Voter*")
SEEDS = ("planted_seeds", "--gtest_filter=*Simulate*", "--gtest_fail_fast")
MORE_SEEDS = (*SEEDS, "--seeds=130:40")  # where transactions meet both lives of an island
KEPT_SEEDS = (*SEEDS, "--keeps=1")  # of clusters that keep what they promise
LOSSES = (*SEEDS, "--keeps=sync")  # the same, where power is lost and answers wait for EPOCH
DECIDERS = (*KEPT_SEEDS, "--seeds=500:200")  # where one dies that has decided, and its answer with it
SCRIPTS = ("planted_isolation", "--gtest_filter=Scripts/*", "--gtest_fail_fast")
PROBES = ("planted_probes",)
MATRIX = ("planted_matrix", "--gtest_fail_fast")
TREE = ("planted_btree", "--gtest_fail_fast")
COMMIT = ("planted_commit", "--gtest_fail_fast")
MICRO = ("planted_micro",)
UPDATES = executor("ExecutorStress.Updates_AddUp")
MOVING_IN_INDEX = executor("ExecutorStress.RowsThatMoveInAnIndex_AreSeenExactlyOnce")
CROWD = (*executor("ExecutorStress.RowsThatCrowd_AreSeenByScansOrNot"), "--gtest_repeat=3")  # by chance of threads
STAYING = (*executor("ExecutorStress.RowsThatStay_AreFound"), "--gtest_repeat=3")  # likewise
INDEXED = executor("Indexed.IndexScan_KeepsItsEntriesAndRows")
ESCALATION = locks("*LockTableStressTest.ManyWorkers/FewRowsEscalation")
LOGGER = only("planted_recovery", "Logger.*")
RECOVERY = only("planted_recovery", "Recovery.*")
LOGGER_PROCESS = only("planted_logger_process", "*Kill_OfAnybody*")
PAGES = (*only("planted_recovery", "Recovery.Property_FromPagesOnDisk"), "--seeds=1:120")  # few see torn pages
COMMANDS = only("planted_recovery", "Recovery.Property_CommandsFromSnapshots")
TWO_PHASES = only("planted_recovery", "Recovery.Property_CheckpointsOverTwoPhaseCommit")
PAGE_WRITER = only("planted_recovery", "PageWriter.*")
CRASH_POINTS = (*only("planted_crash_points", "CrashPoints.*Worker:CrashPoints.*Workers"), "--seeds=1:2")
PAGED_CRASH_POINTS = (*only("planted_crash_points", "CrashPoints.*Paged"), "--seeds=1:2")
PAGER = only("planted_recovery", "PagerTest.Hand_*:PagerTest.Fetch_*")
STEPS = only("planted_steps", "Steps.T*Workers*")
STEPS_STRESS = only("planted_steps", "StepsStress.*")
APPEND = ("planted_append",)

# Which tests have to find which bug: the first in every `make planted`, so it is the one that takes least; each of
# them in `make soak`.
BUGS: dict[str, list[Test]] = {
    "vote_read_early": [COMMIT],
    "trust_earlier_votes": [EARLY],
    "release_read_locks_early": [SEEDS],
    "release_at_yes": [SEEDS],
    "skip_next_key_lock": [SEEDS, SCRIPTS],
    "skip_insert_intention": [SEEDS, SCRIPTS],
    "forget_victim_branch": [PROBES],
    "vote_yes_without_branch": [COMMIT],
    "ignore_boot_epoch": [MORE_SEEDS, in_doubt("Transaction_EndsWithTheLifeThatItKnew")],
    "forget_before_acks": [COMMIT, KEPT_SEEDS, MATRIX],
    "presume_one_phase_commit": [COMMIT],
    "lose_wakeup": [SEEDS, PROBES],
    "convert_over_holders": [SEEDS, SCRIPTS],
    "skip_validation": [TREE],
    "suspend_without_locks": [SEEDS, SCRIPTS],
    "overlook_holders": [SEEDS, executor("Alone.BesideOthers_WaitsForWhatTheyHave")],
    "drop_probes": [SEEDS, PROBES],
    "grant_every_lock": [UPDATES, MICRO, APPEND],
    "scan_passes_ghosts": [SCRIPTS],
    "remove_undone_insert": [executor("Gaps.Rollback_OfAnInsertLeavesAGhostToItsScanners")],
    "remove_refused_insert": [executor("OneSite.InsertRefusedAtAnIndex_LeavesAGhostToItsScanners")],
    "bury_locked_ghost": [executor("Gaps.Ghost_StaysWhileItsGapIsLocked")],
    "ignore_key_changes": [CROWD],
    "trust_first_pass": [CROWD],
    "forget_quiet_scan": [executor("Alone.QuietScanOfManyKeys_RemembersTheSite")],
    "trust_old_leaf": [TREE],
    "believe_hints": [TREE],
    "trust_stale_hint": [executor("Gaps.Batch_SeesItsOwnChanges")],
    "look_ahead_blindly": [STAYING],
    "skip_index_entry_lock": [INDEXED, SCRIPTS, MOVING_IN_INDEX],
    "skip_found_rows": [INDEXED],
    "leave_past_waiter": [locks("LockInheritanceTest.Leave_NotPastAWaiter")],
    "reclaim_any_mode": [ESCALATION, locks("LockInheritanceTest.Reclaim_IXForIS*")],
    "escalate_over_holders": [ESCALATION],
    "escalated_s_covers_all": [ESCALATION, executor("Gaps.Scan_ThatEscalatedStillLocksWhatItWrites")],
    "undo_oldest_first": [executor("OneSite.RandomChanges_AgreeWithAModel"), SCRIPTS],
    "forget_revived_bytes": [executor("Gaps.DeleteInsertDelete_RollsBackToTheFirstRow"), SCRIPTS],
    "retry_keeps_id": [SEEDS],
    "ignore_later_epochs": [in_doubt("Transaction_EndsWithALaterLifeThatItKnew")],
    "give_up_by_clock": [in_doubt("Voter_WaitsForACoordinator")],
    "acknowledge_unapplied": [COMMIT],
    "orphan_asks_nobody": [COMMIT, in_doubt("Orphans_AgreeWithThoseWhoHaveHeard")],
    "believe_any_doubt": [only("planted_commit", "TwoPhaseCommitModel.Orphans")],
    "forget_open_commits": [in_doubt("Orphan_IsToldOfACommitLongAgo")],
    "ignore_last_words": [orphans("LastWordsOfACoordinator"), orphans("LastWordsOfAFellow")],
    "answer_for_earlier_life": [orphans("LaterLifeOfAFellow_DoesNotSpeakForTheEarlierOne")],
    "forget_page_change": [only("planted_btree", "*BTreeModelTest*"), CRASH_POINTS],
    "skip_log_sync": [LOGGER, RECOVERY, CRASH_POINTS],
    "ignore_sync_error": [LOGGER, LOSSES],
    "trust_unsynced_epoch": [LOGGER, CRASH_POINTS],
    "free_ring_early": [LOGGER, LOGGER_PROCESS, CRASH_POINTS],
    "undo_twice": [RECOVERY, CRASH_POINTS],
    "reuse_lsn": [RECOVERY],
    "reset_lsn_on_reuse": [RECOVERY, CRASH_POINTS],
    "bury_before_commit": [RECOVERY, CRASH_POINTS],
    "cut_too_late": [RECOVERY, CRASH_POINTS],
    "restore_without_locks": [KEPT_SEEDS, TWO_PHASES, MATRIX],
    "forget_decisions": [KEPT_SEEDS, TWO_PHASES, MATRIX],
    "vote_unprepared": [KEPT_SEEDS, MATRIX],
    "decide_unlogged": [KEPT_SEEDS, MATRIX],
    "forget_outcome": [DECIDERS, MATRIX],
    "read_epoch_once": [only("planted_recovery", "LiveEpoch.*")],
    "trust_unsynced_manifest": [only("planted_recovery", "BoxManifest.*")],
    "trust_torn_page": [PAGES, PAGE_WRITER, CRASH_POINTS],
    "skip_double_write": [PAGES, PAGE_WRITER, CRASH_POINTS],
    "forget_half_home": [PAGES, PAGE_WRITER, CRASH_POINTS],
    "write_page_early": [PAGES, CRASH_POINTS],
    "checkpoint_past_copies": [PAGES, CRASH_POINTS],
    "pass_open_branches": [PAGES, CRASH_POINTS],
    "move_master_early": [PAGES, CRASH_POINTS],
    "trust_unsynced_master": [only("planted_recovery", "IslandDataTest.Start_MakesDurableWhatItBelieves")],
    "publish_without_undo": [RECOVERY, STEPS, CRASH_POINTS],
    "merge_by_arrival": [STEPS, STEPS_STRESS, CRASH_POINTS],
    "settle_early": [CRASH_POINTS],
    "publish_after_latch": [STEPS_STRESS, CRASH_POINTS],
    "header_of_its_own": [STEPS, CRASH_POINTS],
    "pass_in_doubt": [TWO_PHASES],
    "repeat_rest_of_undo": [TWO_PHASES],
    "repeat_unsaid": [TWO_PHASES],
    "pass_decisions": [TWO_PHASES],
    "answer_early": [LOSSES, MATRIX],
    "forget_reply_epoch": [LOSSES],
    "commit_in_old_epoch": [executor("Shared.EpochThatEnds*")],
    "mix_epochs": [executor("Shared.PageOfALaterEpoch*")],
    "stamp_below": [executor("Shared.RecordOfWho*"), STEPS, STEPS_STRESS],
    "split_unshown": [executor("Shared.PageChangedByTwo*"), STEPS_STRESS],
    "drop_compensation": [STEPS, CRASH_POINTS],
    "recover_prepared_twice": [KEPT_SEEDS, TWO_PHASES, MATRIX],
    "restore_without_rows": [TWO_PHASES, MATRIX],
    "restore_without_entries": [TWO_PHASES],
    "ignore_page_sync_error": [PAGE_WRITER],
    "ignore_master_sync_error": [only("planted_recovery", "CleanerTest.Error_OfItsSync*")],
    "evict_dirty_page": [PAGER, PAGED_CRASH_POINTS],
    "evict_latched_page": [PAGER],
    "install_over_others": [PAGER],
    "keep_version_of_evicted": [PAGER],
    "lose_clock_bit": [PAGER],
    "trust_commands": [only("planted_recovery", "CommandReplayTest.*")],
    "command_twice": [COMMANDS],
    "name_workload_once": [only("planted_recovery", "CommandReplayTest.*"), COMMANDS],
    "snapshot_late_images": [COMMANDS],
}
SEED_RANGE = "1:40"
# Lines worth showing, best first.
TELLING = [re.compile(tell)
           for tell in ("invariant broken", "VIOLATION", "ANOMALY", "invariant", "Expected", "Value of")]


def name_of(test: Test) -> str:
    """The binary, and which of its tests."""
    tests = test[1].removeprefix("--gtest_filter=") if len(test) > 1 and "filter" in test[1] else ""
    kept = next((word.replace("--keeps=", " keeps ") for word in test if word.startswith("--keeps=")), "")
    return f"{test[0].removeprefix('planted_')} {tests}{kept}".strip()


def run(directory: pathlib.Path, bug: str, test: Test) -> tuple[int, float, str]:
    """(exit status, seconds, the line of output that tells most)"""
    seeds = next((word.removeprefix("--seeds=") for word in test if word.startswith("--seeds=")), SEED_RANGE)
    keeps = next((word.removeprefix("--keeps=") for word in test if word.startswith("--keeps=")), "0")
    environment = dict(os.environ, ISLANDS_PLANTED_BUG=bug, ISLANDS_SEEDS=seeds, ISLANDS_KEEPS=keeps)
    environment.pop("ISLANDS_SEED", None)
    begun = time.monotonic()
    words = [word for word in test[1:] if not word.startswith(("--keeps=", "--seeds="))]
    done = subprocess.run([directory / test[0], *words], env=environment, capture_output=True, text=True,
                          errors="replace", timeout=600, check=False)
    lines = (done.stdout + done.stderr).splitlines()
    telling = [line.strip() for tell in TELLING for line in lines if tell.search(line)]
    return done.returncode, time.monotonic() - begun, telling[0][:90] if telling else ""


def main() -> int:
    arguments = [word for word in sys.argv[1:] if word != "--all"]
    if not arguments or not pathlib.Path(arguments[0]).is_dir():
        print(__doc__, file=sys.stderr)
        return 2
    directory = pathlib.Path(arguments[0])
    wanted = arguments[1:] or list(BUGS)
    if unknown := [bug for bug in wanted if bug not in BUGS]:
        print(f"no such bug: {', '.join(unknown)}; there are {', '.join(BUGS)}", file=sys.stderr)
        return 2
    tests = {bug: BUGS[bug] if "--all" in sys.argv else BUGS[bug][:1] for bug in wanted}
    controls = sorted({test for bug in wanted for test in tests[bug]})
    jobs = [("none", test) for test in controls] + [(bug, test) for bug in wanted for test in tests[bug]]
    wrong = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        results = pool.map(lambda job: run(directory, *job), jobs)
        for (bug, test), (status, seconds, line) in zip(jobs, results):
            found = status not in (0, 2)  # 2: planted.cc knows no such bug
            right = found == (bug != "none")
            wrong += not right
            verdict = ("found" if found else "clean") if right else ("FALSE ALARM" if found else "NOT FOUND")
            print(f"{verdict:11} {bug:25} {name_of(test):70} {seconds:5.1f} s  "
                  f"{line if found else ''}", flush=True)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
