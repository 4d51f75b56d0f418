// Descriptions of workloads as JSON, both ways.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "instance/workload/parameters.h"
#include "runtime/check.h"

namespace islands::instance {
namespace {

using Json = nlohmann::ordered_json;
using Kind = Parameter::Kind;

constexpr std::array<std::pair<Kind, const char*>, 5> kKinds = {{{Kind::kWhole, "whole"},
                                                                 {Kind::kNumber, "number"},
                                                                 {Kind::kPercent, "percent"},
                                                                 {Kind::kChoice, "choice"},
                                                                 {Kind::kPath, "path"}}};

Json CaseToJson(const Parameter::Case& of) { return {{"name", of.name}, {"value", of.value}}; }

std::optional<Parameter::Case> CaseFrom(const Json& json, const char* field) {
  if (!json.contains(field)) return std::nullopt;
  return Parameter::Case{.name = json[field].at("name"), .value = json[field].at("value")};
}

Json ToJson(const Parameter& parameter) {
  const auto* kind = std::find_if(kKinds.begin(), kKinds.end(),
                                  [&](const auto& entry) { return entry.first == parameter.kind; });
  ISLANDS_CHECK(kind != kKinds.end());
  Json json = {{"name", parameter.name}, {"kind", kind->second},     {"expected", Expected(parameter)},
               {"help", parameter.help}, {"loads", parameter.loads}, {"grows", parameter.grows}};
  if (parameter.kind == Kind::kWhole || parameter.kind == Kind::kNumber) {
    json.update({{"min", parameter.min}, {"max", parameter.max}});
  }
  if (parameter.kind == Kind::kChoice) json["choices"] = parameter.choices;
  if (parameter.preset) json["preset"] = *parameter.preset;
  if (parameter.only_with) json["only_with"] = CaseToJson(*parameter.only_with);
  if (parameter.idle_with) json["idle_with"] = CaseToJson(*parameter.idle_with);
  return json;
}

Parameter ParameterFrom(const Json& json) {
  Parameter parameter{
      .name = json.at("name"), .help = json.at("help"), .loads = json.at("loads"), .grows = json.at("grows")};
  const std::string word = json.at("kind");
  const auto* kind =
      std::find_if(kKinds.begin(), kKinds.end(), [&](const auto& entry) { return entry.second == word; });
  if (kind == kKinds.end()) throw std::invalid_argument(fmt::format("found kind '{}'", word));
  parameter.kind = kind->first;
  parameter.min = json.value("min", 0.0);
  parameter.max = json.value("max", 0.0);
  if (json.contains("choices")) json["choices"].get_to(parameter.choices);
  if (json.contains("preset")) parameter.preset = json["preset"].get<std::string>();
  parameter.only_with = CaseFrom(json, "only_with");
  parameter.idle_with = CaseFrom(json, "idle_with");
  return parameter;
}

}  // namespace

std::string DescriptionToJson(const Description& description) {
  Json json = {{"tables", description.tables},
               {"tables_yaml", description.tables_yaml},
               {"row_per_key", description.row_per_key},
               {"rows_total_of", description.rows_total_of},
               {"parameters", Json::array()}};
  for (const Parameter& parameter : description.parameters) json["parameters"].push_back(ToJson(parameter));
  return json.dump(1, ' ', false, Json::error_handler_t::replace);
}

absl::StatusOr<Description> DescriptionFromJson(std::string_view text) {
  try {
    const Json json = Json::parse(text);
    Description description{.tables = json.at("tables"),
                            .tables_yaml = json.at("tables_yaml"),
                            .row_per_key = json.at("row_per_key"),
                            .rows_total_of = json.at("rows_total_of")};
    for (const Json& parameter : json.at("parameters"))
      description.parameters.push_back(ParameterFrom(parameter));
    if (absl::Status status = CheckDescription(description); !status.ok()) return status;
    return description;
  } catch (const std::exception& error) {  // of the parser, or of a value of another type
    return absl::InvalidArgumentError(fmt::format("found no description of a workload ({})", error.what()));
  }
}

}  // namespace islands::instance
