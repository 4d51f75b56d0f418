#include <cassert>
#include <cstddef>
#include <cstdint>
#include <string>

#include "topology/binding.h"

// Any text, any region: a result with a policy, or an error. Half of the inputs are folded onto the words
// that numa_maps is made of.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr const char* kWords[] = {"7f00 default ",
                                    "7f10 prefer:1 ",
                                    "8000 prefer (many):0-1",
                                    " N0=1",
                                    " N1=9999999999999999999",
                                    " N0=18446744073709551615",
                                    " kernelpagesize_kB=2048",
                                    " N",
                                    "=",
                                    "\n",
                                    " huge",
                                    " file=/x",
                                    " anon=1",
                                    "ffffffffffffffff weighted interleave:0",
                                    " ",
                                    "-1"};
  std::string text(reinterpret_cast<const char*>(data), size);
  if (size > 0 && data[0] % 2 == 1) {
    text.clear();
    for (size_t i = 1; i < size; ++i) text += kWords[data[i] % 16];
  }
  uint64_t address = size > 1 ? uint64_t{data[1]} << 8 : 0;
  uint64_t bytes = size > 2 && data[2] % 2 == 1 ? UINT64_MAX : 4096;
  auto readback = islands::topology::ParseNumaMaps(text, address, bytes);
  assert(!readback.ok() || !readback->policy.empty());
  return 0;
}
