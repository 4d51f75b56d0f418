#include "experiments/append/append_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/inlined_vector.h"
#include "instance/simulation/serializability.h"

namespace islands::experiments {
namespace {

using simulation::Access;
using simulation::Attempt;
using simulation::History;
using simulation::Word;

constexpr uint64_t kMostVariants = 256;
constexpr size_t kMostComplaints = 20;
static_assert((kMostElements + 1) * kMostVariants <= uint64_t{1} << simulation::kVersionBits);

// The state of a row when its list had `count` elements.
struct Place {
  uint64_t key = 0;
  uint64_t life = 0;
  uint64_t count = 0;
  friend bool operator==(const Place&, const Place&) = default;
  struct Hash {
    size_t operator()(const Place& at) const {
      uint64_t hash = at.key * 0x9e3779b97f4a7c15ull;
      hash = (hash ^ hash >> 29 ^ at.life) * 0xbf58476d1ce4e5b9ull;
      hash = (hash ^ hash >> 32 ^ at.count) * 0x94d049bb133111ebull;
      return hash ^ hash >> 31;
    }
  };
};

// What was found there as the last element, or put there. One, unless something is wrong or was undone.
struct Variant {
  Element last;
  bool seen = false;
  bool committed = false;  // by an attempt that is known to have
  // Whose look counts: they committed.
  absl::InlinedVector<const RecordedAttempt*, 1> readers;
};

using Variants = absl::InlinedVector<Variant, 1>;

// An attempt, or a branch of one that is cut.
struct Part {
  const RecordedAttempt* recorded = nullptr;
  std::optional<uint32_t> site;  // of a branch: the first site of its island
  Attempt::Fate fate = Attempt::kOpen;
  uint64_t begun = 0;
  uint64_t ended = simulation::kForever;
};

class Judge {
 public:
  Judge(const std::vector<RecordedHistory>& histories, Keeps keeps) : histories_(histories), keeps_(keeps) {}

  Judgement Run() {
    FindLives();
    CollectVariants();
    if (keeps_ == Keeps::kWhatWasAnswered) FindWhoBindsAfterPowerWasLost();
    for (const RecordedHistory& history : histories_) {
      for (const RecordedAttempt& attempt : history.attempts) Decide(attempt);
    }
    SetPositions();
    History history;
    for (const Part& part : parts_) Add(part, &history);
    for (std::string& complaint : complaints_) history.Complain(std::move(complaint));
    simulation::Verdict verdict = CheckHistory(history);
    judgement_.violations = std::move(verdict.violations);
    judgement_.transactions = verdict.transactions;
    judgement_.edges = verdict.edges;
    return std::move(judgement_);
  }

 private:
  using Life = std::pair<uint32_t, uint64_t>;  // island, boot epoch

  void FindLives();
  void CollectVariants();
  void FindWhoBindsAfterPowerWasLost();
  Variant& VariantOf(const Place& place, const Element& last);
  void Decide(const RecordedAttempt& attempt);
  void Cut(const RecordedAttempt& attempt);
  bool Seen(const RecordedAttempt& attempt, std::optional<uint32_t> site = {}) const;
  // Whether rows of this life are there to the end.
  bool Lasts(uint64_t life) const {
    return *lives_.at(SiteOfLife(life)).rbegin() == life && !ended_sites_.contains(SiteOfLife(life));
  }
  void CheckHalves(const RecordedAttempt& attempt);
  void CheckLost(const RecordedAttempt& attempt);
  void SetPositions();
  void Add(const Part& part, History* history);
  Word WordOf(const Place& place, const Element& last) const;
  uint64_t NumberOfLife(uint64_t life) const {
    const auto& lives = lives_.at(SiteOfLife(life));
    return 1 + static_cast<uint64_t>(std::distance(lives.begin(), lives.find(life)));
  }
  bool Dead(const Element& id) const { return dead_.contains({id.id().island, id.id().boot_epoch}); }
  void Complain(std::string what) {
    if (complaints_.size() < kMostComplaints) complaints_.push_back(std::move(what));
  }

