// Judges the histories that a run of the workload `append` has left in a directory.
//
//   append_judge [--keeps | --keeps-answered] DIRECTORY
//
// --keeps: of islands that keep what they have acknowledged; --keeps-answered: and that have lost power.
//
// Prints one JSON document: the numbers of Judgement (append_judge.h), and what is wrong, the smallest cycle
// among it. Exit code 0: strictly serializable; 1: an anomaly; 2: files that cannot be read, or none.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>

#include "experiments/append/append_judge.h"

namespace islands::experiments {
namespace {

int Refuse(const std::string& what) {
  fmt::print(stderr, "append_judge: {}\n", what);
  return 2;
}

int Main(const std::string& directory, Keeps keeps) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.path().extension() == ".history") paths.push_back(entry.path().string());
  }
  if (error) return Refuse(fmt::format("{}: {}", directory, error.message()));
  if (paths.empty()) return Refuse(fmt::format("{}: no *.history; run the workload append first", directory));
  std::sort(paths.begin(), paths.end());
  std::vector<RecordedHistory> histories;
  for (const std::string& path : paths) {
    absl::StatusOr<RecordedHistory> history = ReadHistory(path);
    if (!history.ok()) return Refuse(std::string(history.status().message()));
    histories.push_back(*std::move(history));
  }
  const Judgement found = JudgeAppends(histories, keeps);
  const nlohmann::ordered_json out = {{"strictly_serializable", found.violations.empty()},
                                      {"files", paths.size()},
                                      {"torn_files", found.torn_files},
                                      {"attempts", found.attempts},
                                      {"committed", found.committed},
                                      {"distributed", found.distributed},
                                      {"aborted", found.aborted},
                                      {"unknown", found.unknown},
                                      {"open", found.open},
                                      {"cut", found.cut},
                                      {"deaths", found.deaths},
                                      {"looks", found.looks},
                                      {"transactions", found.transactions},
                                      {"edges", found.edges},
                                      {"violations", found.violations}};
  fmt::print("{}\n", out.dump(2));
  return found.violations.empty() ? 0 : 1;
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) {
  using islands::experiments::Keeps;
  const std::string_view option = argc == 3 ? argv[1] : "";
  const bool known = option == "--keeps" || option == "--keeps-answered";
  if (argc != 2 && !known) {
    fmt::print(stderr, "usage: append_judge [--keeps | --keeps-answered] DIRECTORY\n");
    return 2;
  }
  const Keeps answered = option == "--keeps" ? Keeps::kWhatWasSeen : Keeps::kWhatWasAnswered;
  return islands::experiments::Main(argv[argc - 1], known ? answered : Keeps::kNothing);
}
