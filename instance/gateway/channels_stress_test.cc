// Several threads ask islands through one set of channels, whose links break all the time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "instance/gateway/channels.h"
#include "instance/gateway/view.h"
#include "instance/testing/in_process_cluster.h"
#include "instance/worker/wire.h"

namespace islands::gateway {
namespace {

constexpr uint64_t kRows = 100;  // the first half are island 0's
constexpr int kThreads = 4;
constexpr int kBreaks = 25;

instance::ClusterOptions TwoIslands() {
  instance::ClusterOptions options;
  options.islands = 2;
  options.workers = 2;
  options.config.clear_loads();
  control::v1::TableSpec* table = options.config.add_tables();
  table->set_name("rows");
  table->add_key("uint64");
  table->set_range_end(kRows);
  return options;
}

struct Counts {
  std::atomic<int> committed{0}, aborted{0}, unknown{0};
};

// Waits for one answer at a time, and checks that it is one.
class Asker final : public Waiting {
 public:
  explicit Asker(Counts& counts) : counts_(counts) {}
  void Ask(Channels& channels, const View& view, const instance::Batch& batch, uint32_t island) {
    data::v1::ClientRequest request;
    const uint64_t session = channels.NextSession();
    request.set_session(session);
    request.set_tables(view.tables);
    request.set_begins(true);
    request.set_whole(true);
    request.set_end(data::v1::CLIENT_END_COMMIT);
    request.set_deadline_us(5'000'000);
    instance::EncodeClientOperations(batch, request.mutable_operations());
    answered_.store(false, std::memory_order_relaxed);
    channels.Send(channels.WorkerFor(island, session), request, this);
    while (!answered_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  void OnReply(const data::v1::ClientReply& reply) override {
    (reply.outcome() == data::v1::OUTCOME_COMMITTED ? counts_.committed
     : reply.outcome() == data::v1::OUTCOME_ABORTED ? counts_.aborted
                                                    : counts_.unknown)
        .fetch_add(1);
    Answer();
  }
  void OnLost(bool sent, const absl::Status&) override {
    (sent ? counts_.unknown : counts_.aborted).fetch_add(1);
    Answer();
  }

 private:
  void Answer() { EXPECT_FALSE(answered_.exchange(true, std::memory_order_release)); }

  Counts& counts_;
  std::atomic<bool> answered_{false};
};

// Returns how many it has asked for.
int Work(Channels& channels, const View& view, Counts& counts, uint64_t seed, const std::atomic<bool>& over) {
  runtime::Random random(seed);
  Asker asker(counts);
  instance::Batch batch;
  int asked = 0;
  for (; !over; ++asked) {
    const uint64_t here = random.Below(kRows), there = random.Below(kRows);
    batch.Clear();
    batch.Add(0, partitioner::Uint64Key(here), 0, 1);
    batch.Add(0, partitioner::Uint64Key(there), 0, 1);
    asker.Ask(channels, view, batch, here < kRows / 2 ? 0 : 1);
  }
  return asked;
}

TEST(Channels, Stress_EveryRequestHasOneAnswerAndItIsTrue) {
  instance::InProcessCluster cluster(TwoIslands());
  ASSERT_TRUE(cluster.Start().ok());
  control::v1::ClusterStatus status;
  *status.add_configs() = cluster.island(0).config();
  const std::shared_ptr<const View> view = *View::Create(status);
  const runtime::MonotonicClock clock;
  Counts counts;
  std::atomic<int> asked{0};
  {
    Channels channels({.cluster_id = view->cluster_id, .workers = view->workers, .redial_max_ns = 20'000'000},
                      cluster.hub().MakeTransport({2, 0}), clock);
    // The rows, once the islands reach each other.
    Counts made;
    Asker maker(made);
    for (uint64_t row = 0; row < kRows;) {
      instance::Batch batch;
      const std::string zeros(8, '\0');
      batch.Put(0, partitioner::Uint64Key(row), std::as_bytes(std::span(zeros)));
      batch.Put(0, partitioner::Uint64Key(kRows - 1 - row), std::as_bytes(std::span(zeros)));
      maker.Ask(channels, *view, batch, row < kRows / 2 ? 0 : 1);
      if (made.committed > static_cast<int>(row)) ++row;
    }
    std::atomic<bool> over{false};
    std::vector<std::thread> threads;
    for (uint64_t i = 0; i < kThreads; ++i)
      threads.emplace_back([&, i] { asked += Work(channels, *view, counts, i + 1, over); });
    for (uint32_t i = 0; i < kBreaks; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      cluster.hub().Break({2, 0}, i % 2);
    }
    over = true;
    for (std::thread& thread : threads) thread.join();
  }
  EXPECT_EQ(counts.committed + counts.aborted + counts.unknown, asked);
  EXPECT_GT(counts.committed, 100);
  EXPECT_GT(counts.unknown + counts.aborted, 0);
  ASSERT_TRUE(cluster.RunUntil([&] { return cluster.Quiet(); }, 20 * runtime::kNsPerSecond));
  int64_t sum = 0;
  cluster.VisitRows(0, [&](storage::KeyView, storage::RowView row) {
    int64_t counter = 0;
    std::memcpy(&counter, row.data(), sizeof(counter));
    sum += counter;
  });
  RecordProperty("asked", asked);
  RecordProperty("unknown", counts.unknown);
  EXPECT_GE(sum, 2 * counts.committed);
  EXPECT_LE(sum, 2 * (counts.committed + counts.unknown));
}

}  // namespace
}  // namespace islands::gateway
