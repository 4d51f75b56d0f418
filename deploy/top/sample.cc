#include "deploy/top/sample.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>
#include <utility>

#include "deploy/cluster/report.h"
#include "instance/worker/latency_histogram.h"

namespace islands::deploy {
namespace {

constexpr double kUnknown = std::numeric_limits<double>::quiet_NaN();

double SortValue(const TopRow& row, TopSort sort) {
  if (sort == TopSort::kIsland) return row.island;
  if (sort == TopSort::kState) return row.well() ? 1 : 0;
  if (row.seconds <= 0) return kUnknown;
  switch (sort) {
    case TopSort::kTransactions:
      return row.PerSecond(row.sums.committed());
    case TopSort::kAborts:
      return row.PerSecond(row.sums.aborted());
    case TopSort::kBusy:
      return row.sums.busy_fraction();
    case TopSort::kWait:
      return row.sums.waiting_fraction();
    case TopSort::kMessages:
      return row.PerSecond(row.sums.messages_sent);
    default:
      return row.p95_us();
  }
}

void Remember(const TopPoint& point, std::vector<TopPoint>* history) {
  if (history->size() == kTopHistory) history->erase(history->begin());
  history->push_back(point);
}

// What a reply says about its island since the reply before.
void TakeReply(const ClusterClient::Reply& reply, IslandMeter* meter, TopRow* row) {
  const bool known_before = meter->seen();
  row->answers = reply.ok() && reply->has_snapshot();
  row->seconds = 0;
  row->sums = {};
  row->in_flight = row->in_doubt = 0;
  if (row->answers) {
    IslandMeter::Step step = meter->Observe(reply->snapshot());
    row->seconds = std::max(step.seconds, 0.0);
    if (row->seconds > 0) row->sums = std::move(step.sums);
    for (const control::v1::WorkerCounters& worker : reply->snapshot().workers()) {
      row->in_flight += worker.transactions_in_flight();
      row->in_doubt += worker.in_doubt();
    }
  }
  if (row->seconds > 0) {
    Remember({true, row->PerSecond(row->sums.committed()), row->sums.busy_fraction()}, &row->history);
  } else if (known_before || !row->answers) {
    Remember({}, &row->history);
  }
}

double Rounded(double rate) { return std::round(rate * 10) / 10; }

nlohmann::ordered_json RowJson(const TopRow& row) {
  const auto rate = [&](uint64_t count) { return Rounded(row.PerSecond(count)); };
  const std::optional<double> hits = row.sums.hit_fraction();
  return {{"id", row.island},
          {"state", row.state},
          {"answers", row.answers},
          {"restarts", row.restarts},
          {"seconds", row.seconds},
          {"committed_per_s", rate(row.sums.committed())},
          {"local_per_s", rate(row.sums.scopes[0].committed)},
          {"multisite_per_s", rate(row.sums.scopes[1].committed)},
          {"distributed_per_s", rate(row.sums.scopes[2].committed)},
          {"aborted_per_s", rate(row.sums.aborted())},
          {"busy_fraction", row.sums.busy_fraction()},
          {"waiting_fraction", row.sums.waiting_fraction()},
          {"messages_per_s", rate(row.sums.messages_sent)},
          {"messages_received_per_s", rate(row.sums.messages_received)},
          {"p95_us", row.p95_us()},
          {"pool_hit_fraction", hits ? nlohmann::ordered_json(*hits) : nullptr},
          {"in_flight", row.in_flight},
          {"in_doubt", row.in_doubt}};
}

nlohmann::ordered_json GatewayJson(const TopGateway& gateway) {
  return {{"state", gateway.state},
          {"restarts", gateway.restarts},
          {"answers", gateway.answers},
          {"seconds", gateway.seconds},
          {"calls_per_s", Rounded(gateway.calls_per_s)},
          {"committed_per_s", Rounded(gateway.committed_per_s)},
          {"aborted_per_s", Rounded(gateway.aborted_per_s)},
          {"unknown_per_s", Rounded(gateway.unknown_per_s)},
          {"rolled_back_per_s", Rounded(gateway.rolled_back_per_s)},
          {"p99_us", gateway.p99_us},
          {"islands_share", gateway.islands_share},
          {"open", gateway.open}};
}

}  // namespace

double TopRow::p95_us() const { return instance::PercentileUs(sums.latency(), 0.95); }

double TopTotals::committed() const {
  return std::accumulate(committed_per_s.begin(), committed_per_s.end(), 0.0);
}

double TopTotals::distributed_share() const {
  return committed() > 0 ? committed_per_s[kScopes - 1] / committed() : 0;
}

double TopTotals::aborted_share() const {
  return aborted_per_s > 0 ? aborted_per_s / (aborted_per_s + committed()) : 0;
}

TopTotals TotalsOf(const std::vector<TopRow>& rows) {
  TopTotals totals;
  std::vector<double> committed, busy;
  for (const TopRow& row : rows) {
    totals.in_doubt += row.in_doubt;
    totals.restarts += row.restarts;
    if (row.seconds <= 0) continue;
    for (size_t s = 0; s < kScopes; ++s)
      totals.committed_per_s[s] += row.PerSecond(row.sums.scopes[s].committed);
    totals.aborted_per_s += row.PerSecond(row.sums.aborted());
    totals.messages_per_s += row.PerSecond(row.sums.messages_sent);
    committed.push_back(row.PerSecond(row.sums.committed()));
    busy.push_back(row.sums.busy_seconds / row.seconds);
  }
  totals.imbalance = Imbalance(committed);
  totals.busy_imbalance = Imbalance(busy);
  return totals;
}

double Imbalance(const std::vector<double>& values) {
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  if (sum <= 0) return 0;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  return (*most - *least) * static_cast<double>(values.size()) / sum;
}

TopSort TopSortOf(std::string_view name) {
  for (const TopSortName& each : kTopSorts) {
    if (name == each.name) return each.sort;
  }
  return TopSort::kIsland;
}

const char* NameOf(TopSort sort) {
  for (const TopSortName& each : kTopSorts) {
    if (sort == each.sort) return each.name;
  }
  return "";
}

void SortRows(std::vector<TopRow>* rows, TopSort sort, bool reversed) {
  const double sign = LargestFirst(sort) != reversed ? -1 : 1;
  std::vector<std::pair<double, size_t>> order;
  for (size_t i = 0; i < rows->size(); ++i) {
    const double value = SortValue((*rows)[i], sort);
    order.emplace_back(std::isnan(value) ? std::numeric_limits<double>::infinity() : sign * value, i);
  }
  std::sort(order.begin(), order.end(), [&](const auto& a, const auto& b) {
    return std::pair(a.first, (*rows)[a.second].island) < std::pair(b.first, (*rows)[b.second].island);
  });
  std::vector<TopRow> sorted;
  for (const auto& [value, i] : order) sorted.push_back(std::move((*rows)[i]));
  *rows = std::move(sorted);
}

std::string TopJson(const TopSample& sample) {
  nlohmann::ordered_json islands = nlohmann::ordered_json::array();
  for (const TopRow& row : sample.rows) islands.push_back(RowJson(row));
  const TopTotals totals = TotalsOf(sample.rows);
  const nlohmann::ordered_json all = {{"committed_per_s", Rounded(totals.committed())},
                                      {"local_per_s", Rounded(totals.committed_per_s[0])},
                                      {"multisite_per_s", Rounded(totals.committed_per_s[1])},
                                      {"distributed_per_s", Rounded(totals.committed_per_s[2])},
                                      {"distributed_share", totals.distributed_share()},
                                      {"aborted_per_s", Rounded(totals.aborted_per_s)},
                                      {"messages_per_s", Rounded(totals.messages_per_s)},
                                      {"in_doubt", totals.in_doubt},
                                      {"restarts", totals.restarts},
                                      {"imbalance", totals.imbalance},
                                      {"busy_imbalance", totals.busy_imbalance}};
  nlohmann::ordered_json document = {
      {"deployment", sample.deployment}, {"layout", sample.layout}, {"all", all}, {"islands", islands}};
  if (sample.gateway) document["gateway"] = GatewayJson(*sample.gateway);
  return document.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

void TopSampler::TakeStatus(const control::v1::ClusterStatus& status) {
  const size_t islands = static_cast<size_t>(status.islands_size());
  if (status.cluster_id() != cluster_id_ || status.layout() != sample_.layout ||
      islands != sample_.rows.size()) {
    cluster_id_ = status.cluster_id();
    meters_.assign(islands, {});
    sample_.rows.assign(islands, {});
  }
  sample_.deployment = status.deployment();
  sample_.layout = status.layout();
  for (size_t i = 0; i < islands; ++i) {
    const control::v1::IslandStatus& island = status.islands(static_cast<int>(i));
    sample_.rows[i].island = static_cast<uint32_t>(i);
    sample_.rows[i].state = StateName(island);
    sample_.rows[i].restarts = island.restarts();
    sample_.rows[i].paged = island.placement().paged();
  }
}

void TopSampler::Add(const control::v1::ClusterStatus* status,
                     const std::vector<ClusterClient::Reply>& replies) {
  if (status != nullptr) TakeStatus(*status);
  for (size_t i = 0; i < std::min(replies.size(), sample_.rows.size()); ++i) {
    TakeReply(replies[i], &meters_[i], &sample_.rows[i]);
  }
}

void TopSampler::AddGateway(const control::v1::ClusterStatus* status,
                            const absl::StatusOr<GatewayCounts>& counts, int64_t now_ms) {
  if (status == nullptr) {
    if (sample_.gateway) sample_.gateway->answers = false, sample_.gateway->seconds = 0;
  } else if (status->has_gateway()) {
    sample_.gateway = gateway_meter_.Observe(status->gateway(), counts, now_ms);
  } else {
    sample_.gateway.reset();
  }
}

}  // namespace islands::deploy
