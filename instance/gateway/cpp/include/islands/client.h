// Transactions on an Islands deployment, through its gateway.
//
//   auto db = islands::Client::Connect("unix:run/gateway.sock");
//   if (!db.ok()) ...
//   absl::Status put = db->Put("accounts", 7, "some text");             // each call is a transaction
//
//   islands::Batch batch;                                               // one transaction, one round trip
//   batch.Add("accounts", 1, -30);
//   batch.Add("accounts", 2, 30);
//   absl::StatusOr<islands::Committed> done = db->Execute(batch);
//
//   auto paid = db->Call("transfer.pay", {1, 2, 30});                   // a procedure of a loaded workload
//
//   // Called again until it was committed.
//   auto sum = db->Run([](islands::Transaction& t) { return t.Add("accounts", 1, 5); });
//
// A transaction is strictly serializable and atomic over all islands. Whether it was committed is said, or
// said to be unknown, never guessed: errors.h.
//
// Thread safety: a Client may be used by several threads at a time, a Transaction and a Batch by one.
// Calls block, at most until their deadline. Times are in milliseconds.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "islands/errors.h"
#include "islands/values.h"

namespace islands {

namespace internal {
struct Connection;
}

// For a gateway that listens on TCP, all PEM texts: who vouches for it, and the client's own.
struct Tls {
  std::string authority;
  std::string certificate;
  std::string key;
};

struct ConnectOptions {
  int64_t timeout_ms = 10'000;  // of every call that names no other; of a Transaction, all its steps together
  std::optional<Tls> tls = {};
};

struct CallOptions {
  int64_t timeout_ms = 0;  // 0 = the client's
  // With a token (NewToken) a transaction is committed once at most, however often it is sent within a day.
  // So a call that is lost is sent again until its deadline; only then its outcome is unknown.
  std::string token = {};
};

struct ManyOptions {
  int64_t timeout_ms = 0;
  // None, or one for each batch. Nothing is sent again here: that is the caller's business.
  std::vector<std::string> tokens = {};
};

struct RunOptions {
  // Most, and at least one. Between them a pause at random, longer each time, up to half a second.
  int attempts = 20;
  int64_t timeout_ms = 0;  // of each attempt; 0 = the client's
  // Commits with tokens: a commit that was lost on its way is asked for, and run again only if it is not
  // there. Costs one more row written.
  bool once = false;
};

// Bytes that nobody else uses: 16 at random.
std::string NewToken();

// One transaction, step by step. What is not committed is rolled back when it is destroyed, which does not
// wait for it. A write that does not find what it needs is a result, and the transaction goes on; after an
// error it has ended, and every further step returns that error.
class Transaction {
 public:
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&& other) noexcept;
  ~Transaction();

  // Its id; empty before the first step.
  const std::string& id() const;
  bool has_ended() const;

  // All of the operations in one step; a result for each.
  absl::StatusOr<std::vector<Result>> Execute(const Batch& batch);

  absl::StatusOr<std::optional<std::string>> Get(std::string_view table, const Key& key);
  absl::StatusOr<std::optional<std::string>> GetForUpdate(std::string_view table, const Key& key);
  absl::Status Put(std::string_view table, const Key& key, std::string_view value);
  // Whether they found what they need.
  absl::StatusOr<bool> Insert(std::string_view table, const Key& key, std::string_view value);
  absl::StatusOr<bool> Replace(std::string_view table, const Key& key, std::string_view value);
  absl::StatusOr<bool> Delete(std::string_view table, const Key& key);
  // The sum; nothing if there is no such row.
  absl::StatusOr<std::optional<int64_t>> Add(std::string_view table, const Key& key, int64_t delta,
                                             uint32_t offset = 0);
  absl::StatusOr<std::vector<Row>> Scan(std::string_view table, const ScanOptions& scan = {});
  absl::StatusOr<std::vector<Row>> IndexScan(std::string_view table, std::string_view index, const Key& at,
                                             const ScanOptions& scan = {});

  // With a token, a commit that is lost is asked for, for as long again as the transaction may take: OK if it
  // was committed, kAborted if it never will be.
  absl::Status Commit(const std::string& token = "");
  // Returns when nothing is left of it. OK also if it has ended without being committed; an error if it was,
  // or if nobody knows.
  absl::Status Rollback();

 private:
  friend class Client;
  class Impl;
  explicit Transaction(std::unique_ptr<Impl> impl);
  absl::StatusOr<Result> One(const Batch& batch);
  absl::StatusOr<bool> Found(const Batch& batch);

