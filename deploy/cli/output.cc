#include "deploy/cli/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <cassert>
#include <cstdio>
#include <nlohmann/json.hpp>

namespace islands::deploy {
namespace {

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> distance(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = i;
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t change = a[i - 1] == b[j - 1] ? 0 : 1;
      distance[i][j] =
          std::min({distance[i - 1][j] + 1, distance[i][j - 1] + 1, distance[i - 1][j - 1] + change});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) distance[i][j] = std::min(distance[i][j], distance[i - 2][j - 2] + 1);
    }
  }
  return distance[a.size()][b.size()];
}

// Columns a terminal needs: UTF-8 continuation bytes take none.
size_t Width(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

}  // namespace

void TextTable::AddColumn(std::string title, Align align) {
  titles_.push_back(std::move(title));
  aligns_.push_back(align);
}

void TextTable::AddRow(std::vector<std::string> cells) {
  assert(cells.size() == titles_.size());
  rows_.push_back(std::move(cells));
}

std::string TextTable::Render() const {
  std::vector<size_t> widths;
  for (size_t column = 0; column < titles_.size(); ++column) {
    size_t width = Width(titles_[column]);
    for (const auto& row : rows_) width = std::max(width, Width(row[column]));
    widths.push_back(width);
  }
  std::string text;
  const auto append = [&](const std::vector<std::string>& cells) {
    std::string line;
    for (size_t column = 0; column < cells.size(); ++column) {
      if (column > 0) line += "  ";
      const std::string padding(widths[column] - Width(cells[column]), ' ');
      line += aligns_[column] == Align::kRight ? padding + cells[column] : cells[column] + padding;
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  };
  append(titles_);
  for (const auto& row : rows_) append(row);
  return text;
}

void PrintJson(const nlohmann::ordered_json& document) {
  const std::string text = document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  std::fprintf(stdout, "%s\n", text.c_str());
  std::fflush(stdout);
}

std::string OneLine(std::string text) {
  std::replace(text.begin(), text.end(), '\t', ' ');
  std::replace_if(
      text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; }, '?');
  return text;
}

nlohmann::ordered_json ErrorJson(std::string_view message, int exit_code) {
  return {{"error", {{"message", message}, {"exit_code", exit_code}}}};
}

std::optional<std::string> Nearest(std::string_view word, const std::vector<std::string>& candidates) {
  constexpr size_t kLongestWord = 64;  // longer ones are no slips, and the distance costs their product
  if (word.size() > kLongestWord) return std::nullopt;
  std::optional<std::string> nearest;
  size_t best = 3;
  for (const std::string& candidate : candidates) {
    const size_t distance = EditDistance(word, candidate);
    if (distance >= best || 2 * distance >= std::max<size_t>(word.size(), 3)) continue;
    best = distance;
    nearest = candidate;
  }
  return nearest;
}

}  // namespace islands::deploy
