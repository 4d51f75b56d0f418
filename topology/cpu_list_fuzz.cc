#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>

#include "topology/machine.h"

// What parses prints and parses to the same again. Half of the inputs are folded onto the characters that
// lists are made of, so that also random bytes get past the first one.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr char kAlphabet[] = "0123456789-, 0,1";
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 2 == 1) {
    for (char& c : text) c = kAlphabet[static_cast<uint8_t>(c) % 16];
  }
  auto cpus = islands::topology::ParseCpuList(text);
  if (!cpus.ok()) return 0;
  auto again = islands::topology::ParseCpuList(islands::topology::FormatCpuList(*cpus));
  assert(again.ok() && *again == *cpus);
  return 0;
}
