// What a gateway knows of its deployment: which islands and workers there are, which tables they have
// and which procedures can be called, where a key belongs.
//
// Thread safety: immutable after construction.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"
#include "partitioner/site_map.h"
#include "proto/control.pb.h"

namespace islands::gateway {

using Procedures = google::protobuf::RepeatedPtrField<control::v1::ProcedureSpec>;

struct View {
  std::string cluster_id;
  std::string transport;          // shm | uds | zmq
  std::vector<uint32_t> workers;  // of each island
  storage::Catalog::TableSpecs specs;
  Procedures procedures;     // of loaded workloads, by name
  bool all_answered = true;  // no island was silent when it was made: there are no other procedures
  storage::Catalog catalog;
  partitioner::SiteMap sites;
  uint64_t tables = 0;  // fingerprint of the catalog, which every request names

  // From what the supervisor says. FAILED_PRECONDITION: it has no islands yet.
  static absl::StatusOr<std::shared_ptr<const View>> Create(const control::v1::ClusterStatus& status);
  // Nothing that can change has.
  bool SaysTheSame(const View& other) const;
  // Null: there is none.
  const control::v1::ProcedureSpec* FindProcedure(const std::string& name) const;
};

}  // namespace islands::gateway
