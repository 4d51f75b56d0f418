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
#include "google/protobuf/repeated_ptr_field.h"
#include "instance/gateway/view.h"
#include "instance/workload/operation.h"
#include "proto/client.pb.h"

namespace islands::gateway {

using Operations = google::protobuf::RepeatedPtrField<client::v1::Operation>;
using Results = google::protobuf::RepeatedPtrField<client::v1::Result>;

inline constexpr size_t kMostOperations = 100'000;  // of one request

// Fills an empty batch, one operation for each; those of `may_miss` do not mind what they find.
absl::Status Translate(const View& view, const Operations& operations, instance::Batch* batch,
                       std::vector<uint32_t>* may_miss);

// The site of the first key of a batch that Translate has made; nothing if it has none, or every island
// has it.
std::optional<uint32_t> SiteOf(const View& view, const instance::Batch& batch);
// The island that owns it; `any` if there is none.
uint32_t HomeOf(const View& view, const instance::Batch& batch, uint32_t any);

// Of operations that were carried out: one for each.
void FillResults(const View& view, const instance::Batch& batch, Results* results);

}  // namespace islands::gateway
