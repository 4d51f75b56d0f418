// A line on stderr that is rewritten while somebody watches a long work: on a terminal only.
//
// Thread safety: none.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <string_view>

namespace islands::deploy {

class TerminalLine {
 public:
  // In the end it goes, or stays for what it says.
  enum class End { kGoes, kStays };
  explicit TerminalLine(End end) : end_(end) {}
  ~TerminalLine() {
    if (open_) fmt::print(stderr, "{}", end_ == End::kGoes ? "\r\x1b[K" : "\n");
  }
  TerminalLine(const TerminalLine&) = delete;
  TerminalLine& operator=(const TerminalLine&) = delete;

  bool there() const { return there_; }
  // No more of it than fits.
  void Show(std::string_view text) {
    if (!there_) return;
    constexpr int kMostColumns = 110;
    fmt::print(stderr, "\r{:.{}}\x1b[K", text, kMostColumns);
    std::fflush(stderr);
    open_ = true;
  }

 private:
  const End end_;
  const bool there_ = isatty(STDERR_FILENO) == 1;
  bool open_ = false;
};

}  // namespace islands::deploy
