"""The tidy test over the whole tree, and for each of its rules a text that breaks it."""

import os
import re
import sys

import pytest

from conftest import Islands

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "deploy"))
import tidy  # noqa: E402

HEADER = "// What it is for.\n#pragma once\n"
OURS = "islands"  # apart from the words that follow it: what is wrong here is meant to be


def test_tree_is_tidy() -> None:
    findings = tidy.check_tree(ROOT)
    assert not findings, "\n" + "\n".join(findings)


@pytest.mark.parametrize("path, text, complaint", [
    ("topology/a.cc", "x" * 111 + "\n", "111 columns"),
    ("deploy/a.py", "x" * 121 + "\n", "121 columns"),
    ("dashboards/draw/page/a.ts", "x" * 121 + "\n", "121 columns"),
    ("topology/a.cc", "\tint x;\n", "tab"),
    ("topology/a.cc", "int x; \n", "blanks at the end"),
    ("topology/a.cc", "int x;\n" * 1001, "1001 lines"),
    ("topology/a.cc", "// TO" "DO: later\n", "leftover"),
    ("README.md", "see /wo" "rk/main\n", "path of one machine"),
    ("topology/a.cc", "absl::Mutex m;\n", "runtime::Mutex"),
    ("topology/a.cc", "std::mutex m;\n", "runtime::Mutex"),
    ("topology/a.cc", "std::atomic_thread_fence(x);\n", "fences"),
    ("topology/a.cc", "int x = std::rand();\n", "runtime::Random"),
    ("topology/a.cc", "int x = rand();\n", "runtime::Random"),
    ("instance/storage/a.cc", "std::random_device seed;\n", "runtime::Random"),
    ("instance/storage/a.cc", "auto t = std::chrono::steady_clock::now();\n", "runtime::Clock"),
    ("instance/storage/a.cc", "using Clock = std::chrono::steady_clock;\n", "runtime::Clock"),
    ("instance/storage/a.cc", "clock_gettime(CLOCK_MONOTONIC, &now);\n", "runtime::Clock"),
    ("instance/storage/a.cc", "usleep(10);\n", "timer"),
    ("instance/storage/a.cc", "std::this_thread::sleep_for(x);\n", "timer"),
    ("topology/a.cc", "Foo* foo = new Foo(1);\n", "make_unique"),
    ("topology/a.cc", "char* bytes = new char[10];\n", "make_unique"),
    ("topology/a.cc", 'printf("x");\n', "stdout"),
    ("topology/a.cc", "std::cout << x;\n", "stdout"),
    ("topology/a.cc", "using namespace std;\n", "std::"),
    ("partitioner/a.cc", '#include "topology/machine.h"\n', "partitioner/ is below topology/"),
    ("coordinator/a.cc", '#include "instance/workload/operation.h"\n', "coordinator/ is below instance/"),
    ("instance/worker/a.cc", '#include "experiments/zipf.h"\n', "instance/ is below experiments/"),
    ("runtime/a.cc", '#include "coordinator/coordinator.h"\n', "runtime/ is below coordinator/"),
    ("instance/storage/a.cc", '#include "instance/island/island.h"\n', "instance/storage/ is below instance/island/"),
    ("instance/storage/pages/a.cc", '#include "instance/locks/lock_table.h"\n', "instance/storage/ is below"),
    ("instance/storage/pages/a.cc", '#include "instance/storage/btree/btree.h"\n', "pages/ is below"),
    ("instance/storage/btree/a.cc", '#include "instance/storage/catalog.h"\n', "btree/ is below instance/storage/*.h"),
    ("deploy/file/a.cc", '#include "deploy/plan/resolve.h"\n', "deploy/file/ is below deploy/plan/"),
    ("instance/attic/a.cc", "int x;\n", "not in the order"),
    ("topology/a.cc", '#include "../proto/control.pb.h"\n', "start at the top folder"),
    ("instance/storage/pages/page_guard.h", "std::atomic_thread_fence(x);\n", "fences"),
    ("instance/storage/btree/btree.cc", "const auto count = __atomic_load_n(&count_, 0);\n", "std::atomic"),
    ("instance/storage/btree/a.cc", '__attribute__((no_sanitize("thread"))) void Peek();\n', "races that are meant"),
    ("instance/storage/btree/btree.cc", "const auto count = LoadOnce(&node->count_);\n", "GuardO::page()"),
    ("instance/storage/btree/btree.cc", "CopyTorn(row, bytes, 10);\n", "GuardO::page()"),
    ("instance/storage/btree/btree.cc", "return TornNode(TornPage(bytes));\n", "GuardO::page()"),
    (tidy.TORN, "  T Peek() const { return *begin_; }\n", "outside LoadOnce and CopyTorn"),
    (tidy.TORN, "  T Peek(size_t i) const { return begin_[i]; }\n", "outside LoadOnce and CopyTorn"),
    (tidy.TORN, "  const std::byte* bytes() const { return begin_; }\n", "outside LoadOnce and CopyTorn"),
    (tidy.TORN, "    std::memcpy(to, begin_, bytes_);\n", "outside LoadOnce and CopyTorn"),
    (tidy.TORN, "  TornBytes Peek() const { return TornBytes(begin_, *begin_); }\n", "outside LoadOnce and CopyTorn"),
    (tidy.GUARDS, "class GuardO {\n  const std::byte* bytes() const { return page_.bytes_; }\n};\n", "of a GuardO"),
    ("topology/a.h", "// What it is for.\n", "#pragma once"),
    ("topology/a.h", "#pragma once\n", "opening comment"),
    ("topology/a.cc", f'Fail("re-cut it with `{OURS} recut`");\n', " recut', which does not exist"),
    ("topology/a.cc", f'"look with `{OURS} "\n    "look FILE`"\n', "a.cc:2: names the command"),
    ("topology/a.h", f"{HEADER}// Asked by `{OURS}\n// look`.\n", "a.h:4: names the command"),
    ("README.md", f"    {OURS} look my.yaml      # what is there\n", " look', which does not exist"),
    ("README.md", f"$ {OURS} look\n", " look', which does not exist"),
    ("dashboards/a.yml", f"what_to_do: su -c '{OURS} look FILE'\n", " look', which does not exist"),
])
def test_rule_finds(path: str, text: str, complaint: str) -> None:
    findings = tidy.check_file(path, text)
    assert any(complaint in finding for finding in findings), findings