  const std::vector<RecordedHistory>& histories_;
  const Keeps keeps_;
  std::set<Life> dead_;                           // whose answers bind nobody
  std::map<Life, int64_t> alive_until_;           // at least
  std::set<uint32_t> ended_sites_;                // first sites of islands that did not come back
  std::map<uint32_t, std::set<uint64_t>> lives_;  // of rows, by first site, in order of time
  std::map<uint32_t, uint32_t> islands_;          // by first site
  absl::flat_hash_map<Place, Variants, Place::Hash> variants_;
  std::vector<Part> parts_;
  std::vector<std::string> complaints_;
  Judgement judgement_;
};

void Judge::FindLives() {
  std::map<uint32_t, uint64_t> last_epochs;
  for (const RecordedHistory& history : histories_) {
    islands_[history.first_site] = history.island;
    judgement_.torn_files += history.torn ? 1 : 0;
    for (const RecordedAttempt& attempt : history.attempts) {
      const Life life{history.island, attempt.id.id().boot_epoch};
      int64_t& alive_until = alive_until_[life];
      alive_until = std::max({alive_until, attempt.begun_ns, attempt.ended_ns});
      uint64_t& last = last_epochs[life.first];
      last = std::max(last, life.second);
      if (attempt.fate == RecordedAttempt::kOpen) dead_.insert(life);
      for (const RecordedLook& look : attempt.looks) {
        if (!look.torn) lives_[SiteOfLife(look.before.life)].insert(look.before.life);
      }
    }
  }
  for (const auto& [life, until] : alive_until_) {
    if (life.second < last_epochs[life.first]) dead_.insert(life);
  }
  for (const auto& [site, island] : islands_) {
    if (dead_.contains({island, last_epochs[island]})) ended_sites_.insert(site);
  }
  judgement_.deaths = dead_.size();
  if (keeps_ == Keeps::kNothing) return;
  for (const auto& [site, lives] : lives_) {
    if (lives.size() > 1)
      Complain(fmt::format("lost rows: those of the island with site {} were loaded {} times", site,
                           lives.size()));
  }
  dead_.clear();
  ended_sites_.clear();
}

Variant& Judge::VariantOf(const Place& place, const Element& last) {
  Variants& there = variants_[place];
  for (Variant& variant : there) {
    if (variant.last == last) return variant;
  }
  return there.emplace_back(Variant{.last = last});
}

void Judge::CollectVariants() {
  for (const RecordedHistory& history : histories_) {
    for (const RecordedAttempt& attempt : history.attempts) {
      const bool committed = attempt.fate == RecordedAttempt::kCommitted && !Dead(attempt.id);
      for (const RecordedLook& look : attempt.looks) {
        if (look.torn) {
          Complain(fmt::format("torn row: {} saw parts of different age in key {}",
                               attempt.id.id().ToString(), look.key));
          continue;
        }
        const AppendRow& row = look.before;
        Variant& found = VariantOf({look.key, row.life, row.count}, row.last);
        const bool told = attempt.fate == RecordedAttempt::kCommitted;
        found.seen = found.seen || keeps_ != Keeps::kWhatWasAnswered;
        if (told) found.readers.push_back(&attempt);
        if (!look.appends) continue;
        Variant& made = VariantOf({look.key, row.life, row.count + 1}, attempt.id);
        made.committed = made.committed || committed;
      }
    }
  }
}

// Whoever was told that it has committed, and whoever's element was seen by one that has, has seen what was
// there.
void Judge::FindWhoBindsAfterPowerWasLost() {
  absl::flat_hash_map<std::pair<uint64_t, uint64_t>, const RecordedAttempt*> not_told;  // by element
  std::vector<const RecordedAttempt*> committed;
  for (const RecordedHistory& history : histories_) {
    for (const RecordedAttempt& attempt : history.attempts) {
      if (attempt.fate == RecordedAttempt::kCommitted) committed.push_back(&attempt);
      if (attempt.fate == RecordedAttempt::kOpen || attempt.fate == RecordedAttempt::kUnknown)
        not_told[{attempt.id.origin, attempt.id.sequence}] = &attempt;
    }
  }
  while (!committed.empty()) {
    const RecordedAttempt& attempt = *committed.back();
    committed.pop_back();
    for (const RecordedLook& look : attempt.looks) {
      if (look.torn) continue;
      const Element& last = look.before.last;
      VariantOf({look.key, look.before.life, look.before.count}, last).seen = true;
      const auto writer = not_told.find({last.origin, last.sequence});
      if (writer == not_told.end()) continue;
      committed.push_back(writer->second);
      not_told.erase(writer);
    }
  }
}

// Whether anybody saw an element of this attempt, on the island of `site` or anywhere.
bool Judge::Seen(const RecordedAttempt& attempt, std::optional<uint32_t> site) const {
  return std::any_of(attempt.looks.begin(), attempt.looks.end(), [&](const RecordedLook& look) {
    const AppendRow& row = look.before;
    if (look.torn || !look.appends || (site && *site != SiteOfLife(row.life))) return false;
    const Variants& there = variants_.at({look.key, row.life, row.count + 1});
    return std::any_of(there.begin(), there.end(),
                       [&](const Variant& variant) { return variant.last == attempt.id && variant.seen; });
  });
}

// Of one whose outcome nobody was told, or whose coordinator died: where somebody saw its element, and where
// it is not, among the rows that were never lost. There is another one in its place, or the row is as before
// for somebody who began when it had committed: after its answer, or after the end of somebody who saw it.
void Judge::CheckHalves(const RecordedAttempt& attempt) {
  std::optional<uint64_t> seen, missing;  // keys
  const bool answered = attempt.fate == RecordedAttempt::kCommitted;
  int64_t committed_ns = answered ? attempt.ended_ns : std::numeric_limits<int64_t>::max();
  const auto lasting = [&](auto&& visit) {
    for (const RecordedLook& look : attempt.looks) {
      if (!look.torn && look.appends && Lasts(look.before.life)) visit(look.key, look.before);
    }
  };
  lasting([&](uint64_t key, const AppendRow& row) {
    const Variant& made = VariantOf({key, row.life, row.count + 1}, attempt.id);
    if (made.seen) seen = key;
    for (const RecordedAttempt* reader : made.readers)
      committed_ns = std::min(committed_ns, reader->ended_ns);
  });
  if (!seen) return;
  lasting([&](uint64_t key, const AppendRow& row) {
    for (const Variant& variant : variants_.at({key, row.life, row.count + 1})) {
      if (variant.last != attempt.id && (variant.seen || variant.committed)) missing = key;
    }
    for (const RecordedAttempt* reader : VariantOf({key, row.life, row.count}, row.last).readers) {
      if (reader->begun_ns > committed_ns) missing = key;
    }
  });
  if (!missing) return;
  Complain(
      fmt::format("half a commit: of {} key {} has the element, key {} has not, and both islands are alive",
                  attempt.id.id().ToString(), *seen, *missing));
}

// Of one whose coordinator died after its answer: as long as that lived, whoever began after the answer has
// to find the elements.
void Judge::CheckLost(const RecordedAttempt& attempt) {
  if (attempt.fate != RecordedAttempt::kCommitted) return;
  const int64_t alive_until = alive_until_.at({attempt.id.id().island, attempt.id.id().boot_epoch});
  for (const RecordedLook& look : attempt.looks) {
    const AppendRow& row = look.before;
    if (look.torn || !look.appends) continue;
    for (const RecordedAttempt* reader : VariantOf({look.key, row.life, row.count}, row.last).readers) {
      if (reader->begun_ns <= attempt.ended_ns || reader->ended_ns >= alive_until) continue;
      Complain(
          fmt::format("lost commit: of {} key {} has no element for {}, which began after its answer and "
                      "ended while its coordinator lived",
                      attempt.id.id().ToString(), look.key, reader->id.id().ToString()));
      break;
    }
  }
}

void Judge::Decide(const RecordedAttempt& attempt) {
  ++judgement_.attempts;
  judgement_.looks += attempt.looks.size();
  const auto site_of = [](const RecordedLook& look) { return SiteOfLife(look.before.life); };
  const auto differs = [&](const RecordedLook& look) { return site_of(look) != site_of(attempt.looks[0]); };
  const bool several = std::any_of(attempt.looks.begin(), attempt.looks.end(), differs);
  const auto appends = [](const RecordedLook& look) { return look.appends; };
  const bool writes = std::any_of(attempt.looks.begin(), attempt.looks.end(), appends);
  bool committed = false;
  switch (attempt.fate) {
    case RecordedAttempt::kCommitted:
      ++judgement_.committed;
      judgement_.distributed += several ? 1 : 0;
      if (Dead(attempt.id) && writes && several) return Cut(attempt);
      committed = true;
      break;
    case RecordedAttempt::kAborted:
      ++judgement_.aborted;
      break;
    case RecordedAttempt::kUnknown:
    case RecordedAttempt::kOpen:
      ++(attempt.fate == RecordedAttempt::kOpen ? judgement_.open : judgement_.unknown);
      if (Dead(attempt.id) && writes) return Cut(attempt);
      CheckHalves(attempt);
      committed = Seen(attempt);
      break;
  }
  parts_.push_back({.recorded = &attempt, .fate = committed ? Attempt::kCommitted : Attempt::kAborted});
}

void Judge::Cut(const RecordedAttempt& attempt) {
  ++judgement_.cut;
  CheckHalves(attempt);
  CheckLost(attempt);
  std::set<uint32_t> sites;
  for (const RecordedLook& look : attempt.looks) {
    if (!look.torn) sites.insert(SiteOfLife(look.before.life));
  }
  for (const uint32_t site : sites) {
    const bool seen = Seen(attempt, site);
    parts_.push_back(
        {.recorded = &attempt, .site = site, .fate = seen ? Attempt::kCommitted : Attempt::kAborted});
  }
}

// Ends of the same time come after begins: they do not count as earlier.
void Judge::SetPositions() {
  std::vector<std::tuple<int64_t, bool, uint32_t>> moments;  // when, end?, part
  moments.reserve(2 * parts_.size());
  for (uint32_t i = 0; i < parts_.size(); ++i) {
    const RecordedAttempt& recorded = *parts_[i].recorded;
    moments.emplace_back(recorded.begun_ns, false, i);
    if (recorded.fate == RecordedAttempt::kCommitted) moments.emplace_back(recorded.ended_ns, true, i);
  }
  std::sort(moments.begin(), moments.end());
  uint64_t position = 0;
  for (const auto& [when, end, part] : moments) (end ? parts_[part].ended : parts_[part].begun) = ++position;
}

Word Judge::WordOf(const Place& place, const Element& last) const {
  const Variants& there = variants_.at(place);
  uint64_t variant = 0;
  while (there[variant].last != last) ++variant;
  variant = std::min(variant, kMostVariants - 1);
  const Word loaded = simulation::LoadedWord(NumberOfLife(place.life));
  return loaded + (place.count * kMostVariants + variant);
}

// Of one that did not commit only the appends are told: who saw them is to be accused by name.
void Judge::Add(const Part& part, History* history) {
  const RecordedAttempt& recorded = *part.recorded;
  Attempt attempt{.id = recorded.id.id(), .fate = part.fate, .finished = true};
  attempt.begun = part.begun;
  attempt.ended = part.ended;
  for (const RecordedLook& look : recorded.looks) {
    const AppendRow& row = look.before;
    if (look.torn || (part.fate != Attempt::kCommitted && !look.appends)) continue;
    if (part.site && *part.site != SiteOfLife(row.life)) continue;
    const auto island = islands_.find(SiteOfLife(row.life));
    Access access{.kind = look.appends ? Access::kUpdate : Access::kRead, .key = look.key};
    access.island = island == islands_.end() ? SiteOfLife(row.life) : island->second;
    access.life = NumberOfLife(row.life);
    access.before = access.after = WordOf({look.key, row.life, row.count}, row.last);
    if (look.appends) access.after = WordOf({look.key, row.life, row.count + 1}, recorded.id);
    access.learned = part.begun;
    attempt.accesses.push_back(access);
    history->SetLoaded(look.key);
  }
  history->Add(std::move(attempt));
}

}  // namespace

Judgement JudgeAppends(const std::vector<RecordedHistory>& histories, Keeps keeps) {
  return Judge(histories, keeps).Run();
}

}  // namespace islands::experiments
