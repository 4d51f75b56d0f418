#include "instance/recovery/command_replay.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <algorithm>
#include <utility>

#include "instance/workload/procedures.h"
#include "runtime/check.h"
#include "runtime/crc32c.h"
#include "runtime/planted_bug.h"
#include "runtime/task.h"

namespace islands::recovery {

using runtime::Planted;
using runtime::PlantedBug;

namespace {

partitioner::SiteMap AllOnOneIsland(uint32_t sites) {
  absl::StatusOr<partitioner::SiteMap> map = partitioner::SiteMap::Create(sites, 1);
  ISLANDS_CHECK(map.ok());
  return *std::move(map);
}

constexpr size_t kLockBuckets = 1 << 12;

// Its changes are heard of while it lives.
class Listening {
 public:
  explicit Listening(storage::PageChangeSink& sink) {
    ISLANDS_CHECK(storage::page_change_sink == nullptr);
    storage::page_change_sink = &sink;
  }
  ~Listening() { storage::page_change_sink = nullptr; }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;
};

}  // namespace

std::vector<std::byte> EncodeWorkload(const std::string& name, const std::string& object,
                                      const instance::Parameters& parameters) {
  control::v1::LoadSpec spec;
  spec.set_workload(name);
  spec.set_object(object);
  spec.mutable_parameters()->insert(parameters.begin(), parameters.end());
  std::vector<std::byte> bytes(spec.ByteSizeLong());
  google::protobuf::io::ArrayOutputStream array(bytes.data(), static_cast<int>(bytes.size()));
  google::protobuf::io::CodedOutputStream out(&array);
  out.SetSerializationDeterministic(true);  // of equal parameters, equal bytes
  ISLANDS_CHECK(spec.SerializeToCodedStream(&out));
  return bytes;
}

CommandReplay::CommandReplay(const storage::Catalog& catalog, storage::Store& store, WorkloadOpener open)
    : catalog_(catalog),
      open_(std::move(open)),
      sites_(AllOnOneIsland(catalog.sites())),
      locks_({.buckets = kLockBuckets, .latched = false}),
      executor_(catalog, store, locks_, {.alone = true, .buries = false}),
      router_(catalog, sites_, /*own_island=*/0),
      transaction_(*this) {}

absl::Status CommandReplay::Open(std::span<const std::byte> workload) {
  for (const std::unique_ptr<Opened>& opened : opened_) {
    if (!std::ranges::equal(workload, opened->encoded)) continue;
    of_ = opened.get();
    return absl::OkStatus();
  }
  control::v1::LoadSpec spec;
  if (!spec.ParseFromArray(workload.data(), static_cast<int>(workload.size())))
    return absl::DataLossError("a command whose workload is none");
  if (!open_) {
    return absl::UnimplementedError(
        fmt::format("the log has commands of workload '{}', and no procedure is run here: `islands up` and "
                    "`islands down`, which leaves none, then try again",
                    spec.workload()));
  }
  absl::StatusOr<std::shared_ptr<const instance::Workload>> opened =
      open_(spec.object(), catalog_, {spec.parameters().begin(), spec.parameters().end()});
  if (!opened.ok()) {
    return absl::FailedPreconditionError(
        fmt::format("the log has commands of workload '{}' ({}), which cannot be repeated: {}",
                    spec.workload(), spec.object(), std::string(opened.status().message())));
  }
  std::unique_ptr<instance::Request> request = (*opened)->MakeRequest();
  opened_.push_back(std::make_unique<Opened>(Opened{{workload.begin(), workload.end()},
                                                    spec.workload(),
                                                    spec.object(),
                                                    *std::move(opened),
                                                    std::move(request)}));
  of_ = opened_.back().get();
  return absl::OkStatus();
}

absl::Status CommandReplay::Decode(const log::Entry& entry) {
  called_ = nullptr;
  if (entry.kind == log::EntryKind::kCall) return DecodeCall(entry.input);
  if (of_->request == nullptr) {
    return absl::FailedPreconditionError(fmt::format(
        "the log has commands of workload '{}' ({}), and this version of it repeats none: put back the "
        "one that wrote them",
        of_->name, of_->object));
  }
  instance::InputCoder coder(entry.input);
  of_->request->CodeInput(coder);
  if (coder.ok()) return absl::OkStatus();
  return absl::DataLossError(fmt::format(
      "what a procedure of workload '{}' was given is cut off, or of another version", of_->name));
}

absl::Status CommandReplay::DecodeCall(std::span<const std::byte> input) {
  std::string name;
  instance::InputCoder coder(input);
  instance::CodeCall(coder, name, arguments_);
  if (!coder.ok()) return absl::DataLossError(fmt::format("a call of workload '{}' is cut off", of_->name));
  for (const instance::Procedure& procedure : of_->workload->procedures()) {
    if (procedure.name == name && procedure.repeatable) called_ = &procedure;
  }
  absl::Status fits = called_ != nullptr ? instance::CheckValues(called_->arguments, arguments_, "argument")
                                         : absl::NotFoundError("it has none that could be repeated");
  if (fits.ok()) return fits;
  return absl::FailedPreconditionError(fmt::format(
      "the log has calls of procedure '{}.{}' ({}), and this version of it is another: {}; put back "
      "the one that wrote them",
      of_->name, name, of_->object, std::string(fits.message())));
}

absl::Status CommandReplay::Run(const log::Entry& entry, log::Lsn last, log::Lsn lsn) {
  if (!entry.workload.empty()) {
    if (absl::Status opened = Open(entry.workload); !opened.ok()) return opened;
  }
  if (of_ == nullptr) return absl::DataLossError("a command of which no record says whose it is");
  if (absl::Status decoded = Decode(entry); !decoded.ok()) return decoded;
  transaction_.Begin(entry.transaction);
  body_.Clear();
  collector_.StampAbove(last);
  collector_.Begin(lsn.epoch(), &body_);
  absl::Status repeated;
  {
    const Listening listening(collector_);
    repeated = Repeat();
  }
  if (repeated.ok() && (collector_.last() != lsn || runtime::Crc32c(body_.bytes()) != entry.check) &&
      !Planted(PlantedBug::kTrustCommands)) {
    repeated = absl::DataLossError("it changes something else than it has changed");
  }
  if (repeated.ok()) return repeated;
  return absl::DataLossError(fmt::format(
      "transaction {} of workload '{}' ({}), run again: {}; it is still in the log: put back the object that "
      "wrote "
      "the "
      "log, and that version of islands, then `islands up`, and `islands down` before you change it again; "
      "what a procedure does has to follow from its input and its rows alone",
      entry.transaction.ToString(), of_->name, of_->object, std::string(repeated.message())));
}

absl::Status CommandReplay::Repeat() {
  results_.clear();
  runtime::Task<absl::Status> procedure =
      called_ != nullptr ? of_->workload->Call(transaction_, *called_, arguments_, &results_)
                         : of_->workload->Run(transaction_, *of_->request);
  procedure.Start();
  std::vector<locks::Wakeup> wakeups;
  instance::Branch& branch = transaction_.branch;
  absl::Status status = procedure.done() ? procedure.Take() : absl::InternalError("it waits for something");
  status.ok() ? executor_.Commit(branch, &wakeups) : executor_.Rollback(branch, &wakeups);
  ISLANDS_CHECK(wakeups.empty());  // nobody else is there
  return status;
}

void CommandReplay::Replayed::Begin(const coordinator::TransactionId& id) {
  branch.locks.transaction = id;
  batch_.Clear();
}

runtime::Task<absl::Status> CommandReplay::Replayed::Execute(instance::Batch& batch) {
  batch.ResetResults();
  batch.scanned().clear();
  instance::TouchedSites touched;
  absl::Status routed = replay_.router_.Route(batch, &replay_.plan_, &touched);
  if (!routed.ok()) co_return routed;
  const std::span<const instance::RoutedOperation> operations = replay_.plan_.local();
  instance::Failure failure;
  for (size_t cursor = 0; cursor < operations.size();) {
    const instance::Progress progress = replay_.executor_.Run(branch, batch, operations, &cursor, &failure);
    if (failure.set()) co_return failure.status;
    if (progress != instance::Progress::kDone)
      co_return absl::ResourceExhaustedError("its rows do not fit into the buffer pool");
  }
  co_return absl::OkStatus();
}

}  // namespace islands::recovery
