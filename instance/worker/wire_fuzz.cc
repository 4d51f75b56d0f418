// Any bytes as a message from a peer: decoding either refuses them or gives a batch an executor can trust, or
// results that the operations which were sent can have.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instance/worker/wire.h"
#include "runtime/check.h"

namespace {

const islands::storage::Catalog& Catalog() {
  static const islands::storage::Catalog catalog = [] {
    islands::storage::Catalog::TableSpecs specs;
    islands::control::v1::TableSpec* table = specs.Add();
    table->set_name("t");
    table->add_key("uint64");
    table->add_key("string");
    table->set_range_end(1000);
    return *islands::storage::Catalog::Create(specs, 8);
  }();
  return catalog;
}

void TryOperations(const std::string& bytes) {
  using namespace islands::instance;  // NOLINT: a fuzz target
  islands::data::v1::ExecuteRequest request;
  request.set_operations(bytes);
  Batch batch;
  std::vector<RoutedOperation> routes;
  if (!DecodeOperations(request, Catalog(), {2, 4}, &batch, &routes).ok()) return;
  ISLANDS_CHECK(batch.size() == routes.size());
  for (const RoutedOperation& route : routes) {
    ISLANDS_CHECK(route.site >= 2 && route.last_site < 6 && route.site <= route.last_site);
  }
  // What was understood can be said again, and is understood in the same way.
  islands::data::v1::ExecuteRequest again;
  EncodeOperations(batch, routes, &again);
  Batch decoded;
  std::vector<RoutedOperation> decoded_routes;
  ISLANDS_CHECK(DecodeOperations(again, Catalog(), {2, 4}, &decoded, &decoded_routes).ok());
  ISLANDS_CHECK(decoded.size() == batch.size());
}

void TryClientOperations(const std::string& bytes) {
  using namespace islands::instance;  // NOLINT: a fuzz target
  Batch batch;
  if (!DecodeClientOperations(bytes, Catalog(), &batch).ok()) return;
  std::string again;
  EncodeClientOperations(batch, &again);
  ISLANDS_CHECK(again == bytes);
  // Whatever keys they have, they are routed or refused.
  static const auto sites = *islands::partitioner::SiteMap::Create(8, 2);
  static const Router router(Catalog(), sites, 0);
  RoutePlan plan;
  TouchedSites touched;
  plan.Clear();
  if (!router.Route(batch, &plan, &touched).ok()) return;
  for (const RoutedOperation& routed : plan.local()) ISLANDS_CHECK(routed.last_site < 8);
}

void TryResults(const std::string& bytes) {
  using namespace islands::instance;  // NOLINT: a fuzz target
  Batch batch;
  batch.Read(0, islands::partitioner::Uint64Key(300));
  batch.Scan(0, {}, {});
  batch.IndexScan(0, 0, {}, {}, {});
  batch.ResetResults();
  const std::vector<RoutedOperation> share = {{0, 2, 2}, {1, 2, 5}, {2, 2, 2}};
  islands::data::v1::ExecuteReply reply;
  reply.set_results(bytes);
  std::vector<ScanChunk> chunks;
  if (!DecodeResults(reply, 1, share, &batch, &chunks).ok()) return;
  ISLANDS_CHECK(chunks.size() == 1 && chunks[0].operation == 1);
  JoinScans(&batch, &chunks);
  ISLANDS_CHECK(DecodeClientResults(bytes, &batch).ok());
  for (uint32_t i = 0; i < batch.size(); ++i) {
    for (size_t n = 0; n < batch.scanned_rows(i); ++n) {
      ISLANDS_CHECK(batch.scanned_key(i, n).size() + batch.scanned_row(i, n).size() <= bytes.size());
    }
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  TryOperations(bytes);
  TryClientOperations(bytes);
  TryResults(bytes);
  return 0;
}
