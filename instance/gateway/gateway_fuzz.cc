// Any bytes as what a client says: the gateway either refuses them, or makes operations of them that an
// island takes; and whatever an island says to those becomes results, or is refused.
#include <google/protobuf/stubs/logging.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "instance/execution/router.h"
#include "instance/gateway/answer.h"
#include "instance/gateway/translate.h"
#include "instance/gateway/view.h"
#include "instance/storage/table_specs.h"
#include "instance/worker/wire.h"
#include "proto/client.pb.h"
#include "runtime/check.h"

namespace islands::gateway {
namespace {

std::shared_ptr<const View> MakeView() {
  control::v1::ClusterStatus status;
  control::v1::IslandConfig* config = status.add_configs();
  config->set_site_count(8);
  config->add_peers()->set_workers(1);
  config->add_peers()->set_workers(2);
  control::v1::TableSpec* numbers = config->add_tables();
  numbers->set_name("n");
  numbers->add_key("uint64");
  numbers->set_range_end(1000);
  control::v1::TableSpec* people = config->add_tables();
  people->set_name("p");
  people->add_key("int16");
  people->add_key("string");
  people->set_range_begin(-100);
  people->set_range_end(100);
  people->set_row_bytes(8);
  control::v1::IndexSpec* index = people->add_indexes();
  index->set_name("i");
  index->add_key("row:0:int32");
  index->add_key("key:1");
  control::v1::TableSpec* copied = config->add_tables();
  copied->set_name("c");
  copied->add_key("string");
  copied->set_replicated(true);
  control::v1::ProcedureSpec* procedure = status.add_islands()->add_procedures();
  procedure->set_name("w.p");
  procedure->set_home_table("p");
  for (const char* type : {"int64", "double", "text"}) procedure->add_arguments()->set_type(type);
  return *View::Create(status);
}

// As the gateway takes a call of the only procedure there is.
void TryCall(const View& view, const std::string& said) {
  client::v1::CallRequest request;
  if (!request.ParseFromString(said)) return;
  const control::v1::ProcedureSpec& procedure = view.procedures.Get(0);
  data::v1::ClientRequest asked;
  if (!TranslateArguments(procedure, request, &asked).ok()) return;
  ISLANDS_CHECK(asked.arguments_size() == 3 && asked.arguments(0).has_number() &&
                asked.arguments(1).has_real() && asked.arguments(2).has_text());
  const absl::StatusOr<uint32_t> site = SiteOfCall(view, procedure, asked);
  ISLANDS_CHECK(!site.ok() || *site < view.catalog.sites());
}

// A table that a client makes: whatever it says, the catalog takes it as it is or says what is wrong.
void TryTable(const View& view, const std::string& said) {
  client::v1::Table table;
  if (!table.ParseFromString(said)) return;
  table.DiscardUnknownFields();
  const control::v1::TableSpec spec = SpecOf(table);
  ISLANDS_CHECK(TableOf(spec).SerializeAsString() == table.SerializeAsString());
  control::v1::TablesRequest request;
  *request.add_add() = spec;
  storage::Catalog::TableSpecs specs = view.specs;
  if (!storage::ChangeTables(request, &specs).ok()) return;
  const auto catalog = storage::Catalog::Create(specs, view.catalog.sites());
  ISLANDS_CHECK(!catalog.ok() || catalog->Find(spec.name()) != nullptr);
}

// What the island that gets them does first.
void TryAtTheIsland(const View& view, const instance::Batch& batch) {
  std::string bytes;
  instance::EncodeClientOperations(batch, &bytes);
  instance::Batch taken;
  ISLANDS_CHECK(instance::DecodeClientOperations(bytes, view.catalog, &taken).ok());
  ISLANDS_CHECK(taken.size() == batch.size());
  const instance::Router router(view.catalog, view.sites, 0);
  instance::RoutePlan plan;
  plan.Clear();
  instance::TouchedSites touched;
  (void)router.Route(taken, &plan,
                     &touched);  // keys outside of their table's range are for the island to refuse
  ISLANDS_CHECK(HomeOf(view, batch, 1) < view.sites.islands());
}

void TryResults(const View& view, instance::Batch& batch, const std::string& bytes) {
  if (!instance::DecodeClientResults(bytes, &batch).ok()) return;
  client::v1::ExecuteResponse response;
  FillResults(view, batch, response.mutable_results());
  ISLANDS_CHECK(static_cast<size_t>(response.results_size()) == batch.size());
}

void TryReply(const std::string& bytes) {
  data::v1::ClientReply reply;
  if (!reply.ParseFromString(bytes)) return;
  const Answer answer = AnswerOf(reply);
  const bool says_committed =
      reply.outcome() == data::v1::OUTCOME_COMMITTED || reply.outcome() == data::v1::OUTCOME_PENDING;
  ISLANDS_CHECK(answer.ok() == says_committed);
  ISLANDS_CHECK(answer.ok() || answer.failure.outcome() != client::v1::Failure::OUTCOME_UNSPECIFIED);
  ISLANDS_CHECK(answer.ToStatus().ok() == answer.ok());
  client::v1::CallResponse called;
  FillValues(reply, &called);
  ISLANDS_CHECK(called.results_size() == reply.values_size());
}

}  // namespace
}  // namespace islands::gateway

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace islands::gateway;  // NOLINT: a fuzz target
  static const std::shared_ptr<const View> view = [] {
    google::protobuf::SetLogHandler(nullptr);  // that text is no UTF-8, for one
    return MakeView();
  }();
  // The first byte says where what a client says ends, and what an island says begins.
  const size_t at = size == 0 ? 0 : 1 + (size - 1) * data[0] / 255;
  const std::string said(reinterpret_cast<const char*>(data) + (size == 0 ? 0 : 1), at == 0 ? 0 : at - 1);
  const std::string answered(reinterpret_cast<const char*>(data) + at, size - at);
  TryReply(answered);
  TryCall(*view, said);
  TryTable(*view, said);
  islands::client::v1::ExecuteRequest request;
  if (!request.ParseFromString(said)) return 0;
  islands::instance::Batch batch;
  std::vector<uint32_t> may_miss;
  if (!Translate(*view, request.operations(), &batch, &may_miss).ok()) return 0;
  ISLANDS_CHECK(batch.size() == static_cast<size_t>(request.operations_size()));
  for (const uint32_t each : may_miss) ISLANDS_CHECK(each < batch.size());
  TryAtTheIsland(*view, batch);
  TryResults(*view, batch, answered);
  return 0;
}
