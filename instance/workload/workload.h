// What a workload implements: a shared object that islandd opens by name.
//
// A workload brings the initial rows of its tables, generators that make up transactions, and the procedure
// that carries one out, and describes its parameters and tables (parameters.h). While it is loaded, programs
// outside may call what it names as its procedures (instance/gateway/README.md). Its object exports two C
// functions (see the macro at the end). experiments/transfer/ is the example to copy.
//
// Thread safety: a Workload is shared by all workers of an island and immutable after creation; a Generator
// and the Requests it made belong to one worker.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "coordinator/coordinator.h"
#include "instance/storage/catalog.h"
#include "instance/workload/input_coder.h"
#include "instance/workload/parameters.h"
#include "instance/workload/transaction.h"
#include "runtime/clock.h"
#include "runtime/random.h"
#include "runtime/task.h"

namespace islands::instance {

inline constexpr uint32_t kWorkloadAbi = 16;
inline constexpr const char* kOtherAbi = "built for another version of islands; build it again";

// The input of one transaction. Workloads derive from it; the generator fills the same object again and
// again. One attempt at a time has it, until OnEnd: what Run reads and OnEnd should know is kept in a
// `mutable` member, which Run sets anew in every attempt.
struct Request {
  virtual ~Request() = default;
  // Of workloads that make requests for commands (Workload::MakeRequest): every field that Run reads, in an
  // order that stays.
  virtual void CodeInput(InputCoder& coder) { (void)coder; }
  // How much this transaction adds to the audited sum if it commits (0: nothing to audit).
  int64_t audit_delta = 0;
  // How long its client thinks, and keys it in, before the transaction begins: the slot is his meanwhile, and
  // his latency counts from there. A run that ends meanwhile leaves it out. Where transactions arrive by
  // themselves (`--rate`, clients of the deployment) nobody thinks.
  int64_t pause_ns = 0;
};

// An argument or a result of a procedure. Texts are bytes, whatever they mean.
using Value = std::variant<int64_t, double, std::string>;
enum class ValueType : uint8_t { kInt64, kDouble, kText };  // numbers: Value's alternatives

struct NamedType {
  std::string name;
  ValueType type = ValueType::kInt64;
};

// What programs outside may call as WORKLOAD.NAME, one transaction each. The first argument is an int64 and
// the first part of a key of `home_table`: the transaction begins on the island that owns it.
struct Procedure {
  std::string name;
  std::string about;  // one line, for people
  std::vector<NamedType> arguments;
  std::vector<NamedType> results;
  std::string home_table;
  // With durability `command`: what Call does follows from its arguments, the rows that it reads and
  // Transaction::id(), and from nothing else (Workload::MakeRequest), so that the log needs no more of it.
  bool repeatable = false;
};

// What a generator may know of where it runs.
struct GeneratorContext {
  const storage::Catalog& catalog;
  uint32_t island = 0;
  uint32_t worker = 0;
  partitioner::SiteRun sites;  // this island's
  uint32_t workers = 1;        // this island's, each with a generator of its own
  // Of the run, and where it stood when that began, on all islands alike; null: time stands still.
  const runtime::Clock* clock = nullptr;
  int64_t began_ns = 0;
  // For keys that no generator has made before: what it counts by itself is unique together with run, island
  // and worker. A later run has a larger id, a later life of the island a larger epoch. Inside of Run,
  // Transaction::id() is unique.
  uint64_t run_id = 0;
  uint64_t boot_epoch = 0;
};

class Generator {
 public:
  virtual ~Generator() = default;
  // At least one for each slot, before the first Next; more where answers wait for the disk (durability sync)
  // while their slots go on. The slots of a worker share its generator, and tell apart what they make by it.
  virtual std::unique_ptr<Request> MakeRequest() = 0;
  // Fills `request` with the next input. No allocation after warm-up.
  virtual void Next(runtime::Random& random, Request& request) = 0;
  // Where the next transaction of a client of the whole deployment begins: the site of its first row. Next is
  // called on the island that has that site, and draws one that begins somewhere there, so that both together
  // follow the law of the whole table. Nothing: the workload does not say, and has no such clients.
  virtual std::optional<uint32_t> DrawSite(runtime::Random& random) {
    (void)random;
    return std::nullopt;
  }
  // How an attempt at `request` ended: once per call of Workload::Run, with the id its transaction had. After
  // kAborted the same request may be run again, under another id. kUnknown, or kPending: it has committed or
  // has not, and the island that knows is gone or does not answer. After all but kCommitted, what Run has
  // kept in `request` may never have been.
  virtual void OnEnd(const coordinator::TransactionId& id, const Request& request,
                     coordinator::Outcome outcome) {
    (void)id, (void)request, (void)outcome;
  }
};

// Where a loader puts rows. Rows of other islands' sites are dropped, so a loader may simply produce
// everything, but it should ask Owns first where that is cheap.
class Loader {
 public:
  virtual ~Loader() = default;
  virtual const storage::Catalog& catalog() const = 0;
  virtual bool Owns(uint32_t site) const = 0;
  virtual absl::Status Insert(TableId table, KeyView key, RowView row) = 0;
};

class Workload {
 public:
  virtual ~Workload() = default;
  virtual const char* name() const = 0;
  // The tables it loads; each is emptied before Load is called.
  virtual std::vector<std::string> tables() const = 0;
  // This island's share of the initial rows.
  virtual absl::Status Load(Loader& loader) const = 0;
  // Whether a run is possible on these tables. Nobody who only loads or audits asks: rows may have been
  // loaded for another run.
  virtual absl::Status CheckRun(const storage::Catalog& catalog) const {
    (void)catalog;
    return absl::OkStatus();
  }
  virtual absl::StatusOr<std::unique_ptr<Generator>> MakeGenerator(const GeneratorContext& context) const = 0;
  // One transaction. Returning an error aborts it (a retryable one is run again with the same request); after
  // OK the island commits it. DATA_LOSS says that rows were read that cannot be: the island's log has the
  // text, and the run fails. The request outlives the task.
  virtual runtime::Task<absl::Status> Run(Transaction& transaction, const Request& request) const = 0;

