// For tests of the gateway: two real islands in this process behind a gateway that is spoken to over gRPC, a
// workload with procedures that they can load, and requests as clients make them.
//
// Thread safety: none; the view is for any thread, as the gateway needs it.
#pragma once

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "instance/gateway/channels.h"
#include "instance/gateway/direct.h"
#include "instance/gateway/server.h"
#include "instance/gateway/service.h"
#include "instance/gateway/tokens.h"
#include "instance/messaging/uds_transport.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::gateway {

using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::Failure;
using client::v1::Operation;
using client::v1::Result;
using client::v1::TransactRequest;
using client::v1::TransactResponse;
using testing::ElementsAre;
using testing::HasSubstr;

inline constexpr auto kPatience = std::chrono::seconds(20);

// A procedure that moves money; accounts have rows of 8 bytes then.
class Bank final : public instance::Workload {
 public:
  explicit Bank(instance::TableId accounts) : accounts_(accounts) {}
  const char* name() const override { return "bank"; }
  std::vector<std::string> tables() const override { return {}; }  // those of tests keep their rows
  absl::Status Load(instance::Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext&) const override {
    return absl::UnimplementedError("nobody runs it");
  }
  runtime::Task<absl::Status> Run(instance::Transaction&, const instance::Request&) const override {
    co_return absl::UnimplementedError("nobody runs it");
  }
  const std::vector<instance::Procedure>& procedures() const override {
    using enum instance::ValueType;
    static const std::vector<instance::Procedure> kProcedures = {
        {"move",
         "moves money",
         {{"from", kInt64}, {"to", kInt64}, {"amount", kDouble}, {"why", kText}},
         {{"left", kInt64}, {"why", kText}},
         "accounts"},
        {"once", "inserts a row, and says so if it cannot", {{"row", kInt64}}, {}, "accounts"}};
    return kProcedures;
  }
  runtime::Task<absl::Status> Call(instance::Transaction& transaction, const instance::Procedure& procedure,
                                   std::span<const instance::Value> arguments,
                                   std::vector<instance::Value>* results) const override {
    const auto key = [&](size_t i) {
      return partitioner::Uint64Key(static_cast<uint64_t>(std::get<int64_t>(arguments[i])));
    };
    instance::Batch& batch = transaction.batch();
    if (procedure.name == "once") {
      batch.Insert(accounts_, key(0), {});
      absl::Status inserted = co_await transaction.Execute(batch);
      if (!inserted.ok()) co_return inserted;
      if (batch.code(0) != absl::StatusCode::kOk)
        co_return absl::AlreadyExistsError("it has been here before");
      co_return absl::OkStatus();
    }
    const auto amount = static_cast<int64_t>(std::get<double>(arguments[2]));
    batch.Add(accounts_, key(0), 0, -amount);
    batch.Add(accounts_, key(1), 0, amount);
    absl::Status status = co_await transaction.Execute(batch);
    if (!status.ok()) co_return status;
    for (size_t i = 0; i < 2; ++i) {
      if (batch.code(i) != absl::StatusCode::kOk) co_return absl::NotFoundError("there is no such account");
    }
    int64_t left = 0;
    std::memcpy(&left, batch.row(0).data(), sizeof(left));
    results->assign({left, std::get<std::string>(arguments[3])});
    co_return absl::OkStatus();
  }

 private:
  const instance::TableId accounts_;
};

// `sockets`: a directory, if they are to speak over sockets.
inline instance::ClusterOptions TwoIslands(const std::string& sockets = {}) {
  instance::ClusterOptions options;
  options.sockets = sockets;
  options.open = [](const storage::Catalog& catalog) -> absl::StatusOr<instance::OpenedWorkload> {
    return std::make_shared<Bank>(catalog.Find("accounts")->id);
  };
  options.islands = 2;
  options.sites = 4;
  options.config.clear_loads();
  control::v1::TableSpec* accounts = options.config.add_tables();
  accounts->set_name("accounts");
  accounts->add_key("uint64");
  accounts->set_range_end(1000);  // from 500 on: of island 1
  control::v1::TableSpec* people = options.config.add_tables();
  people->set_name("people");
  people->add_key("int32");
  people->add_key("string");
  people->set_range_begin(-100);
  people->set_range_end(100);
  people->set_row_bytes(12);
  control::v1::IndexSpec* index = people->add_indexes();
  index->set_name("by_age");
  index->add_key("row:0:uint32");
  return options;
}

