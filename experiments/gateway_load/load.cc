#include "experiments/gateway_load/load.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "instance/gateway/cpp/connection.h"
#include "proto/client.grpc.pb.h"
#include "runtime/random.h"

namespace islands::experiments {
namespace {

using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::Result;
using Clock = std::chrono::steady_clock;

constexpr int64_t kCallTimeoutMs = 10'000;
constexpr auto kCallTimeout = std::chrono::milliseconds(kCallTimeoutMs);
constexpr auto kConnectTimeout = std::chrono::seconds(10);
constexpr uint64_t kRowsPerSum = 200;  // read in a transaction to be added up

enum class Phase : uint8_t { kWarmup, kMeasuring, kOver };

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

absl::Status StatusOf(const grpc::Status& status) {
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

// What a process has spent of processors so far, all its threads together.
absl::StatusOr<double> CpuSeconds(int process) {
  if (process == 0) return 0;
  clockid_t clock;
  timespec time{};
  if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0)
    return absl::NotFoundError(fmt::format("there is no process {}", process));
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

class Client {
 public:
  Client(const LoadOptions& options, uint32_t number)
      : options_(options), random_(runtime::Random::Stream(options.seed, number)) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // no connection shared with others
    channel_ = grpc::CreateCustomChannel(options.address, grpc::InsecureChannelCredentials(), arguments);
    connection_.stub = client::v1::Islands::NewStub(channel_);
    if (options.frames) connection_.direct = std::make_unique<islands::internal::Direct>(options.address);
    for (uint32_t i = 0; i < options.per_call; ++i) {
      ExecuteRequest* const transaction =
          options.per_call == 1 ? call_.mutable_execute() : call_.mutable_execute_many()->add_transactions();
      transactions_.push_back(transaction);
      for (uint32_t row = 0; row < options.rows; ++row) Prepare(transaction->add_operations());
    }
    us_.reserve(1 << 16);
  }

  void Run(const std::atomic<Phase>& phase) {
    if (options_.frames) {
      auto line = connection_.direct->Take();
      if (line == nullptr) {
        status_ = absl::UnavailableError(fmt::format("nobody takes frames beside {}", options_.address));
        return;
      }
      connection_.direct->Give(std::move(line));
    } else if (!channel_->WaitForConnected(std::chrono::system_clock::now() + kConnectTimeout)) {
      status_ = absl::UnavailableError(fmt::format("nobody answers at {}", options_.address));
      return;
    }
    while (status_.ok() && phase.load(std::memory_order_relaxed) != Phase::kOver) {
      for (ExecuteRequest* request : transactions_) Draw(request);
      const Clock::time_point begin = Clock::now();
      status_ = Call();
      if (status_.ok()) rows_done_ += uint64_t{options_.rows} * options_.per_call;
      if (phase.load(std::memory_order_relaxed) == Phase::kMeasuring)
        us_.push_back(1e6 * SecondsSince(begin));
    }
  }

  const absl::Status& status() const { return status_; }
  const std::vector<double>& us() const { return us_; }
  uint64_t rows_done() const { return rows_done_; }

 private:
  void Prepare(client::v1::Operation* operation) const {
    operation->set_table("micro");
    KeyOf(operation)->add_parts();
    if (options_.op == LoadOp::kPut)
      operation->mutable_put()->set_value(std::string(options_.row_bytes, 'p'));
    if (options_.op == LoadOp::kAdd) operation->mutable_add()->set_delta(1);
  }
  client::v1::Key* KeyOf(client::v1::Operation* operation) const {
    switch (options_.op) {
      case LoadOp::kPut:
        return operation->mutable_put()->mutable_key();
      case LoadOp::kAdd:
        return operation->mutable_add()->mutable_key();
      default:
        return operation->mutable_get()->mutable_key();
    }
  }
  void Draw(ExecuteRequest* request) {
    keys_.clear();
    while (keys_.size() < options_.rows) keys_.insert(random_.Below(options_.range));
    int at = 0;
    for (const uint64_t key : keys_)
      KeyOf(request->mutable_operations(at++))->mutable_parts(0)->set_unsigned_(key);
  }

  absl::Status Call() {
    answer_.Clear();
    const islands::internal::Deadline deadline(kCallTimeoutMs);
    absl::Status status = connection_.Ask(&call_, islands::internal::Effect::kCommit, deadline, &answer_);
    if (!status.ok() || options_.per_call == 1) return status.ok() ? Check(answer_.execute()) : status;
    const client::v1::ExecuteManyResponse& many = answer_.execute_many();
    if (many.each_size() != static_cast<int>(transactions_.size()))
      return absl::InternalError(
          fmt::format("{} answers to {} transactions", many.each_size(), transactions_.size()));
    for (const auto& each : many.each()) {
      if (each.code() != 0) return {static_cast<absl::StatusCode>(each.code()), each.message()};
      if (absl::Status checked = Check(each.response()); !checked.ok()) return checked;
    }
    return absl::OkStatus();
  }

  absl::Status Check(const ExecuteResponse& response) const {
    const size_t wanted_bytes = options_.op == LoadOp::kGet ? options_.row_bytes : 0;
    bool fits = response.results_size() == static_cast<int>(options_.rows);
    for (const Result& result : response.results())
      fits = fits && result.code() == Result::DONE && result.value().size() == wanted_bytes;
    if (fits) return absl::OkStatus();
    return absl::InternalError(
        fmt::format("not the answer to {} operations: {}", options_.rows, response.ShortDebugString()));
  }

  const LoadOptions& options_;
  runtime::Random random_;
  std::shared_ptr<grpc::Channel> channel_;
  islands::internal::Connection connection_;
  client::v1::DirectCall call_;
  std::vector<ExecuteRequest*> transactions_;  // of the call
  client::v1::DirectAnswer answer_;
  absl::Status status_;
  std::set<uint64_t> keys_;  // of the transaction that is being drawn
  std::vector<double> us_;   // of each measured call
  uint64_t rows_done_ = 0;   // also while warming up
};

// `values` are put in another order.
double Percentile(std::vector<double>& values, double share) {
  const auto at = values.begin() + static_cast<ptrdiff_t>(share * static_cast<double>(values.size() - 1));
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

// The clients have ended.
absl::StatusOr<LoadResult> Sum(const LoadOptions& options,
                               const std::vector<std::unique_ptr<Client>>& clients) {
  std::vector<double> us;
  for (const auto& client : clients) {
    if (!client->status().ok()) return client->status();
    us.insert(us.end(), client->us().begin(), client->us().end());
  }
  if (us.empty()) return absl::DeadlineExceededError("no call ended while it was measured");
  LoadResult result;
  result.calls = us.size();
  result.transactions = us.size() * options.per_call;
  result.p50_us = Percentile(us, 0.5);
  result.p99_us = Percentile(us, 0.99);
  return result;
}

// Of all rows, read in large transactions.
absl::StatusOr<int64_t> SumCounters(const LoadOptions& options) {
  const auto channel = grpc::CreateChannel(options.address, grpc::InsecureChannelCredentials());
  const auto stub = client::v1::Islands::NewStub(channel);
  int64_t sum = 0;
  for (uint64_t begin = 0; begin < options.range; begin += kRowsPerSum) {
    ExecuteRequest request;
    for (uint64_t key = begin; key < std::min(options.range, begin + kRowsPerSum); ++key) {
      client::v1::Operation* const operation = request.add_operations();
      operation->set_table("micro");
      operation->mutable_get()->mutable_key()->add_parts()->set_unsigned_(key);
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + kCallTimeout);
    ExecuteResponse response;
    const grpc::Status status = stub->Execute(&context, request, &response);
    if (!status.ok()) return StatusOf(status);
    for (const Result& result : response.results()) {
      int64_t counter = 0;
      if (result.value().size() < sizeof(counter)) return absl::InternalError("a row without a counter");
      std::memcpy(&counter, result.value().data(), sizeof(counter));
      sum += counter;
    }
  }
  return sum;
}

}  // namespace

absl::StatusOr<LoadResult> RunLoad(const LoadOptions& options) {
  if (options.rows > options.range)
    return absl::InvalidArgumentError("--rows: as many distinct rows as the range has, at most");
  const bool adds = options.op == LoadOp::kAdd;
  const absl::StatusOr<int64_t> sum_before = adds ? SumCounters(options) : 0;
  if (!sum_before.ok()) return sum_before.status();
  std::atomic<Phase> phase{Phase::kWarmup};
  std::vector<std::unique_ptr<Client>> clients;
  for (uint32_t i = 0; i < options.clients; ++i) clients.push_back(std::make_unique<Client>(options, i));
  std::vector<std::thread> threads;
  for (const auto& client : clients) threads.emplace_back([&client, &phase] { client->Run(phase); });
  std::this_thread::sleep_for(std::chrono::duration<double>(options.warmup_s));
  const Clock::time_point begin = Clock::now();
  const absl::StatusOr<double> cpu_begin_s = CpuSeconds(options.process);
  phase = Phase::kMeasuring;
  std::this_thread::sleep_for(std::chrono::duration<double>(options.seconds));
  phase = Phase::kOver;
  const absl::StatusOr<double> cpu_end_s = CpuSeconds(options.process);
  const double seconds = SecondsSince(begin);
  for (std::thread& thread : threads) thread.join();
  absl::StatusOr<LoadResult> result = Sum(options, clients);
  if (!result.ok()) return result;
  const absl::StatusOr<int64_t> sum_after = adds ? SumCounters(options) : 0;
  if (!sum_after.ok()) return sum_after.status();
  int64_t added = 0;
  for (const auto& client : clients) added += adds ? static_cast<int64_t>(client->rows_done()) : 0;
  if (*sum_after - *sum_before != added) {
    return absl::DataLossError(fmt::format("committed adds add up to {}, but the rows' counters grew by {}",
                                           added, *sum_after - *sum_before));
  }
  if (!cpu_begin_s.ok()) return cpu_begin_s.status();
  if (!cpu_end_s.ok()) return cpu_end_s.status();
  result->seconds = seconds;
  result->cpu_s = *cpu_end_s - *cpu_begin_s;
  return result;
}

}  // namespace islands::experiments
