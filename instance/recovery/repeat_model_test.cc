// Records that are repeated (Journal::RepeatPrepare), by protocol alone: several workers, lives with
// other numbers of them, a cleaner whose look at the workers is in pieces, kills between any two calls,
// losses of power at any EPOCH. What recovery finds behind the checkpoint is what it finds in all of the log.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "instance/log/island_log.h"
#include "instance/log/journal.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/random.h"
#include "runtime/seeds_testing.h"

namespace islands::recovery {
namespace {

using Id = coordinator::TransactionId;
using log::EntryKind;
using partitioner::Uint64Key;
const std::vector<coordinator::Fellow> kFellows = {{2, 1}, {3, 4}};

struct Kept {
  log::StreamId stream;
  uint64_t lsn;
  uint8_t kind;
  std::vector<std::byte> body;
};

struct Transaction {
  Id id;
  instance::UndoLog undo;
  size_t published = 0;
  enum { kActive, kPrepared, kDecision, kDecided, kUndoing } state = kActive;
  size_t left = 0;
};

using Undo = std::vector<std::byte>;
struct Found {
  std::map<Id, Undo> prepared, losers;
  std::set<Id> decisions, decided;
  bool operator==(const Found&) const = default;
};

Undo EncodedOf(const instance::UndoLog& undo) {
  Undo out;
  undo.Encode(0, undo.size(), &out);
  return out;
}

struct World {
  explicit World(uint64_t seed) : random(seed) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(1u << 30);
    catalog = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    store = *storage::Store::CreateForRedo(*catalog, {.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true});
    BeginLife(1 + random.Below(3), 1, log::Lsn(), {});
  }
  struct Worker {
    std::shared_ptr<log::Ring> ring;
    std::unique_ptr<log::Journal> journal;
    std::vector<Transaction> open;
  };

  void BeginLife(uint32_t count, uint64_t epoch, log::Lsn last, const Unsettled& unsettled) {
    ++life;
    board = std::make_unique<log::Board>(std::vector<uint32_t>{count});
    board->RaiseEpoch(epoch + 1);
    board->SetDurable(epoch);
    shared = std::make_unique<log::IslandLog>(count, last.epoch(), last);
    workers.clear();
    workers.resize(count);
    for (uint32_t w = 0; w < count; ++w) {
      workers[w].ring = log::Ring::InMemory({life, 0, w}, size_t{1} << 20);
      workers[w].journal =
          std::make_unique<log::Journal>(*board, *workers[w].ring, last, count == 1 ? nullptr : shared.get());
    }
    for (const auto& [id, prepared] : unsettled.prepared) {
      Worker& w = workers[id.worker % count];
      w.journal->NoteEarlier(EntryKind::kPrepare, id, prepared.since);
      w.open.push_back({id, prepared.undo, prepared.undo.size(), Transaction::kPrepared});
    }
    for (const auto& [id, d] : unsettled.decisions) {
      workers[id.worker].journal->NoteEarlier(EntryKind::kDecision, id, d.since);
      workers[id.worker].open.push_back({id, {}, 0, Transaction::kDecision});
    }
    for (const auto& [id, d] : unsettled.decided) {
      workers[id.worker % count].journal->NoteEarlier(EntryKind::kDecided, id, d.since);
      workers[id.worker % count].open.push_back({id, {}, 0, Transaction::kDecided});
    }
    pass.reset();
  }

  void Round() {  // of the logger
    board->RaiseEpoch(board->epoch() + 1);
    const uint64_t complete = board->Complete();
    if (complete > board->durable()) board->SetDurable(complete);
  }

  // ---- the cleaner, in pieces
  struct Pass {
    uint64_t begin = 0;
    size_t looked = 0;
    uint64_t oldest = UINT64_MAX;
    std::vector<size_t> order;
    std::optional<uint64_t> taken;
  };
  void StepCleaner() {
    if (!pass) {
      pass.emplace();
      pass->begin = board->Complete() + 1;
      for (size_t w = 0; w < workers.size(); ++w) pass->order.push_back(w);
      for (size_t n = workers.size(); n > 1; --n) std::swap(pass->order[n - 1], pass->order[random.Below(n)]);
      return;
    }
    if (pass->looked < workers.size()) {
      pass->oldest = std::min(pass->oldest, workers[pass->order[pass->looked++]].journal->open().oldest());
      return;
    }
    if (!pass->taken) {
      pass->taken = board->epoch();
      return;
    }
    if (board->durable() < *pass->taken) return;
    const uint64_t bound = std::min(pass->begin, pass->oldest);
    if (bound > checkpoint.bound) {
      checkpoint.bound = bound;
      checkpoint.taken = *pass->taken;
      ++checkpoints;
    }
    pass.reset();
  }

