#include "runtime/crc32c.h"

#include <gtest/gtest.h>

#include <string>

#include "runtime/random.h"

namespace islands::runtime {
namespace {

std::span<const std::byte> Bytes(const std::string& text) { return std::as_bytes(std::span(text)); }

TEST(Crc32c, KnownValues) {  // RFC 3720, appendix B.4, and the usual check value
  EXPECT_EQ(Crc32c(Bytes("123456789")), 0xe3069283u);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\0'))), 0x8a9136aau);
  EXPECT_EQ(Crc32c(Bytes(std::string(32, '\xff'))), 0x62a8ab43u);
  EXPECT_EQ(Crc32c({}), 0u);
}

TEST(Crc32c, InstructionAndTable_AgreeHoweverItIsParted) {
  Random random(1);
  for (int round = 0; round < 2000; ++round) {
    std::string text(random.Below(round % 10 == 0 ? 10'000 : 300), '\0');
    for (char& c : text) c = static_cast<char>(random.Below(256));
    const std::span<const std::byte> bytes = Bytes(text);
    const uint32_t whole = Crc32c(bytes);
    EXPECT_EQ(whole, Crc32cByTable(bytes));
    const size_t cut = random.Below(text.size() + 1);
    EXPECT_EQ(whole, Crc32c(bytes.subspan(cut), Crc32c(bytes.first(cut))));
  }
}

}  // namespace
}  // namespace islands::runtime
