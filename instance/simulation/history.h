// What the transactions of a simulated cluster did, as they themselves saw it: the input of the checker.
//
// Every row carries the name of its version (Word): which insertion it stems from and how often it was
// changed since. So an observation says exactly whose write it saw, and a write what it replaced. What cannot
// be read from data - the place of an absence between a deletion and the next insertion - is told by
// `learned`, the moment at which the procedure had the result: under strict two-phase locking the transaction
// holds its lock then, so the order of these moments is the order of the accesses.
//
// A restarted island has lost its rows and holds freshly loaded ones (durability none). A row is therefore
// named by key and by life, the boot epoch of its island: rows of an earlier life are other rows.
//
// Where power is lost, what was not durable is gone on all islands: its versions, and whoever had seen them.
// Nobody makes a version again that somebody made before the loss (ledger.h).
//
// Real threads and processes tell their history afterwards (Add); there the names of versions alone say what
// was seen, and `learned` decides nothing.
//
// Thread safety: none; a simulated cluster runs in one thread.
//
// Invariants:
//  1. Positions (begun, ended, learned) are unique and grow in the order in which things happened; 0 is
//     before everything.
//  2. Operations of an attempt are in the order in which they were carried out.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "coordinator/coordinator.h"
#include "coordinator/transaction_id.h"

namespace islands::simulation {

// incarnation << 32 | version; never 0 for a row that exists.
using Word = uint64_t;
inline constexpr Word kAbsent = 0;
inline constexpr uint32_t kVersionBits = 32;
constexpr Word MakeWord(uint64_t incarnation, uint64_t version) {
  return incarnation << kVersionBits | version;
}
constexpr uint64_t IncarnationOf(Word word) { return word >> kVersionBits; }
constexpr uint64_t VersionOf(Word word) { return word & ((uint64_t{1} << kVersionBits) - 1); }
// Of the rows that an island loads when it boots. Incarnations of inserted rows are below 2^30.
constexpr Word LoadedWord(uint64_t life) { return MakeWord((uint64_t{1} << 30) + life, 1); }

inline constexpr uint64_t kForever = std::numeric_limits<uint64_t>::max();

struct Access {
  enum Kind : uint8_t {
    kRead,
    kPredicateRead,  // a scan's look at one key of its range, present or not
    kUpdate,
    kInsert,
    kDelete,
  };
  Kind kind = kRead;
  uint32_t island = 0;  // that holds the key
  uint64_t key = 0;
  uint64_t life = 0;      // of that island, as the transaction knew it when it asked
  Word before = kAbsent;  // what was there
  Word after = kAbsent;   // what is there now
  bool has_amount = false;
  int64_t amount = 0;  // in the row after the access; lets torn rows be seen
  int64_t delta = 0;   // by which this access changed the sum of all amounts
  uint64_t learned = 0;

  bool writes() const { return kind >= kUpdate; }
};

struct Attempt {
  enum Fate : uint8_t { kOpen, kAborted, kCommitted, kUnknown };
  coordinator::TransactionId id;
  Fate fate = kOpen;      // kOpen at the end: its island died first
  bool finished = false;  // its procedure asked for the commit
  // Its coordinator died while it told the participants to commit, and lost its own changes: its branches
  // stand for themselves. (What they have become they have agreed on.)
  bool torn = false;
  // Its coordinator still executed when a participant died that had not voted: it never will.
  bool doomed = false;
  // Power was lost, and nobody had promised that its answer would survive that.
  bool cut = false;
  uint64_t begun = 0;
  uint64_t ended = kForever;
  int64_t asked_ns = 0;  // when the request was made; earlier attempts may have been victims
  int64_t ended_ns = 0;
  std::vector<Access> accesses;
};

std::string_view FateName(Attempt::Fate fate);

class History {
 public:
  // The attempt's number, which never changes.
  size_t Begin(const coordinator::TransactionId& id, int64_t asked_ns);
  void Learn(size_t attempt, Access access);
  // The procedure is done and the commit is asked for.
  void Finish(size_t attempt) { attempts_[attempt].finished = true; }
  void End(const coordinator::TransactionId& id, coordinator::Outcome outcome, int64_t now_ns);
  // The box epoch, looked at after every step.
  void NoteEpoch(uint64_t epoch);
  // Power was lost: epochs above this one do not count. Where answers do not wait, those that were given
  // since an epoch above it may have begun are void.
  void LosePower(uint64_t durable, bool answers_wait);
  bool lossy() const { return lossy_; }
  Attempt* Find(const coordinator::TransactionId& id);
  // One that is known as a whole, from a record of real processes: with its fate and its positions, for whose
  // order (invariant 1) the caller answers. Find does not find it.
  void Add(Attempt attempt);
  // Something a procedure saw that is wrong by itself: a scan out of order, for example.
  void Complain(std::string complaint) { complaints_.push_back(std::move(complaint)); }

  // A row that is there when an island begins a life; by default none is.
  void SetLoaded(uint64_t key) { loaded_[key] = true; }
  bool IsLoaded(uint64_t key) const { return loaded_.contains(key); }

  const std::vector<Attempt>& attempts() const { return attempts_; }
  const std::vector<std::string>& complaints() const { return complaints_; }
  uint64_t ended() const { return ended_; }
  uint64_t committed() const { return committed_; }

 private:
  std::vector<Attempt> attempts_;
  std::map<coordinator::TransactionId, size_t> by_id_;
  std::map<uint64_t, bool> loaded_;
  std::vector<std::string> complaints_;
  struct Raised {
    uint64_t epoch;
    uint64_t position;  // when it had not been raised yet
  };
  std::vector<Raised> epochs_;
  uint64_t looked_ = 0;  // position of the last look at the epoch
  bool lossy_ = false;
  uint64_t position_ = 0;
  uint64_t ended_ = 0;
  uint64_t committed_ = 0;
};

}  // namespace islands::simulation
