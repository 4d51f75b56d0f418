#include "instance/simulation/serializability.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "instance/simulation/graph.h"

namespace islands::simulation {
namespace {

constexpr size_t kMostViolations = 20;
constexpr uint32_t kNobody = 0xffffffff;  // the loader

// A transaction, or a branch of one that was torn.
struct Participant {
  size_t attempt = 0;
  std::optional<uint32_t> island;  // of a branch
  bool committed = false;
  bool undecided = false;  // nothing says yet whether it committed
  uint64_t begun = 0;
  uint64_t ended = kForever;
};

struct Look {
  uint32_t who = 0;
  const Access* access = nullptr;
};

struct Version {
  Word word = kAbsent;
  uint32_t writer = kNobody;
  uint64_t learned = 0;
  bool has_amount = false;
  int64_t amount = 0;
};

// The versions of one word. Of a row that comes and goes there are as many absences as looks at it.
struct Named {
  std::vector<uint32_t> versions;  // their numbers, growing
  std::vector<uint64_t> earliest;  // at i: the least `learned` of versions[i] and all after it
};

struct RowLog {
  std::vector<Look> looks;  // everybody's, in the order of `learned`
  std::vector<Version> versions;
  std::unordered_map<Word, Named> by_word;
};

class Checker {
 public:
  Checker(const History& history, const std::vector<FinalRow>& rows) : history_(history) {
    MakeParticipants();
    for (const FinalRow& row : rows) AddFinal(row);
    CollectLooks();
    Resolve();
  }

  Verdict Run() {
    for (const std::string& complaint : history_.complaints()) Report(complaint);
    CheckAttempts();
    CheckHalves();
    for (uint32_t i = 0; i < participants_.size(); ++i) graph_.AddNode();
    for (auto& [row, log] : rows_) OrderVersions(row, &log);
    for (auto& [row, log] : rows_) Connect(row, log);
    ConnectRealTime();
    FindCycle();
    Verdict verdict;
    verdict.violations = std::move(violations_);
    verdict.committed.assign(history_.attempts().size(), true);
    for (const Participant& who : participants_) {
      if (who.attempt >= verdict.committed.size()) continue;
      if (!who.committed) verdict.committed[who.attempt] = false;
      verdict.transactions += who.committed ? 1 : 0;
    }
    verdict.edges = graph_.edges();
    return verdict;
  }

 private:
  using RowName = std::pair<uint64_t, uint64_t>;  // key, life

  void Report(std::string violation) {
    if (violations_.size() < kMostViolations) violations_.push_back(std::move(violation));
  }
  std::string Name(uint32_t who) const {
    if (who == kNobody) return "the loader";
    const Participant& participant = participants_[who];
    if (participant.attempt >= history_.attempts().size()) return "the final state";
    const Attempt& attempt = history_.attempts()[participant.attempt];
    std::string name = fmt::format("{} ({}, {} to {})", attempt.id.ToString(), FateName(attempt.fate),
                                   attempt.begun, attempt.ended == kForever ? 0 : attempt.ended);
    if (participant.island) name += fmt::format(" on island {}", *participant.island);
    return name;
  }
  static std::string Show(Word word) {
    return word == kAbsent ? "absent" : fmt::format("{}v{}", IncarnationOf(word), VersionOf(word));
  }
  static std::string Show(const RowName& row) {
    return fmt::format("key {} (life {})", row.first, row.second);
  }

  void MakeParticipants();
  void AddFinal(const FinalRow& row);
  void CollectLooks();
  void Resolve();
  std::optional<bool> WasSeen(uint32_t who, std::optional<uint32_t> island = {}) const;
  void CheckHalves();
  void CheckAttempts();
  void OrderVersions(const RowName& row, RowLog* log);
  void Connect(const RowName& row, const RowLog& log);
  void ConnectLook(const RowName& row, const RowLog& log, const Look& look);
  const Version* FindVersion(const RowLog& log, const Access& access) const;
  void ReportUnexplained(const RowName& row, const RowLog& log, const Look& look);
  void ConnectRealTime();
  void FindCycle();
  std::string Describe(const std::vector<Graph::Step>& cycle) const;

