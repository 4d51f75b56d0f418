#include "experiments/micro/micro_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

namespace islands::experiments {
namespace {

uint64_t SiteRows(const partitioner::RangePartition& partition, uint32_t site) {
  return static_cast<uint64_t>(partition.SiteBegin(site + 1) - partition.SiteBegin(site));
}

}  // namespace

absl::Status CheckRowsFit(const MicroOptions& options, const partitioner::RangePartition& partition,
                          uint32_t sites) {
  const uint32_t touched = options.sites_touched;
  if (touched > sites || touched > options.rows) {
    return absl::InvalidArgumentError(fmt::format(
        "--sites-touched: found {}, expected at most the {} sites that there are, and the {} rows of a "
        "transaction",
        touched, sites, options.rows));
  }
  const int64_t total = partition.end() - partition.begin();
  int64_t smallest = total;
  for (uint32_t site = 0; site < sites; ++site) {
    smallest = std::min(smallest, static_cast<int64_t>(SiteRows(partition, site)));
  }
  const int64_t of_multisite = touched > 0 ? (options.rows + touched - 1) / touched : 1;
  const int64_t from_one_site =
      options.multisite_percent < 100 && !options.local_to_island ? options.rows : of_multisite;
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
                               partitioner::SiteRun sites, const runtime::Clock* clock, int64_t began_ns)
    : options_(options),
      partition_(partition),
      clock_(clock),
      began_ns_(began_ns),
      all_(RangeOf(partition.begin(), partition.end())),
      own_(RangeOf(partition.SiteBegin(sites.first), partition.SiteBegin(sites.first + sites.count))),
      first_site_(options.sites_touched > 0 ? 0 : sites.first),
      home_(sites),
      taken_(options.rows) {
  const uint32_t end = options.sites_touched > 0 ? partition.sites() : sites.first + sites.count;
  sites_.reserve(end - first_site_);
  for (uint32_t site = first_site_; site < end; ++site)
    sites_.push_back(RangeOf(partition.SiteBegin(site), partition.SiteBegin(site + 1)));
  if (options.sites_touched > 0) {
    order_.resize(end);
    std::iota(order_.begin(), order_.end(), 0u);
  }
}

MicroGenerator::Range MicroGenerator::RangeOf(int64_t begin, int64_t end) const {
  const auto first = static_cast<uint64_t>(begin), rows = static_cast<uint64_t>(end - begin);
  return {first, rows, shift_, LawOf(first, rows)};
}

ZipfRows MicroGenerator::LawOf(uint64_t begin, uint64_t rows) const {
  const auto table = static_cast<uint64_t>(partition_.begin());
  const auto ranks = options_.skew_of_table ? static_cast<uint64_t>(partition_.end()) - table : rows;
  const uint64_t offset = options_.skew_of_table ? begin - table : 0;
  return {begin, rows, (offset + ranks - shift_ % ranks) % ranks + 1, ranks, options_.zipf};
}

const ZipfRows& MicroGenerator::LawNow(Range& range) const {
  if (range.shift != shift_) {
    range.law = LawOf(range.begin, range.rows);
    range.shift = shift_;
  }
  return range.law;
}

void MicroGenerator::Drift() {
  if (options_.drift_per_s == 0 || clock_ == nullptr) return;
  const double seconds = static_cast<double>(std::max<int64_t>(clock_->NowNs() - began_ns_, 0)) / 1e9;
  shift_ = static_cast<uint64_t>(seconds * options_.drift_per_s);
}

uint64_t MicroGenerator::DrawKey(runtime::Random& random, Range& range) const {
  return options_.zipf > 0 ? LawNow(range).Draw(random) : range.begin + random.Below(range.rows);
}

std::optional<uint32_t> MicroGenerator::DrawSite(runtime::Random& random) {
  if (!options_.skew_of_table) return static_cast<uint32_t>(random.Below(partition_.sites()));
  Drift();
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
  Drift();
  micro.op = options_.op;
  if (options_.mix)
    micro.op = random.Unit() * 100 < options_.update_percent ? MicroOp::kUpdate : MicroOp::kRead;
  micro.audit_delta = micro.op == MicroOp::kRead ? 0 : options_.rows;
  micro.multisite = random.Unit() * 100 < options_.multisite_percent;
  uint32_t home = 0;  // its site's place in sites_
  if (options_.skew_of_table) {
    Take(DrawKey(random, own_), micro);
    home = *partition_.Find(static_cast<int64_t>(micro.keys.front())) - first_site_;
  } else {
    home = home_.first - first_site_ + static_cast<uint32_t>(random.Below(home_.count));
    Range& site = sites_[home];
    if (micro.multisite) Take(site.begin + random.Below(site.rows), micro);
  }
  if (micro.multisite && options_.sites_touched > 0) {
    FillSites(random, home, micro);
  } else {
    Fill(random,
         micro.multisite            ? all_
         : options_.local_to_island ? own_
                                    : sites_[home],
         options_.rows, micro);
  }
  micro.home_key = micro.keys.front();
  std::sort(micro.keys.begin(), micro.keys.end());
}

// The first places of `order_` become the sites, in random order but for the first one.
void MicroGenerator::FillSites(runtime::Random& random, uint32_t home, MicroRequest& request) {
  std::swap(order_[0], *std::find(order_.begin(), order_.end(), home));
  for (uint32_t i = 0; i < options_.sites_touched; ++i) {
    if (i > 0) std::swap(order_[i], order_[i + random.Below(order_.size() - i)]);
    const size_t up_to = size_t{options_.rows} * (i + 1) / options_.sites_touched;
    Fill(random, sites_[order_[i]], up_to, request);
  }
}

void MicroGenerator::Fill(runtime::Random& random, Range& range, size_t up_to, MicroRequest& request) {
  if (options_.zipf > 0) {
    TakeZipf(random, range, up_to, request);
  } else {
    TakeUniform(random, range, up_to, request);
  }
}

void MicroGenerator::Take(uint64_t key, MicroRequest& request) {
  if (taken_.Insert(key)) request.keys.push_back(key);
}

void MicroGenerator::TakeUniform(runtime::Random& random, const Range& range, size_t up_to,
                                 MicroRequest& request) {
  while (request.keys.size() < up_to) Take(range.begin + random.Below(range.rows), request);
}

// Drawing again and again would not end in our lifetime once the hot ranks of a steep law are taken. So when
// a draw collides, the ranks at the head that are all taken are cut off; the law over the others stays the
// same.
void MicroGenerator::TakeZipf(runtime::Random& random, Range& range, size_t up_to, MicroRequest& request) {
  const ZipfRows& all = LawNow(range);
  std::optional<ZipfRows> rest;
  uint64_t cut = 0;
  while (request.keys.size() < up_to) {
    const size_t before = request.keys.size();
    Take((rest ? *rest : all).Draw(random), request);
    if (request.keys.size() > before) continue;
    if (!taken_.Contains(all.KeyAt(cut))) continue;
    while (taken_.Contains(all.KeyAt(cut))) ++cut;
    if (!rest) rest = all;
    rest->Cut(cut);
  }
}

}  // namespace islands::experiments
