// What a workload can be told, described as data by the workload itself: its command line, its help, the
// checks of sweep files, what of it is kept with results and the workload's own reading all come from here.
//
// Thread safety: plain values and functions.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace islands::instance {

using Parameters = std::map<std::string, std::string>;

struct Parameter {
  enum class Kind { kWhole, kNumber, kPercent, kChoice, kPath };
  // Another parameter has this value.
  struct Case {
    std::string name;
    std::string value;
  };

  std::string name;  // a lower-case letter, then such letters, digits and '_'
  Kind kind = Kind::kNumber;
  std::string help;
  double min = 0;  // of whole numbers and numbers
  double max = 0;
  std::vector<std::string> choices;
  std::optional<std::string> preset;  // none: has to be given
  std::optional<Case> only_with;      // has to be given in this case (without preset), and in no other
  std::optional<Case> idle_with;      // has no effect in this case: nothing but its preset makes sense then
  bool loads = false;                 // shapes the initial rows: another value needs them loaded anew
  bool grows = false;                 // says how many rows runs leave behind: where nothing outlives the
                                      // islands another value loads anew too, so that series do not pile up
};

struct Description {
  std::vector<Parameter> parameters;
  std::vector<std::string> tables;  // that the workload loads
  std::string tables_yaml;          // lines for data.tables of a deployment that has them
  // Each of the tables holds one row for every key of its range at all times, so that rows can be counted.
  bool row_per_key = false;
  std::string rows_total_of;  // the table whose range --rows-total may replace; empty: none
};

// As people write it: update_percent -> --update-percent. All complaints use it.
std::string OptionOf(std::string_view name);
// "a whole number from 1 to 10000"
std::string Expected(const Parameter& parameter);
// `text` in the one spelling that equal values have. INVALID_ARGUMENT: "found 'x', expected ...".
absl::StatusOr<std::string> ReadValue(const Parameter& parameter, const std::string& text);
// Every parameter that is given or has a preset, in one spelling. INVALID_ARGUMENT names the parameter, what
// was found and what is expected.
absl::StatusOr<Parameters> ReadParameters(const std::vector<Parameter>& described, const Parameters& given);
// Of a map that ReadParameters made.
double NumberOf(const Parameters& read, const std::string& name);

// INVALID_ARGUMENT where a description contradicts itself: names, presets.
absl::Status CheckDescription(const Description& description);
// How `islandd --describe` tells it to those who cannot open the object: islands, sweeps.
std::string DescriptionToJson(const Description& description);
absl::StatusOr<Description> DescriptionFromJson(std::string_view json);

}  // namespace islands::instance
