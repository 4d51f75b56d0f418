#include "instance/verify/streams.h"

#include <fmt/format.h>

#include <utility>

#include "instance/log/lsn.h"

namespace islands::verify {

absl::Status StreamCheck::Take(const log::StreamId& stream, const log::Record& record) {
  const log::Lsn lsn = log::Lsn::FromValue(record.lsn);
  const auto fault = [&](std::string_view what) {
    return absl::DataLossError(fmt::format("record {} of worker {} in life {}: {}", log::ToString(lsn),
                                           stream.worker, stream.life, what));
  };
  const uint64_t before = std::exchange(last_[stream], record.lsn);
  if (stream.life > life_)
    return fault(fmt::format("MANIFEST knows of lives up to {} only, so it is an old copy", life_));
  if (lsn.epoch() > reaches_)
    return fault(fmt::format("EPOCH says that the log reaches up to epoch {} only", reaches_));
  if (record.lsn <= before)
    return fault(fmt::format("it follows {} in its stream", log::ToString(log::Lsn::FromValue(before))));
  return absl::OkStatus();
}

}  // namespace islands::verify