inline Operation On(const std::string& table) {
  Operation operation;
  operation.set_table(table);
  return operation;
}
inline Operation Get(uint64_t key) {
  Operation operation = On("accounts");
  operation.mutable_get()->mutable_key()->add_parts()->set_unsigned_(key);
  return operation;
}
inline Operation Put(uint64_t key, const std::string& value) {
  Operation operation = On("accounts");
  operation.mutable_put()->mutable_key()->add_parts()->set_unsigned_(key);
  operation.mutable_put()->set_value(value);
  return operation;
}
inline Operation Insert(uint64_t key, const std::string& value) {
  Operation operation = On("accounts");
  operation.mutable_insert()->mutable_key()->add_parts()->set_unsigned_(key);
  operation.mutable_insert()->set_value(value);
  return operation;
}
inline Operation Add(uint64_t key, int64_t delta) {
  Operation operation = On("accounts");
  operation.mutable_add()->mutable_key()->add_parts()->set_unsigned_(key);
  operation.mutable_add()->set_delta(delta);
  return operation;
}
inline Operation Person(int32_t group, const std::string& name, char age) {
  Operation operation = On("people");
  operation.mutable_insert()->mutable_key()->add_parts()->set_signed_(group);
  operation.mutable_insert()->mutable_key()->add_parts()->set_text(name);
  operation.mutable_insert()->set_value(std::string(1, age) + std::string(11, '\0'));
  return operation;
}

// The failure in a status's details; an outcome of OUTCOME_UNSPECIFIED if there is none.
inline Failure FailureOf(const grpc::Status& status) {
  client::v1::Status details;
  Failure failure;
  if (details.ParseFromString(status.error_details()) && details.details_size() == 1)
    details.details(0).UnpackTo(&failure);
  return failure;
}

class GatewayTest : public testing::Test {
 protected:
  // `sockets`: a directory; all speak over sockets then, and the gateway takes frames, too.
  explicit GatewayTest(ServiceLimits limits = {}, const std::string& sockets = {})
      : limits_(limits), cluster_(TwoIslands(sockets)) {
    EXPECT_TRUE(cluster_.Start().ok());
    Refresh();
    channels_ = std::make_unique<Channels>(
        ChannelsOptions{
            .cluster_id = view()->cluster_id, .workers = view()->workers, .redial_max_ns = 20'000'000},
        sockets.empty()
            ? cluster_.hub().MakeTransport({2, 0})
            : *messaging::MakeUdsTransport(sockets, {2, 0}, path_ + kDirectSuffix, {.dialled = true}),
        clock_);
    service_ = std::make_unique<Service>(
        limits_, *channels_, [this] { return view(); }, [this] { other_tables_ = true; },
        [this](const control::v1::TablesRequest& request, const Service::Done& done) {
          if (!changes_elsewhere_) return Change(request, done);
          changer_ = std::thread([this, request, done] { Change(request, done); });
        });
    auto server = Server::Start({.socket = path_, .direct = !sockets.empty()}, *service_);
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    channel_ = grpc::CreateChannel(server_->addresses().front(), grpc::InsecureChannelCredentials());
    stub_ = client::v1::Islands::NewStub(channel_);
    AwaitIsland(0), AwaitIsland(1), AwaitLinks();
  }
  ~GatewayTest() override {
    stub_.reset();
    channel_.reset();
    server_.reset();
    if (changer_.joinable()) changer_.join();
  }

