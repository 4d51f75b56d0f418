#include "deploy/top/terminal.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <langinfo.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "deploy/top/text.h"

namespace islands::deploy {
namespace {

constexpr const char* kOwnScreen = "\x1b[?1049h\x1b[?25l";
constexpr int kPatienceMs = 100;  // for a terminal that is merely slow
constexpr const char* kFormerScreen = "\x1b[0m\x1b[?25h\x1b[?1049l";

const char* CodeOf(TopStyle style, bool colour) {
  switch (style) {
    case TopStyle::kTitle:
      return "\x1b[1m";
    case TopStyle::kHeader:
      return "\x1b[7m";
    case TopStyle::kTrouble:
      return colour ? "\x1b[1;31m" : "\x1b[1m";
    default:
      return "";
  }
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

bool OnTerminal() {
  return isatty(STDOUT_FILENO) == 1 && Variable("TERM") != "dumb" && !Variable("TERM").empty();
}

bool Utf8Terminal() {
  if (Variable("TERM") == "dumb") return false;
  const locale_t users = newlocale(LC_CTYPE_MASK, "", nullptr);
  if (users == nullptr) return false;
  const std::string_view codes = nl_langinfo_l(CODESET, users);
  const bool utf8 = codes == "UTF-8";
  freelocale(users);
  return utf8;
}

std::string ScreenUpdate(const std::vector<TopLine>& before, const std::vector<TopLine>& after,
                         size_t columns, bool colour) {
  std::string bytes;
  const size_t lines = std::max(before.size(), after.size());
  for (size_t i = 0; i < lines; ++i) {
    const TopLine& had = i < before.size() ? before[i] : TopLine{};
    const TopLine& has = i < after.size() ? after[i] : TopLine{};
    if (had == has) continue;
    const std::string code = CodeOf(has.style, colour);
    bytes += fmt::format("\x1b[{};1H{}{}{}", i + 1, code, has.text, code.empty() ? "" : "\x1b[0m");
    // In the last column the cursor still stands on the last character, which would be erased.
    if (CharactersIn(has.text) < columns) bytes += "\x1b[K";
  }
  return bytes;
}

// The terminal is opened once more: not to block is a property of the description, and that of stdout belongs
// to the shell, too. Where that is not allowed (a terminal of another user) writing may block.
TopTerminal::TopTerminal() : colour_(Variable("NO_COLOR").empty()) {
  const int own = open("/proc/self/fd/1", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
  if (own >= 0) output_ = own;
  Enter();
}

TopTerminal::~TopTerminal() {
  Leave();
  if (output_ != STDOUT_FILENO) close(output_);
}

TopTerminal::Sent TopTerminal::Send(std::string_view bytes, int patience_ms) const {
  while (!bytes.empty()) {
    const ssize_t written = write(output_, bytes.data(), bytes.size());
    if (written > 0) {
      bytes.remove_prefix(static_cast<size_t>(written));
    } else if (written < 0 && errno == EAGAIN) {
      pollfd wait{output_, POLLOUT, 0};
      if (poll(&wait, 1, patience_ms) == 0) return Sent::kNotAll;
    } else if (written < 0 && errno != EINTR) {
      return Sent::kGone;
    }
  }
  return Sent::kAll;
}

void TopTerminal::Enter() {
  changed_ = tcgetattr(STDIN_FILENO, &before_) == 0;
  if (changed_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    // These would end or stop us and leave the terminal as it is; Ctrl-Z arrives as a key instead.
    raw.c_cc[VQUIT] = raw.c_cc[VSUSP] = _POSIX_VDISABLE;
    changed_ = tcsetattr(STDIN_FILENO, TCSANOW, &raw) == 0;
  }
  Send(kOwnScreen, kPatienceMs);
  Forget();
}

void TopTerminal::Leave() {
  Send(kFormerScreen, kPatienceMs);
  if (changed_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
}

void TopTerminal::Suspend() {
  Leave();
  raise(SIGTSTP);
  Enter();
}

void TopTerminal::Measure(TopScreen* screen) {
  winsize size{};
  const bool known = ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0;
  screen->lines = known ? size.ws_row : 24;
  screen->columns = known ? size.ws_col : 80;
}

bool TopTerminal::Draw(const std::vector<TopLine>& lines, const TopScreen& screen) {
  std::string bytes;
  if (columns_ != screen.columns || lines_ != screen.lines) {
    bytes = "\x1b[2J";
    shown_.clear();
  }
  bytes += ScreenUpdate(shown_, lines, screen.columns, colour_);
  shown_ = lines;
  columns_ = screen.columns;
  lines_ = screen.lines;
  const Sent sent = Send(bytes, kPatienceMs);
  if (sent == Sent::kNotAll) Forget();
  return sent != Sent::kGone;
}

std::optional<std::string> TopTerminal::Read() const {
  char bytes[64];
  const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return "";
  if (got <= 0) return std::nullopt;
  return std::string(bytes, static_cast<size_t>(got));
}

}  // namespace islands::deploy
