#include "instance/workload/parameters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "runtime/check.h"

namespace islands::instance {
namespace {

using Kind = Parameter::Kind;

absl::Status Bad(const std::string& name, std::string_view what) {
  return absl::InvalidArgumentError(fmt::format("{}: {}", OptionOf(name), what));
}

const Parameter* Find(const std::vector<Parameter>& described, std::string_view name) {
  for (const Parameter& parameter : described) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

std::string Unknown(const std::vector<Parameter>& described) {
  std::vector<std::string> names;
  for (const Parameter& parameter : described) names.push_back(OptionOf(parameter.name));
  return fmt::format("found an unknown parameter, expected {}",
                     names.empty() ? "none" : fmt::format("one of {}", fmt::join(names, ", ")));
}

bool Holds(const Parameter::Case& wanted, const Parameters& values) {
  const auto found = values.find(wanted.name);
  return found != values.end() && found->second == wanted.value;
}

absl::Status CheckGiven(const Parameter& parameter, const Parameters& values) {
  const bool given = values.contains(parameter.name);
  const bool applies = !parameter.only_with || Holds(*parameter.only_with, values);
  if (given == applies) return absl::OkStatus();
  const std::string when =
      parameter.only_with
          ? fmt::format(" with {} {}", OptionOf(parameter.only_with->name), parameter.only_with->value)
          : "";
  if (applies)
    return Bad(parameter.name, fmt::format("found none, expected {}{}", Expected(parameter), when));
  return Bad(parameter.name, fmt::format("found '{}', expected it only{}", values.at(parameter.name), when));
}

absl::Status CheckHasEffect(const Parameter& parameter, const Parameters& values) {
  if (!parameter.idle_with || !Holds(*parameter.idle_with, values)) return absl::OkStatus();
  const std::string& value = values.at(parameter.name);
  if (value == *parameter.preset) return absl::OkStatus();
  const std::string other = OptionOf(parameter.idle_with->name);
  return Bad(parameter.name,
             fmt::format("found '{}', which has no effect with {} {}; expected {}, or another {}", value,
                         other, parameter.idle_with->value, *parameter.preset, other));
}

// Of a case that a description names: "" if there can be one, else what is wrong.
std::string WrongCase(const std::vector<Parameter>& described, const Parameter& parameter,
                      const Parameter::Case& needed, std::string_view field) {
  const Parameter* named = Find(described, needed.name);
  if (named == nullptr || named == &parameter)
    return fmt::format("found {} '{}', expected another parameter", field, needed.name);
  const absl::StatusOr<std::string> value = ReadValue(*named, needed.value);
  if (!value.ok() || *value != needed.value)
    return fmt::format("found {} '{}', expected a value as it is kept", field, needed.value);
  return "";
}

// What `islands run`, `advise` and sweep files mean by these words themselves.
constexpr std::array kReserved = {"cores",     "cut",      "duration",   "file",    "format",  "help",
                                  "latching",  "layout",   "layouts",    "mpl",     "observe", "placement",
                                  "repeat",    "results",  "rows_total", "seconds", "seed",    "sites",
                                  "transport", "validate", "version",    "warmup",  "workers", "workload"};

bool WellNamed(std::string_view name) {
  return !name.empty() && absl::ascii_islower(name[0]) && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_islower(c) || absl::ascii_isdigit(c) || c == '_';
  });
}

}  // namespace

std::string OptionOf(std::string_view name) {
  std::string option = fmt::format("--{}", name);
  std::replace(option.begin(), option.end(), '_', '-');
  return option;
}

std::string Expected(const Parameter& parameter) {
  switch (parameter.kind) {
    case Kind::kWhole:
      return fmt::format("a whole number from {} to {}", parameter.min, parameter.max);
    case Kind::kNumber:
      return fmt::format("a number from {} to {}", parameter.min, parameter.max);
    case Kind::kPercent:
      return "a percentage from 0 to 100";
    case Kind::kChoice:
      return fmt::format("{}", fmt::join(parameter.choices, " | "));
    case Kind::kPath:
      return "an absolute path";
  }
  ISLANDS_CHECK(false && "a kind that there is not");
}

