// What tests of the executor share.
#pragma once

#include <span>
#include <string>

#include "instance/storage/pages/limits.h"

namespace islands::instance {

inline storage::RowView Bytes(const std::string& text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace islands::instance
