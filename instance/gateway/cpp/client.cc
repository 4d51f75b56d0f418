#include "islands/client.h"

#include <array>
#include <random>

#include "absl/strings/str_cat.h"
#include "instance/gateway/cpp/connection.h"
#include "instance/gateway/cpp/convert.h"
#include "instance/gateway/cpp/transaction.h"

namespace islands {

namespace pb = client::v1;
using internal::Connection;
using internal::Deadline;
using internal::Effect;

namespace {

constexpr int kMostSentBytes = 8 << 20;       // a gateway takes no more
constexpr int kMostReceivedBytes = 32 << 20;  // and gives less
// A gateway that was killed is back in a fraction of a second; gRPC would look again after one.
constexpr int kFirstRedialMs = 50;
constexpr int kLongestRedialMs = 1000;

absl::Status CheckAddress(const std::string& address, const ConnectOptions& options) {
  const bool unix_socket = address.starts_with("unix:");
  if (options.timeout_ms <= 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(address, ": a timeout of ", options.timeout_ms, " ms, expected a positive one"));
  }
  if (!options.tls && !unix_socket) {
    return absl::InvalidArgumentError(absl::StrCat(
        address,
        ": gateways speak to nobody over TCP who shows no certificate; set ConnectOptions::tls, or give the "
        "address of a Unix-domain socket: unix:PATH"));
  }
  if (!options.tls) return absl::OkStatus();
  if (unix_socket) {
    return absl::InvalidArgumentError(absl::StrCat(
        address, ": a gateway's Unix-domain socket knows no certificates; leave ConnectOptions::tls out"));
  }
  for (const auto& [name, pem] :
       {std::pair("authority", &options.tls->authority), std::pair("certificate", &options.tls->certificate),
        std::pair("key", &options.tls->key)}) {
    if (pem->find("-----BEGIN") == std::string::npos) {
      return absl::InvalidArgumentError(absl::StrCat(
          address, ": Tls::", name, " is no PEM text; it is what a PEM file holds, not its path"));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Committed> ExecuteOnce(const Connection& connection, pb::DirectCall* call,
                                      const Deadline& deadline) {
  pb::DirectAnswer answer;
  const Effect effect = internal::EffectOf(call->execute().operations());
  if (absl::Status status = connection.Ask(call, effect, deadline, &answer); !status.ok()) return status;
  return internal::FromResponse(answer.execute(), call->execute());
}

// Whether a request with a token is sent again. Once an attempt was lost, an abort of another is no answer.
bool SendAgain(const absl::Status& error, bool one_was_lost) {
  return absl::IsUnknown(error) || absl::IsUnavailable(error) ||
         (one_was_lost && (absl::IsAborted(error) || absl::IsResourceExhausted(error)));
}

// With a token. A later attempt that failed for certain says nothing of an earlier one that was lost and may
// still wait for a lock somewhere: once one was, only OK or the token's own word is an answer. `question`:
// what to ask for that.
template <typename Done>
absl::StatusOr<Done> SendUntilKnown(const Connection& connection, const Deadline& deadline,
                                    absl::FunctionRef<absl::StatusOr<Done>()> send,
                                    absl::FunctionRef<absl::StatusOr<pb::AskOutcomeRequest>()> question) {
  internal::Pauses pauses;
  absl::Status unknown;
  for (;;) {
    absl::StatusOr<Done> done = send();
    if (done.ok()) return done;
    if (absl::IsUnknown(done.status())) unknown = done.status();
    if (SendAgain(done.status(), /*one_was_lost=*/!unknown.ok())) {
      if (pauses.WaitUntil(deadline)) continue;
      return unknown.ok() ? done : unknown;
    }
    if (unknown.ok()) return done;
    const absl::StatusOr<pb::AskOutcomeRequest> asked = question();
    if (!asked.ok()) return unknown;
    const absl::StatusOr<bool> committed = connection.AskUntilKnown(*asked, deadline);
    if (!committed.ok()) return unknown;
    if (*committed) return Done{.earlier = true};
    return done;
  }
}

absl::StatusOr<Called> CallOnce(const Connection& connection, pb::DirectCall* call,
                                const Deadline& deadline) {
  pb::DirectAnswer answer;
  if (absl::Status status = connection.Ask(call, Effect::kCommit, deadline, &answer); !status.ok())
    return status;
  return internal::FromCallResponse(answer.call_procedure());
}

absl::StatusOr<std::vector<Procedure>> ListProcedures(const Connection& connection,
                                                      const Deadline& deadline) {
  grpc::ClientContext context;
  deadline.Set(&context);
  pb::ListProceduresResponse response;
  const grpc::Status status = connection.stub->ListProcedures(&context, {}, &response);
  if (!status.ok()) return internal::FromGrpc(status, Effect::kNone);
  std::vector<Procedure> procedures;
  for (const pb::Procedure& procedure : response.procedures())
    procedures.push_back(internal::FromProcedure(procedure));
  return procedures;
}

// Where the token of a call is kept.
absl::StatusOr<pb::AskOutcomeRequest> QuestionOf(const Connection& connection, const pb::CallRequest& request,
                                                 const Deadline& deadline) {
  const absl::StatusOr<std::vector<Procedure>> procedures = ListProcedures(connection, deadline);
  if (!procedures.ok()) return procedures.status();
  for (const Procedure& procedure : *procedures) {
    if (procedure.name != request.procedure() || request.arguments().empty()) continue;
    pb::AskOutcomeRequest question;
    question.set_token(request.token());
    question.set_table(procedure.home_table);
    question.mutable_key()->add_parts()->set_signed_(request.arguments(0).number());
    return question;
  }
  return absl::NotFoundError(absl::StrCat("there is no procedure '", request.procedure(), "'"));
}

absl::StatusOr<Committed> FromEach(const pb::ExecuteManyResponse::Each& each,
                                   const pb::ExecuteRequest& request) {
  if (each.code() == 0) return internal::FromResponse(each.response(), request);
  return internal::FromFailure(static_cast<int>(each.code()), each.message(), each.failure(),
                               internal::EffectOf(request.operations()));
}

// Only if the answer was lost nobody knows.
absl::Status FromTableCall(const grpc::Status& status) {
  if (status.ok()) return absl::OkStatus();
  return internal::FromGrpc(status, internal::IsLoss(status) ? Effect::kCommit : Effect::kNone);
}

}  // namespace

std::string NewToken() {
  std::random_device device;
  std::array<uint32_t, 4> words;
  for (uint32_t& word : words) word = device();
  return {reinterpret_cast<const char*>(words.data()), sizeof(words)};
}

absl::StatusOr<Client> Client::Connect(const std::string& address, const ConnectOptions& options) {
  if (absl::Status status = CheckAddress(address, options); !status.ok()) return status;
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMostReceivedBytes);
  arguments.SetMaxSendMessageSize(kMostSentBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstRedialMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kLongestRedialMs);
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (options.tls)
    credentials = grpc::SslCredentials({options.tls->authority, options.tls->key, options.tls->certificate});
  auto connection = std::make_shared<Connection>();
  connection->stub = pb::Islands::NewStub(grpc::CreateCustomChannel(address, credentials, arguments));
  if (!options.tls) connection->direct = std::make_unique<internal::Direct>(address);
  connection->timeout_ms = options.timeout_ms;
  return Client(std::move(connection));
}

Client::Client(std::shared_ptr<Connection> connection) : connection_(std::move(connection)) {}
Client::Client(Client&& other) noexcept = default;
Client& Client::operator=(Client&& other) noexcept = default;
Client::~Client() = default;

absl::StatusOr<Committed> Client::Execute(const Batch& batch, const CallOptions& options) {
  const Deadline deadline = connection_->DeadlineIn(options.timeout_ms);
  pb::DirectCall call;
  pb::ExecuteRequest& request = *call.mutable_execute();
  *request.mutable_operations() = batch.operations().list;
  request.set_token(options.token);
  if (options.token.empty() || batch.size() == 0) return ExecuteOnce(*connection_, &call, deadline);
  const auto send = [&] { return ExecuteOnce(*connection_, &call, deadline); };
  const auto question = [&]() -> absl::StatusOr<pb::AskOutcomeRequest> {
    return internal::QuestionOf(request.token(), request.operations(0));
  };
  return SendUntilKnown<Committed>(*connection_, deadline, send, question);
}

absl::StatusOr<Called> Client::Call(std::string_view procedure, std::span<const Value> arguments,
                                    const CallOptions& options) {
  const Deadline deadline = connection_->DeadlineIn(options.timeout_ms);
  pb::DirectCall call;
  pb::CallRequest& request = *call.mutable_call_procedure();
  request.set_procedure(std::string(procedure));
  for (const Value& argument : arguments) {
    if (absl::Status status = internal::FillValue(argument, request.add_arguments()); !status.ok())
      return status;
  }
  request.set_token(options.token);
  const auto send = [&] { return CallOnce(*connection_, &call, deadline); };
  if (options.token.empty()) return send();
  const auto question = [&] { return QuestionOf(*connection_, request, deadline); };
  return SendUntilKnown<Called>(*connection_, deadline, send, question);
}

absl::StatusOr<std::vector<Procedure>> Client::Procedures() {
  return ListProcedures(*connection_, connection_->DeadlineIn(0));
}

absl::StatusOr<std::vector<absl::StatusOr<Committed>>> Client::ExecuteMany(std::span<const Batch> batches,
                                                                           const ManyOptions& options) {
  if (!options.tokens.empty() && options.tokens.size() != batches.size()) {
    return absl::InvalidArgumentError(absl::StrCat(options.tokens.size(), " tokens for ", batches.size(),
                                                   " batches, expected none, or one for each"));
  }
  pb::DirectCall call;
  pb::ExecuteManyRequest& request = *call.mutable_execute_many();
  Effect effect = Effect::kNone;
  for (size_t i = 0; i < batches.size(); ++i) {
    pb::ExecuteRequest* transaction = request.add_transactions();
    *transaction->mutable_operations() = batches[i].operations().list;
    if (!options.tokens.empty()) transaction->set_token(options.tokens[i]);
    if (internal::EffectOf(transaction->operations()) == Effect::kCommit) effect = Effect::kCommit;
  }
  pb::DirectAnswer answer;
  const Deadline deadline = connection_->DeadlineIn(options.timeout_ms);
  if (absl::Status status = connection_->Ask(&call, effect, deadline, &answer); !status.ok()) return status;
  const pb::ExecuteManyResponse& response = answer.execute_many();
  if (response.each_size() != request.transactions_size()) {
    return absl::UnknownError(absl::StrCat("the gateway has answered ", response.each_size(), " of ",
                                           batches.size(),
                                           " transactions; is it of another version than this library?"));
  }
  std::vector<absl::StatusOr<Committed>> done;
  done.reserve(batches.size());
  for (int i = 0; i < response.each_size(); ++i)
    done.push_back(FromEach(response.each(i), request.transactions(i)));
  return done;
}

absl::StatusOr<Result> Client::One(const Batch& batch) {
  absl::StatusOr<Committed> done = Execute(batch);
  if (!done.ok()) return done.status();
  return std::move(done->results.front());
}

absl::StatusOr<std::optional<std::string>> Client::Get(std::string_view table, const Key& key) {
  Batch batch;
  batch.Get(table, key);
  return internal::ValueOf(One(batch));
}

absl::Status Client::Put(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Put(table, key, value);
  return One(batch).status();
}

absl::Status Client::Insert(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Insert(table, key, value);
  return One(batch).status();
}

absl::Status Client::Replace(std::string_view table, const Key& key, std::string_view value) {
  Batch batch;
  batch.Replace(table, key, value);
  return One(batch).status();
}

absl::Status Client::Delete(std::string_view table, const Key& key) {
  Batch batch;
  batch.Delete(table, key);
  return One(batch).status();
}

absl::StatusOr<int64_t> Client::Add(std::string_view table, const Key& key, int64_t delta, uint32_t offset) {
  Batch batch;
  batch.Add(table, key, delta, offset);
  const absl::StatusOr<Result> result = One(batch);
  if (!result.ok()) return result.status();
  return result->number;
}

absl::StatusOr<std::vector<Row>> Client::Scan(std::string_view table, const ScanOptions& scan) {
  Batch batch;
  batch.Scan(table, scan);
  return internal::RowsOf(One(batch));
}

absl::StatusOr<std::vector<Row>> Client::IndexScan(std::string_view table, std::string_view index,
                                                   const Key& at, const ScanOptions& scan) {
  Batch batch;
  batch.IndexScan(table, index, at, scan);
  return internal::RowsOf(One(batch));
}

Transaction Client::Begin(int64_t timeout_ms) {
  return Transaction(std::make_unique<Transaction::Impl>(connection_, timeout_ms));
}

absl::Status Client::RunAttempts(absl::FunctionRef<absl::Status(Transaction&)> function,
                                 const RunOptions& options) {
  internal::Pauses pauses;
  for (int attempt = 1;; ++attempt) {
    Transaction transaction = Begin(options.timeout_ms);
    absl::Status status = function(transaction);
    const Transaction::Impl& state = *transaction.impl_;
    // A function that has ended it by itself has its way, and what it has committed is not run again.
    if (state.committed() || (status.ok() && state.ended_as_asked())) return status;
    if (status.ok()) {
      // An error that the function has overlooked comes back here.
      status = transaction.Commit(options.once ? NewToken() : "");
    } else if (const absl::Status end = transaction.Rollback(); absl::IsUnknown(end)) {
      status = end;  // a commit of the function's own: more than its word for it
    }
    if (status.ok() || !MayRunAgain(status) || attempt >= options.attempts) return status;
    pauses.Wait();
  }
}

absl::StatusOr<bool> Client::AskOutcome(const std::string& token, std::string_view table, const Key& key,
                                        int64_t timeout_ms) {
  pb::AskOutcomeRequest question;
  question.set_token(token);
  question.set_table(std::string(table));
  internal::FillKey(key, question.mutable_key());
  return connection_->AskUntilKnown(question, connection_->DeadlineIn(timeout_ms));
}

absl::StatusOr<bool> Client::AskOutcome(const std::string& token, const Batch& batch, int64_t timeout_ms) {
  if (batch.size() == 0)
    return absl::InvalidArgumentError(
        "a batch without operations has no outcome to ask for; give that of the transaction");
  return connection_->AskUntilKnown(internal::QuestionOf(token, batch.operations().list[0]),
                                    connection_->DeadlineIn(timeout_ms));
}

absl::StatusOr<std::vector<Table>> Client::Tables() {
  grpc::ClientContext context;
  connection_->DeadlineIn(0).Set(&context);
  pb::ListTablesResponse response;
  const grpc::Status status = connection_->stub->ListTables(&context, {}, &response);
  if (!status.ok()) return internal::FromGrpc(status, Effect::kNone);
  std::vector<Table> tables;
  for (const pb::Table& table : response.tables()) tables.push_back(internal::FromTable(table));
  return tables;
}

absl::Status Client::CreateTable(const Table& table, int64_t timeout_ms) {
  pb::CreateTableRequest request;
  internal::FillTable(table, request.mutable_table());
  grpc::ClientContext context;
  connection_->DeadlineIn(timeout_ms).Set(&context);
  pb::CreateTableResponse response;
  const grpc::Status status = connection_->stub->CreateTable(&context, request, &response);
  return FromTableCall(status);
}

absl::Status Client::DropTable(std::string_view name, int64_t timeout_ms) {
  pb::DropTableRequest request;
  request.set_table(std::string(name));
  grpc::ClientContext context;
  connection_->DeadlineIn(timeout_ms).Set(&context);
  pb::DropTableResponse response;
  const grpc::Status status = connection_->stub->DropTable(&context, request, &response);
  return FromTableCall(status);
}

}  // namespace islands
