#include "instance/recovery/stream_merge.h"

#include <algorithm>
#include <utility>

#include "instance/log/lsn.h"
#include "runtime/planted_bug.h"

namespace islands::recovery {
namespace {

constexpr size_t kBlockBytes = 128 << 10;

}  // namespace

absl::Status StreamMerge::Add(const log::StreamId& stream, const log::Record& record, Visit visit) {
  if (stream.life != life_) {
    if (absl::Status visited = Finish(visit); !visited.ok()) return visited;
    life_ = stream.life;
  }
  if (runtime::Planted(runtime::PlantedBug::kMergeByArrival)) return visit(stream, record);
  settled_ = std::max(settled_, record.settled);
  if (held_bytes_ >= enough_bytes_ && settled_ > visited_) {
    if (absl::Status visited = VisitUpTo(settled_, visit); !visited.ok()) return visited;
    visited_ = settled_;
    enough_bytes_ = kLeastHeld + 2 * held_bytes_;  // so that no record is kept again and again
  }
  Keep(&streams_[stream], record.lsn, record.kind, record.body);
  return absl::OkStatus();
}

void StreamMerge::Keep(std::vector<Kept>* stream, uint64_t lsn, uint8_t kind,
                       std::span<const std::byte> body) {
  if (blocks_.empty() || blocks_.back().capacity() - blocks_.back().size() < body.size())
    blocks_.emplace_back().reserve(std::max(kBlockBytes, body.size()));
  std::vector<std::byte>& block = blocks_.back();
  const size_t begin = block.size();
  block.insert(block.end(), body.begin(), body.end());
  stream->push_back({lsn, std::span(block).subspan(begin), kind});
  held_bytes_ += body.size();
}

// Workers are few: the next record is looked for among all of them.
absl::Status StreamMerge::VisitUpTo(uint64_t epoch, Visit visit) {
  const Streams streams = std::exchange(streams_, {});
  const auto blocks = std::exchange(blocks_, {});
  held_bytes_ = 0;
  std::vector<Rest> rests;
  for (const auto& [stream, kept] : streams) rests.push_back({&stream, kept});
  while (!rests.empty()) {
    // Two workers may give one LSN, to changes of different pages: then the first will do.
    const auto next = std::min_element(rests.begin(), rests.end(), [](const Rest& a, const Rest& b) {
      return a.kept.front().lsn < b.kept.front().lsn;
    });
    const Kept& kept = next->kept.front();
    if (log::Lsn::FromValue(kept.lsn).epoch() > epoch) break;
    const absl::Status visited = visit(*next->stream, {kept.lsn, kept.kind, kept.body});
    if (!visited.ok()) return visited;
    next->kept = next->kept.subspan(1);
    if (next->kept.empty()) rests.erase(next);
  }
  for (const Rest& rest : rests) {
    for (const Kept& kept : rest.kept) Keep(&streams_[*rest.stream], kept.lsn, kept.kind, kept.body);
  }
  return absl::OkStatus();
}

absl::Status StreamMerge::Finish(Visit visit) {
  absl::Status visited = VisitUpTo(UINT64_MAX, visit);
  settled_ = visited_ = 0;
  enough_bytes_ = kLeastHeld;
  return visited;
}

}  // namespace islands::recovery