  // ---- workers
  void StepWorker() {
    const size_t number = random.Below(workers.size());
    Worker& w = workers[number];
    log::Journal& j = *w.journal;
    if (random.Below(3) == 0) j.EndStep();
    if (w.open.empty() || (w.open.size() < 5 && random.Below(6) == 0)) {
      const bool foreign = random.Below(2) == 0;
      const auto worker = static_cast<uint32_t>(foreign ? number + workers.size() * random.Below(3) : number);
      w.open.push_back({{foreign ? 1u : 0u, worker, life, ++sequence}, {}, 0, Transaction::kActive});
    }
    const size_t at = random.Below(w.open.size());
    Transaction& t = w.open[at];
    const auto end = [&] { w.open.erase(w.open.begin() + static_cast<ptrdiff_t>(at)); };
    switch (t.state) {
      case Transaction::kActive:
        if (t.undo.size() < 2 || random.Below(2) == 0) {
          for (uint64_t n = 1 + random.Below(3); n > 0; --n) t.undo.RecordInsert(0, 0, Uint64Key(++key));
          if (random.Below(2) == 0) return;  // not published yet
          Undo undo;
          t.undo.Encode(t.published, t.undo.size(), &undo);
          t.published = t.undo.size();
          j.AppendUpdate(t.id, undo);
        } else if (t.id.island == 1 && random.Below(3) != 0) {
          Undo undo;
          t.undo.Encode(t.published, t.undo.size(), &undo);
          t.published = t.undo.size();
          j.AppendPrepare(t.id, kFellows, undo);
          t.state = Transaction::kPrepared;
        } else if (random.Below(3) == 0) {
          if (t.published == 0) return end();
          t.left = t.published;
          t.state = Transaction::kUndoing;
        } else if (t.id.island == 1) {
          j.AppendDecided(t.id);
          t.state = Transaction::kDecided;
        } else {
          j.AppendDecision(t.id, kFellows);
          t.state = Transaction::kDecision;
        }
        return;
      case Transaction::kPrepared:
        if (random.Below(4) != 0) {
          repeats += j.RepeatPrepare(t.id, kFellows, EncodedOf(t.undo), 0);
        } else if (random.Below(2) == 0) {
          j.AppendCommit(t.id);
          end();
        } else {
          t.left = t.undo.size();
          t.state = Transaction::kUndoing;
        }
        return;
      case Transaction::kUndoing:
        if (t.left > 0 && random.Below(3) != 0) {
          t.left -= 1 + random.Below(t.left);
          j.AppendCompensation(t.id, static_cast<uint32_t>(t.left));
        } else {
          j.AppendAborted(t.id);
          end();
        }
        return;
      case Transaction::kDecision:
      case Transaction::kDecided:
        if (random.Below(4) != 0) {
          repeats += t.state == Transaction::kDecision ? j.RepeatDecision(t.id, kFellows, 0)
                                                       : j.RepeatDecided(t.id, 0);
        } else {
          j.AppendEnd(t.id);
          end();
        }
        return;
    }
  }

