// How commands write: aligned tables, JSON.
//
// Thread safety: plain values and functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json_fwd.hpp"

namespace islands::deploy {

// Lines up columns with two spaces between them. Numbers look best on the right.
class TextTable {
 public:
  enum class Align { kLeft, kRight };
  void AddColumn(std::string title, Align align = Align::kLeft);
  // One cell per column.
  void AddRow(std::vector<std::string> cells);
  // With a title line; every line ends with a newline and has no trailing blanks.
  std::string Render() const;

 private:
  std::vector<std::string> titles_;
  std::vector<Align> aligns_;
  std::vector<std::vector<std::string>> rows_;
};

// One JSON document on stdout. Bytes that are not UTF-8 are replaced.
void PrintJson(const nlohmann::ordered_json& document);
// {"error": {"message": "...", "exit_code": 2}}
nlohmann::ordered_json ErrorJson(std::string_view message, int exit_code);

// Whoever wrote it, it stays on its line, and tells the terminal nothing: control characters become '?', tabs
// spaces.
std::string OneLine(std::string text);

// The candidate nearest to `word`, if near enough to be a slip of the fingers (Damerau-Levenshtein distance
// <= 2 and less than half of it).
std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace islands::deploy
