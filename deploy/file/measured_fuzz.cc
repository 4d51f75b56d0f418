// ParseMeasured takes any bytes: it answers with a measurement that keeps what measured.h promises, or
// with complaints.
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "deploy/file/measured.h"

namespace {

// Four CPUs, and a level for each byte, whose bits say which of two clusters a CPU is in.
std::string Levels(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    std::string clusters[2];
    for (int cpu = 0; cpu < 4; ++cpu) {
      std::string& cluster = clusters[(static_cast<uint8_t>(byte) >> cpu) & 1];
      cluster += (cluster.empty() ? "" : ",") + std::to_string(cpu);
    }
    text += (text.empty() ? "{\"cpus\": [\"" : ", {\"cpus\": [\"") + clusters[0] + "\", \"" + clusters[1] +
            "\"]}";
  }
  return R"({"version": 1, "hwloc_xml": "x", "cpus": [0, 1, 2, 3], "round_trip_ns":
      [[0, 4, 9, 9], [4, 0, 9, 8], [9, 9, 0, 5], [9, 8, 5, 0]], "clusters": [)" +
         text + "]}";
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using islands::deploy::Measured;
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  std::string few;  // onto what CPU lists are made of, so that some are right
  for (char c : bytes.substr(0, 4)) few += "05,-"[static_cast<uint8_t>(c) % 4];
  const std::string two = R"({"version": 1, "cpus": [0, 5], "round_trip_ns": [[0, 7], [7, 0]], )";
  // Random bytes hardly ever make a document: the others put them where a value stands.
  const std::string clusters = two + R"("hwloc_xml": "x", "clusters": [{"cpus": [)";
  for (const std::string& text :
       {bytes, Levels(bytes.substr(0, 4)), clusters + bytes + "]}]}", clusters + "\"" + few + "\", \"5\"]}]}",
        R"({"version": 1, "hwloc_xml": "x", "clusters": [], "cpus": [0, 5], "round_trip_ns": [[0, )" + bytes +
            "]]}"}) {
    const auto measured = islands::deploy::ParseMeasured(text, "fuzz.json");
    if (!measured.ok()) {
      if (measured.status().message().rfind("fuzz.json:", 0) != 0) std::abort();
      continue;
    }
    const size_t cores = measured->trips.cpus.size();
    if (cores == 0 || measured->trips.ns.size() != cores) std::abort();
    const islands::topology::ClusterLevel* before = nullptr;
    for (const auto& level : measured->levels) {
      if (level.clusters.size() < 2) std::abort();
      if (before != nullptr && !islands::topology::MayFollow(*before, level)) std::abort();
      before = &level;
      std::multiset<uint32_t> members;
      for (const auto& cluster : level.clusters) members.insert(cluster.begin(), cluster.end());
      if (members.size() != cores || *members.begin() != 0 || *members.rbegin() != cores - 1) std::abort();
    }
  }
  return 0;
}
