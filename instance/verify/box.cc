#include "instance/verify/box.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "instance/log/board.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/segment_file.h"
#include "runtime/clock.h"

namespace islands::verify {
namespace {

constexpr int64_t kLongWaitNs = runtime::kNsPerSecond;

std::shared_ptr<log::Ring> CopyOf(const log::Ring& ring) {
  const uint64_t head = ring.head(), tail = ring.tail();
  std::shared_ptr<log::Ring> copy = log::Ring::InMemory(ring.stream(), ring.capacity());
  log::RingWriter begin(*copy);
  begin.Advance(head);
  begin.Show();
  copy->SetHead(head, ring.epoch_block());
  if (head == tail) return copy;
  log::RingWriter writer(*copy);
  std::memcpy(writer.Next(tail - head), ring.Bytes(head, tail).data(), tail - head);
  writer.Advance(tail - head);
  writer.Show();
  return copy;
}

class BoxWalk {
 public:
  BoxWalk(runtime::OverlayFileSystem& files, const BoxOptions& options, Report* report)
      : files_(files), options_(options), report_(*report) {}

  // False: no further.
  absl::StatusOr<bool> Look() {
    const absl::StatusOr<bool> manifest = ReadManifest();
    if (!manifest.ok() || !*manifest) return manifest;
    const absl::StatusOr<bool> epoch = ReadEpoch();
    if (!epoch.ok() || !*epoch) return epoch;
    box_.block = box_.synced;
    box_.cuts = manifest_.cuts;
    box_.lives = manifest_.lives;
    return true;
  }
  absl::StatusOr<bool> Run(FindRings find_rings) {
    const absl::StatusOr<bool> looked = Look();
    if (!looked.ok() || !*looked) return looked;
    for (uint32_t island = 0; island < options_.workers.size(); ++island) LookBeyond(island);
    if (!box_.closed) {
      absl::StatusOr<Rings> rings = find_rings(manifest_.ring_directory);
      if (!rings.ok()) return rings.status();
      if (absl::Status drained = TakeAlong(*rings); !drained.ok()) return drained;
    }
    box_.cuts = manifest_.cuts;
    return going_on_;
  }
  Box box() && { return std::move(box_); }

 private:
  void Find(const std::string& path, const std::string& what) {
    report_.findings.push_back({path, fmt::format("{}: {}", path, what)});
  }
  std::string PathOf(const char* name) const { return options_.log_directory + "/" + name; }

  absl::StatusOr<bool> ReadManifest() {
    auto manifest =
        log::ReadBoxManifest(files_, options_.log_directory, options_.cluster, options_.workers.size());
    if (!manifest.ok()) return Judge(manifest.status(), log::kManifestName);
    manifest_ = *std::move(manifest);
    box_.closed = manifest_.ring_directory == log::BoxId{};
    for (size_t island = 0; island < manifest_.lives.size(); ++island) {
      if (manifest_.lives[island] <= options_.boot_epochs[island]) continue;
      Find(PathOf(log::kManifestName),
           fmt::format(
               "it names life {} of island {}, and MANIFEST.json only {}: one of both is an old copy, and "
               "a life would be used twice; restore data and log from one time",
               manifest_.lives[island], island, options_.boot_epochs[island]));
    }
    return true;
  }

  absl::StatusOr<bool> ReadEpoch() {
    const std::string path = PathOf(log::kEpochFileName);
    auto block = log::ReadEpochFile(files_, path, options_.cluster, options_.workers.size());
    if (!block.ok()) return Judge(block.status(), log::kEpochFileName);
    box_.synced = *std::move(block);
    const absl::StatusOr<std::string> content = files_.ReadFile(path);
    if (!content.ok()) return content.status();
    const bool whole = OtherBlockIsWhole(*content, box_.synced.number, [](const std::string& file) {
      return log::DecodeEpochFile(std::as_bytes(std::span(file))).ok();
    });
    if (!whole && box_.closed) {
      Find(path,
           fmt::format("one of its two blocks is damaged, and nobody was writing it; the other one says {}, "
                       "and what was on disk beyond that is lost: restore data and log from a copy",
                       box_.synced.epoch));
    } else if (!whole) {
      report_.notes.push_back(
          fmt::format("{}: one of its two blocks is not whole, as a loss of power leaves it; epoch {} counts",
                      path, box_.synced.epoch));
    }
    if (!manifest_.cuts.empty() && box_.synced.epoch < manifest_.cuts.back().durable) {
      Find(path, fmt::format(
                     "it says that epoch {} is durable, and {} knows that {} was: it is an old copy; restore "
                     "data and log from one time",
                     box_.synced.epoch, log::kManifestName, manifest_.cuts.back().durable));
    }
    return true;
  }

