// islands.client.v1 over gRPC: each call becomes requests to the island that owns its first key (channels.h).
//
// Nothing is kept between calls: a gateway that dies takes open transactions with it, which their islands
// roll back, and a commit that was on its way has an outcome that its client does not know.
//
// Thread safety: any thread. The service outlives its calls: shut the server down first.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

#include "instance/gateway/channels.h"
#include "instance/gateway/counters.h"
#include "instance/gateway/view.h"
#include "proto/client.grpc.pb.h"

namespace islands::gateway {

struct ServiceLimits {
  int64_t call_us = 10'000'000;       // deadline of calls that bring none
  int64_t idle_us = 10'000'000;       // that an open transaction may wait for its client's next word
  uint32_t most_transactions = 4096;  // open at a time
};

class Service final : public client::v1::Islands::CallbackService {
 public:
  using Views = std::function<std::shared_ptr<const View>()>;  // the newest one; never null
  using Done = std::function<void(const absl::Status&)>;
  // Has the deployment change its tables, and the views with it; with a request for no change there is just a
  // new view. Does not wait: says on some thread how it ended.
  using ChangeTables = std::function<void(control::v1::TablesRequest, Done)>;

  // `on_other_tables`: an island has other tables than the view says.
  Service(ServiceLimits limits, Channels& channels, Views views, std::function<void()> on_other_tables,
          ChangeTables change_tables);

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context,
                                    const client::v1::ExecuteRequest* request,
                                    client::v1::ExecuteResponse* response) override;
  grpc::ServerUnaryReactor* ExecuteMany(grpc::CallbackServerContext* context,
                                        const client::v1::ExecuteManyRequest* request,
                                        client::v1::ExecuteManyResponse* response) override;
  grpc::ServerBidiReactor<client::v1::TransactRequest, client::v1::TransactResponse>* Transact(
      grpc::CallbackServerContext* context) override;
  grpc::ServerUnaryReactor* Call(grpc::CallbackServerContext* context, const client::v1::CallRequest* request,
                                 client::v1::CallResponse* response) override;
  grpc::ServerUnaryReactor* ListProcedures(grpc::CallbackServerContext* context,
                                           const client::v1::ListProceduresRequest* request,
                                           client::v1::ListProceduresResponse* response) override;
  grpc::ServerUnaryReactor* AskOutcome(grpc::CallbackServerContext* context,
                                       const client::v1::AskOutcomeRequest* request,
                                       client::v1::AskOutcomeResponse* response) override;
  grpc::ServerUnaryReactor* CreateTable(grpc::CallbackServerContext* context,
                                        const client::v1::CreateTableRequest* request,
                                        client::v1::CreateTableResponse* response) override;
  grpc::ServerUnaryReactor* DropTable(grpc::CallbackServerContext* context,
                                      const client::v1::DropTableRequest* request,
                                      client::v1::DropTableResponse* response) override;
  grpc::ServerUnaryReactor* ListTables(grpc::CallbackServerContext* context,
                                       const client::v1::ListTablesRequest* request,
                                       client::v1::ListTablesResponse* response) override;

  // For its calls.
  const ServiceLimits& limits() const { return limits_; }
  Channels& channels() { return channels_; }
  std::shared_ptr<const View> view() const { return views_(); }
  void NoteOtherTables() const { on_other_tables_(); }
  // The first token has come: their table is made; meanwhile nothing can be done with one. Says why: that, or
  // what went wrong the last time.
  absl::Status MakeTokensTable(const View& view);
  // A workload may have been loaded since the view was made.
  void Refresh(std::function<void()> done);
  // One more transaction is open; false: there are too many, and it must not be.
  bool Enter(uint32_t transactions = 1);
  void Leave(uint32_t transactions = 1) { open_.fetch_sub(transactions, std::memory_order_relaxed); }
  uint32_t open() const { return open_.load(std::memory_order_relaxed); }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }

 private:
  grpc::ServerUnaryReactor* Change(grpc::CallbackServerContext* context, const absl::Status& may,
                                   control::v1::TablesRequest request);

  const ServiceLimits limits_;
  Channels& channels_;
  const Views views_;
  const std::function<void()> on_other_tables_;
  const ChangeTables change_tables_;
  runtime::Mutex tokens_mutex_;
  bool makes_tokens_table_ ABSL_GUARDED_BY(tokens_mutex_) = false;
  absl::Status no_tokens_ ABSL_GUARDED_BY(tokens_mutex_) =
      absl::UnavailableError("the table of tokens is being made; try again");
  std::atomic<uint32_t> open_{0};
  Counters counters_;
};

}  // namespace islands::gateway
