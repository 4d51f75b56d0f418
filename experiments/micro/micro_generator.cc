#include "experiments/micro/micro_generator.h"

#include <fmt/format.h>

#include <algorithm>

namespace islands::experiments {
namespace {

uint64_t SiteRows(const partitioner::RangePartition& partition, uint32_t site) {
  return static_cast<uint64_t>(partition.SiteBegin(site + 1) - partition.SiteBegin(site));
}

}  // namespace

absl::Status CheckRowsFit(const MicroOptions& options, const partitioner::RangePartition& partition,
                          uint32_t sites) {
  const int64_t total = partition.end() - partition.begin();
  int64_t smallest = total;
  for (uint32_t site = 0; site < sites; ++site) {
    smallest = std::min(smallest, static_cast<int64_t>(SiteRows(partition, site)));
  }
  const int64_t from_one_site = options.multisite_percent < 100 ? options.rows : 1;
  if (from_one_site > smallest) {
    return absl::InvalidArgumentError(fmt::format(
        "--rows: found {}, expected at most the {} rows of the smallest site ({} rows in {} sites); a larger "
        "table makes room (--rows-total)",
        options.rows, smallest, total, sites));
  }
  if (options.rows <= total) return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--rows: found {}, expected at most all {} rows", options.rows, total));
}

MicroGenerator::MicroGenerator(const MicroOptions& options, const partitioner::RangePartition& partition,
                               partitioner::SiteRun sites)
    : options_(options),
      all_(static_cast<uint64_t>(partition.begin()),
           static_cast<uint64_t>(partition.end() - partition.begin()), options.zipf),
      taken_(options.rows) {
  sites_.reserve(sites.count);
  for (uint32_t site = sites.first; site < sites.first + sites.count; ++site) {
    sites_.emplace_back(static_cast<uint64_t>(partition.SiteBegin(site)), SiteRows(partition, site),
                        options.zipf);
  }
}

std::unique_ptr<instance::Request> MicroGenerator::MakeRequest() {
  auto request = std::make_unique<MicroRequest>();
  request->keys.reserve(options_.rows);
  return request;
}

void MicroGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& micro = static_cast<MicroRequest&>(request);
  micro.keys.clear();
  taken_.Clear();
  micro.op = options_.op;
  if (options_.mix)
    micro.op = random.Unit() * 100 < options_.update_percent ? MicroOp::kUpdate : MicroOp::kRead;
  micro.audit_delta = micro.op == MicroOp::kRead ? 0 : options_.rows;
  micro.multisite = random.Unit() * 100 < options_.multisite_percent;
  const Range& site = sites_[random.Below(sites_.size())];
  if (micro.multisite) Take(site.begin + random.Below(site.rows), micro);
  Fill(random, micro.multisite ? all_ : site, micro);
  micro.home_key = micro.keys.front();
  std::sort(micro.keys.begin(), micro.keys.end());
}

void MicroGenerator::Fill(runtime::Random& random, const Range& range, MicroRequest& request) {
  if (options_.zipf > 0) {
    TakeZipf(random, range, request);
  } else {
    TakeUniform(random, range, request);
  }
}

void MicroGenerator::Take(uint64_t key, MicroRequest& request) {
  if (taken_.Insert(key)) request.keys.push_back(key);
}

void MicroGenerator::TakeUniform(runtime::Random& random, const Range& range, MicroRequest& request) {
  while (request.keys.size() < options_.rows) Take(range.begin + random.Below(range.rows), request);
}

// Drawing again and again would not end in our lifetime once the hot ranks of a steep law are taken. So when
// a draw collides, the ranks at the head that are all taken are cut off; the law over the others stays the
// same.
void MicroGenerator::TakeZipf(runtime::Random& random, const Range& range, MicroRequest& request) {
  Zipf zipf = range.zipf;
  uint64_t cut = 0;
  while (request.keys.size() < options_.rows) {
    const size_t before = request.keys.size();
    Take(range.begin + zipf.Draw(random) - 1, request);
    if (request.keys.size() > before || request.keys.size() == options_.rows) continue;
    if (!taken_.Contains(range.begin + cut)) continue;
    while (taken_.Contains(range.begin + cut)) ++cut;
    zipf = Zipf(cut + 1, range.rows, options_.zipf);
  }
}

}  // namespace islands::experiments
