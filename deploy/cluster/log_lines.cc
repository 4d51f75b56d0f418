#include "deploy/cluster/log_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr size_t kBlockBytes = 64 << 10;
constexpr size_t kMostLineBytes = 1 << 20;  // longer ones come in parts
constexpr std::string_view kTimeForm = "0000-00-00T00:00:00.000Z";
constexpr std::array<std::string_view, 6> kLevels = {"trace",   "debug", "info",
                                                     "warning", "error", "critical"};

bool BeginsWithTime(std::string_view line) {
  if (line.size() <= kTimeForm.size() || line[kTimeForm.size()] != ' ') return false;
  for (size_t i = 0; i < kTimeForm.size(); ++i) {
    if (kTimeForm[i] == '0' ? !absl::ascii_isdigit(line[i]) : line[i] != kTimeForm[i]) return false;
  }
  return true;
}

absl::Status CannotRead(const std::string& path) {
  return absl::ErrnoToStatus(errno, fmt::format("cannot read {}", path));
}

// Where the last `lines` lines of a file of so many bytes begin.
absl::StatusOr<uint64_t> BeginOfLast(int file, uint64_t bytes, uint64_t lines, const std::string& path) {
  if (lines == 0) return bytes;
  std::vector<char> block(kBlockBytes);
  uint64_t ends = 0;
  for (uint64_t end = bytes; end > 0;) {
    const uint64_t begin = end - std::min<uint64_t>(end, kBlockBytes);
    const ssize_t got = pread(file, block.data(), end - begin, static_cast<off_t>(begin));
    if (got < 0) return CannotRead(path);
    for (uint64_t at = begin + static_cast<uint64_t>(got); at > begin; --at) {
      // The file's last newline ends a line, and begins none.
      if (block[at - 1 - begin] == '\n' && at != bytes && ++ends == lines) return at;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

LogLine ParseLogLine(std::string_view source, std::string_view line) {
  LogLine parsed{.source = std::string(source), .time = {}, .level = {}, .text = std::string(line)};
  if (!BeginsWithTime(line)) return parsed;
  std::string_view rest = line.substr(kTimeForm.size() + 1);
  if (!rest.starts_with(source) || rest.substr(source.size(), 1) != " ") return parsed;
  rest.remove_prefix(source.size() + 1);
  const std::string_view level = rest.substr(0, rest.find(' '));
  if (std::find(kLevels.begin(), kLevels.end(), level) == kLevels.end()) return parsed;
  parsed.time = line.substr(0, kTimeForm.size());
  parsed.level = level;
  parsed.text = rest.substr(std::min(rest.size(), level.size() + 1));
  return parsed;
}

absl::Status LogFile::OpenIfThere() {
  if (file_) return absl::OkStatus();
  auto opened = runtime::OpenPrivateFile(path_, O_RDONLY);
  if (absl::IsNotFound(opened.status())) return absl::OkStatus();
  if (!opened.ok()) return opened.status();
  file_ = *std::move(opened);
  offset_ = 0;
  return absl::OkStatus();
}

absl::Status LogFile::SkipTo(uint64_t lines_before_end) {
  if (absl::Status opened = OpenIfThere(); !opened.ok() || !file_) return opened;
  struct stat info {};
  if (fstat(file_.get(), &info) != 0) return CannotRead(path_);
  const auto begin = BeginOfLast(file_.get(), static_cast<uint64_t>(info.st_size), lines_before_end, path_);
  if (begin.ok()) offset_ = *begin;
  return begin.status();
}

void LogFile::EndLine() {
  if (!rest_.empty() && rest_.back() == '\r') rest_.pop_back();
  lines_.push_back(ParseLogLine(source_, rest_));
  rest_.clear();
}

absl::Status LogFile::ReadSome(bool* more) {
  std::array<char, kBlockBytes> block;
  const ssize_t got = pread(file_.get(), block.data(), block.size(), static_cast<off_t>(offset_));
  if (got < 0) return CannotRead(path_);
  offset_ += static_cast<uint64_t>(got);
  for (const char c : std::string_view(block.data(), static_cast<size_t>(got))) {
    if (c != '\n') rest_ += c;
    if (c == '\n' || rest_.size() >= kMostLineBytes) EndLine();
  }
  *more = got > 0;
  return absl::OkStatus();
}

// At the file's end: whether there is something to read all the same, since it was truncated, or is another.
absl::Status LogFile::LookForAnother(bool* more) {
  struct stat ours {
  }, there{};
  if (fstat(file_.get(), &ours) != 0) return CannotRead(path_);
  const bool replaced =
      lstat(path_.c_str(), &there) == 0 && (there.st_ino != ours.st_ino || there.st_dev != ours.st_dev);
  if (!replaced && static_cast<uint64_t>(ours.st_size) >= offset_) return absl::OkStatus();
  if (!rest_.empty()) EndLine();
  offset_ = 0;
  if (replaced) file_.Reset();
  *more = true;
  return OpenIfThere();
}

absl::Status LogFile::Fill(bool last) {
  if (!lines_.empty()) return absl::OkStatus();
  absl::Status status = OpenIfThere();
  for (bool more = true; status.ok() && file_ && lines_.empty() && more;) {
    status = ReadSome(&more);
    if (status.ok() && !more) status = LookForAnother(&more);
  }
  if (status.ok() && last && lines_.empty() && !rest_.empty()) EndLine();
  return status;
}

LogLine LogFile::Take() {
  LogLine line = std::move(lines_.front());
  lines_.pop_front();
  if (!line.time.empty()) time_ = line.time;
  return line;
}

absl::Status Drain(std::vector<LogFile>& files, bool last, const std::function<void(LogLine)>& show) {
  const auto earlier = [](const LogFile& a, const LogFile& b) {
    return !a.empty() && (b.empty() || a.time() < b.time());
  };
  for (;;) {
    for (LogFile& file : files) {
      if (absl::Status filled = file.Fill(last); !filled.ok()) return filled;
    }
    const auto next = std::min_element(files.begin(), files.end(), earlier);
    if (next == files.end() || next->empty()) return absl::OkStatus();
    // With what belongs to it, which others' lines of the same time must not come between.
    do {
      show(next->Take());
      if (absl::Status filled = next->Fill(last); !filled.ok()) return filled;
    } while (next->continues());
  }
}

}  // namespace islands::deploy