  // What an island's files have behind where EPOCH says that its log ends.
  void LookBeyond(uint32_t island) {
    const log::LogPosition& end = box_.synced.ends[island];
    const std::string directory = log::IslandDirectory(options_.log_directory, island);
    uint64_t bytes = 0, segments = 0;
    const absl::StatusOr<std::string> last = files_.ReadFile(directory + "/" + log::SegmentName(end.segment));
    if (last.ok() && end.segment != 0 && end.offset <= last->size()) {
      const auto content = std::as_bytes(std::span(*last));
      for (size_t at = end.offset, taken = 0;
           log::DecodeFrame(island, {end.segment, at}, content.subspan(at), &taken).ok(); at += taken)
        bytes += taken;
    }
    const auto names = files_.List(directory);
    const auto queue = files_.MakeQueue();
    for (const std::string& name : names.ok() ? *names : std::vector<std::string>()) {
      uint64_t size = 0;
      if (log::SegmentNumber(name) <= end.segment) continue;
      const auto header = log::ReadSegmentHeader(files_, *queue, directory + "/" + name, &size);
      segments += header.ok() && header->number == log::SegmentNumber(name) ? 1 : 0;
    }
    if (bytes + segments == 0) return;
    report_.notes.push_back(
        fmt::format("{}: {} bytes of segment {} and {} later segments are beyond EPOCH, and count for nobody",
                    directory, bytes, end.segment, segments));
  }

  absl::Status TakeAlong(const Rings& rings) {
    std::vector<log::StreamId> whole;
    std::vector<std::shared_ptr<log::Ring>> there;
    const bool ours = rings.directory == manifest_.ring_directory && manifest_.boot == options_.boot;
    for (const log::RingDirectory::Found& ring : rings.found) {
      if (ring.ring.ok()) {
        whole.push_back(ring.stream);
        there.push_back(*ring.ring);
      } else if (ours) {
        const std::string name = log::RingName(ring.stream);
        if (absl::Status taken = report_.Take(ring.ring.status(), name); !taken.ok()) return taken;
      }
    }
    if (log::SameBoot(manifest_, options_.boot, rings.directory, whole, options_.workers))
      return Drain(there);
    log::Cut(&manifest_, box_.synced);
    report_.notes.push_back(fmt::format(
        "{}: the log's rings are not those of before: power was lost, or somebody has removed them. "
        "Epoch {} is the last that counts; `up` drops what is beyond it on all islands",
        options_.log_directory, box_.synced.epoch));
    return absl::OkStatus();
  }

  // As the logger does that `up` starts.
  absl::Status Drain(const std::vector<std::shared_ptr<log::Ring>>& rings) {
    log::Board board(options_.workers);
    const runtime::MonotonicClock clock;
    auto logger = log::Logger::Open(files_, clock, board,
                                    {.directory = options_.log_directory,
                                     .cluster = options_.cluster,
                                     .first_epoch = log::FirstEpoch(manifest_),
                                     .interval_ns = 0});
    if (!logger.ok()) return TakeOrStop(logger.status());
    uint64_t bytes = 0;
    for (const std::shared_ptr<log::Ring>& ring : rings) {
      bytes += ring->tail() - ring->head();
      if (absl::Status added = (*logger)->Add(CopyOf(*ring)); !added.ok()) return TakeOrStop(added);
    }
    for (uint32_t island = 0; island < options_.workers.size(); ++island)
      (*logger)->OnIslandDead(island, UINT64_MAX);
    if (absl::Status started = (*logger)->Start(); !started.ok()) return TakeOrStop(started);
    for (uint32_t island = 0; island < options_.workers.size();) {
      if ((*logger)->ReleaseDrained(island)) {
        ++island;
      } else if (!(*logger)->RunOnce()) {
        if (!(*logger)->failure().ok()) return TakeOrStop((*logger)->failure());
        (*logger)->queue().Wait(kLongWaitNs);
      }
    }
    box_.block = (*logger)->epoch_block();
    report_.notes.push_back(
        fmt::format("{}: the islands were killed; {} bytes are in {} rings that nobody has drained, "
                    "and `up` takes them along",
                    options_.log_directory, bytes, rings.size()));
    return absl::OkStatus();
  }

  absl::StatusOr<bool> Judge(const absl::Status& status, const char* name) {
    if (absl::Status taken = report_.Take(status, PathOf(name)); !taken.ok()) return taken;
    return false;
  }
  absl::Status TakeOrStop(const absl::Status& status) {
    going_on_ = false;
    return report_.Take(status, options_.log_directory);
  }

  runtime::OverlayFileSystem& files_;
  const BoxOptions& options_;
  Report& report_;
  log::BoxManifest manifest_;
  Box box_;
  bool going_on_ = true;
};

}  // namespace

absl::StatusOr<std::optional<Box>> LookAtBox(runtime::OverlayFileSystem& files, const BoxOptions& options,
                                             Report* report) {
  BoxWalk walk(files, options, report);
  const absl::StatusOr<bool> sound = walk.Look();
  if (!sound.ok()) return sound.status();
  if (!*sound) return std::nullopt;
  return std::move(walk).box();
}

absl::StatusOr<std::optional<Box>> OpenBox(runtime::OverlayFileSystem& files, const BoxOptions& options,
                                           FindRings find_rings, Report* report) {
  BoxWalk walk(files, options, report);
  const absl::StatusOr<bool> sound = walk.Run(find_rings);
  if (!sound.ok()) return sound.status();
  if (!*sound) return std::nullopt;
  return std::move(walk).box();
}

bool OtherBlockIsWhole(std::string content, uint64_t number,
                       absl::FunctionRef<bool(const std::string&)> decode) {
  const size_t block = content.size() / 2;
  const std::string other = content.substr(number % 2 == 0 ? block : 0, block);
  if (number == 1 && std::all_of(other.begin(), other.end(), [](char byte) { return byte == '\0'; }))
    return true;
  content.replace(number % 2 * block, block, std::string(block, '\0'));
  return decode(content);
}

}  // namespace islands::verify
