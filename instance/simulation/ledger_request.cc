#include "instance/simulation/ledger_request.h"

#include <algorithm>

namespace islands::simulation {
namespace {

class LedgerGenerator final : public instance::Generator {
 public:
  LedgerGenerator(std::shared_ptr<LedgerContext> context, const partitioner::RangePartition& range,
                  uint32_t island)
      : context_(std::move(context)),
        range_(range),
        own_(context_->sites.SitesOf(island)),
        only_reads_(context_->mix.reading_island == island) {}

  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<LedgerRequest>(); }

  void Next(runtime::Random& random, instance::Request& request) override;

  void OnEnd(const coordinator::TransactionId& id, const instance::Request&,
             coordinator::Outcome outcome) override {
    context_->history->End(id, outcome, context_->now_ns());
  }

 private:
  static bool Chance(runtime::Random& random, uint32_t percent) { return random.Below(100) < percent; }
  void PickSites(runtime::Random& random);
  uint64_t PickKey(runtime::Random& random) const;
  uint64_t First(uint32_t site) const { return static_cast<uint64_t>(range_.SiteBegin(site)); }
  Act PickPointAct(runtime::Random& random) const;
  void MakeScan(runtime::Random& random, Item* item) const;
  void MakeColourScan(runtime::Random& random, Item* item) const;
  bool IsElsewhere(const Item& item) const;
  uint32_t LastElsewhere(const LedgerRequest& request) const;
  void MakePoint(runtime::Random& random, const LedgerRequest& request, Item* item) const;

