// The procedures of loaded workloads, as programs outside call them: by the name WORKLOAD.PROCEDURE.
//
// Thread safety: a plain value.
//
// Invariants:
//  1. A procedure lies in its workload, which lives at least as long as the table has it.
//  2. Every one that Add has let in is fit to be called: CheckProcedure.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "instance/storage/catalog.h"
#include "instance/workload/workload.h"

namespace islands::instance {

// int64, double, text.
std::string_view ValueTypeName(ValueType type);
inline ValueType TypeOf(const Value& value) { return static_cast<ValueType>(value.index()); }

// INVALID_ARGUMENT: a workload says of it what cannot be so. Names are [a-z][a-z0-9_]*.
absl::Status CheckProcedure(const Procedure& procedure, const storage::Catalog& catalog);
// INVALID_ARGUMENT: these are not of the declared number and types; it says which, and what was expected and
// found.
absl::Status CheckValues(std::span<const NamedType> declared, std::span<const Value> values,
                         std::string_view what);

// A call as bytes, for the log (durability `command`).
void CodeCall(InputCoder& coder, std::string& procedure, std::vector<Value>& arguments);

class ProcedureTable {
 public:
  struct Entry {
    std::shared_ptr<const Workload> workload;
    const Procedure* procedure = nullptr;
    std::vector<std::byte> commands_of;  // as Add was given it
  };

  // All of a workload, in the place of those that were there under its name. On failure there are none of it.
  // `commands_of`: the workload as recovery finds it again (recovery/command_replay.h).
  absl::Status Add(const std::string& name, const std::shared_ptr<const Workload>& workload,
                   const storage::Catalog& catalog, const std::vector<std::byte>& commands_of = {});
  void Clear() { entries_.clear(); }
  // Null: there is none.
  const Entry* Find(std::string_view name) const {
    const auto it = entries_.find(name);
    return it == entries_.end() ? nullptr : &it->second;
  }
  const std::map<std::string, Entry, std::less<>>& entries() const { return entries_; }

 private:
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace islands::instance
