#include "deploy/run/workload_options.h"

#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

namespace islands::deploy {
namespace {

using instance::Parameter;

const char* TypeName(Parameter::Kind kind) {
  switch (kind) {
    case Parameter::Kind::kWhole:
      return "N";
    case Parameter::Kind::kNumber:
      return "X";
    case Parameter::Kind::kPercent:
      return "PERCENT";
    case Parameter::Kind::kChoice:
      return "WORD";
    case Parameter::Kind::kPath:
      return "PATH";
  }
  return "";
}

std::string Help(const Parameter& parameter) {
  std::string help = fmt::format("{}; {}", parameter.help, instance::Expected(parameter));
  if (parameter.only_with) {
    const Parameter::Case& needed = *parameter.only_with;
    return help + fmt::format("; with {} {} only", instance::OptionOf(needed.name), needed.value);
  }
  if (parameter.idle_with) {
    const Parameter::Case& other = *parameter.idle_with;
    help += fmt::format("; no effect with {} {}", instance::OptionOf(other.name), other.value);
  }
  if (parameter.loads) help += "; shapes the rows: another value loads them anew";
  if (parameter.grows) help += "; without a log another value loads anew";
  return parameter.preset ? help : help + "; has to be given";
}

bool Taken(const CLI::App& command, const std::string& option) {
  return command.get_option_no_throw(option) != nullptr ||
         command.get_parent()->get_option_no_throw(option) != nullptr;
}

// Options that no value follows.
bool IsFlag(const std::string& argument) {
  return argument == "--help" || argument == "-h" || argument == kReloadFlag || argument == kEvenFlag ||
         argument == kNoDoctorFlag;
}

}  // namespace

std::vector<std::string> WordsOf(const std::vector<std::string>& arguments) {
  std::vector<std::string> words;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      words.insert(words.end(), arguments.begin() + static_cast<ptrdiff_t>(i) + 1, arguments.end());
      break;
    }
    if (!argument.starts_with('-')) {
      words.push_back(argument);
    } else if (!IsFlag(argument) && argument.find('=') == std::string::npos) {
      ++i;
    }
  }
  return words;
}

absl::Status AddWorkloadOptions(const DescribedWorkload& workload, CLI::App* command, RunOptions* options) {
  const std::string group = fmt::format("Parameters of {}", workload.name);
  for (const Parameter& parameter : workload.description.parameters) {
    const std::string name = instance::OptionOf(parameter.name);
    if (Taken(*command, name)) {
      return absl::InvalidArgumentError(fmt::format(
          "workload '{}' has a parameter '{}', but {} is an option of every run; give it another name",
          workload.name, parameter.name, name));
    }
    CLI::Option* option = command->add_option_function<std::string>(
        name, [options, parameter](const std::string& text) { options->parameters[parameter.name] = text; },
        Help(parameter));
    option->group(group)->type_name(TypeName(parameter.kind));
    if (parameter.preset) option->default_str(*parameter.preset);
  }
  if (workload.description.rows_total_of.empty()) return absl::OkStatus();
  command
      ->add_option(
          "--rows-total", options->rows_total,
          fmt::format("Rows of table {}; the deployment file's range if not given; another value loads "
                      "them anew",
                      workload.description.rows_total_of))
      ->group(group)
      ->type_name("N");
  return absl::OkStatus();
}

}  // namespace islands::deploy
