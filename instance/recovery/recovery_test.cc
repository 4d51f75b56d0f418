// One island with one worker, its executor, its log and a disk that loses power: whatever dies when, every
// transaction that was acknowledged is there, and of the others each is whole or gone.
#include "instance/recovery/recovery.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "instance/recovery/box_testing.h"
#include "instance/recovery/recovery_testing.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"
#include "runtime/seeds_testing.h"

namespace islands::recovery {
namespace {

using partitioner::Uint64Key;

// A log may be sound and belong to another catalog: undo would look for tables that are not there.
TEST(Recovery, FindTrees_RefusesUndoOfWhatIsNotThere) {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(kKeys);
  const storage::Catalog catalog = *storage::Catalog::Create(specs, 1);
  const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true};
  for (const uint32_t number : {0u, 9u}) {
    log::Board board(kWorkers);
    const auto ring = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
    log::Journal journal(board, *ring, {});
    journal.Listen();
    runtime::MemoryFileSystem files;
    const auto original = storage::Store::Create(catalog, options, files);
    ASSERT_TRUE(original.ok());
    journal.AppendDone();
    instance::UndoLog undo;
    undo.RecordInsert(number, 0, Uint64Key(1));
    std::vector<std::byte> encoded;
    undo.Encode(0, 1, &encoded);
    journal.AppendUpdate({0, 0, 1, 1}, encoded);
    journal.EndStep();
    journal.EndListening();
    const auto store = storage::Store::CreateForRedo(catalog, options);
    ASSERT_TRUE(store.ok());
    Recovery recovery(catalog, **store, {});
    const absl::Status redone = VisitRecords(*ring, 0, ring->tail(), [&](const log::Record& record) {
      return recovery.Redo(ring->stream(), record);
    });
    ASSERT_TRUE(redone.ok()) << redone;
    const absl::StatusCode code = number == 0 ? absl::StatusCode::kOk : absl::StatusCode::kDataLoss;
    EXPECT_EQ(recovery.FindTrees().code(), code) << "table " << number;
  }
}

// What happens in a box; `cleans`: and its cleaner has turns.
void Live(Box& box, uint64_t seed, bool cleans) {
  runtime::Random random(seed + 1000);
  const uint64_t logger_share = seed % 5;  // of the cleaner's turns: the log may be far behind
  for (int step = 0; step < 1500 && !testing::Test::HasFailure(); ++step) {
    const uint64_t what = random.Below(1000);
    if (what < 4) {
      box.Kill();
    } else if (what < 6) {
      box.KillLogger();
    } else if (what < 9) {
      box.KillAll();
    } else if (what < 12) {
      box.LosePower();
    } else if (what < 20) {
      for (int i = 0; i < 80; ++i) box.StepLogger();  // while the worker stands still
    } else if (what < 500) {
      box.Step();
    } else {
      box.StepLogger();
    }
    if (!cleans || random.Below(3) != 0) continue;
    for (uint64_t left = random.Below(20); left > 0 && !testing::Test::HasFailure(); --left)
      random.Below(16) < logger_share ? box.StepLogger() : box.StepCleaner();
  }
}

TEST(Recovery, Property_CommittedIsThereAndNothingElse) {
  uint64_t losers = 0, restarts = 0, commits = 0, dropped = 0, power_losses = 0;
  const auto [first, count] = runtime::SeedsToRun(60 / runtime::kSanitizedShare);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed);
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/false);
    power_losses += box.power_losses();
    losers += box.losers();
    restarts += box.restarts_of_recovery();
    commits += box.work().commits();
    dropped += box.dropped();
  }
  fmt::print("{} losses of power\n", power_losses);
  if (count < 30) return;
  EXPECT_GT(power_losses, 2 * count);
  EXPECT_GT(losers, 50u / runtime::kSanitizedShare);
  EXPECT_GT(restarts, 10u / runtime::kSanitizedShare);
  EXPECT_GT(commits, 3000u / runtime::kSanitizedShare);
  EXPECT_GT(dropped, 100u / runtime::kSanitizedShare);
}