  std::unique_ptr<Impl> impl_;
};

class Client {
 public:
  // `address`: as `islands status` prints it, unix:PATH or, with `tls`, HOST:PORT. The first call dials it.
  static absl::StatusOr<Client> Connect(const std::string& address, const ConnectOptions& options = {});

  Client(Client&& other) noexcept;
  Client& operator=(Client&& other) noexcept;
  ~Client();

  // All of a batch as one transaction; IsConditionFailed if a write does not find what it needs.
  absl::StatusOr<Committed> Execute(const Batch& batch, const CallOptions& options = {});
  // Each as a transaction of its own, in no order: the cheap way to send many, up to 1024. One that fails is
  // an error in its place.
  absl::StatusOr<std::vector<absl::StatusOr<Committed>>> ExecuteMany(std::span<const Batch> batches,
                                                                     const ManyOptions& options = {});

  // One operation, one transaction, as of a Batch; IsConditionFailed if it does not find what it needs.
  absl::StatusOr<std::optional<std::string>> Get(std::string_view table, const Key& key);
  absl::Status Put(std::string_view table, const Key& key, std::string_view value);
  absl::Status Insert(std::string_view table, const Key& key, std::string_view value);
  absl::Status Replace(std::string_view table, const Key& key, std::string_view value);
  absl::Status Delete(std::string_view table, const Key& key);
  absl::StatusOr<int64_t> Add(std::string_view table, const Key& key, int64_t delta, uint32_t offset = 0);
  absl::StatusOr<std::vector<Row>> Scan(std::string_view table, const ScanOptions& scan = {});
  absl::StatusOr<std::vector<Row>> IndexScan(std::string_view table, std::string_view index, const Key& at,
                                             const ScanOptions& scan = {});

  // It begins with its first step, and may outlive the client. `timeout_ms`: of all of it; 0 = the client's.
  Transaction Begin(int64_t timeout_ms = 0);

  // Calls function(transaction), commits if it returns OK, and returns what it returned; again if nothing is
  // left of the attempt and the next may end better (MayRunAgain). Any other error of the function's is a
  // rollback. `function` takes a Transaction& and returns an absl::Status or StatusOr; it must not keep
  // anything from one attempt to the next.
  template <typename Function>
  std::invoke_result_t<Function&, Transaction&> Run(Function&& function, const RunOptions& options = {}) {
    using Returned = std::invoke_result_t<Function&, Transaction&>;
    if constexpr (std::is_same_v<Returned, absl::Status>) {
      return RunAttempts(function, options);
    } else {
      std::optional<Returned> returned;
      absl::Status status = RunAttempts(
          [&](Transaction& transaction) {
            returned.emplace(function(transaction));
            return returned->status();
          },
          options);
      if (!status.ok()) return status;
      return *std::move(returned);
    }
  }

  // Whether the transaction with this token was committed. If it is not by now it never will be. `table` and
  // `key` are those of its first operation. Asks until somebody answers, or its deadline.
  absl::StatusOr<bool> AskOutcome(const std::string& token, std::string_view table, const Key& key,
                                  int64_t timeout_ms = 0);
  absl::StatusOr<bool> AskOutcome(const std::string& token, const Batch& batch, int64_t timeout_ms = 0);

  // A procedure of a workload that is loaded, as one transaction: Call("transfer.pay", {1, 2, 30}). It runs
  // where the first argument's rows are. With a token: as Execute.
  absl::StatusOr<Called> Call(std::string_view procedure, std::span<const Value> arguments,
                              const CallOptions& options = {});
  absl::StatusOr<Called> Call(std::string_view procedure, std::initializer_list<Value> arguments,
                              const CallOptions& options = {}) {
    return Call(procedure, std::span(arguments.begin(), arguments.size()), options);
  }
  absl::StatusOr<std::vector<Procedure>> Procedures();

  absl::StatusOr<std::vector<Table>> Tables();
  // OK also if there is such a table already, and it is the same; so after kUnknown say it again. Other
  // transactions go on.
  absl::Status CreateTable(const Table& table, int64_t timeout_ms = 0);
  // One without rows.
  absl::Status DropTable(std::string_view name, int64_t timeout_ms = 0);

 private:
  explicit Client(std::shared_ptr<internal::Connection> connection);
  absl::Status RunAttempts(absl::FunctionRef<absl::Status(Transaction&)> function, const RunOptions& options);
  absl::StatusOr<Result> One(const Batch& batch);

  std::shared_ptr<internal::Connection> connection_;
};

}  // namespace islands
