#include "instance/workload/procedures.h"

#include <fmt/format.h>

#include <algorithm>

namespace islands::instance {
namespace {

bool IsName(std::string_view name) {
  const auto fits = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_'; };
  return !name.empty() && name.front() >= 'a' && std::ranges::all_of(name, fits);
}

}  // namespace

std::string_view ValueTypeName(ValueType type) {
  switch (type) {
    case ValueType::kInt64:
      return "int64";
    case ValueType::kDouble:
      return "double";
    case ValueType::kText:
      break;
  }
  return "text";
}

absl::Status CheckProcedure(const Procedure& procedure, const storage::Catalog& catalog) {
  const auto unfit = [&](std::string_view why) {
    return absl::InvalidArgumentError(fmt::format("procedure '{}': {}", procedure.name, why));
  };
  if (!IsName(procedure.name)) return unfit("expected a name [a-z][a-z0-9_]*");
  if (procedure.arguments.empty() || procedure.arguments[0].type != ValueType::kInt64)
    return unfit("its first argument must be an int64: it says where the procedure begins");
  for (const auto* declared : {&procedure.arguments, &procedure.results}) {
    for (const NamedType& each : *declared) {
      if (!IsName(each.name))
        return unfit(fmt::format("an argument or result '{}', expected a name [a-z][a-z0-9_]*", each.name));
    }
  }
  const storage::TableDefinition* table = catalog.Find(procedure.home_table);
  if (table == nullptr || table->replicated() || !table->partition) {
    return unfit(
        fmt::format("its home table '{}': expected one that is there, is not replicated, and whose "
                    "keys begin with an integer",
                    procedure.home_table));
  }
  return absl::OkStatus();
}

absl::Status CheckValues(std::span<const NamedType> declared, std::span<const Value> values,
                         std::string_view what) {
  if (declared.size() != values.size()) {
    return absl::InvalidArgumentError(
        fmt::format("found {} {}s, expected {}", values.size(), what, declared.size()));
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (TypeOf(values[i]) == declared[i].type) continue;
    return absl::InvalidArgumentError(fmt::format("{} {} '{}': found {}, expected {}", what, i + 1,
                                                  declared[i].name, ValueTypeName(TypeOf(values[i])),
                                                  ValueTypeName(declared[i].type)));
  }
  return absl::OkStatus();
}

void CodeCall(InputCoder& coder, std::string& procedure, std::vector<Value>& arguments) {
  coder.CodeText(procedure);
  coder.CodeList(arguments, [&coder](Value& value) {
    auto type = TypeOf(value);
    coder.Code(type);
    if (coder.reads()) {
      if (type > ValueType::kText) return coder.Refuse();
      if (type == ValueType::kInt64) value = int64_t{0};
      if (type == ValueType::kDouble) value = 0.0;
      if (type == ValueType::kText) value = std::string();
    }
    std::visit(
        [&coder](auto& of_type) {
          using T = std::remove_reference_t<decltype(of_type)>;
          if constexpr (std::is_same_v<T, int64_t>) coder.Code(of_type);
          if constexpr (std::is_same_v<T, double>) coder.CodeBytes(of_type);
          if constexpr (std::is_same_v<T, std::string>) coder.CodeText(of_type);
        },
        value);
  });
}

absl::Status ProcedureTable::Add(const std::string& name, const std::shared_ptr<const Workload>& workload,
                                 const storage::Catalog& catalog, const std::vector<std::byte>& commands_of) {
  const std::string prefix = name + ".";
  std::erase_if(entries_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
  for (const Procedure& procedure : workload->procedures()) {
    absl::Status status = CheckProcedure(procedure, catalog);
    if (status.ok() && entries_.contains(prefix + procedure.name))
      status = absl::InvalidArgumentError(fmt::format("procedure '{}': there are two", procedure.name));
    if (!status.ok()) {
      std::erase_if(entries_, [&](const auto& entry) { return entry.first.starts_with(prefix); });
      return status;
    }
    entries_[prefix + procedure.name] = {workload, &procedure, commands_of};
  }
  return absl::OkStatus();
}

}  // namespace islands::instance
