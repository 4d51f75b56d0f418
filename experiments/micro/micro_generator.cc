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
  const int64_t from_one_site =
      options.multisite_percent < 100 && !options.local_to_island ? options.rows : 1;
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

absl::Status CheckRowsFit(const MicroOptions& options, const partitioner::RangePartition& partition,
                          partitioner::SiteRun island) {
  const int64_t rows = partition.SiteBegin(island.first + island.count) - partition.SiteBegin(island.first);
  if (!options.local_to_island || options.multisite_percent == 100 || options.rows <= rows)
    return absl::OkStatus();
  return absl::InvalidArgumentError(
      fmt::format("--rows: found {}, expected at most the {} rows of an island; a larger table makes room "
                  "(--rows-total)",
                  options.rows, rows));
}

MicroGenerator::MicroGenerator(const MicroOptions& options, const partitioner::RangePartition& partition,
                               partitioner::SiteRun sites)
    : options_(options),
      partition_(partition),
      all_(RangeOf(partition.begin(), partition.end())),
      own_(RangeOf(partition.SiteBegin(sites.first), partition.SiteBegin(sites.first + sites.count))),
      first_site_(sites.first),
      taken_(options.rows) {
  sites_.reserve(sites.count);
  for (uint32_t site = sites.first; site < sites.first + sites.count; ++site)
    sites_.push_back(RangeOf(partition.SiteBegin(site), partition.SiteBegin(site + 1)));
}

MicroGenerator::Range MicroGenerator::RangeOf(int64_t begin, int64_t end) const {
  const auto first = options_.skew_of_table ? static_cast<uint64_t>(begin - partition_.begin()) + 1 : 1;
  return {static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin), first, options_.zipf};
}

uint64_t MicroGenerator::DrawKey(runtime::Random& random, const Range& range) const {
  return range.begin + (options_.zipf > 0 ? range.zipf.Draw(random) - range.first : random.Below(range.rows));
}

std::optional<uint32_t> MicroGenerator::DrawSite(runtime::Random& random) {
  if (!options_.skew_of_table) return static_cast<uint32_t>(random.Below(partition_.sites()));
  return partition_.Find(static_cast<int64_t>(DrawKey(random, all_)));
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
  if (options_.skew_of_table) {
    const uint64_t home = DrawKey(random, own_);
    Take(home, micro);
    const auto site = *partition_.Find(static_cast<int64_t>(home)) - first_site_;
    Fill(random, micro.multisite ? all_ : options_.local_to_island ? own_ : sites_[site], micro);
  } else {
    const Range& site = sites_[random.Below(sites_.size())];
    if (micro.multisite) Take(site.begin + random.Below(site.rows), micro);
    Fill(random, micro.multisite ? all_ : options_.local_to_island ? own_ : site, micro);
  }
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
    Take(range.begin + zipf.Draw(random) - range.first, request);
    if (request.keys.size() > before || request.keys.size() == options_.rows) continue;
    if (!taken_.Contains(range.begin + cut)) continue;
    while (taken_.Contains(range.begin + cut)) ++cut;
    zipf = Zipf(range.first + cut, range.first + range.rows - 1, options_.zipf);
  }
}

}  // namespace islands::experiments
