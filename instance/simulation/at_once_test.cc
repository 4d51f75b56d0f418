// What others wait for leaves before anybody begins: answers to their operations, votes, decisions. Two
// islands whose transactions are all distributed, and what each worker does, one letter after the other.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "instance/testing/in_process_cluster.h"

namespace islands::simulation {
namespace {

using instance::Batch;
using instance::KeyView;
using instance::RowView;
using instance::TableId;
using messaging::ConnectionId;
using messaging::FrameType;
using partitioner::Uint64Key;

constexpr uint64_t kRowsPerIsland = 100;
constexpr uint32_t kMpl = 8;

// 'm': a message that somebody waits for; 'f': all messages leave; 'n': a transaction begins.
using Trace = std::string;

class Traced final : public messaging::Transport {
 public:
  Traced(std::unique_ptr<messaging::Transport> transport, Trace& trace)
      : transport_(std::move(transport)), trace_(trace) {}
  absl::Status Listen() override { return transport_->Listen(); }
  ConnectionId Dial(messaging::Address peer) override { return transport_->Dial(peer); }
  void Send(ConnectionId connection, FrameType type, std::span<const std::byte> payload) override {
    if (type == FrameType::kExecuteReply || type == FrameType::kVote || type == FrameType::kDecision)
      trace_ += 'm';
    transport_->Send(connection, type, payload);
  }
  size_t QueuedBytes(ConnectionId connection) const override { return transport_->QueuedBytes(connection); }
  void Flush() override {
    trace_ += 'f';
    transport_->Flush();
  }
  size_t Poll(messaging::TransportHandler& handler) override { return transport_->Poll(handler); }
  void Close(ConnectionId connection) override { transport_->Close(connection); }
  void Wait(int64_t timeout_ns) override { transport_->Wait(timeout_ns); }
  void Wake() override { transport_->Wake(); }

 private:
  const std::unique_ptr<messaging::Transport> transport_;
  Trace& trace_;
};

class Numbers final : public instance::Generator {
 public:
  Numbers(uint32_t island, Trace& trace) : island_(island), trace_(trace) {}
  struct Number final : instance::Request {
    uint64_t there = 0;
  };
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Number>(); }
  void Next(runtime::Random&, instance::Request& request) override {
    trace_ += 'n';
    static_cast<Number&>(request).there = (1 - island_) * kRowsPerIsland + next_++ % kRowsPerIsland;
  }

 private:
  const uint32_t island_;
  Trace& trace_;
  uint64_t next_ = 0;
};

// Adds to a row of the other island, and reads one of its own.
class Adding final : public instance::Workload {
 public:
  Adding(TableId table, std::array<Trace, 2>& traces) : table_(table), traces_(traces) {}
  const char* name() const override { return "adding"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(instance::Loader& loader) const override {
    for (uint64_t n = 0; n < 2 * kRowsPerIsland; ++n) {
      absl::Status status = loader.Insert(table_, Uint64Key(n), std::vector<std::byte>(sizeof(int64_t)));
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext& context) const override {
    return std::make_unique<Numbers>(context.island, traces_[context.island]);
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    Batch& batch = transaction.batch();
    batch.Add(table_, Uint64Key(static_cast<const Numbers::Number&>(request).there), 0, 1);
    batch.LastElsewhere();
    runtime::Task<absl::Status> step = transaction.Execute(batch);
    co_return co_await step;
  }
  int64_t AuditRow(TableId, KeyView, RowView row) const override {
    int64_t count = 0;
    std::memcpy(&count, row.data(), sizeof(count));
    return count;
  }

 private:
  const TableId table_;
  std::array<Trace, 2>& traces_;
};

class TracedCluster final : public instance::InProcessCluster {
 public:
  explicit TracedCluster(std::array<Trace, 2>& traces) : InProcessCluster(Options(traces)), traces_(traces) {}
  ~TracedCluster() override { EndIslands(); }

 private:
  static instance::ClusterOptions Options(std::array<Trace, 2>& traces) {
    instance::ClusterOptions options;
    options.pace = instance::Pace::kStepped;
    options.islands = options.sites = 2;
    control::v1::TableSpec& table = *options.config.add_tables();
    table.set_name("rows");
    table.add_key("uint64");
    table.set_range_end(2 * kRowsPerIsland);
    table.set_row_bytes(sizeof(int64_t));
    options.open = [&traces](const storage::Catalog& catalog) {
      return std::make_shared<Adding>(catalog.Find("rows")->id, traces);
    };
    return options;
  }
  instance::Seams SeamsOf(uint32_t island) override {
    instance::Seams seams = InProcessCluster::SeamsOf(island);
    seams.make_transport =
        [this, island, make = std::move(seams.make_transport)](
            messaging::Address self) -> absl::StatusOr<std::unique_ptr<messaging::Transport>> {
      auto made = make(self);
      if (!made.ok()) return made.status();
      return std::make_unique<Traced>(*std::move(made), traces_[island]);
    };
    return seams;
  }

  std::array<Trace, 2>& traces_;
};

TEST(AtOnce, WhatOthersWaitFor_LeavesBeforeAnybodyBegins) {
  std::array<Trace, 2> traces;
  TracedCluster cluster(traces);
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(kMpl).ok());
  ASSERT_TRUE(cluster.RunUntil([&] { return cluster.Committed() > 1000; }, 20 * runtime::kNsPerSecond));
  ASSERT_TRUE(cluster.Drain(10 * runtime::kNsPerSecond));
  for (const Trace& trace : traces) {
    size_t messages = 0, before_a_begin = 0;
    for (size_t at = trace.find('m'); at != Trace::npos; at = trace.find('m', at + 1)) {
      ++messages;
      const size_t next = trace.find_first_of("fn", at);
      ASSERT_NE(next, Trace::npos);
      ASSERT_EQ(trace[next], 'f') << trace.substr(at < 20 ? 0 : at - 20, 40);
      before_a_begin += next + 1 < trace.size() && trace[next + 1] == 'n';
    }
    EXPECT_GT(messages, 1000u);
    EXPECT_GT(before_a_begin, 100u) << "else it says little";
  }
}

}  // namespace
}  // namespace islands::simulation
