// Numbers, times and histories as `islands top` writes them: short, and of a known width.
//
// Thread safety: pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/top/sample.h"

namespace islands::deploy {

// At most six characters: 0, 0.4, 999, 12.3k, 123k, 1.23M.
std::string ShortNumber(double value);
// Likewise: 85us, 1.23ms, 12.3s.
std::string ShortTime(double us);
// Of a fraction: 12%.
std::string Percent(double fraction);

// A character per value, from nothing to `most` in eight levels: blocks, or letters where there are none.
// The newest `width` points, to the right; 'x' where nothing is known.
std::string Spark(const std::vector<TopPoint>& history, double TopPoint::*value, double most, size_t width,
                  bool utf8);

// Characters of UTF-8 text; its first `most` ones; exactly `width` of them, with blanks where it is shorter.
size_t CharactersIn(std::string_view text);
std::string Cut(std::string_view text, size_t most);
std::string PadRight(std::string_view text, size_t width);
std::string PadLeft(std::string_view text, size_t width);

}  // namespace islands::deploy
