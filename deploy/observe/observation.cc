#include "deploy/observe/observation.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

namespace islands::deploy {

nlohmann::ordered_json ObservationJson(const control::v1::Observation& observation) {
  using json = nlohmann::ordered_json;
  json document = {{"prometheus_url", json()},
                   {"prometheus_pid", json()},
                   {"targets", observation.targets()},
                   {"notes", json::array()}};
  if (!observation.prometheus_url().empty()) {
    document["prometheus_url"] = observation.prometheus_url();
    document["prometheus_pid"] = observation.prometheus_pid();
  }
  for (const std::string& note : observation.notes()) document["notes"].push_back(note);
  return document;
}

std::string ObservationText(const control::v1::Observation& observation) {
  std::string text;
  if (!observation.prometheus_url().empty()) {
    text += fmt::format("observe: Prometheus: {} (process {})\n", observation.prometheus_url(),
                        observation.prometheus_pid());
  }
  for (const std::string& note : observation.notes()) text += fmt::format("observe: {}\n", note);
  if (text.empty() && !observation.targets().empty())
    text = fmt::format("observe: targets for Prometheus are in {}\n", observation.targets());
  return text;
}

}  // namespace islands::deploy