absl::StatusOr<std::string> ReadValue(const Parameter& parameter, const std::string& text) {
  const bool percent = parameter.kind == Kind::kPercent;
  // NaN fails every comparison, so it is asked for in the positive.
  const auto within = [&](double value) {
    return value >= (percent ? 0 : parameter.min) && value <= (percent ? 100 : parameter.max);
  };
  int64_t whole = 0;
  double number = 0;
  switch (parameter.kind) {
    case Kind::kWhole:
      if (absl::SimpleAtoi(text, &whole) && within(static_cast<double>(whole)))
        return fmt::format("{}", whole);
      break;
    case Kind::kNumber:
    case Kind::kPercent:
      if (absl::SimpleAtod(text, &number) && within(number))
        return fmt::format("{}", number + 0.0);  // no "-0"
      break;
    case Kind::kChoice:
      if (std::count(parameter.choices.begin(), parameter.choices.end(), text) > 0) return text;
      break;
    case Kind::kPath:
      if (text.starts_with('/')) return text;
      break;
  }
  return absl::InvalidArgumentError(fmt::format("found '{}', expected {}", text, Expected(parameter)));
}

absl::StatusOr<Parameters> ReadParameters(const std::vector<Parameter>& described, const Parameters& given) {
  Parameters read;
  for (const auto& [name, text] : given) {
    const Parameter* parameter = Find(described, name);
    if (parameter == nullptr) return Bad(name, Unknown(described));
    absl::StatusOr<std::string> value = ReadValue(*parameter, text);
    if (!value.ok()) return Bad(name, std::string(value.status().message()));
    read[name] = *std::move(value);
  }
  for (const Parameter& parameter : described) {
    if (parameter.preset) read.emplace(parameter.name, *parameter.preset);
  }
  for (const Parameter& parameter : described) {
    if (absl::Status status = CheckGiven(parameter, read); !status.ok()) return status;
    if (absl::Status status = CheckHasEffect(parameter, read); !status.ok()) return status;
  }
  return read;
}

double NumberOf(const Parameters& read, const std::string& name) {
  const auto found = read.find(name);
  double number = 0;
  ISLANDS_CHECK(found != read.end() && absl::SimpleAtod(found->second, &number));
  return number;
}

absl::Status CheckDescription(const Description& description) {
  for (const Parameter& parameter : description.parameters) {
    const auto bad = [&parameter](std::string_view what) {
      return absl::InvalidArgumentError(
          fmt::format("the description of parameter '{}': {}", parameter.name, what));
    };
    if (!WellNamed(parameter.name)) return bad("found its name, expected lower-case letters, digits and '_'");
    if (Find(description.parameters, parameter.name) != &parameter) return bad("found twice, expected once");
    if (std::count(kReserved.begin(), kReserved.end(), parameter.name) > 0)
      return bad("found a name that every run has a meaning for, expected another");
    if (parameter.min > parameter.max || (parameter.kind == Kind::kChoice && parameter.choices.empty()))
      return bad("found no value that it could have");
    if (parameter.only_with && parameter.preset)
      return bad("found only_with and a preset, expected one of them");
    if (parameter.idle_with && !parameter.preset) return bad("found idle_with, expected a preset as well");
    for (const auto& [needed, field] :
         {std::pair(parameter.only_with, "only_with"), std::pair(parameter.idle_with, "idle_with")}) {
      if (!needed) continue;
      const std::string wrong = WrongCase(description.parameters, parameter, *needed, field);
      if (!wrong.empty()) return bad(wrong);
    }
    if (!parameter.preset) continue;
    const absl::StatusOr<std::string> preset = ReadValue(parameter, *parameter.preset);
    if (!preset.ok()) return bad(fmt::format("of its preset, {}", std::string(preset.status().message())));
    // Presets are used as they are, and have to be equal to the same value given.
    if (*preset != *parameter.preset)
      return bad(fmt::format("found preset '{}', expected it as '{}'", *parameter.preset, *preset));
  }
  const std::vector<std::string>& tables = description.tables;
  if (description.rows_total_of.empty() ||
      std::count(tables.begin(), tables.end(), description.rows_total_of) == 1) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(fmt::format(
      "the description: found rows_total_of '{}', expected one of its tables", description.rows_total_of));
}

}  // namespace islands::instance