  // With durability `command`: a request for CodeInput to fill, with which Run does again what it has done.
  // That takes a Run that follows from the request's input, the rows that it reads and Transaction::id(), and
  // from nothing else: no clock, no order of addresses. One that has asked for Transaction::random() is
  // logged by its changes, as are all of a workload without this.
  virtual std::unique_ptr<Request> MakeRequest() const { return nullptr; }

  // What programs outside may call. The same for as long as the workload lives.
  virtual const std::vector<Procedure>& procedures() const {
    static const std::vector<Procedure> kNone;
    return kNone;
  }
  // One call of one of them, with arguments of the declared number and types; fills `results`, which is
  // empty, likewise. A business "no" is a result: an error aborts the transaction, and its code and message
  // reach the client. Otherwise as Run. What it is given outlives the task.
  virtual runtime::Task<absl::Status> Call(Transaction& transaction, const Procedure& procedure,
                                           std::span<const Value> arguments,
                                           std::vector<Value>* results) const {
    (void)transaction, (void)procedure, (void)arguments, (void)results;
    co_return absl::UnimplementedError("the workload says of no procedure how it runs");
  }

  // The audited sum is a property of all rows that committed transactions change by their audit_delta and
  // nothing else does. Returns what one row adds to it.
  virtual int64_t AuditRow(TableId table, KeyView key, RowView row) const {
    (void)table, (void)key, (void)row;
    return 0;
  }
};

// What the shared object exports. `error` receives the reason when it returns null: unknown parameter, bad
// value, parameters or tables that do not fit each other.
using OpenWorkloadFunction = Workload* (*)(uint32_t abi, const storage::Catalog* catalog,
                                           const Parameters* parameters, std::string* error);
// Null when it was built for another ABI.
using DescribeWorkloadFunction = const Description* (*)(uint32_t abi);

// Open(catalog, parameters) -> StatusOr<unique_ptr<Workload>>, Describe() -> const Description&.
#define ISLANDS_WORKLOAD(Open, Describe)                                                     \
  extern "C" ::islands::instance::Workload* IslandsOpenWorkload(                             \
      uint32_t abi, const ::islands::storage::Catalog* catalog,                              \
      const ::islands::instance::Parameters* parameters, std::string* error) {               \
    if (abi != ::islands::instance::kWorkloadAbi) {                                          \
      *error = ::islands::instance::kOtherAbi;                                               \
      return nullptr;                                                                        \
    }                                                                                        \
    auto workload = Open(*catalog, *parameters);                                             \
    if (!workload.ok()) {                                                                    \
      *error = std::string(workload.status().message());                                     \
      return nullptr;                                                                        \
    }                                                                                        \
    return workload->release();                                                              \
  }                                                                                          \
  extern "C" const ::islands::instance::Description* IslandsDescribeWorkload(uint32_t abi) { \
    return abi == ::islands::instance::kWorkloadAbi ? &Describe() : nullptr;                 \
  }

}  // namespace islands::instance
