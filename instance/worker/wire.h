// Batches to messages and back.
//
// What comes from a peer is checked here, once: after DecodeOperations an executor can trust the batch.
//
// The operations of an ExecuteRequest and the results of an ExecuteReply are bytes, without padding between
// them, integers little endian. An operation:
//
//   offset  size  field
//        0     1  kind, an OperationKind
//        1     1  1 = reverse scan
//        2     2  zero
//        4     4  table
//        8     4  site that the coordinator routed it to
//       12     4  key_bytes
//       16     4  tail_bytes
//       20     4  kAdd, kUpdate, kWrite: offset within the row; kIndexScan: number of the index; otherwise 0
//       24     8  kAdd, kUpdate: delta, signed; scans: most rows, 0 = no limit; otherwise 0
//       32     k  key; scans: first key of the range
//     32+k     t  tail: the inserted row or the bytes written; scans: first key after the range
//
// A client's operations (ClientRequest) have not been routed yet: their site is 0. Only kIndexScan has
// something there, the length of the primary key that names the site, which is the end of its tail.
//
// A result:
//
//   offset  size  field
//        0     4  code, an absl::StatusCode: OK, NOT_FOUND or ALREADY_EXISTS
//        4     4  row_bytes
//        8     4  rows scanned
//       12     r  row
//     12+r        for each scanned row: key_bytes (4), row_bytes (4), key, row
//
// Thread safety: pure functions on their arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "coordinator/coordinator.h"
#include "coordinator/transaction_id.h"
#include "instance/execution/router.h"
#include "instance/storage/catalog.h"
#include "instance/workload/operation.h"
#include "partitioner/site_map.h"
#include "proto/data.pb.h"

namespace islands::instance {

// Message: TransactionId, or one that names its transaction in plain fields.
template <typename Message>
void EncodeId(const coordinator::TransactionId& id, Message* out) {
  out->set_island(id.island);
  out->set_worker(id.worker);
  out->set_boot_epoch(id.boot_epoch);
  out->set_sequence(id.sequence);
}
template <typename Message>
coordinator::TransactionId DecodeId(const Message& message) {
  return {message.island(), message.worker(), message.boot_epoch(), message.sequence()};
}

inline data::v1::Outcome ToWire(coordinator::Outcome outcome) {
  return static_cast<data::v1::Outcome>(outcome);
}

// Sets the request's operations: the share's, in order.
void EncodeOperations(const Batch& batch, std::span<const RoutedOperation> share,
                      data::v1::ExecuteRequest* request);

// Fills an empty batch and the routes. INVALID_ARGUMENT: bytes that are no operations, unknown kind, table or
// index, a site not in `own`, key or row too long, a key that does not decode or belongs to another site, a
// write to a replicated table.
absl::Status DecodeOperations(const data::v1::ExecuteRequest& request, const storage::Catalog& catalog,
                              partitioner::SiteRun own, Batch* batch, std::vector<RoutedOperation>* routes);

// Sets the results, in the order of `routes`.
void EncodeResults(const Batch& batch, std::span<const RoutedOperation> routes, std::string* results);

// Scanned rows that came from one island; Transaction puts them in key order at the end.
struct ScanChunk {
  uint32_t operation = 0;
  uint32_t island = 0;
  uint32_t first = 0;  // in Batch::scanned()
  uint32_t count = 0;
};

// Puts a reply's results where `share` says. INVALID_ARGUMENT: bytes that are no results, or not those of the
// share's operations; the batch may hold some of them then.
absl::Status DecodeResults(const data::v1::ExecuteReply& reply, uint32_t island,
                           std::span<const RoutedOperation> share, Batch* batch,
                           std::vector<ScanChunk>* chunks);

// Between a gateway and the island that runs a client's transaction: all operations of a batch, and their
// results.
void EncodeClientOperations(const Batch& batch, std::string* operations);
// Fills an empty batch. As DecodeOperations, but for what the router will check: sites, and keys of single
// rows.
absl::Status DecodeClientOperations(const std::string& operations, const storage::Catalog& catalog,
                                    Batch* batch);
void EncodeClientResults(const Batch& batch, std::string* results);
// How many bytes that would be.
size_t ClientResultBytes(const Batch& batch);
// Puts the results into the batch that the operations were taken from.
absl::Status DecodeClientResults(const std::string& results, Batch* batch);

// Joins the chunks of each scan, in island order (reversed for reverse scans), up to the scan's limit.
void JoinScans(Batch* batch, std::vector<ScanChunk>* chunks);

}  // namespace islands::instance