  // ---- death
  void Take() {
    for (Worker& w : workers) {
      ASSERT_TRUE(VisitRecords(*w.ring, 0, w.ring->tail(), [&](const log::Record& record) {
                    all.push_back({w.ring->stream(), record.lsn, record.kind,
                                   std::vector<std::byte>(record.body.begin(), record.body.end())});
                    return absl::OkStatus();
                  }).ok());
    }
  }
  Found Recover(const Checkpoint& from, Unsettled* unsettled, log::Lsn* last,
                std::map<Id, instance::UndoLog>* open) {
    Recovery recovery(*catalog, *store, cuts);
    recovery.BeginFrom(from);
    StreamMerge merge;
    const auto redo = [&](const log::StreamId& s, const log::Record& r) { return recovery.Redo(s, r); };
    absl::Status status;
    for (const Kept& kept : all)
      status.Update(merge.Add(kept.stream, {kept.lsn, kept.kind, kept.body}, redo));
    status.Update(merge.Finish(redo));
    EXPECT_TRUE(status.ok()) << status;
    Found found;
    for (const auto& [id, p] : recovery.unsettled().prepared) {
      found.prepared[id] = EncodedOf(p.undo);
      EXPECT_EQ(p.fellows, kFellows);
    }
    for (const auto& [id, p] : recovery.unsettled().decisions) found.decisions.insert(id);
    for (const auto& [id, p] : recovery.unsettled().decided) found.decided.insert(id);
    open->clear();
    recovery.VisitLosers([&](const Id& id, const instance::UndoLog& undo) {
      found.losers[id] = EncodedOf(undo);
      (*open)[id] = undo;
    });
    *unsettled = recovery.unsettled();
    *last = recovery.last();
    return found;
  }
  void Die() {
    ASSERT_NO_FATAL_FAILURE(Take());
    const bool power = random.Below(2) == 0;
    uint64_t reaches = board->epoch();
    for (const Kept& kept : all) reaches = std::max(reaches, log::Lsn::FromValue(kept.lsn).epoch());
    if (power) {
      cuts.push_back({board->durable(), reaches + 1});
      ++losses;
    }
    Unsettled unsettled, ignored;
    log::Lsn last, last_of_all;
    std::map<Id, instance::UndoLog> open, open_of_all;
    const Found wanted = Recover({}, &ignored, &last_of_all, &open_of_all);
    const Found found = Recover(checkpoint, &unsettled, &last, &open);
    EXPECT_EQ(found.prepared, wanted.prepared) << "bound " << checkpoint.bound;
    EXPECT_EQ(found.losers, wanted.losers) << "bound " << checkpoint.bound;
    EXPECT_EQ(found.decisions, wanted.decisions);
    EXPECT_EQ(found.decided, wanted.decided);
    restored += found.prepared.size() + found.decisions.size() + found.decided.size();
    losers += found.losers.size();
    uint32_t least = 1;
    for (const Id& id : found.decisions) least = std::max(least, id.worker + 1);
    BeginLife(least + static_cast<uint32_t>(random.Below(3)), reaches + 1, std::max(last, last_of_all),
              unsettled);
    for (auto& [id, undo] : open) {  // by worker 0, with kills between
      size_t left = undo.size();
      while (left > 0 && random.Below(2) == 0) {
        left -= 1 + random.Below(left);
        workers[0].journal->AppendCompensation(id, static_cast<uint32_t>(left));
        if (random.Below(2) == 0) workers[0].journal->EndStep();
        if (random.Below(2) == 0) Round();
        if (random.Below(12) == 0) return Die();
      }
      workers[0].journal->AppendAborted(id);
      if (random.Below(2) == 0) workers[0].journal->EndStep();
      if (random.Below(12) == 0) return Die();
    }
    for (Worker& w : workers) w.journal->EndStep();
  }

  runtime::Random random;
  std::unique_ptr<storage::Catalog> catalog;
  std::unique_ptr<storage::Store> store;
  std::unique_ptr<log::Board> board;
  std::unique_ptr<log::IslandLog> shared;
  std::vector<Worker> workers;
  std::optional<Pass> pass;
  Checkpoint checkpoint;
  std::vector<Kept> all;
  std::vector<log::EpochCut> cuts;
  uint64_t life = 0, sequence = 0, key = 0;
  uint64_t repeats = 0, checkpoints = 0, restored = 0, losers = 0, losses = 0;
};

TEST(RepeatModel, Property_BehindTheCheckpointIsWhatIsInAllOfTheLog) {
  const auto [first, count] = runtime::SeedsToRun(300);
  uint64_t repeats = 0, checkpoints = 0, restored = 0, losers = 0, losses = 0;
  for (uint64_t seed = first; seed < first + count && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("again: ISLANDS_SEEDS=" + std::to_string(seed) + ":1");
    World world(seed);
    for (int step = 0; step < 1500 && !testing::Test::HasFailure(); ++step) {
      const uint64_t what = world.random.Below(100);
      if (what == 0) {
        world.Die();
      } else if (what < 20) {
        world.Round();
      } else if (what < 55) {
        world.StepCleaner();
      } else {
        world.StepWorker();
      }
    }
    repeats += world.repeats, checkpoints += world.checkpoints, restored += world.restored;
    losers += world.losers, losses += world.losses;
  }
  if (count < 300) return;
  EXPECT_GT(repeats, 30'000u);
  EXPECT_GT(checkpoints, 3'000u);
  EXPECT_GT(restored, 1'000u);
  EXPECT_GT(losers, 300u);
  EXPECT_GT(losses, 1'000u);
}

}  // namespace
}  // namespace islands::recovery
