// What a log says of two-phase commit, in records that are sound by themselves and make no sense together, or
// not in this deployment.
#include "instance/recovery/unsettled.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "instance/log/journal.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"

namespace islands::recovery {
namespace {

using Id = coordinator::TransactionId;
using partitioner::Uint64Key;

constexpr Id kOurs{0, 0, 1, 1}, kTheirs{1, 0, 1, 1};

storage::Catalog MakeCatalog() {
  storage::Catalog::TableSpecs specs;
  control::v1::TableSpec* table = specs.Add();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(100);
  return *storage::Catalog::Create(specs, 1);
}

std::vector<std::byte> SomeUndo(uint64_t key = 1) {
  instance::UndoLog undo;
  undo.RecordInsert(0, 0, Uint64Key(key));
  std::vector<std::byte> encoded;
  undo.Encode(0, 1, &encoded);
  return encoded;
}

// What the first life of island 0 has left.
class Log {
 public:
  Log() { journal_.Listen(); }
  ~Log() {
    journal_.EndStep();
    journal_.EndListening();
  }
  log::Journal& journal() { return journal_; }
  void NextEpoch() {
    journal_.EndStep();
    board_.RaiseEpoch(board_.epoch() + 1);
  }
  absl::Status Redo(Recovery* recovery) {
    journal_.EndStep();
    return VisitRecords(*ring_, 0, ring_->tail(),
                        [&](const log::Record& record) { return recovery->Redo(ring_->stream(), record); });
  }

 private:
  log::Board board_{std::vector<uint32_t>{1}};
  const std::unique_ptr<log::Ring> ring_ = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
  log::Journal journal_{board_, *ring_, {}};
};

class UnsettledTest : public testing::Test {
 protected:
  // `append` follows an update of each of the two.
  absl::Status RedoAfterUpdates(const std::function<void(log::Journal&)>& append) {
    Log log;
    log.journal().AppendUpdate(kOurs, SomeUndo(1));
    log.journal().AppendUpdate(kTheirs, SomeUndo(2));
    append(log.journal());
    Recovery recovery(catalog_, *store_, {});
    absl::Status redone = log.Redo(&recovery);
    unsettled_ = recovery.unsettled();
    return redone;
  }

  const storage::Catalog catalog_ = MakeCatalog();
  const std::unique_ptr<storage::Store> store_ =
      *storage::Store::CreateForRedo(catalog_, {.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true});
  Unsettled unsettled_;
};

TEST_F(UnsettledTest, Redo_RefusesWhatNobodyWrites) {
  using Journal = log::Journal;
  using Fellows = std::vector<coordinator::Fellow>;
  const std::vector<std::pair<const char*, std::function<void(Journal&)>>> cases = {
      {"prepares its own", [](Journal& j) { j.AppendPrepare(kOurs, {}, {}); }},
      {"is its own fellow",
       [](Journal& j) {
         j.AppendPrepare(kTheirs, Fellows{{0, 1}}, {});
       }},
      {"its coordinator is a fellow",
       [](Journal& j) {
         j.AppendPrepare(kTheirs, Fellows{{1, 1}}, {});
       }},
      {"a fellow twice",
       [](Journal& j) {
         j.AppendPrepare(kTheirs, Fellows{{2, 1}, {2, 3}}, {});
       }},
      {"decides its own alone", [](Journal& j) { j.AppendDecided(kOurs); }},
      {"decides another's",
       [](Journal& j) {
         j.AppendDecision(kTheirs, Fellows{{2, 1}});
       }},
      {"decides for nobody", [](Journal& j) { j.AppendDecision(kOurs, {}); }},
      {"tells itself",
       [](Journal& j) {
         j.AppendDecision(kOurs, Fellows{{2, 1}, {0, 1}});
       }},
      {"tells one twice",
       [](Journal& j) {
         j.AppendDecision(kOurs, Fellows{{2, 1}, {2, 1}});
       }},
      {"decides what another life began",
       [](Journal& j) {
         j.AppendDecision({0, 0, 2, 1}, Fellows{{2, 1}});
       }},
      {"commits what it has decided",
       [](Journal& j) {
         j.AppendDecision(kOurs, Fellows{{2, 1}});
         j.AppendCommit(kOurs);
       }},
      {"changes what has prepared",
       [](Journal& j) {
         j.AppendPrepare(kTheirs, {}, {});
         j.AppendUpdate(kTheirs, SomeUndo());
       }},
      {"prepares what has committed",
       [](Journal& j) {
         j.AppendDecided(kTheirs);
         j.AppendPrepare(kTheirs, {}, SomeUndo());
       }},
      {"goes on with what has committed",
       [](Journal& j) {
         j.AppendDecision(kOurs, Fellows{{2, 1}});
         j.AppendUpdate(kOurs, SomeUndo());
       }},
  };
  for (const auto& [what, append] : cases) {
    const absl::Status redone = RedoAfterUpdates(append);
    EXPECT_EQ(redone.code(), absl::StatusCode::kDataLoss) << what << ": " << redone;
  }
}

// Whoever has edited the deployment file hears what to do.
TEST(CheckDeployment, RefusesWhoIsNotThere) {
  constexpr std::array<uint32_t, 3> kWorkers = {2, 1, 1};
  struct Case {
    const char* what;
    std::function<void(Unsettled&)> leave;
    absl::StatusCode code;
  };
  using Code = absl::StatusCode;
  const std::vector<Case> cases = {
      {"all are there",
       [](Unsettled& u) {
         u.prepared[{1, 0, 4, 1}].fellows = {{2, 7}};
         u.decided[{2, 0, 4, 1}];
         u.decisions[{0, 1, 4, 1}].participants = {{1, 1}, {2, 1}};
       },
       Code::kOk},
      {"a coordinator",
       [](Unsettled& u) {
         u.prepared[{3, 0, 4, 1}];
       },
       Code::kFailedPrecondition},
      {"its worker",
       [](Unsettled& u) {
         u.prepared[{1, 1, 4, 1}];
       },
       Code::kFailedPrecondition},
      {"a fellow",
       [](Unsettled& u) {
         u.prepared[{1, 0, 4, 1}].fellows = {{3, 7}};
       },
       Code::kFailedPrecondition},
      {"who asked for an outcome",
       [](Unsettled& u) {
         u.decided[{3, 0, 4, 1}];
       },
       Code::kFailedPrecondition},
      {"its worker, too",
       [](Unsettled& u) {
         u.decided[{2, 1, 4, 1}];
       },
       Code::kFailedPrecondition},
      {"who decided",
       [](Unsettled& u) {
         u.decisions[{0, 2, 4, 1}].participants = {{1, 1}};
       },
       Code::kFailedPrecondition},
      {"who is to hear",
       [](Unsettled& u) {
         u.decisions[{0, 1, 4, 1}].participants = {{1, 1}, {3, 1}};
       },
       Code::kFailedPrecondition},
      {"a life that has not been",
       [](Unsettled& u) {
         u.decisions[{0, 0, 5, 1}].participants = {{1, 1}};
       },
       Code::kDataLoss},
  };
  for (const Case& each : cases) {
    Unsettled unsettled;
    each.leave(unsettled);
    const absl::Status status = CheckDeployment(unsettled, 5, kWorkers);
    EXPECT_EQ(status.code(), each.code) << each.what << ": " << status;
    const bool advises = status.message().find("start it with as many") != std::string::npos;
    EXPECT_EQ(advises, each.code == Code::kFailedPrecondition) << status;
  }
}

}  // namespace
}  // namespace islands::recovery
