// For tests: a directory that is gone when it is not needed any more.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace islands::experiments {

struct TemporaryDirectory {
  TemporaryDirectory()
      : path((std::filesystem::temp_directory_path() / "islands-peers-test-XXXXXX").string()) {
    EXPECT_NE(mkdtemp(path.data()), nullptr);
    // A server of another user has its files inside.
    std::filesystem::permissions(path, std::filesystem::perms(0711));
  }
  ~TemporaryDirectory() { std::filesystem::remove_all(path); }
  std::string path;
};

}  // namespace islands::experiments
