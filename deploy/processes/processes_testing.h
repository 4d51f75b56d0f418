// What tests of processes share.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

namespace islands::deploy {

// Of a file that is not there, and no other process's.
inline std::string FreshPath(const std::string& name) {
  const std::string path = testing::TempDir() + "/" + std::to_string(getpid()) + "-" + name;
  std::filesystem::remove(path);
  return path;
}

}  // namespace islands::deploy