  const std::shared_ptr<LedgerContext> context_;
  const partitioner::RangePartition range_;
  const partitioner::SiteRun own_;
  const bool only_reads_;
  partitioner::SiteRun sites_;  // that this transaction may touch
};

void LedgerGenerator::PickSites(runtime::Random& random) {
  const LedgerMix& mix = context_->mix;
  const uint64_t dice = random.Below(100);
  if (only_reads_) {
    sites_ = {0, context_->sites.sites()};
  } else if (dice < mix.local) {
    sites_ = {own_.first + static_cast<uint32_t>(random.Below(own_.count)), 1};
  } else if (dice < mix.local + mix.multisite) {
    sites_ = own_;
  } else {
    sites_ = {0, context_->sites.sites()};
  }
}

uint64_t LedgerGenerator::PickKey(runtime::Random& random) const {
  const auto site = sites_.first + static_cast<uint32_t>(random.Below(sites_.count));
  const uint64_t begin = First(site), width = First(site + 1) - begin;
  const bool hot = Chance(random, context_->mix.hot);
  // Hot keys are loaded ones and their neighbours, so that insertions meet them too.
  const uint64_t bound = hot ? std::min<uint64_t>(width, 3 * context_->mix.hot_per_site) : width;
  return begin + random.Below(bound);
}

Act LedgerGenerator::PickPointAct(runtime::Random& random) const {
  if (only_reads_) return Act::kRead;
  const LedgerMix& mix = context_->mix;
  uint64_t dice = random.Below(100 - mix.scans);
  if (dice < mix.churn && !mix.deletes) return Act::kInsert;
  if (dice < mix.churn) {
    static constexpr Act kChurn[] = {Act::kInsert, Act::kInsert, Act::kDelete, Act::kDeleteLater};
    return kChurn[random.Below(4)];
  }
  if ((dice -= mix.churn) < mix.blind) return Act::kAdd;
  if ((dice -= mix.blind) < mix.reads) return Act::kRead;
  static constexpr Act kChange[] = {Act::kWrite, Act::kWrite, Act::kReplace, Act::kUpsert};
  return kChange[random.Below(4)];
}

void LedgerGenerator::MakeColourScan(runtime::Random& random, Item* item) const {
  item->act = Act::kColourScan;
  item->reverse = random.Below(2) == 0;
  if (random.Below(3) == 0) item->limit = 1 + static_cast<uint32_t>(random.Below(4));
  item->site_key = PickKey(random);
  item->key = random.Below(kColours);
  item->end_key = item->key + 1 + random.Below(2);
}

void LedgerGenerator::MakeScan(runtime::Random& random, Item* item) const {
  if (context_->mix.by_colour != 0 && Chance(random, context_->mix.by_colour))
    return MakeColourScan(random, item);
  item->act = Chance(random, 30) ? Act::kRescan : Act::kScan;
  item->reverse = random.Below(2) == 0;
  if (random.Below(3) == 0) item->limit = 1 + static_cast<uint32_t>(random.Below(6));
  const uint64_t least = First(sites_.first), most = First(sites_.first + sites_.count);
  const uint64_t widest = Chance(random, 15) ? most - least : std::min<uint64_t>(24, most - least);
  item->key = PickKey(random);
  // Around the picked key, so that a border of sites or islands lies inside the range as often as not.
  item->key -= std::min(item->key - least, random.Below(widest));
  item->end_key = std::min(most, item->key + 1 + random.Below(widest));
}

bool LedgerGenerator::IsElsewhere(const Item& item) const {
  const bool ranges = item.act == Act::kScan || item.act == Act::kRescan;
  const uint64_t first = item.act == Act::kColourScan ? item.site_key : item.key;
  const uint64_t last = ranges ? item.end_key - 1 : first;
  return first < First(own_.first) || last >= First(own_.first + own_.count);
}

void LedgerGenerator::MakePoint(runtime::Random& random, const LedgerRequest& request, Item* item) const {
  item->act = PickPointAct(random);
  const bool wants_row = item->act != Act::kInsert && item->act != Act::kDelete;
  for (int attempt = 0; attempt < 4; ++attempt) {
    item->key = PickKey(random);
    // Most accesses look for rows that are there; deletions and insertions leave enough of the others.
    if (wants_row && !IsLoadedKey(item->key) && Chance(random, 70)) item->key -= item->key % 3;
    const bool taken = std::any_of(request.items.begin(), request.items.end(), [&](const Item& other) {
      return !other.scans() && other.key == item->key;
    });
    if (!taken && item->key >= First(sites_.first)) break;
    item->act = Act::kRead;  // a key is changed by one item only
  }
  item->key = std::max(item->key, First(sites_.first));
  item->amount = static_cast<int64_t>(random.Below(100)) - 50;
  item->padding = static_cast<uint32_t>(random.Below(kMostPadding));
}

void LedgerGenerator::Next(runtime::Random& random, instance::Request& filled) {
  auto& request = static_cast<LedgerRequest&>(filled);
  const LedgerMix& mix = context_->mix;
  request.items.clear();
  request.asked_ns = context_->now_ns();
  request.fails = Chance(random, mix.failing);
  PickSites(random);
  const bool longer = Chance(random, mix.longer);
  const uint64_t items = 1 + random.Below(longer ? 10 : 4);
  const uint64_t batches = 1 + random.Below(longer ? 6 : 2);
  request.batches = 1;
  request.last_elsewhere = UINT32_MAX;
  for (uint64_t n = 0; n < items; ++n) {
    Item item;
    item.batch = static_cast<uint32_t>(random.Below(batches));
    if (Chance(random, mix.scans)) {
      MakeScan(random, &item);
    } else {
      MakePoint(random, request, &item);
    }
    request.batches = std::max(request.batches, item.batch + (item.two_steps() ? 2 : 1));
    request.items.push_back(item);
  }
  if (request.items.front().amount % 2 == 0) request.last_elsewhere = LastElsewhere(request);
}

// Nobody is asked to prepare where there is none.
uint32_t LedgerGenerator::LastElsewhere(const LedgerRequest& request) const {
  uint32_t last = 0;
  for (const Item& item : request.items) {
    if (!IsElsewhere(item)) continue;
    const uint32_t second = item.act == Act::kRescan ? request.batches - 1 : item.batch + 1;
    last = std::max(last, item.two_steps() ? second : item.batch);
  }
  return last;
}

}  // namespace

// One that fails has changed nothing: nobody repeats it.
void LedgerRequest::CodeInput(instance::InputCoder& coder) {
  repeated = coder.reads();
  coder.CodeList(items, [&coder](Item& item) {
    coder.Code(item.act);
    coder.Code(item.batch);
    coder.Code(item.key);
    coder.Code(item.end_key);
    coder.Code(item.site_key);
    coder.Code(item.limit);
    coder.Code(item.reverse);
    coder.Code(item.amount);
    coder.Code(item.padding);
  });
  coder.Code(batches);
  coder.Code(attempt);
  coder.Code(version_step);
}

std::unique_ptr<instance::Generator> MakeLedgerGenerator(const std::shared_ptr<LedgerContext>& context,
                                                         const partitioner::RangePartition& range,
                                                         uint32_t island) {
  return std::make_unique<LedgerGenerator>(context, range, island);
}

}  // namespace islands::simulation
