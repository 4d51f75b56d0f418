#include "deploy/top/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace islands::deploy {

std::string Percent(double fraction) { return fmt::format("{:.0f}%", std::min(fraction, 99.99) * 100); }

size_t CharactersIn(std::string_view text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; }));
}

std::string Cut(std::string_view text, size_t most) {
  size_t end = 0;
  for (size_t characters = 0; end < text.size(); ++end) {
    if ((static_cast<unsigned char>(text[end]) & 0xC0) != 0x80 && ++characters > most) break;
  }
  return std::string(text.substr(0, end));
}

std::string ShortNumber(double value) {
  if (value <= 0) return "0";
  if (value < 9.95) return fmt::format("{:.1f}", std::max(value, 0.1));
  if (value < 999.5) return fmt::format("{:.0f}", value);
  for (const char* unit : {"k", "M", "G"}) {
    value /= 1000;
    const int digits = value < 9.995 ? 2 : value < 99.95 ? 1 : 0;
    if (value < 999.5) return fmt::format("{:.{}f}{}", value, digits, unit);
  }
  return ">999G";
}

std::string ShortTime(double us) {
  for (const char* unit : {"us", "ms"}) {
    const int digits = unit[0] == 'u' || us >= 99.95 ? 0 : us >= 9.995 ? 1 : 2;
    if (us < 999.5) return fmt::format("{:.{}f}{}", us, digits, unit);
    us /= 1000;
  }
  return us < 9'999.5 ? fmt::format("{:.{}f}s", us, us >= 99.95 ? 0 : us >= 9.995 ? 1 : 2) : ">9999s";
}

std::string Spark(const std::vector<TopPoint>& history, double TopPoint::*value, double most, size_t width,
                  bool utf8) {
  constexpr std::array<const char*, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr std::array<const char*, 8> kLetters = {"_", ".", ":", "-", "=", "+", "*", "#"};
  const size_t shown = std::min(width, history.size());
  std::string text(width - shown, ' ');
  for (size_t i = history.size() - shown; i < history.size(); ++i) {
    const double part = most > 0 ? std::clamp(history[i].*value / most, 0.0, 1.0) : 0;
    const size_t level = std::min<size_t>(static_cast<size_t>(part * 8), 7);
    text += !history[i].known ? "x" : utf8 ? kBlocks[level] : kLetters[level];
  }
  return text;
}

std::string PadRight(std::string_view text, size_t width) {
  const std::string cut = Cut(text, width);
  return cut + std::string(width - CharactersIn(cut), ' ');
}

std::string PadLeft(std::string_view text, size_t width) {
  const std::string cut = Cut(text, width);
  return std::string(width - CharactersIn(cut), ' ') + cut;
}

}  // namespace islands::deploy