// The same with data files, checkpoints and a log that is let go of.
TEST(Recovery, Property_FromPagesOnDisk) {
  uint64_t losers = 0, dropped = 0, checkpoints = 0, segments = 0, lost_in_recovery = 0, power_losses = 0;
  const auto [first, count] = runtime::SeedsToRun(240 / runtime::kSanitizedShare);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed, {.pages = true});
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/true);
    power_losses += box.power_losses();
    losers += box.losers();
    dropped += box.dropped();
    checkpoints += box.checkpoints();
    segments += box.removed_segments();
    lost_in_recovery += box.lost_in_recovery();
  }
  fmt::print("{} losses of power\n", power_losses);
  if (count < 30) return;
  EXPECT_GT(power_losses, 2 * count);
  EXPECT_GT(losers, 50u / runtime::kSanitizedShare);
  EXPECT_GT(dropped, 50u / runtime::kSanitizedShare);
  EXPECT_GT(checkpoints, 1000u / runtime::kSanitizedShare);
  EXPECT_GT(segments, 200u / runtime::kSanitizedShare);
  EXPECT_GT(lost_in_recovery, 30u / runtime::kSanitizedShare);
}

// Without data files: all of the log is repeated, each time.
TEST(Recovery, Property_Commands) {
  uint64_t repeated = 0, commits = 0;
  const auto [first, count] = runtime::SeedsToRun(60 / runtime::kSanitizedShare);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed, {.two_phases = seed % 2 == 0, .commands = true});
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/false);
    repeated += box.repeated_commands();
    commits += box.work().commits();
  }
  fmt::print("{} commands repeated\n", repeated);
  if (count < 10) return;
  EXPECT_GT(commits, 20 * count);
  EXPECT_GT(repeated, 50 * count);
}

// From snapshots, and with lives in between that log no commands and write pages home as they come.
TEST(Recovery, Property_CommandsFromSnapshots) {
  uint64_t repeated = 0, commits = 0, checkpoints = 0, segments = 0, dropped = 0, adopted = 0;
  const auto [first, count] = runtime::SeedsToRun(240 / runtime::kSanitizedShare);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed, {.pages = true, .two_phases = seed % 4 == 0, .commands = true});
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/true);
    repeated += box.repeated_commands();
    commits += box.work().commits();
    checkpoints += box.checkpoints();
    segments += box.removed_segments();
    dropped += box.dropped();
    adopted += box.work().adopted();
  }
  fmt::print("{} commands repeated, {} checkpoints\n", repeated, checkpoints);
  if (count < 10) return;
  EXPECT_GT(commits, 10 * count);
  EXPECT_GT(repeated, 3 * count);
  EXPECT_GT(checkpoints, 2 * count);
  EXPECT_GT(segments, count / 2);
  EXPECT_GT(dropped, count / 4);
  EXPECT_GT(adopted, count / 4);
}

// And with two-phase commit: who is in doubt, and decisions that not all have heard of, outlive the part of
// the log that is let go of.
TEST(Recovery, Property_CheckpointsOverTwoPhaseCommit) {
  uint64_t commits = 0, adopted = 0, unheard = 0, checkpoints = 0, segments = 0, power_losses = 0;
  uint64_t repeats = 0;
  const auto [first, count] = runtime::SeedsToRun(120 / runtime::kSanitizedShare);
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    Box box(seed, {.pages = true, .two_phases = true});
    if (seed % 2 == 0) box.Interleave();
    Live(box, seed, /*cleans=*/true);
    power_losses += box.power_losses();
    commits += box.work().commits();
    adopted += box.work().adopted();
    unheard += box.work().unheard();
    repeats += box.work().repeats();
    checkpoints += box.checkpoints();
    segments += box.removed_segments();
  }
  fmt::print("{} losses of power\n", power_losses);
  if (count < 30) return;
  EXPECT_GT(power_losses, 2 * count);
  EXPECT_GT(commits, 1500u / runtime::kSanitizedShare);
  EXPECT_GT(adopted, 300u / runtime::kSanitizedShare);
  EXPECT_GT(unheard, 200u / runtime::kSanitizedShare);
  EXPECT_GT(repeats, 300u / runtime::kSanitizedShare);
  EXPECT_GT(checkpoints, 300u / runtime::kSanitizedShare);
  EXPECT_GT(segments, 100u / runtime::kSanitizedShare);
}

}  // namespace
}  // namespace islands::recovery
