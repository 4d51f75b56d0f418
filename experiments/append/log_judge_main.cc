// Judges the log of islands that were killed while they ran `append`: rings and files, record by record.
//
//   log_judge --cluster ID --islands N --log DIRECTORY --rings DIRECTORY HISTORIES
//
// Nobody has started anything since. Every record of a ring, from head to tail, has to be whole; the log
// files end where EPOCH says, not before the ring's head; and together they have what the histories say
// (append_log.h).
//
// Prints one JSON document. Exit code 0: so it is; 1: not all of it; 2: there is nothing to look at.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <system_error>

#include "experiments/append/append_log.h"
#include "instance/log/box_id.h"
#include "instance/log/epoch_file.h"
#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "instance/log/ring_directory.h"
#include "runtime/file_system.h"

namespace islands::experiments {
namespace {

struct Arguments {
  std::string cluster, log, rings, histories;
  uint32_t islands = 0;
  size_t row_bytes = 120;
};

struct Found {
  std::vector<std::string> violations;
  uint64_t in_files = 0, in_rings = 0;          // records
  std::map<log::StreamId, uint64_t> ends = {};  // of streams in the files
};

absl::Status TakeFiles(const Arguments& arguments, AppendLogJudge* judge, Found* found) {
  const auto files = runtime::MakePosixFileSystem();
  const absl::StatusOr<uint64_t> cluster = log::ClusterFingerprint(arguments.cluster);
  if (!cluster.ok()) return cluster.status();
  const absl::StatusOr<log::EpochBlock> block =
      log::ReadEpochFile(*files, arguments.log + "/" + log::kEpochFileName, *cluster, arguments.islands);
  if (!block.ok()) return block.status();
  for (uint32_t island = 0; island < arguments.islands; ++island) {
    log::LogReader reader(
        *files,
        {.directory = log::IslandDirectory(arguments.log, island), .cluster = *cluster, .island = island},
        block->ends[island]);
    const auto take = [&](const log::StreamId& stream, const log::Record& record) {
      ++found->in_files;
      found->ends[stream] += log::RecordBytes(record.body.size());
      return judge->Take(stream, record);
    };
    if (absl::Status read = reader.Read(take); !read.ok()) return read;
  }
  return absl::OkStatus();
}

absl::Status TakeRing(const log::Ring& ring, AppendLogJudge* judge, Found* found) {
  const uint64_t begin = ring.head(), tail = ring.tail(), in_files = found->ends[ring.stream()];
  if (in_files < begin) {
    return absl::DataLossError(fmt::format("{} begins at {}, and the files end at {}",
                                           log::RingName(ring.stream()), begin, in_files));
  }
  for (size_t at = begin, taken = 0; at < tail; at += taken) {
    const absl::StatusOr<log::Record> record =
        log::ParseRecord(ring.stream(), at, ring.Bytes(at, tail), &taken);
    if (!record.ok()) return record.status();
    if (at < in_files) continue;
    ++found->in_rings;
    if (absl::Status status = judge->Take(ring.stream(), *record); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TakeRings(const Arguments& arguments, AppendLogJudge* judge, Found* found) {
  const auto directory = log::RingDirectory::Open(arguments.rings);
  if (!directory.ok()) return directory.status();
  const auto rings = (*directory)->List();
  if (!rings.ok()) return rings.status();
  for (const log::RingDirectory::Found& one : *rings) {
    if (!one.ring.ok()) return one.ring.status();
    if (absl::Status taken = TakeRing(**one.ring, judge, found); !taken.ok()) return taken;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RecordedHistory>> ReadHistories(const std::string& directory) {
  std::vector<RecordedHistory> histories;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() != ".history") continue;
    absl::StatusOr<RecordedHistory> history = ReadHistory(entry.path().string());
    if (!history.ok()) return history.status();
    histories.push_back(*std::move(history));
  }
  if (histories.empty()) return absl::NotFoundError(directory + ": no *.history");
  return histories;
}

int Judge(const Arguments& arguments) {
  const absl::StatusOr<std::vector<RecordedHistory>> histories = ReadHistories(arguments.histories);
  if (!histories.ok()) {
    fmt::print(stderr, "log_judge: {}\n", std::string(histories.status().message()));
    return 2;
  }
  AppendLogJudge judge(arguments.row_bytes);
  Found found;
  uint64_t answered = 0;
  absl::Status status = TakeFiles(arguments, &judge, &found);
  if (status.ok()) status = TakeRings(arguments, &judge, &found);
  if (status.ok()) {
    found.violations = judge.Judge(*histories, &answered);
  } else {
    found.violations.emplace_back(status.message());
  }
  const nlohmann::ordered_json out = {{"whole", found.violations.empty()},
                                      {"records_in_files", found.in_files},
                                      {"records_in_rings", found.in_rings},
                                      {"answered", answered},
                                      {"violations", found.violations}};
  fmt::print("{}\n", out.dump(2));
  return found.violations.empty() ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app("Judges the log of islands that were killed while they ran `append`.");
  Arguments arguments;
  app.add_option("--cluster", arguments.cluster, "The cluster's id, as `islands status` has it")->required();
  app.add_option("--islands", arguments.islands, "How many there are")->required();
  app.add_option("--log", arguments.log, "Directory of the log")->required();
  app.add_option("--rings", arguments.rings, "Directory of the rings")->required();
  app.add_option("--row-bytes", arguments.row_bytes, "Of table `append`");
  app.add_option("histories", arguments.histories, "Directory of the histories")->required();
  CLI11_PARSE(app, argc, argv);
  return Judge(arguments);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
