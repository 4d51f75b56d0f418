#include "experiments/tatp/tatp_generator.h"

#include <fmt/format.h>

#include <bit>

#include "experiments/tatp/tatp_population.h"

namespace islands::experiments {
namespace {

constexpr size_t kFirstUpdate = static_cast<size_t>(TatpTransaction::kUpdateSubscriberData);
constexpr size_t kFirstForwarding = static_cast<size_t>(TatpTransaction::kInsertCallForwarding);

// TATP's A for so many subscribers.
uint64_t NonUniformMask(uint64_t subscribers) {
  if (subscribers <= 1'000'000) return 65'535;
  return subscribers <= 10'000'000 ? 1'048'575 : 2'097'151;
}

// The least 2^n - 1 that is a site's part of it.
uint64_t SiteMask(uint64_t subscribers, uint32_t sites) {
  return std::bit_ceil(NonUniformMask(subscribers) / sites + 1) - 1;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TatpGenerator>> TatpGenerator::Create(
    const TatpOptions& options, const partitioner::RangePartition& partition, partitioner::SiteRun sites) {
  if (partition.SiteBegin(sites.first) == partition.SiteBegin(sites.first + sites.count)) {
    return absl::InvalidArgumentError(
        fmt::format("tatp: sites {} to {} have no subscriber; use a wider range of s_id or fewer islands",
                    sites.first, sites.first + sites.count - 1));
  }
  return std::unique_ptr<TatpGenerator>(new TatpGenerator(options, partition, sites));
}

TatpGenerator::TatpGenerator(const TatpOptions& options, const partitioner::RangePartition& partition,
                             partitioner::SiteRun sites)
    : options_(options),
      partition_(partition),
      own_(sites),
      mask_(SiteMask(static_cast<uint64_t>(partition.end() - partition.begin()), partition.sites())) {
  for (size_t i = 0; i < kTatpTransactions; ++i) {
    const bool update = i >= kFirstUpdate;
    const bool left_out = options.mix == TatpMix::kInPlace
                              ? i >= kFirstForwarding
                              : options.mix == (update ? TatpMix::kRead : TatpMix::kUpdate);
    shares_[i] = left_out ? 0 : kTatpShares[i];
    total_share_ += shares_[i];
  }
}

std::unique_ptr<instance::Request> TatpGenerator::MakeRequest() { return std::make_unique<TatpRequest>(); }

TatpTransaction TatpGenerator::DrawTransaction(runtime::Random& random) const {
  uint64_t left = random.Below(total_share_);
  size_t i = 0;
  while (left >= shares_[i]) left -= shares_[i++];
  return static_cast<TatpTransaction>(i);
}

uint64_t TatpGenerator::Subscribers(uint32_t site) const {
  return static_cast<uint64_t>(partition_.SiteBegin(site + 1) - partition_.SiteBegin(site));
}

uint32_t TatpGenerator::DrawSiteOf(runtime::Random& random, partitioner::SiteRun sites) const {
  while (true) {
    const uint32_t site = sites.first + static_cast<uint32_t>(random.Below(sites.count));
    if (Subscribers(site) > 0) return site;
  }
}

std::optional<uint32_t> TatpGenerator::DrawSite(runtime::Random& random) {
  return DrawSiteOf(random, {0, partition_.sites()});
}

uint64_t TatpGenerator::DrawSubscriber(runtime::Random& random) const {
  const bool remote = random.Unit() * 100 < options_.remote_percent;
  const uint32_t site = DrawSiteOf(random, remote ? partitioner::SiteRun{0, partition_.sites()} : own_);
  const auto first = static_cast<uint64_t>(partition_.SiteBegin(site));
  const uint64_t count = Subscribers(site);
  if (options_.uniform) return first + random.Below(count);
  const uint64_t a = random.Below(mask_ + 1);
  const uint64_t b = 1 + random.Below(count);
  return first + (a | b) % count;
}

void TatpGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& tatp = static_cast<TatpRequest&>(request);
  tatp.transaction = DrawTransaction(random);
  tatp.audit_delta = tatp.transaction == TatpTransaction::kUpdateLocation ? 1 : 0;
  const uint64_t s_id = DrawSubscriber(random);
  const auto up_to = [&](uint64_t bound) { return static_cast<uint8_t>(random.Below(bound)); };
  switch (tatp.transaction) {
    case TatpTransaction::kGetSubscriberData:
      tatp.s_id = s_id;
      return;
    case TatpTransaction::kGetNewDestination:
      tatp.s_id = s_id;
      tatp.type = 1 + up_to(4);
      tatp.start_time = 8 * up_to(3);
      tatp.end_time = 1 + up_to(24);
      return;
    case TatpTransaction::kGetAccessData:
      tatp.s_id = s_id;
      tatp.type = 1 + up_to(4);
      return;
    case TatpTransaction::kUpdateSubscriberData:
      tatp.s_id = s_id;
      tatp.type = 1 + up_to(4);
      tatp.bit_1 = up_to(2);
      tatp.data_a = up_to(256);
      return;
    case TatpTransaction::kUpdateLocation:
      tatp.sub_nbr = NumberOf(s_id);
      tatp.vlr_location = DrawLocation(random);
      return;
    case TatpTransaction::kInsertCallForwarding:
      tatp.sub_nbr = NumberOf(s_id);
      tatp.type = 1 + up_to(4);
      tatp.start_time = 8 * up_to(3);
      tatp.end_time = 1 + up_to(24);
      tatp.numberx = DrawNumber(random);
      return;
    case TatpTransaction::kDeleteCallForwarding:
      tatp.sub_nbr = NumberOf(s_id);
      tatp.type = 1 + up_to(4);
      tatp.start_time = 8 * up_to(3);
      return;
  }
}

}  // namespace islands::experiments
