// Between what clients say (proto/client.proto) and what islands carry out: names to numbers, keys to
// bytes and back.
//
// Everything a client can say wrong ends here, or at the island's own checks: INVALID_ARGUMENT names the
// operation and says what would be right.
//
// Thread safety: pure functions on their arguments.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/protobuf/repeated_ptr_field.h"
#include "instance/gateway/view.h"
#include "instance/workload/operation.h"
#include "proto/client.pb.h"
#include "proto/data.pb.h"

namespace islands::gateway {

using Operations = google::protobuf::RepeatedPtrField<client::v1::Operation>;
using Results = google::protobuf::RepeatedPtrField<client::v1::Result>;

inline constexpr size_t kMostOperations = 100'000;  // of one request

// Fills an empty batch, one operation for each; those of `may_miss` do not mind what they find.
absl::Status Translate(const View& view, const Operations& operations, instance::Batch* batch,
                       std::vector<uint32_t>* may_miss);

// As a procedure has them, a number also for a double; INVALID_ARGUMENT names the argument, what was found
// and what is expected.
absl::Status TranslateArguments(const control::v1::ProcedureSpec& procedure,
                                const client::v1::CallRequest& request, data::v1::ClientRequest* to);
// Where a call of it begins, by its first argument. INVALID_ARGUMENT: no key of its home table begins so.
absl::StatusOr<uint32_t> SiteOfCall(const View& view, const control::v1::ProcedureSpec& procedure,
                                    const data::v1::ClientRequest& request);
// A whole key that begins like this one: only its first part says where it belongs.
client::v1::Key Completed(const storage::TableDefinition& table, const client::v1::Key& key);
// What it has answered.
void FillValues(const data::v1::ClientReply& reply, client::v1::CallResponse* response);

// The site of the first key of a batch that Translate has made; nothing if it has none, or every island
// has it.
std::optional<uint32_t> SiteOf(const View& view, const instance::Batch& batch);
// The island that owns it; `any` if there is none.
uint32_t HomeOf(const View& view, const instance::Batch& batch, uint32_t any);

// A table, as clients and as islands describe it.
control::v1::TableSpec SpecOf(const client::v1::Table& table);
client::v1::Table TableOf(const control::v1::TableSpec& spec);

// Of operations that were carried out: one for each.
void FillResults(const View& view, const instance::Batch& batch, Results* results);

}  // namespace islands::gateway
