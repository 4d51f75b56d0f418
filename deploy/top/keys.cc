#include "deploy/top/keys.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace islands::deploy {
namespace {

constexpr char kEscape = '\x1b';

void Scroll(std::ptrdiff_t by, size_t rows, size_t room, TopView* view) {
  const auto last = static_cast<std::ptrdiff_t>(rows > room ? rows - room : 0);
  const std::ptrdiff_t from = std::min(static_cast<std::ptrdiff_t>(view->first), last);
  view->first = static_cast<size_t>(std::clamp<std::ptrdiff_t>(from + by, 0, last));
}

}  // namespace

std::string TopKeyReader::Feed(std::string_view bytes) {
  std::string keys;
  for (char byte : bytes) FeedByte(byte, &keys);
  return keys;
}

// ESC, then [ or O, then parameters, then a letter or ~.
void TopKeyReader::FeedByte(char byte, std::string* keys) {
  if (byte == kEscape) {
    escape_ = byte;
  } else if (escape_.empty()) {
    *keys += byte;
  } else if (escape_.size() == 1 && byte != '[' && byte != 'O') {
    escape_.clear();  // Escape itself was typed, and then another key
    *keys += byte;
  } else if (escape_.size() == 1 || (byte >= '0' && byte <= '9') || byte == ';') {
    if (escape_.size() < 16) escape_ += byte;
  } else {
    if (byte == 'A') *keys += 'k';
    if (byte == 'B') *keys += 'j';
    if (byte == '~' && escape_.substr(2) == "5") *keys += kTopPageUp;
    if (byte == '~' && escape_.substr(2) == "6") *keys += kTopPageDown;
    escape_.clear();
  }
}

TopAction PressTopKey(char key, size_t rows, size_t room, TopView* view) {
  const auto page = static_cast<std::ptrdiff_t>(std::max<size_t>(room, 1));
  const bool helped = std::exchange(view->help, false);
  switch (key) {
    case 'q':
    case 'Q':
    case '\x04':  // Ctrl-D
      return TopAction::kQuit;
    case kTopSuspend:
      return TopAction::kSuspend;
    case kTopRedraw:
      return TopAction::kRedraw;
    default:
      break;
  }
  if (helped) return TopAction::kNone;
  switch (key) {
    case '?':
    case 'h':
      view->help = true;
      break;
    case 'p':
    case ' ':
      view->paused = !view->paused;
      break;
    case 'j':
      Scroll(1, rows, room, view);
      break;
    case 'k':
      Scroll(-1, rows, room, view);
      break;
    case kTopPageDown:
      Scroll(page, rows, room, view);
      break;
    case kTopPageUp:
      Scroll(-page, rows, room, view);
      break;
    default:
      for (const TopSortName& each : kTopSorts) {
        if (key != each.key) continue;
        view->reversed = view->sort == each.sort && !view->reversed;
        view->sort = each.sort;
        view->first = 0;
      }
  }
  return TopAction::kNone;
}

}  // namespace islands::deploy
