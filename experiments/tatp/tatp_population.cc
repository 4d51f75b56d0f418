#include "experiments/tatp/tatp_population.h"

#include <algorithm>
#include <span>

namespace islands::experiments {
namespace {

using runtime::Random;

constexpr uint64_t kSeed = 0x7a70;

template <size_t kLetters>
void FillLetters(Random& random, std::array<char, kLetters>& text) {
  for (char& letter : text) letter = static_cast<char>('A' + random.Below(26));
}

template <size_t kFields>
void FillBelow(Random& random, uint64_t bound, std::array<uint8_t, kFields>& fields) {
  for (uint8_t& field : fields) field = static_cast<uint8_t>(random.Below(bound));
}

// `count` of these, each set equally likely: they come first.
void Choose(Random& random, size_t count, std::span<uint8_t> from) {
  for (size_t i = 0; i < count; ++i) std::swap(from[i], from[i + random.Below(from.size() - i)]);
}

SubscriberRow MakeSubscriber(Random& random, uint64_t s_id) {
  SubscriberRow row{};
  row.sub_nbr = NumberOf(s_id);
  row.vlr_location = DrawLocation(random);
  row.msc_location = DrawLocation(random);
  FillBelow(random, 2, row.bit);
  FillBelow(random, 16, row.hex);
  FillBelow(random, 256, row.byte2);
  return row;
}

absl::Status LoadAccessInfos(const TatpTables& tables, uint64_t s_id, Random& random,
                             instance::Loader& loader) {
  std::array<uint8_t, 4> types = {1, 2, 3, 4};
  const size_t count = 1 + random.Below(4);
  Choose(random, count, types);
  for (size_t i = 0; i < count; ++i) {
    AccessInfoRow row{};
    row.data1 = static_cast<uint8_t>(random.Below(256));
    row.data2 = static_cast<uint8_t>(random.Below(256));
    FillLetters(random, row.data3);
    FillLetters(random, row.data4);
    absl::Status status = loader.Insert(tables.access_info, TatpKey(s_id, types[i]), BytesOf(row));
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status LoadForwardings(const TatpTables& tables, uint64_t s_id, uint8_t sf_type, Random& random,
                             instance::Loader& loader) {
  std::array<uint8_t, 3> starts = {0, 8, 16};
  const size_t count = random.Below(4);
  Choose(random, count, starts);
  for (size_t i = 0; i < count; ++i) {
    CallForwardingRow row{};
    row.end_time = static_cast<uint8_t>(starts[i] + 1 + random.Below(8));
    row.numberx = DrawNumber(random);
    const TatpKey key(s_id, sf_type, starts[i]);
    if (absl::Status status = loader.Insert(tables.call_forwarding, key, BytesOf(row)); !status.ok()) {
      return status;
    }
  }
  return absl::OkStatus();
}

absl::Status LoadFacilities(const TatpTables& tables, uint64_t s_id, Random& random,
                            instance::Loader& loader) {
  std::array<uint8_t, 4> types = {1, 2, 3, 4};
  const size_t count = 1 + random.Below(4);
  Choose(random, count, types);
  for (size_t i = 0; i < count; ++i) {
    SpecialFacilityRow row{};
    row.is_active = random.Below(100) < 85 ? 1 : 0;
    row.error_cntrl = static_cast<uint8_t>(random.Below(256));
    row.data_a = static_cast<uint8_t>(random.Below(256));
    FillLetters(random, row.data_b);
    absl::Status status = loader.Insert(tables.special_facility, TatpKey(s_id, types[i]), BytesOf(row));
    if (status.ok()) status = LoadForwardings(tables, s_id, types[i], random, loader);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadSubscriber(const TatpTables& tables, uint64_t s_id, instance::Loader& loader) {
  Random random = Random::Stream(kSeed, s_id);
  const SubscriberRow row = MakeSubscriber(random, s_id);
  absl::Status status = loader.Insert(tables.subscriber, TatpKey(s_id), BytesOf(row));
  if (status.ok()) status = LoadAccessInfos(tables, s_id, random, loader);
  if (status.ok()) status = LoadFacilities(tables, s_id, random, loader);
  return status;
}

}  // namespace islands::experiments
