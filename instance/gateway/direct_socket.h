// What a gateway's direct socket and its clients have to agree on beside the messages (proto/client.proto,
// DirectCall) and their frames (instance/messaging/frame.h).
//
// Thread safety: constants.
#pragma once

#include <cstddef>

namespace islands::gateway {

// Of a gateway's socket for gRPC, the name of this one beside it.
inline constexpr char kDirectSuffix[] = ".direct";
// Of an answer, all its parts together: as much as clients take over gRPC.
inline constexpr size_t kMostAnswerBytes = 32 << 20;

}  // namespace islands::gateway
