// A workload whose procedures carry out whatever operations they are given, by a request or as a call's text:
// for boxes whose log has commands.
//
// Thread safety: none.
#pragma once

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "instance/recovery/command_replay.h"
#include "instance/recovery/recovery_testing.h"
#include "instance/workload/procedures.h"
#include "instance/workload/workload.h"

namespace islands::recovery {

// On table 0, site 0.
struct GivenOperation {
  instance::OperationKind kind = instance::OperationKind::kRead;
  uint64_t key = 0;
  std::string row;

  void AddTo(instance::Batch* batch) const {
    const partitioner::Uint64Key encoded(key);
    switch (kind) {
      case instance::OperationKind::kInsert:
        batch->Insert(0, encoded, Bytes(row));
        return;
      case instance::OperationKind::kReplace:
        batch->Replace(0, encoded, Bytes(row));
        return;
      case instance::OperationKind::kDelete:
        batch->Delete(0, encoded);
        return;
      default:
        batch->Write(0, encoded, 0, Bytes(row));
    }
  }
};
using GivenBatches = std::vector<std::vector<GivenOperation>>;

struct GivenRequest final : instance::Request {
  GivenBatches batches;

  void CodeInput(instance::InputCoder& coder) override {
    coder.CodeList(batches, [&](std::vector<GivenOperation>& batch) {
      coder.CodeList(batch, [&](GivenOperation& operation) {
        coder.Code(operation.kind);
        coder.Code(operation.key);
        auto size = static_cast<uint32_t>(operation.row.size());
        coder.Code(size);
        operation.row.resize(size);
        for (char& character : operation.row) coder.CodeBytes(character);
      });
    });
  }
};

class GivenWorkload : public instance::Workload {
 public:
  const char* name() const override { return "given"; }
  std::vector<std::string> tables() const override { return {"rows"}; }
  absl::Status Load(instance::Loader&) const override { return absl::OkStatus(); }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext&) const override {
    return absl::UnimplementedError("");
  }
  std::unique_ptr<instance::Request> MakeRequest() const override { return std::make_unique<GivenRequest>(); }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    instance::Batch& batch = transaction.batch();
    for (const std::vector<GivenOperation>& operations : static_cast<const GivenRequest&>(request).batches) {
      batch.Clear();
      for (const GivenOperation& operation : operations) operation.AddTo(&batch);
      runtime::Task<absl::Status> executed = transaction.Execute(batch);
      absl::Status status = co_await executed;
      if (!status.ok()) co_return status;
    }
    co_return absl::OkStatus();
  }
  const std::vector<instance::Procedure>& procedures() const override {
    static const std::vector<instance::Procedure> kProcedures = {
        {.name = "carry_out",
         .arguments = {{"home", instance::ValueType::kInt64}, {"operations", instance::ValueType::kText}},
         .home_table = "rows",
         .repeatable = true},
        {.name = "by_chance", .arguments = {{"home", instance::ValueType::kInt64}}, .home_table = "rows"}};
    return kProcedures;
  }
  runtime::Task<absl::Status> Call(instance::Transaction& transaction, const instance::Procedure&,
                                   std::span<const instance::Value> arguments,
                                   std::vector<instance::Value>* results) const override {
    GivenRequest request;
    instance::InputCoder coder(Bytes(std::get<std::string>(arguments[1])));
    request.CodeInput(coder);
    if (!coder.ok()) co_return absl::InvalidArgumentError("no operations");
    results->emplace_back(int64_t{1});
    runtime::Task<absl::Status> run = Run(transaction, request);
    co_return co_await run;
  }
};

inline std::vector<std::byte> InputOf(GivenRequest& request) {
  std::vector<std::byte> input;
  instance::InputCoder coder(&input);
  request.CodeInput(coder);
  return input;
}
inline std::vector<std::byte> InputOfCall(std::string procedure, std::vector<instance::Value> arguments) {
  std::vector<std::byte> input;
  instance::InputCoder coder(&input);
  instance::CodeCall(coder, procedure, arguments);
  return input;
}
// Of a call that does what the request does.
inline std::vector<std::byte> InputOfCall(GivenRequest& request) {
  return InputOfCall("carry_out", {int64_t{0}, Text(InputOf(request))});
}

inline absl::StatusOr<std::shared_ptr<const instance::Workload>> OpenGiven(const std::string& object,
                                                                           const storage::Catalog&,
                                                                           const instance::Parameters&) {
  if (object != "given.so") return absl::NotFoundError("there is no " + object);
  return std::make_shared<const GivenWorkload>();
}

}  // namespace islands::recovery
