#include "instance/recovery/stream_merge.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <vector>

#include "instance/log/lsn.h"
#include "runtime/random.h"

namespace islands::recovery {
namespace {

// A log as a logger writes it: in a round each worker's records since the one before, of which EPOCH covers
// what is older than the last few epochs.
class Rounds {
 public:
  static constexpr uint32_t kWorkers = 3;
  static constexpr size_t kEach = 40;  // of a worker, in a round
  static constexpr uint64_t kBehind = 3;

  explicit Rounds(size_t body_bytes) : body_(body_bytes, std::byte{1}) {}

  void Add(bool settles) {
    ++epoch_;
    const uint64_t settled = settles && epoch_ > kBehind ? epoch_ - kBehind : 0;
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      for (size_t i = 0; i < kEach; ++i) {
        const uint64_t epoch = std::max<uint64_t>(1, epoch_ - random_.Below(2));
        uint64_t& last = last_[worker];
        last = std::max(last + 1, log::Lsn::Of(epoch, 0).value());
        ASSERT_TRUE(merge_
                        .Add({.life = 1, .island = 0, .worker = worker},
                             {.lsn = last, .kind = 1, .body = body_, .settled = settled}, visit_)
                        .ok());
        ++added_;
        most_held_ = std::max(most_held_, merge_.held_bytes());
      }
    }
  }
  void Finish() { ASSERT_TRUE(merge_.Finish(visit_).ok()); }

  size_t added() const { return added_; }
  size_t most_held() const { return most_held_; }
  size_t RoundBytes() const { return kWorkers * kEach * body_.size(); }
  const std::vector<uint64_t>& visited() const { return visited_; }
  size_t held() const { return merge_.held_bytes(); }

 private:
  const std::vector<std::byte> body_;
  runtime::Random random_{7};
  StreamMerge merge_;
  std::vector<uint64_t> visited_;
  uint64_t epoch_ = 0;
  uint64_t last_[kWorkers] = {};
  size_t added_ = 0, most_held_ = 0;
  std::function<absl::Status(const log::StreamId&, const log::Record&)> visit_ =
      [this](const log::StreamId&, const log::Record& record) {
        visited_.push_back(record.lsn);
        return absl::OkStatus();
      };
};

TEST(StreamMerge, VisitsInTheOrderOfLsns) {
  Rounds rounds(2000);
  for (int round = 0; round < 300; ++round) rounds.Add(/*settles=*/true);
  EXPECT_FALSE(rounds.visited().empty()) << "nothing was visited before the end";
  rounds.Finish();
  EXPECT_EQ(rounds.visited().size(), rounds.added());
  EXPECT_TRUE(std::is_sorted(rounds.visited().begin(), rounds.visited().end()));
  EXPECT_EQ(rounds.held(), 0u);
}

// A log of any length is repeated in as much memory.
TEST(StreamMerge, HoldsAFewRounds) {
  Rounds rounds(2000);
  for (int round = 0; round < 300; ++round) rounds.Add(/*settles=*/true);
  EXPECT_LT(rounds.most_held(), StreamMerge::kLeastHeld + 3 * (Rounds::kBehind + 2) * rounds.RoundBytes());
  EXPECT_GT(rounds.added() * 2000, 4 * rounds.most_held());
}

TEST(StreamMerge, HoldsWhatIsNotSettled) {
  Rounds rounds(2000);
  for (int round = 0; round < 100; ++round) rounds.Add(/*settles=*/false);
  EXPECT_TRUE(rounds.visited().empty());
  EXPECT_EQ(rounds.held(), rounds.added() * 2000);
  for (int round = 0; round < 300; ++round) rounds.Add(/*settles=*/true);
  rounds.Finish();
  EXPECT_EQ(rounds.visited().size(), rounds.added());
  EXPECT_TRUE(std::is_sorted(rounds.visited().begin(), rounds.visited().end()));
}

TEST(StreamMerge, LivesFollowEachOther_AndAnErrorEndsIt) {
  StreamMerge merge;
  std::vector<uint64_t> visited;
  const auto visit = [&](const log::StreamId& stream, const log::Record& record) {
    if (record.lsn == UINT64_MAX) return absl::DataLossError("so high");
    visited.push_back(stream.life);
    return absl::OkStatus();
  };
  EXPECT_TRUE(merge.Add({1, 0, 0}, {.lsn = 5, .kind = 1}, visit).ok());
  EXPECT_TRUE(visited.empty());
  EXPECT_TRUE(merge.Add({2, 0, 0}, {.lsn = 6, .kind = 1}, visit).ok());
  EXPECT_EQ(visited, std::vector<uint64_t>({1}));
  EXPECT_TRUE(merge.Add({2, 0, 1}, {.lsn = UINT64_MAX, .kind = 1}, visit).ok());
  EXPECT_EQ(merge.Finish(visit).code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(visited, std::vector<uint64_t>({1, 2}));
}

}  // namespace
}  // namespace islands::recovery
