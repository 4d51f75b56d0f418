#include "experiments/tatp/tatp_generator.h"

#include <fmt/format.h>

#include "experiments/tatp/tatp_population.h"

namespace islands::experiments {
namespace {

constexpr size_t kFirstUpdate = static_cast<size_t>(TatpTransaction::kUpdateSubscriberData);

// TATP's A for so many subscribers.
uint64_t NonUniformMask(uint64_t subscribers) {
  if (subscribers <= 1'000'000) return 65'535;
  return subscribers <= 10'000'000 ? 1'048'575 : 2'097'151;
}

}  // namespace

absl::StatusOr<std::unique_ptr<TatpGenerator>> TatpGenerator::Create(
    const TatpOptions& options, const partitioner::RangePartition& partition, partitioner::SiteRun sites) {
  const auto between = [](int64_t begin, int64_t end) {
    return Subscribers{static_cast<uint64_t>(begin), static_cast<uint64_t>(end - begin)};
  };
  const Subscribers own =
      between(partition.SiteBegin(sites.first), partition.SiteBegin(sites.first + sites.count));
  if (own.count == 0) {
    return absl::InvalidArgumentError(
        fmt::format("tatp: sites {} to {} have no subscriber; use a wider range of s_id or fewer islands",
                    sites.first, sites.first + sites.count - 1));
  }
  const Subscribers all = between(partition.begin(), partition.end());
  return std::unique_ptr<TatpGenerator>(new TatpGenerator(options, own, all));
}

TatpGenerator::TatpGenerator(const TatpOptions& options, Subscribers own, Subscribers all)
    : options_(options), own_(own), all_(all) {
  for (size_t i = 0; i < kTatpTransactions; ++i) {
    const bool update = i >= kFirstUpdate;
    const bool left_out = options.mix == (update ? TatpMix::kRead : TatpMix::kUpdate);
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

uint64_t TatpGenerator::DrawSubscriber(runtime::Random& random) const {
  const Subscribers& from = random.Unit() * 100 < options_.remote_percent ? all_ : own_;
  if (options_.uniform) return from.first + random.Below(from.count);
  const uint64_t a = random.Below(NonUniformMask(from.count) + 1);
  const uint64_t b = 1 + random.Below(from.count);
  return from.first + (a | b) % from.count;
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
