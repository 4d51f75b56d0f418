// What `islands top` knows of a cluster: a row per island, its history, and what is made of all rows.
//
// Thread safety: plain values; TopSampler belongs to one thread.
//
// Invariants:
//  1. No rate is ever negative: an island that restarted begins anew, and its history keeps a gap.
//  2. An island whose rates are not known (first look, restart, no answer) has `seconds` 0 and counts in no
//     rate, total or imbalance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/cluster/client.h"
#include "deploy/run/counters.h"
#include "deploy/top/gateway.h"

namespace islands::deploy {

inline constexpr size_t kTopHistory = 512;  // points; more than any terminal has columns to show

// What an island did between two looks; not known if it did not answer or had restarted.
struct TopPoint {
  bool known = false;
  double committed_per_s = 0;
  double busy_fraction = 0;
};

struct TopRow {
  uint32_t island = 0;
  std::string state;  // as `status` calls it
  bool answers = false;
  bool paged = false;  // its pool may hold less than its data
  uint32_t restarts = 0;
  double seconds = 0;  // that `sums` is about
  Sums sums;
  uint64_t in_flight = 0;
  uint64_t in_doubt = 0;
  std::vector<TopPoint> history;  // the newest last

  bool well() const { return answers && state == "ready"; }
  std::string shown_state() const { return !answers && state == "ready" ? "no reply" : state; }
  double PerSecond(uint64_t count) const { return seconds > 0 ? static_cast<double>(count) / seconds : 0; }
  double p95_us() const;
};

struct TopSample {
  std::string deployment;
  std::string layout;
  std::vector<TopRow> rows;
  std::optional<TopGateway> gateway;  // if there is one
};

struct TopTotals {
  std::array<double, kScopes> committed_per_s{};
  double aborted_per_s = 0;
  double messages_per_s = 0;
  uint64_t in_doubt = 0;
  uint32_t restarts = 0;
  double imbalance = 0;       // of what the islands commit
  double busy_imbalance = 0;  // of their workers' busy time

  double committed() const;
  double distributed_share() const;  // of what is committed; 0 if nothing is
  double aborted_share() const;      // of all attempts
};
TopTotals TotalsOf(const std::vector<TopRow>& rows);
// (max - min) / avg, as in dashboards and sweeps; 0 where nothing happens.
double Imbalance(const std::vector<double>& values);

// What rows can be sorted by: the word after --sort and the key on the live screen.
enum class TopSort { kIsland, kState, kTransactions, kAborts, kBusy, kWait, kMessages, kLatency };
struct TopSortName {
  TopSort sort;
  char key;
  const char* name;
};
inline constexpr std::array<TopSortName, 8> kTopSorts = {{{TopSort::kIsland, 'i', "island"},
                                                          {TopSort::kState, 's', "state"},
                                                          {TopSort::kTransactions, 't', "transactions"},
                                                          {TopSort::kAborts, 'a', "aborts"},
                                                          {TopSort::kBusy, 'b', "busy"},
                                                          {TopSort::kWait, 'w', "wait"},
                                                          {TopSort::kMessages, 'm', "messages"},
                                                          {TopSort::kLatency, 'l', "latency"}}};
TopSort TopSortOf(std::string_view name);  // of a name in kTopSorts; any other means by island
const char* NameOf(TopSort sort);
// Whether rows begin with the largest value unless reversed: what is asked for is the hottest island.
inline bool LargestFirst(TopSort sort) { return sort != TopSort::kIsland && sort != TopSort::kState; }
// Islands by number, by state those that are not well first. Rows whose value is not known always come last,
// equal ones by number.
void SortRows(std::vector<TopRow>* rows, TopSort sort, bool reversed);

// One JSON document with a final newline.
std::string TopJson(const TopSample& sample);

// Follows a cluster from look to look, across restarts of islands and of the whole.
class TopSampler {
 public:
  // `status` null: the supervisor did not answer; the islands that were known are looked at all the same.
  // `replies` to a snapshot request, one per island.
  void Add(const control::v1::ClusterStatus* status, const std::vector<ClusterClient::Reply>& replies);
  // `status` null: as above. `counts`: what its page says now, `now_ms` by a clock that only goes forward.
  void AddGateway(const control::v1::ClusterStatus* status, const absl::StatusOr<GatewayCounts>& counts,
                  int64_t now_ms);
  const TopSample& sample() const { return sample_; }

 private:
  void TakeStatus(const control::v1::ClusterStatus& status);

  TopSample sample_;
  std::string cluster_id_;
  std::vector<IslandMeter> meters_;
  GatewayMeter gateway_meter_;
};

}  // namespace islands::deploy