  std::shared_ptr<const View> view() const {
    const runtime::MutexLock lock(mutex_);
    return view_;
  }
  void SetView(std::shared_ptr<const View> view) {
    const runtime::MutexLock lock(mutex_);
    view_ = std::move(view);
  }
  void Refresh() {
    control::v1::ClusterStatus status;
    *status.add_configs() = cluster_.island(0).config();
    for (uint32_t i = 0; i < 2; ++i) {
      if (cluster_.alive(i)) *status.add_islands() = cluster_.island(i).Status();
    }
    SetView(*View::Create(status));
  }
  // As supervisor and main thread do.
  void Change(const control::v1::TablesRequest& request, const Service::Done& done) {
    absl::Status changed;
    const bool changes = !request.add().empty() || !request.drop().empty();  // else it wants a new view
    control::v1::TablesRequest check = request;
    check.set_check_only(true);
    for (uint32_t i = 0; changes && i < 2; ++i) changed.Update(cluster_.island(i).ChangeTables(check));
    if (changed.ok() && between_) between_();
    for (uint32_t i = 0; changes && i < 2 && changed.ok(); ++i)
      changed.Update(cluster_.island(i).ChangeTables(request));
    Refresh();
    done(changed);
  }
  // What clients do between the check of a change of tables and the change.
  std::function<void()> between_;
  std::atomic<bool> changes_elsewhere_{false};  // once, on a thread of its own, as in the program
  std::thread changer_;

  template <typename Predicate>
  static bool Becomes(const Predicate& so) {
    for (int i = 0; i < 4000 && !so(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return so();
  }
  void AwaitIsland(uint32_t island, bool up = true) {
    EXPECT_TRUE(Becomes([&] { return channels_->IsUp(island) == up; }));
  }
  // The islands reach each other.
  void AwaitLinks() {
    for (uint32_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(Becomes([&] {
        const control::v1::IslandStatus status = cluster_.island(i).Status();
        return status.peers_connected() == status.peers_total();
      }));
    }
  }
  static void SetDeadline(grpc::ClientContext& context) {
    context.set_deadline(std::chrono::system_clock::now() + kPatience);
  }
  grpc::Status Execute(const std::vector<Operation>& operations) {
    ExecuteRequest request;
    for (const Operation& operation : operations) *request.add_operations() = operation;
    grpc::ClientContext context;
    SetDeadline(context);
    response_.Clear();
    return stub_->Execute(&context, request, &response_);
  }
  std::string ValueOf(uint64_t key) {
    const grpc::Status status = Execute({Get(key)});
    if (!status.ok()) return status.error_message();
    return response_.results(0).code() == Result::DONE ? response_.results(0).value() : "none";
  }
  uint64_t LocksHeld() { return cluster_.Sum().locks_held; }

  const ServiceLimits limits_;
  instance::InProcessCluster cluster_;
  const runtime::MonotonicClock clock_;
  const std::string path_ =
      (std::filesystem::temp_directory_path() / ("gw-" + std::to_string(getpid()) + ".sock")).string();
  mutable runtime::Mutex mutex_;
  std::shared_ptr<const View> view_ ABSL_GUARDED_BY(mutex_);
  std::atomic<bool> other_tables_{false};
  std::unique_ptr<Channels> channels_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<client::v1::Islands::Stub> stub_;
  ExecuteResponse response_;
};

class TokenTest : public GatewayTest {
 protected:
  grpc::Status ExecuteWith(const std::string& token, const std::vector<Operation>& operations) {
    ExecuteRequest request;
    for (const Operation& operation : operations) *request.add_operations() = operation;
    request.set_token(token);
    grpc::ClientContext context;
    SetDeadline(context);
    response_.Clear();
    return stub_->Execute(&context, request, &response_);
  }
  // Of a transaction that begins with this key.
  std::string OutcomeOf(const std::string& token, uint64_t key) {
    client::v1::AskOutcomeRequest request;
    request.set_token(token);
    request.set_table("accounts");
    request.mutable_key()->add_parts()->set_unsigned_(key);
    client::v1::AskOutcomeResponse response;
    grpc::ClientContext context;
    SetDeadline(context);
    const grpc::Status status = stub_->AskOutcome(&context, request, &response);
    if (!status.ok()) return status.error_message();
    return response.committed() ? "committed" : "never";
  }
  // The first one finds no table for it.
  void MakeTable() {
    const grpc::Status first = ExecuteWith("first", {Put(1, "x")});
    EXPECT_EQ(first.error_code(), grpc::StatusCode::UNAVAILABLE);
    EXPECT_EQ(FailureOf(first).outcome(), Failure::ABORTED);
    EXPECT_EQ(FailureOf(first).reason(), "not_ready");
    ASSERT_TRUE(Becomes([&] { return FindTokensTable(*view()) != nullptr; }));
  }
};

}  // namespace islands::gateway
