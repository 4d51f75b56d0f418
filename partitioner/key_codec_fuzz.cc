// Whatever the bytes, DecodeKey answers; what it accepts is exactly what EncodeKey makes.
//
// Input: one byte (number of components, 1 to 4), one byte per component (its type), then the key.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "partitioner/key_codec.h"

using namespace islands::partitioner;  // NOLINT: a test program of one function

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const size_t count = 1 + data[0] % 4;
  if (size < 1 + count) return 0;
  KeySchema schema;
  for (size_t i = 0; i < count; ++i) schema.push_back(static_cast<KeyType>(data[1 + i] % 9));
  const KeyView key = std::as_bytes(std::span(data + 1 + count, size - 1 - count));

  const absl::StatusOr<std::vector<KeyComponent>> components = DecodeKey(schema, key);
  const absl::StatusOr<int64_t> first = FirstComponent(schema, key);
  if (const std::optional<int64_t> at_once = IntegerKey(schema).First(key);
      at_once && first.value_or(~*at_once) != *at_once)
    abort();
  if (KeyToString(schema, key).empty() && components.ok() && schema[0] != KeyType::kString) abort();
  if (!components.ok()) {
    if (first.ok()) abort();
    return 0;
  }
  const absl::StatusOr<std::string> again = EncodeKey(schema, *components);
  if (!again.ok()) abort();
  const KeyView again_view = std::as_bytes(std::span(*again));
  if (!std::equal(key.begin(), key.end(), again_view.begin(), again_view.end())) abort();
  return 0;
}