def test_commands_are_those_of_the_help(islands: Islands) -> None:
    listed = set(re.findall(r"^  ([a-z]+)  ", islands.run("--help").out, re.M))
    assert listed and tidy.commands() == listed | {"help", "supervise"}  # that is not for people


@pytest.mark.parametrize("path, text", [
    ("topology/a.cc", "x" * 110 + "\n"),
    ("topology/a.cc", "// a new Foo(1) would do; printf(1) and absl::Mutex too\n"),
    ("topology/a.cc", 'Log("std::rand() and new Foo(1)");\n'),
    ("topology/a.cc", "return std::unique_ptr<Foo>(new Foo(1));\n"),
    ("topology/a.cc", "std::unique_ptr<Foo> foo(new Foo(1));\n"),
    ("topology/a.cc", "void* operator new(size_t bytes);\n"),
    ("topology/a.cc", "snprintf(text, 10, x); operand(1); brand(2);\n"),
    ("runtime/clock.h", HEADER + "clock_gettime(CLOCK_MONOTONIC, &now);\n"),
    ("instance/storage/a_test.cc", "std::this_thread::sleep_for(x); std::mt19937_64 random(1);\n"),
    ("deploy/a.cc", 'printf("x"); auto now = std::chrono::steady_clock::now();\n'),
    ("deploy/a.cc", '#include "instance/workload/operation.h"\n#include "topology/machine.h"\n'),
    ("instance/storage/a.cc", '#include "instance/storage/btree/btree.h"\n#include "runtime/clock.h"\n'),
    ("instance/storage/btree/a.cc", '#include "instance/storage/pages/page.h"\n#include "proto/data.pb.h"\n'),
    ("deploy/main.cc", '#include "deploy/top/command.h"\n'),
    (tidy.TORN, HEADER + "  T operator[](size_t i) const { return LoadOnce(begin_ + i); }\n  const T* begin_;\n"),
    (tidy.GUARDS, HEADER + "class GuardO {\n  TornPage page() const { return TornPage(page_.bytes_); }\n};\n"
                  "class GuardS {\n  const std::byte* bytes() const { return page_.bytes_; }\n};\n"),
    ("README.md", "x" * 200 + "\nframework/main and deploy/root/x\n"),
    ("README.md", "`islands up FILE`, `islands --help`, `islands COMMAND`\n    islands sweep a.yaml\nislands that\n"),
])
def test_rule_allows(path: str, text: str) -> None:
    assert tidy.check_file(path, text) == []
