// What has to be true of a workload's rows together, where a sum over single rows (Workload::AuditRow) says
// too little. A workload that knows is an AuditedWorkload as well, and islands ask that instead. It is found
// by a cast, so that workloads which know nothing of it need not be built again.
//
// Thread safety: none; an audit belongs to the thread that began it.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "instance/storage/catalog.h"
#include "instance/workload/operation.h"
#include "partitioner/site_map.h"

namespace islands::instance {

class RowAudit {
 public:
  virtual ~RowAudit() = default;
  // Every row of the sites it is of, replicated ones left out: table by table in the order of
  // Workload::tables, and within one site by site, in key order.
  virtual void See(TableId table, KeyView key, RowView row) = 0;
  // After all of them: these sites' part of the audited sum, for what only all islands' rows together can
  // tell. DATA_LOSS: names what is not as it has to be.
  virtual absl::StatusOr<int64_t> Finish() = 0;
};

class AuditedWorkload {
 public:
  virtual ~AuditedWorkload() = default;
  virtual std::unique_ptr<RowAudit> BeginAudit(partitioner::SiteRun sites) const = 0;
};

}  // namespace islands::instance
