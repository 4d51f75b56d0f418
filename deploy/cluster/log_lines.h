// The log files of a deployment as lines, those of several files in order of time.
//
// Files are read on where reading ended: what is appended comes next; one that was truncated is read from its
// beginning, one that another has taken the place of (rotation) to its end and then the new one from its.
// Processes that start again append. Only private files are read (runtime/private_files.h).
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "runtime/descriptor.h"

namespace islands::deploy {

struct LogLine {
  std::string source;  // "supervisor", "logger", "gateway", "island 3"
  std::string time;    // "2026-01-31T12:00:00.000Z"; empty: the line has none, and belongs to the one before
  std::string level;   // as spdlog names it; empty likewise
  std::string text;    // without what is above
};

// A line of the log of `source`, without its newline.
LogLine ParseLogLine(std::string_view source, std::string_view line);

// One file; it need not be there.
class LogFile {
 public:
  LogFile(std::string source, std::string path) : source_(std::move(source)), path_(std::move(path)) {}

  const std::string& source() const { return source_; }
  // Reading begins so many lines before its end, not at its beginning. Once, before all else.
  absl::Status SkipTo(uint64_t lines_before_end);
  // Reads on until a line is there or nothing more is in it now. `last`: what lacks a newline is a line, too.
  absl::Status Fill(bool last);
  bool empty() const { return lines_.empty(); }
  // Of the next line, or, if it has none, of the one before it.
  const std::string& time() const { return lines_.front().time.empty() ? time_ : lines_.front().time; }
  bool continues() const { return !lines_.empty() && lines_.front().time.empty(); }
  LogLine Take();

 private:
  absl::Status OpenIfThere();
  void EndLine();
  absl::Status ReadSome(bool* more);
  absl::Status LookForAnother(bool* more);

  const std::string source_;
  const std::string path_;
  runtime::UniqueFd file_;
  uint64_t offset_ = 0;  // in the file
  std::string rest_;     // of a line whose end has not been read
  std::string time_;     // of the last line taken that has one
  std::deque<LogLine> lines_;
};

// Hands all lines that are there now to `show`. Lines of one file keep their order, whatever their times say.
absl::Status Drain(std::vector<LogFile>& files, bool last, const std::function<void(LogLine)>& show);

}  // namespace islands::deploy
