#include "experiments/ycsb/ycsb_generator.h"

#include <algorithm>
#include <cstring>

#include "experiments/written_keys.h"

namespace islands::experiments {

const std::array<uint32_t, kYcsbKinds>& YcsbShares(char mix) {
  static constexpr std::array<std::array<uint32_t, kYcsbKinds>, 6> kShares = {{
      {50, 50, 0, 0, 0},  // A
      {95, 5, 0, 0, 0},   // B
      {100, 0, 0, 0, 0},  // C
      {95, 0, 5, 0, 0},   // D
      {0, 0, 5, 95, 0},   // E
      {50, 0, 0, 0, 50},  // F
  }};
  return kShares[static_cast<size_t>(mix - 'A')];
}

YcsbGenerator::YcsbGenerator(const YcsbOptions& options, const partitioner::RangePartition& partition,
                             partitioner::SiteRun sites)
    : options_(options),
      partition_(partition),
      own_(sites),
      fewest_(static_cast<uint64_t>(partition.end() - partition.begin()) / partition.sites()),
      laws_{Zipf(1, fewest_, options.zipf), Zipf(1, fewest_ + 1, options.zipf)},
      taken_(options.rows) {
  if (options.law == YcsbLaw::kLatest) latest_.resize(sites.count);
  for (Latest& latest : latest_) latest.rows.resize(kRemembered);
}

std::unique_ptr<instance::Request> YcsbGenerator::MakeRequest() {
  auto request = std::make_unique<YcsbRequest>();
  request->operations.reserve(options_.rows);
  request->counters.resize(options_.rows);
  request->row.assign(options_.row_bytes(), std::byte{'y'});
  std::fill_n(request->row.begin(), kYcsbCounterBytes, std::byte{0});
  return request;
}

std::optional<uint32_t> YcsbGenerator::DrawSite(runtime::Random& random) {
  return static_cast<uint32_t>(random.Below(partition_.sites()));
}

YcsbGenerator::Latest* YcsbGenerator::LatestOf(uint32_t site) {
  const bool own = site >= own_.first && site - own_.first < latest_.size();
  return own ? &latest_[site - own_.first] : nullptr;
}

YcsbKind YcsbGenerator::DrawKind(runtime::Random& random) const {
  const std::array<uint32_t, kYcsbKinds>& shares = YcsbShares(options_.mix);
  uint64_t left = random.Below(100);
  size_t kind = 0;
  while (left >= shares[kind]) left -= shares[kind++];
  return static_cast<YcsbKind>(kind);
}

YcsbRow YcsbGenerator::DrawRow(runtime::Random& random, uint32_t site) {
  const uint64_t begin = Begin(site), places = Places(site);
  if (options_.law == YcsbLaw::kUniform) return {.place = begin + random.Below(places)};
  const uint64_t rank = laws_[places - fewest_].Draw(random) - 1;
  if (options_.law == YcsbLaw::kZipf) return {.place = begin + rank};
  const Latest* latest = LatestOf(site);
  const uint64_t inserted = latest == nullptr ? 0 : latest->size();
  if (rank < inserted) return latest->at(rank);
  return {.place = begin + places - 1 - (rank - inserted)};
}

YcsbRow YcsbGenerator::Take(YcsbRow row, uint32_t site) {
  while (!taken_.Insert(row.place)) {
    const uint64_t next = row.place + 1;
    row = {.place = next == Begin(site + 1) ? Begin(site) : next};
  }
  return row;
}

void YcsbGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& ycsb = static_cast<YcsbRequest&>(request);
  ycsb.operations.clear();
  ycsb.audit_delta = 0;
  taken_.Clear();
  ycsb.multisite = random.Unit() * 100 < options_.multisite_percent;
  const uint32_t home = own_.first + static_cast<uint32_t>(random.Below(own_.count));
  for (uint32_t i = 0; i < options_.rows; ++i) {
    YcsbOperation operation{.kind = DrawKind(random), .site = home};
    if (i > 0 && ycsb.multisite) operation.site = static_cast<uint32_t>(random.Below(partition_.sites()));
    if (operation.kind == YcsbKind::kInsert) {
      const uint64_t begin = Begin(operation.site);
      operation.row = Take({.place = begin + random.Below(Places(operation.site))}, operation.site);
    } else {
      operation.row = Take(DrawRow(random, operation.site), operation.site);
    }
    operation.field = static_cast<uint32_t>(random.Below(options_.fields));
    operation.scan_rows = 1 + static_cast<uint32_t>(random.Below(options_.scan_rows));
    ycsb.audit_delta += operation.kind != YcsbKind::kRead && operation.kind != YcsbKind::kScan;
    ycsb.operations.push_back(operation);
  }
  // Fields of this transaction's own begin with what no other writes.
  const uint64_t stamp = random();
  const size_t bytes = std::min<size_t>(sizeof(stamp), options_.field_bytes);
  for (const YcsbOperation& operation : ycsb.operations)
    std::memcpy(ycsb.row.data() + options_.offset_of(operation.field), &stamp, bytes);
  // Transactions meet in the same order, and seldom deadlock.
  std::sort(ycsb.operations.begin(), ycsb.operations.end(),
            [](const YcsbOperation& a, const YcsbOperation& b) { return a.row.place < b.row.place; });
}

void YcsbGenerator::OnEnd(const coordinator::TransactionId& id, const instance::Request& request,
                          coordinator::Outcome outcome) {
  if (latest_.empty() || outcome != coordinator::Outcome::kCommitted) return;
  for (const YcsbOperation& operation : static_cast<const YcsbRequest&>(request).operations) {
    Latest* latest = operation.kind == YcsbKind::kInsert ? LatestOf(operation.site) : nullptr;
    if (latest != nullptr) latest->Add({operation.row.place, WriterOf(id), WriterNumberOf(id)});
  }
}

}  // namespace islands::experiments