  const History& history_;
  std::vector<Participant> participants_;
  std::vector<Access> final_accesses_;
  std::map<RowName, RowLog> rows_;
  std::vector<std::vector<std::pair<RowName, const Access*>>> writes_;  // by participant, in order
  Graph graph_;
  std::vector<std::string> violations_;
};

void Checker::MakeParticipants() {
  const std::vector<Attempt>& attempts = history_.attempts();
  for (size_t i = 0; i < attempts.size(); ++i) {
    const Attempt& attempt = attempts[i];
    const bool answered = attempt.fate == Attempt::kCommitted;
    Participant participant{.attempt = i, .begun = attempt.begun};
    participant.ended = answered ? attempt.ended : kForever;
    participant.committed = answered && !attempt.torn && !attempt.cut;
    participant.undecided = !participant.committed && attempt.finished && attempt.fate != Attempt::kAborted;
    if (!attempt.torn) {
      participants_.push_back(participant);
      continue;
    }
    std::vector<uint32_t> islands;
    for (const Access& access : attempt.accesses) islands.push_back(access.island);
    std::sort(islands.begin(), islands.end());
    islands.erase(std::unique(islands.begin(), islands.end()), islands.end());
    for (const uint32_t island : islands) {
      participant.island = island;
      participants_.push_back(participant);
    }
  }
}

// The final state is one more transaction, the last, that reads everything.
void Checker::AddFinal(const FinalRow& row) {
  Access access{.kind = Access::kRead, .island = row.island, .key = row.key, .life = row.life};
  access.before = access.after = row.word;
  access.has_amount = row.word != kAbsent;
  access.amount = row.amount;
  access.learned = kForever;
  final_accesses_.push_back(access);
}

void Checker::CollectLooks() {
  writes_.resize(participants_.size() + 1);
  for (uint32_t who = 0; who < participants_.size(); ++who) {
    const Participant& participant = participants_[who];
    for (const Access& access : history_.attempts()[participant.attempt].accesses) {
      if (participant.island && *participant.island != access.island) continue;
      rows_[{access.key, access.life}].looks.push_back({who, &access});
      if (access.writes()) writes_[who].push_back({{access.key, access.life}, &access});
    }
  }
  if (!final_accesses_.empty()) {
    const auto who = static_cast<uint32_t>(participants_.size());
    participants_.push_back({.attempt = history_.attempts().size(), .committed = true, .begun = kForever});
    for (const Access& access : final_accesses_)
      rows_[{access.key, access.life}].looks.push_back({who, &access});
  }
  for (auto& [row, log] : rows_) {
    std::stable_sort(log.looks.begin(), log.looks.end(),
                     [](const Look& a, const Look& b) { return a.access->learned < b.access->learned; });
  }
}

// Whether the next one to look at a row that `who` wrote saw what it left there; nothing: nobody looked. One
// that was seen is enough. `island`: only rows there.
std::optional<bool> Checker::WasSeen(uint32_t who, std::optional<uint32_t> island) const {
  std::optional<bool> seen;
  for (size_t i = 0; i < writes_[who].size(); ++i) {
    const auto& [row, access] = writes_[who][i];
    if (island && *island != access->island) continue;
    const auto later = [&, row = row](const auto& write) { return write.first == row; };
    if (std::any_of(writes_[who].begin() + static_cast<ptrdiff_t>(i) + 1, writes_[who].end(), later))
      continue;
    const RowLog& log = rows_.at(row);
    // Whose branch was given up before its answer came may have learned of its write when others had already
    // made the same version: then it is theirs.
    const bool taken =
        std::any_of(log.looks.begin(), log.looks.end(), [&, access = access](const Look& look) {
          return look.who != who && participants_[look.who].committed && !participants_[look.who].undecided &&
                 look.access->writes() && access->after != kAbsent && look.access->after == access->after;
        });
    if (taken) continue;
    const auto next =
        std::find_if(log.looks.begin(), log.looks.end(), [&, access = access](const Look& look) {
          const bool counts = !history_.lossy() || participants_[look.who].committed;
          return look.who != who && counts && look.access->learned > access->learned;
        });
    if (next == log.looks.end()) continue;
    if (next->access->before == access->after) return true;
    seen = false;
  }
  return seen;
}

void Checker::Resolve() {
  std::vector<std::pair<uint64_t, uint32_t>> undecided;  // lock point, who
  for (uint32_t who = 0; who < participants_.size(); ++who) {
    if (!participants_[who].undecided) continue;
    const std::vector<Access>& accesses = history_.attempts()[participants_[who].attempt].accesses;
    undecided.push_back({accesses.empty() ? 0 : accesses.back().learned, who});
  }
  if (history_.lossy()) std::sort(undecided.rbegin(), undecided.rend());
  for (const auto& [lock_point, who] : undecided) participants_[who].committed = WasSeen(who).value_or(false);
}

// Whatever becomes of a transaction whose outcome nobody was told: on the islands that have not died it is
// the same. That holds without durability, too (coordinator/participant.h, "orphaned").
void Checker::CheckHalves() {
  std::map<uint32_t, uint64_t> last_lives;
  for (const Access& access : final_accesses_) last_lives[access.island] = access.life;
  std::map<size_t, std::map<bool, std::string>> found;  // by attempt: where it was seen, and where it was not
  for (uint32_t who = 0; who < participants_.size(); ++who) {
    const Participant& participant = participants_[who];
    if (!participant.undecided) continue;
    std::map<uint32_t, uint64_t> lives;
    for (const auto& [row, access] : writes_[who]) lives[access->island] = access->life;
    for (const auto& [island, life] : lives) {
      const auto last = last_lives.find(island);
      if (last == last_lives.end() || last->second != life) continue;
      const std::optional<bool> seen = WasSeen(who, island);
      if (seen) found[participant.attempt][*seen] = fmt::format("{} on island {}", Name(who), island);
    }
  }
  for (const auto& [attempt, halves] : found) {
    if (halves.size() != 2) continue;
    Report(fmt::format("half a commit: {} was seen, {} was not, and both islands are alive", halves.at(true),
                       halves.at(false)));
  }
}

// What needs no graph.
void Checker::CheckAttempts() {
  for (uint32_t who = 0; who < participants_.size(); ++who) {
    const Participant& participant = participants_[who];
    if (!participant.committed || participant.attempt >= history_.attempts().size()) continue;
    const Attempt& attempt = history_.attempts()[participant.attempt];
    if (attempt.doomed) {
      Report(fmt::format(
          "lost branch: {} committed although an island with one of its branches had died before that "
          "one voted",
          Name(who)));
    }
    std::map<uint32_t, uint64_t> lives;
    for (const Access& access : attempt.accesses) {
      const uint64_t life = lives.try_emplace(access.island, access.life).first->second;
      if (life == access.life) continue;
      Report(fmt::format("two lives: {} committed and touched island {} in life {} and in life {}", Name(who),
                         access.island, life, access.life));
      break;
    }
  }
}

// Insertions in the order in which they were learned; after each its changes by number, then its deletion.
void Checker::OrderVersions(const RowName& row, RowLog* log) {
  using Place = std::tuple<uint64_t, bool, uint64_t, uint64_t>;  // insertion, deleted?, version, learned
  const Word loaded = history_.IsLoaded(row.first) ? LoadedWord(row.second) : kAbsent;
  std::map<uint64_t, uint64_t> inserted;  // incarnation -> learned
  if (loaded != kAbsent) inserted[IncarnationOf(loaded)] = 0;
  std::vector<std::pair<Place, Look>> writes;
  for (const Look& look : log->looks) {
    const Access& access = *look.access;
    if (!access.writes() || !participants_[look.who].committed) continue;
    const bool deleted = access.after == kAbsent;
    const uint64_t incarnation = IncarnationOf(deleted ? access.before : access.after);
    const uint64_t since = inserted.try_emplace(incarnation, access.learned).first->second;
    writes.push_back({{since, deleted, VersionOf(access.after), access.learned}, look});
  }
  std::sort(writes.begin(), writes.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  log->versions.push_back({.word = loaded});
  for (const auto& [place, look] : writes) {
    const Access& access = *look.access;
    log->versions.push_back({access.after, look.who, access.learned, access.has_amount, access.amount});
  }
  for (uint32_t i = 0; i < log->versions.size(); ++i)
    log->by_word[log->versions[i].word].versions.push_back(i);
  for (auto& [word, named] : log->by_word) {
    uint64_t earliest = std::numeric_limits<uint64_t>::max();
    named.earliest.resize(named.versions.size());
    for (size_t i = named.versions.size(); i-- > 0;) {
      earliest = std::min(earliest, log->versions[named.versions[i]].learned);
      named.earliest[i] = earliest;
    }
  }
}

void Checker::Connect(const RowName& row, const RowLog& log) {
  for (size_t i = 1; i < log.versions.size(); ++i) {
    const uint32_t earlier = log.versions[i - 1].writer;
    if (earlier != kNobody)
      graph_.AddEdge(earlier, {log.versions[i].writer, EdgeKind::kWriteWrite, row.first, row.second});
  }
  std::map<uint32_t, Word> own;  // what each writer left there so far
  for (const Look& look : log.looks) {
    if (!participants_[look.who].committed) continue;
    const auto mine = own.find(look.who);
    if (mine == own.end()) {
      ConnectLook(row, log, look);
    } else if (mine->second != look.access->before) {
      Report(fmt::format("own write not seen: {} left {} in {} and then saw {}", Name(look.who),
                         Show(mine->second), Show(row), Show(look.access->before)));
    }
    if (look.access->writes()) own[look.who] = look.access->after;
  }
}

// The version that an access saw: by its name, an absence by its time, which is the last one learned before
// it, or the first. Null: nobody left it there.
const Version* Checker::FindVersion(const RowLog& log, const Access& access) const {
  const auto found = log.by_word.find(access.before);
  if (found == log.by_word.end()) return nullptr;
  const Named& named = found->second;
  const auto after = std::lower_bound(named.earliest.begin(), named.earliest.end(), access.learned);
  const size_t later = static_cast<size_t>(after - named.earliest.begin());
  return &log.versions[named.versions[later == 0 ? 0 : later - 1]];
}

void Checker::ConnectLook(const RowName& row, const RowLog& log, const Look& look) {
  const Version* seen = FindVersion(log, *look.access);
  if (seen == nullptr) return ReportUnexplained(row, log, look);
  if (seen->writer != kNobody)
    graph_.AddEdge(seen->writer, {look.who, EdgeKind::kWriteRead, row.first, row.second});
  const bool by_scan = look.access->kind == Access::kPredicateRead;
  if (seen != &log.versions.back()) {
    graph_.AddEdge(look.who, {(seen + 1)->writer, by_scan ? EdgeKind::kPredicateWrite : EdgeKind::kReadWrite,
                              row.first, row.second});
  }
  const bool comparable = !look.access->writes() && look.access->has_amount && seen->has_amount;
  if (comparable && look.access->amount != seen->amount) {
    Report(fmt::format("torn row: {} read amount {} in {} {}, which {} left at {}", Name(look.who),
                       look.access->amount, Show(row), Show(seen->word), Name(seen->writer), seen->amount));
  }
}

void Checker::ReportUnexplained(const RowName& row, const RowLog& log, const Look& look) {
  if (violations_.size() == kMostViolations) return;  // a broken history may have very many
  for (const Look& other : log.looks) {
    const bool wrote_it = other.access->writes() && other.access->after == look.access->before;
    if (!wrote_it || participants_[other.who].committed || other.who == look.who) continue;
    return Report(fmt::format("G1a, aborted read: {} saw {} in {}, written by {}, which did not commit",
                              Name(look.who), Show(look.access->before), Show(row), Name(other.who)));
  }
  Report(fmt::format("unexplained: {} saw {} in {}, which nobody left there", Name(look.who),
                     Show(look.access->before), Show(row)));
}

void Checker::ConnectRealTime() {
  struct Moment {
    uint64_t at;
    uint32_t who;
    bool begins;
  };
  std::vector<Moment> moments;
  for (uint32_t who = 0; who < participants_.size(); ++who) {
    const Participant& participant = participants_[who];
    if (!participant.committed) continue;
    moments.push_back({participant.begun, who, true});
    if (participant.ended != kForever) moments.push_back({participant.ended, who, false});
  }
  std::sort(moments.begin(), moments.end(),
            [](const Moment& a, const Moment& b) { return std::tie(a.at, a.who) < std::tie(b.at, b.who); });
  uint32_t latest = kNobody;
  for (const Moment& moment : moments) {
    if (moment.begins) {
      if (latest != kNobody) graph_.AddEdge(latest, {moment.who, EdgeKind::kRealTime});
      continue;
    }
    const uint32_t barrier = graph_.AddNode(/*helper=*/true);
    if (latest != kNobody) graph_.AddEdge(latest, {barrier, EdgeKind::kRealTime});
    graph_.AddEdge(moment.who, {barrier, EdgeKind::kRealTime});
    latest = barrier;
  }
}

void Checker::FindCycle() {
  std::vector<Graph::Step> cycle = graph_.SmallestCycle(/*with_real_time=*/false);
  if (cycle.empty()) cycle = graph_.SmallestCycle(/*with_real_time=*/true);
  if (!cycle.empty()) Report(Describe(cycle));
}

std::string Checker::Describe(const std::vector<Graph::Step>& cycle) const {
  std::map<EdgeKind, size_t> kinds;
  for (const Graph::Step& step : cycle) ++kinds[step.edge.kind];
  const size_t scans = kinds[EdgeKind::kPredicateWrite];
  const size_t anti = kinds[EdgeKind::kReadWrite] + scans;
  const bool one_row = cycle.size() == 2 && cycle[0].edge.key == cycle[1].edge.key;
  std::string text;
  if (kinds[EdgeKind::kRealTime] != 0) {
    text = "real-time violation, serializable but not in the order of the answers";
  } else if (anti == 0) {
    text = kinds[EdgeKind::kWriteRead] == 0 ? "G0, dirty write" : "G1c, circular information flow";
  } else if (anti == 1 && one_row && kinds[EdgeKind::kWriteWrite] == 1) {
    text = "P4, lost update";
  } else if (anti == 1 && one_row && kinds[EdgeKind::kWriteRead] == 1) {
    text = "G1b, intermediate or fuzzy read";
  } else if (anti == 1) {
    text = scans == 0 ? "G-single, read skew" : "G-single, read skew by a scan";
  } else {
    text = scans == 0 ? "G2-item, write skew" : "G2, phantom";
  }
  text += fmt::format("; a cycle of {}:", cycle.size());
  for (const Graph::Step& step : cycle) {
    text += fmt::format("\n    {} --{}", Name(step.node), EdgeKindName(step.edge.kind));
    if (step.edge.kind != EdgeKind::kRealTime) text += " " + Show(RowName(step.edge.key, step.edge.life));
    text += "-->";
  }
  return text;
}

}  // namespace

Verdict CheckHistory(const History& history, const std::vector<FinalRow>& rows) {
  return Checker(history, rows).Run();
}

}  // namespace islands::simulation
