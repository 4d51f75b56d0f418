// Where workers spend their time, and transactions theirs, as sums over workers and islands: what `profile`
// and `run` show.
//
//   of a core         busy (by kind of work), waiting, idle; per transaction these add up to workers x time /
//                     transactions
//   of a transaction  running, and waiting for its turn, locks, other islands, the disk; together its latency
//
// Kinds of work are known of some rounds of each worker's loop (instance/worker/work_sampler.h): a kind's
// part of the busy time is its part of what was measured. Stays are those of one transaction in 61: their
// means have a standard error, as of so many transactions drawn by chance.
//
//   latches           every wait, with where in the code the latch was wanted and had been taken, and which
//                     one it is: the lock and the critical section (Horikawa, ICPE 2011, section 3)
//   rows              waits for locks of rows, gaps and sites, with what the holder was doing
//   queues            waits for room, and for a turn
//
// Each is ranked by its seconds per committed transaction.
//
// Thread safety: plain values and functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "proto/control.pb.h"

namespace islands::deploy {

inline constexpr size_t kScopes = 3;
inline constexpr std::array<const char*, kScopes> kScopeNames = {"local", "multisite", "distributed"};

struct Profile {
  struct Stays {  // of committed transactions that were watched
    uint64_t transactions = 0;
    std::map<std::string, double> seconds;
    std::map<std::string, double> seconds_squared;  // sums of squares, also of all "together"

    double of(const std::string& name) const;  // seconds; also of all "together"
    // Of the mean of that stay, standard error / mean; none where one transaction or none had it.
    std::optional<double> relative_error(const std::string& name) const;
  };
  struct Waits {
    uint64_t waits = 0;
    double seconds = 0;
    std::map<std::string, double> holders;  // of rows: seconds by what the holder was doing
  };
  using Names = std::array<std::string, 3>;
  using WaitsByNames = std::map<Names, Waits>;

  std::map<std::string, double> work_seconds;
  std::array<Stays, kScopes> stays;
  WaitsByNames latches;                    // where it was wanted, where it had been taken, which one
  WaitsByNames rows;                       // table, key
  WaitsByNames queues;                     // name
  std::map<std::string, double> hardware;  // what the processor has counted; of what it does not nothing
  std::string hardware_problem;            // why it has counted nothing

  double measured_seconds() const;
  void Add(const Profile& other);
};

Profile ProfileOf(const control::v1::WorkerCounters& worker);
// later - earlier; what shrank counts as 0.
Profile Difference(const Profile& later, const Profile& earlier);

struct Sums;
// Both views, and the latches, rows and queues that were waited for longest.
nlohmann::ordered_json ProfileJson(const Sums& sums);
std::string ProfileText(const Sums& sums);

}  // namespace islands::deploy
