#include "instance/worker/arrivals.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "runtime/check.h"

namespace islands::instance {

void Arrivals::Begin(const ArrivalPlan& plan, Generator& generator, uint32_t clients, uint64_t seed) {
  plan_ = plan;
  active_ = plan.active();
  generator_ = &generator;
  first_ = size_ = taken_ = 0;
  leaving_.assign(shared_.sites->islands(), {});
  leave_ = false;
  next_due_ns_ = INT64_MAX;
  if (!active_) return;
  // Another stream than that of the requests.
  random_ = runtime::Random::Stream(~seed, (uint64_t{options_.island} << 16) | options_.index);
  if (plan_.rate_per_s > 0) {
    next_due_ns_ = turns_.now_ns();
    after_due_ns_ = 0;
    DrawNextDue();
    clients = 0;
  }
  for (uint32_t i = 0; i < clients; ++i) Place(turns_.now_ns());
  if (early_run_ == plan_.run_id) {
    for (const int64_t due_ns : early_) Push(due_ns);
  }
  early_.clear();
}

void Arrivals::End() {
  active_ = false;
  generator_ = nullptr;
  size_ = 0;
  leave_ = false;
  next_due_ns_ = INT64_MAX;
  counters_.clients_waiting.Set(0);
}

size_t Arrivals::here() const {
  size_t here = size_ + taken_;
  for (const std::vector<int64_t>& who : leaving_) here += who.size();
  return here;
}

int64_t Arrivals::Take() {
  ISLANDS_CHECK(size_ != 0);
  const int64_t due_ns = ring_[first_];
  first_ = (first_ + 1) & (ring_.size() - 1);
  --size_;
  ++taken_;
  return due_ns;
}

void Arrivals::Push(int64_t due_ns) {
  if (size_ == kMostWaiting) return counters_.arrivals_refused.Add(1);
  if (size_ == ring_.size()) {
    std::rotate(ring_.begin(), ring_.begin() + static_cast<ptrdiff_t>(first_), ring_.end());
    first_ = 0;
    ring_.resize(std::max<size_t>(64, 2 * ring_.size()));
  }
  ring_[(first_ + size_++) & (ring_.size() - 1)] = due_ns;
}

void Arrivals::Place(int64_t due_ns) {
  if (!plan_.anywhere) return Push(due_ns);
  // Who starts the run has asked whether there is one. Of a workload that talks nonsense clients stay here.
  const std::optional<uint32_t> site = generator_->DrawSite(random_);
  const bool sound = site && *site < shared_.sites->sites();
  const uint32_t island = sound ? shared_.sites->IslandOf(*site) : options_.island;
  if (island == options_.island) return Push(due_ns);
  leaving_[island].push_back(due_ns);
  leave_ = true;
}

void Arrivals::DrawNextDue() {
  const double mean_ns = 1e9 / plan_.rate_per_s;
  after_due_ns_ += plan_.even ? mean_ns : -std::log1p(-random_.Unit()) * mean_ns;
  const double whole = std::floor(after_due_ns_);
  after_due_ns_ -= whole;
  next_due_ns_ += static_cast<int64_t>(whole);
}

void Arrivals::Arrive() {
  if (!active_) return;
  for (uint32_t n = 0; n < kMostPerRound && next_due_ns_ <= turns_.now_ns(); ++n, DrawNextDue()) {
    if (size_ == kMostWaiting) {  // and all that is due by now
      const auto behind_ns = static_cast<double>(turns_.now_ns() - next_due_ns_);
      counters_.arrivals_refused.Add(1 + static_cast<uint64_t>(behind_ns * plan_.rate_per_s / 1e9));
      next_due_ns_ = turns_.now_ns();
      continue;
    }
    Place(next_due_ns_);
  }
  counters_.clients_waiting.Set(size_);
}

void Arrivals::Send() {
  if (!leave_) return;
  leave_ = false;
  for (uint32_t island = 0; island < leaving_.size(); ++island) {
    std::vector<int64_t>& who = leaving_[island];
    if (who.empty()) continue;
    if (outbox_.SendClients(island, plan_.run_id, who)) {
      counters_.clients_moved.Add(who.size());
      counters_.client_messages.Add(1);
      who.clear();
    } else {
      leave_ = true;
    }
  }
}

void Arrivals::OnClients(uint64_t run_id, std::span<const int64_t> due_ns) {
  if (run_id == plan_.run_id) {
    if (!active_) return;  // it is over here
    for (const int64_t due : due_ns) Push(due);
    return;
  }
  if (std::exchange(early_run_, run_id) != run_id) early_.clear();
  if (early_.size() + due_ns.size() <= kMostWaiting)
    early_.insert(early_.end(), due_ns.begin(), due_ns.end());
}

// Send has just tried: whoever is left cannot go.
void Arrivals::Sweep() {
  if (!leave_ || !active_) return;
  std::vector<int64_t> again;
  for (std::vector<int64_t>& who : leaving_) {
    again.insert(again.end(), who.begin(), who.end());
    who.clear();
  }
  leave_ = false;
  for (const int64_t due_ns : again) Place(due_ns);
}

}  // namespace islands::instance
