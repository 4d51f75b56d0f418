#include "instance/verify/report.h"

#include <fmt/format.h>

namespace islands::verify {
namespace {

bool IsOfTheData(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:  // files that belong to something else
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kUnknown:  // EIO: the disk cannot read it
      return true;
    default:
      return false;
  }
}

// The file within `path` that the text names, or `path`: our own names have none of these in them.
std::string NamedIn(const std::string& text, const std::string& path) {
  const size_t at = text.find(path);
  return at == std::string::npos ? path : text.substr(at, text.find_first_of(" :,;", at + path.size()) - at);
}

}  // namespace

absl::Status Report::Take(const absl::Status& status, const std::string& path) {
  if (status.ok() || !IsOfTheData(status.code())) return status;
  std::string text(status.message());
  if (text.find(path) == std::string::npos) text = fmt::format("{}: {}", path, text);
  // Many an error says already what to do.
  const bool advises = absl::IsFailedPrecondition(status) || text.find("restore") != std::string::npos;
  if (!advises) text += fmt::format("; {}", kRestore);
  std::string named = NamedIn(text, path);
  findings.push_back({std::move(named), std::move(text)});
  return absl::OkStatus();
}

}  // namespace islands::verify
