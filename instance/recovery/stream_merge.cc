#include "instance/recovery/stream_merge.h"

#include "runtime/planted_bug.h"

namespace islands::recovery {

absl::Status StreamMerge::Add(const log::StreamId& stream, const log::Record& record, Visit visit) {
  if (stream.life != life_) {
    if (absl::Status visited = Finish(visit); !visited.ok()) return visited;
    life_ = stream.life;
  }
  if (runtime::Planted(runtime::PlantedBug::kMergeByArrival)) return visit(stream, record);
  const auto* body = reinterpret_cast<const char*>(record.body.data());
  records_[{record.lsn, stream}] = {record.kind, std::string(body, record.body.size())};
  return absl::OkStatus();
}

absl::Status StreamMerge::Finish(Visit visit) {
  const auto records = std::exchange(records_, {});
  for (const auto& [at, kept] : records) {
    const log::Record record{at.first, kept.kind, std::as_bytes(std::span(kept.body))};
    if (absl::Status visited = visit(at.second, record); !visited.ok()) return visited;
  }
  return absl::OkStatus();
}

}  // namespace islands::recovery
