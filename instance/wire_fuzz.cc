// Any bytes as a message from a peer: decoding either refuses them or gives a batch an executor can trust.
#include <cstddef>
#include <cstdint>

#include "instance/runtime/check.h"
#include "instance/wire.h"

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

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace islands::instance;  // NOLINT: a fuzz target of one function
  islands::data::v1::ExecuteRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  Batch batch;
  std::vector<RoutedOperation> routes;
  if (!DecodeOperations(request, Catalog(), {2, 4}, &batch, &routes).ok()) return 0;
  ISLANDS_CHECK(batch.size() == routes.size());
  for (const RoutedOperation& route : routes) {
    ISLANDS_CHECK(route.site >= 2 && route.last_site < 6 && route.site <= route.last_site);
  }
  return 0;
}
