// ParseDeployment takes any bytes: it answers with a deployment or complaints, never a crash, an exception or
// a hang.
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "deploy/file/deployment.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  // Random bytes hardly ever make a document: the second reading puts them where a value stands.
  for (const std::string& text :
       {std::string(bytes),
        "version: 1\ndata:\n  tables:\n    - {name: t, key: [uint64], range: " + std::string(bytes)}) {
    const auto deployment = islands::deploy::ParseDeployment(text, "fuzz.yaml");
    if (deployment.ok()) continue;
    const std::string message(deployment.status().message());
    if (message.rfind("fuzz.yaml:", 0) != 0) std::abort();
  }
  return 0;
}
