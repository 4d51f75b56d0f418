"""A program on a terminal of its own, and what its screen shows: for `islands top`. Knows the escape codes that it uses
and refuses others."""

import codecs
import fcntl
import os
import pty
import re
import select
import signal
import struct
import termios
import time
from collections.abc import Callable, Sequence

CODE = re.compile(r"\x1b\[(\?)?([0-9;]*)([A-Za-z])")
PLAIN: frozenset[int] = frozenset()


class Screen:
    """Cells of (character, attributes); attributes are the numbers of the codes that are on, such as 7 for reverse."""

    def __init__(self, lines: int, columns: int) -> None:
        self.own = self.hidden_cursor = False  # the alternate screen; the former one is not kept
        self.wrapped = 0
        self.rest = ""
        self.resize(lines, columns)

    def resize(self, lines: int, columns: int) -> None:
        self.lines, self.columns = lines, columns
        self.row = self.column = 0
        self.attributes = PLAIN
        self.cells = [[(" ", PLAIN)] * columns for _ in range(lines)]

    def feed(self, text: str) -> None:
        text, at = self.rest + text, 0
        self.rest = ""
        while at < len(text):
            if text[at] == "\x1b":
                match = CODE.match(text, at)
                if not match:
                    assert re.fullmatch(r"\x1b(\[\??[0-9;]*)?", text[at:]), repr(text[at:at + 20])
                    self.rest = text[at:]
                    return
                self.code(*match.groups())
                at = match.end()
            else:
                self.put(text[at])
                at += 1

    def put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row = min(self.row + 1, self.lines - 1)
        else:
            if self.column == self.columns:
                self.wrapped += 1
                self.row, self.column = min(self.row + 1, self.lines - 1), 0
            self.cells[self.row][self.column] = (character, self.attributes)
            self.column += 1

    def code(self, private: str | None, numbers: str, letter: str) -> None:
        values = [int(number or 0) for number in numbers.split(";")]
        if private:
            assert letter in "hl" and values[0] in (25, 1049), (numbers, letter)
            if values[0] == 25:
                self.hidden_cursor = letter == "l"
            else:
                self.own = letter == "h"
                self.resize(self.lines, self.columns)
        elif letter == "H":
            self.row = min(max(values[0], 1), self.lines) - 1
            self.column = min(max(values[1] if len(values) > 1 else 1, 1), self.columns) - 1
        elif letter == "J" and values == [2]:
            self.cells = [[(" ", PLAIN)] * self.columns for _ in range(self.lines)]
        elif letter == "K" and values == [0]:
            self.cells[self.row][self.column:] = [(" ", PLAIN)] * (self.columns - self.column)
        elif letter == "m":
            for value in values:
                self.attributes = self.attributes | {value} if value else PLAIN
        else:
            raise AssertionError(f"unknown escape code {numbers}{letter}")

    def texts(self) -> list[str]:
        return ["".join(character for character, _ in line).rstrip() for line in self.cells]


class Terminal:
    """`arguments` on a pseudo terminal. `close` ends it if it has not ended."""

    def __init__(self, arguments: Sequence[object], lines: int = 24, columns: int = 80, **environment: str) -> None:
        self.screen = Screen(lines, columns)
        self.decoder = codecs.getincrementaldecoder("utf-8")()
        self.bytes_shown = 0
        # Another owner of the other side keeps its settings readable when the program has ended.
        self.file, self.other = pty.openpty()
        self.resize(lines, columns)
        self.before = termios.tcgetattr(self.other)
        self.pid = os.fork()
        if self.pid == 0:
            os.login_tty(os.dup(self.other))
            words = [str(word) for word in arguments]
            os.execve(words[0], words,
                      {**os.environ, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8", **environment})
        self.code: int | None = None

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self.file, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self, seconds: float) -> bool:
        """Takes what is written within so many seconds at most; whether there was anything."""
        if not select.select([self.file], [], [], seconds)[0]:
            return False
        data = os.read(self.file, 65536)
        self.bytes_shown += len(data)
        self.screen.feed(self.decoder.decode(data))
        return True

    def type(self, keys: str) -> None:
        os.write(self.file, keys.encode())

    def until(self, condition: Callable[[list[str]], object], seconds: float = 10,
              what: str = "the screen") -> list[str]:
        """Reads until condition(lines) holds; returns the lines."""
        deadline = time.monotonic() + seconds
        while True:
            lines = self.screen.texts()
            if condition(lines):
                return lines
            assert time.monotonic() < deadline, f"waited in vain for {what}:\n" + "\n".join(lines)
            self.read(0.1)

    def ended(self, seconds: float = 10) -> int:
        """Waits for the program's end; its exit code. The screen shows all that it wrote."""
        deadline = time.monotonic() + seconds
        while self.code is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
        while self.read(0.05):
            pass
        return self.code

    def restored(self) -> bool:
        """Whether the terminal is as it was before."""
        screen = self.screen
        return not screen.own and not screen.hidden_cursor and termios.tcgetattr(self.other) == self.before

    def close(self) -> None:
        if self.code is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.code = -signal.SIGKILL
        os.close(self.file)
        os.close(self.other)
