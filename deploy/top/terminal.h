// The terminal that `islands top` draws on: a screen of its own, keys without Enter, and everything as it was
// when it goes.
//
// Only lines that differ from what is there are sent, each where it belongs: a refresh of a quiet cluster is
// a few dozen bytes, which matters over ssh, and nothing flickers.
//
// A terminal that takes nothing (Ctrl-S, a connection that hangs) holds nobody up: it is written to without
// waiting, and what it missed is drawn anew.
//
// Thread safety: main thread only.
#pragma once

#include <termios.h>
#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/top/screen.h"

namespace islands::deploy {

// Whether stdout is a terminal on which a cursor can be moved.
bool OnTerminal();
// Whether the user's locale, and so presumably the terminal, is UTF-8.
bool Utf8Terminal();

// What turns a screen that shows `before` into one that shows `after`; empty if nothing has changed.
std::string ScreenUpdate(const std::vector<TopLine>& before, const std::vector<TopLine>& after,
                         size_t columns, bool colour);

class TopTerminal {
 public:
  TopTerminal();
  ~TopTerminal();
  TopTerminal(const TopTerminal&) = delete;
  TopTerminal& operator=(const TopTerminal&) = delete;

  // Sets lines and columns as they are now; 24 x 80 where the terminal does not say.
  static void Measure(TopScreen* screen);
  // Shows these lines. False: the terminal is gone.
  bool Draw(const std::vector<TopLine>& lines, const TopScreen& screen);
  // Clears the screen at the next Draw: after something else wrote on it.
  void Forget() { columns_ = 0; }
  // What was typed; nothing if nobody can type any more.
  std::optional<std::string> Read() const;
  // To wait for what is typed; -1: stdin is not a terminal.
  int input() const { return changed_ ? STDIN_FILENO : -1; }
  // Ctrl-Z: gives the terminal back to the shell until it continues us.
  void Suspend();

 private:
  void Enter();
  void Leave();
  enum class Sent { kAll, kNotAll, kGone };
  // Waits `patience_ms` at most.
  Sent Send(std::string_view bytes, int patience_ms) const;

  int output_ = STDOUT_FILENO;  // or our own description of that terminal, which does not block
  termios before_{};
  bool changed_ = false;
  bool colour_ = true;
  std::vector<TopLine> shown_;
  size_t columns_ = 0;  // of the screen that shows them; 0: nobody knows what it shows
  size_t lines_ = 0;
};

}  // namespace islands::deploy
