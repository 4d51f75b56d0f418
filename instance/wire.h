// Batches to messages and back.
//
// What comes from a peer is checked here, once: after DecodeOperations an executor can trust the batch.
//
// Thread safety: pure functions on their arguments.
#pragma once

#include <span>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/transaction_id.h"
#include "instance/operation.h"
#include "instance/router.h"
#include "instance/storage/catalog.h"
#include "partitioner/site_map.h"
#include "proto/data.pb.h"

namespace islands::instance {

void EncodeId(const coordinator::TransactionId& id, data::v1::TransactionId* out);
coordinator::TransactionId DecodeId(const data::v1::TransactionId& id);

// Appends the share's operations, in order, to the request.
void EncodeOperations(const Batch& batch, std::span<const RoutedOperation> share,
                      data::v1::ExecuteRequest* request);

// Fills an empty batch and the routes. INVALID_ARGUMENT: unknown kind, table or index, a site not in `own`,
// key or row too long, a key that does not decode or belongs to another site, a write to a replicated table.
absl::Status DecodeOperations(const data::v1::ExecuteRequest& request, const storage::Catalog& catalog,
                              partitioner::SiteRun own, Batch* batch, std::vector<RoutedOperation>* routes);

void EncodeResults(const Batch& batch, std::span<const RoutedOperation> routes,
                   data::v1::ExecuteReply* reply);

// Scanned rows that came from one island; Transaction puts them in key order at the end.
struct ScanChunk {
  uint32_t operation = 0;
  uint32_t island = 0;
  uint32_t first = 0;  // in Batch::scanned()
  uint32_t count = 0;
};

// Puts a reply's results where `share` says. INVALID_ARGUMENT when their number or codes do not fit.
absl::Status DecodeResults(const data::v1::ExecuteReply& reply, uint32_t island,
                           std::span<const RoutedOperation> share, Batch* batch,
                           std::vector<ScanChunk>* chunks);

// Joins the chunks of each scan, in island order (reversed for reverse scans), up to the scan's limit.
void JoinScans(Batch* batch, std::vector<ScanChunk>* chunks);

}  // namespace islands::instance
