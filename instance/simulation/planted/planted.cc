// Switches on the bug that ISLANDS_PLANTED_BUG names, before main.
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <string_view>

#include "runtime/planted_bug.h"

namespace islands::runtime {
namespace {

constexpr std::string_view kNames[] = {
    "none",
    "vote_read_early",
    "trust_earlier_votes",
    "release_read_locks_early",
    "release_at_yes",
    "skip_next_key_lock",
    "skip_insert_intention",
    "forget_victim_branch",
    "vote_yes_without_branch",
    "ignore_boot_epoch",
    "forget_before_acks",
    "presume_one_phase_commit",
    "lose_wakeup",
    "convert_over_holders",
    "skip_validation",
    "suspend_without_locks",
    "overlook_holders",
    "drop_probes",
    "grant_every_lock",
    "scan_passes_ghosts",
    "remove_undone_insert",
    "remove_refused_insert",
    "bury_locked_ghost",
    "ignore_key_changes",
    "trust_first_pass",
    "forget_quiet_scan",
    "trust_old_leaf",
    "believe_hints",
    "trust_stale_hint",
    "look_ahead_blindly",
    "skip_index_entry_lock",
    "skip_found_rows",
    "leave_past_waiter",
    "reclaim_any_mode",
    "escalate_over_holders",
    "escalated_s_covers_all",
    "undo_oldest_first",
    "forget_revived_bytes",
    "retry_keeps_id",
    "ignore_later_epochs",
    "give_up_by_clock",
    "acknowledge_unapplied",
    "orphan_asks_nobody",
    "believe_any_doubt",
    "forget_open_commits",
    "ignore_last_words",
    "answer_for_earlier_life",
    "forget_page_change",
    "skip_log_sync",
    "ignore_sync_error",
    "trust_unsynced_epoch",
    "free_ring_early",
    "undo_twice",
    "reuse_lsn",
    "reset_lsn_on_reuse",
    "bury_before_commit",
    "cut_too_late",
    "publish_without_undo",
    "restore_without_locks",
    "forget_decisions",
    "vote_unprepared",
    "decide_unlogged",
    "forget_outcome",
    "read_epoch_once",
    "trust_unsynced_manifest",
    "trust_torn_page",
    "skip_double_write",
    "forget_half_home",
    "write_page_early",
    "checkpoint_past_copies",
    "pass_open_branches",
    "move_master_early",
    "trust_unsynced_master",
    "merge_by_arrival",
    "settle_early",
    "publish_after_latch",
    "header_of_its_own",
    "pass_in_doubt",
    "repeat_rest_of_undo",
    "repeat_unsaid",
    "pass_decisions",
    "answer_early",
    "forget_reply_epoch",
    "commit_in_old_epoch",
    "mix_epochs",
    "stamp_below",
    "split_unshown",
    "drop_compensation",
    "recover_prepared_twice",
    "restore_without_rows",
    "restore_without_entries",
    "ignore_page_sync_error",
    "ignore_master_sync_error",
    "evict_dirty_page",
    "evict_latched_page",
    "install_over_others",
    "keep_version_of_evicted",
    "lose_clock_bit",
    "trust_commands",
    "command_twice",
    "name_workload_once",
    "snapshot_late_images",
};
static_assert(std::size(kNames) == kPlantedBugs + 1);

[[maybe_unused]] const bool switched_on = [] {
  const char* wanted = std::getenv("ISLANDS_PLANTED_BUG");
  for (size_t i = 0; wanted != nullptr && i < std::size(kNames); ++i) {
    if (kNames[i] != wanted) continue;
    planted_bug = static_cast<PlantedBug>(i);
    return true;
  }
  std::fprintf(stderr, "ISLANDS_PLANTED_BUG names no bug; see instance/simulation/planted/planted.cc\n");
  std::_Exit(2);
}();

}  // namespace
}  // namespace islands::runtime
