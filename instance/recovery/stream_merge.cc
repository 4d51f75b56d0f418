#include "instance/recovery/stream_merge.h"

#include <algorithm>
#include <utility>

#include "runtime/planted_bug.h"

namespace islands::recovery {
namespace {

constexpr size_t kBlockBytes = 1 << 20;

}  // namespace

absl::Status StreamMerge::Add(const log::StreamId& stream, const log::Record& record, Visit visit) {
  if (stream.life != life_) {
    if (absl::Status visited = Finish(visit); !visited.ok()) return visited;
    life_ = stream.life;
  }
  if (runtime::Planted(runtime::PlantedBug::kMergeByArrival)) return visit(stream, record);
  streams_[stream].push_back({record.lsn, Keep(record.body), record.kind});
  return absl::OkStatus();
}

std::span<const std::byte> StreamMerge::Keep(std::span<const std::byte> body) {
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < body.size())
    blocks_.emplace_back().reserve(std::max(kBlockBytes, body.size()));
  std::vector<std::byte>& block = blocks_.back();
  const size_t begin = block.size();
  block.insert(block.end(), body.begin(), body.end());
  return std::span(block).subspan(begin);
}

// Workers are few: the next record is looked for among all of them.
absl::Status StreamMerge::Finish(Visit visit) {
  const auto streams = std::exchange(streams_, {});
  const auto blocks = std::exchange(blocks_, {});
  std::vector<Rest> rests;
  for (const auto& [stream, kept] : streams) rests.push_back({&stream, kept});
  while (!rests.empty()) {
    // Two workers may give one LSN, to changes of different pages: then the first will do.
    const auto next = std::min_element(rests.begin(), rests.end(), [](const Rest& a, const Rest& b) {
      return a.kept.front().lsn < b.kept.front().lsn;
    });
    const Kept& kept = next->kept.front();
    const absl::Status visited = visit(*next->stream, {kept.lsn, kept.kind, kept.body});
    if (!visited.ok()) return visited;
    next->kept = next->kept.subspan(1);
    if (next->kept.empty()) rests.erase(next);
  }
  return absl::OkStatus();
}

}  // namespace islands::recovery
