// What is typed at `islands top`, and what it does to the view.
//
// Thread safety: none needed; plain values.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "deploy/top/screen.h"

namespace islands::deploy {

inline constexpr char kTopPageUp = '\x02';  // Ctrl-B and Ctrl-F, as in `less`
inline constexpr char kTopPageDown = '\x06';
inline constexpr char kTopRedraw = '\x0c';   // Ctrl-L
inline constexpr char kTopSuspend = '\x1a';  // Ctrl-Z

// Makes single characters of what a terminal sends, which may cut a key's bytes in two: an arrow is k or j,
// PgUp and PgDn are Ctrl-B and Ctrl-F. Keys that mean nothing here are left out.
class TopKeyReader {
 public:
  std::string Feed(std::string_view bytes);

 private:
  void FeedByte(char byte, std::string* keys);

  std::string escape_;  // bytes of a key that is not complete
};

enum class TopAction { kNone, kQuit, kRedraw, kSuspend };
// `rows` islands, of which `room` fit the screen. Any key leaves the help.
TopAction PressTopKey(char key, size_t rows, size_t room, TopView* view);

}  // namespace islands::deploy
