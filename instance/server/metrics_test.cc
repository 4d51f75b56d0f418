#include "instance/server/metrics.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <map>
#include <optional>
#include <regex>
#include <set>
#include <sstream>

#include "instance/server/kept_cluster_testing.h"
#include "instance/server/metric_descriptors.h"
#include "instance/testing/in_process_cluster.h"

namespace islands::server {
namespace {

using prometheus::ClientMetric;
using prometheus::MetricFamily;
using prometheus::MetricType;

constexpr uint32_t kIslands = 2;
constexpr uint32_t kWorkers = 2;
constexpr uint64_t kRows = 40;  // few: transactions meet
const BuildInfo kBuild = {"1.2.3", "abc", "some compiler"};

struct Pair final : instance::Request {
  uint64_t first = 0, second = 0;
};

class Pairs final : public instance::Generator {
 public:
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<Pair>(); }
  void Next(runtime::Random& random, instance::Request& request) override {
    static_cast<Pair&>(request).first = random.Below(kRows);
    static_cast<Pair&>(request).second = random.Below(kRows);
  }
};

// Changes a row, then another.
class PairWorkload final : public instance::Workload {
 public:
  explicit PairWorkload(instance::TableId table) : table_(table) {}
  const char* name() const override { return "pairs"; }
  std::vector<std::string> tables() const override { return {"t"}; }
  absl::Status Load(instance::Loader& loader) const override {
    const std::array<std::byte, 8> row{};
    for (uint64_t i = 0; i < kRows; ++i) {
      absl::Status status = loader.Insert(table_, partitioner::Uint64Key(i), row);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  absl::StatusOr<std::unique_ptr<instance::Generator>> MakeGenerator(
      const instance::GeneratorContext&) const override {
    return std::make_unique<Pairs>();
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    const auto& pair = static_cast<const Pair&>(request);
    instance::Batch& batch = transaction.batch();
    batch.Add(table_, partitioner::Uint64Key(pair.first), 0, 1);
    runtime::Task<absl::Status> first = transaction.Execute(batch);
    absl::Status status = co_await first;
    if (!status.ok()) co_return status;
    batch.Clear();
    batch.Add(table_, partitioner::Uint64Key(pair.second), 0, 1);
    runtime::Task<absl::Status> second = transaction.Execute(batch);
    co_return co_await second;
  }

 private:
  const instance::TableId table_;
};

instance::ClusterOptions Options(const char* durability) {
  instance::ClusterOptions options;
  options.islands = kIslands;
  options.workers = kWorkers;
  control::v1::IslandConfig& config = options.config;
  config.set_boot_epoch(3);
  config.set_restarts(2);
  config.set_layout("2ISL");
  config.set_placement("os");
  config.set_transport("uds");
  config.set_durability(durability);
  control::v1::TableSpec* table = config.add_tables();
  table->set_name("t");
  table->add_key("uint64");
  table->set_range_end(kRows);
  table->set_row_bytes(8);
  options.open = [](const storage::Catalog& catalog) {
    return std::make_shared<PairWorkload>(catalog.Find("t")->id);
  };
  return options;
}

using Labels = std::map<std::string, std::string>;

Labels LabelsOf(const ClientMetric& metric) {
  Labels labels;
  for (const ClientMetric::Label& label : metric.label) labels[label.name] = label.value;
  return labels;
}

// The sum of a family's values whose labels are at least `with`; nothing when there is no such family.
std::optional<double> Sum(const std::vector<MetricFamily>& families, Metric metric, const Labels& with = {}) {
  std::optional<double> sum;
  for (const MetricFamily& family : families) {
    if (family.name != DescriptorOf(metric).name) continue;
    sum = sum.value_or(0);
    for (const ClientMetric& one : family.metric) {
      const Labels has = LabelsOf(one);
      if (!std::includes(has.begin(), has.end(), with.begin(), with.end())) continue;
      *sum += family.type == MetricType::Counter ? one.counter.value : one.gauge.value;
    }
  }
  return sum;
}

// Two of them; `Cluster` says what they keep.
template <typename Cluster>
class IslandsOf : public testing::Test {
 protected:
  explicit IslandsOf(const char* durability) : cluster_(Options(durability)) {}
  void SetUp() override {
    ASSERT_TRUE(cluster_.Start().ok());
    started_ns_ = cluster_.NowNs();
    for (uint32_t i = 0; i < kIslands; ++i) {
      collectors_[i] = std::make_unique<MetricsCollector>(cluster_.island(i), kBuild, 1.5e9);
    }
  }

  void StartRun() {
    control::v1::StartRun request;
    request.set_run_id(77);
    request.set_workload("pairs");
    request.set_mpl(4);
    request.set_seed(5);
    (*request.mutable_parameters())["zipf"] = "0.5";
    (*request.mutable_parameters())["update-percent"] = "a \"b\"";
    (*request.mutable_parameters())["island"] = "x";
    (*request.mutable_parameters())["9"] = "y";
    ASSERT_TRUE(cluster_.StartRun(request).ok());
  }
  void Pass(int milliseconds) { cluster_.RunFor(milliseconds * runtime::kNsPerMs); }
  // Ends the run and waits until the last message has been taken.
  void EndRun() {
    ASSERT_TRUE(cluster_.Drain(30 * runtime::kNsPerSecond));
    const auto forgotten = [this] { return Both(Metric::kCoordinated) == 0.0; };
    EXPECT_TRUE(cluster_.RunUntil(forgotten, 10 * runtime::kNsPerSecond));
  }
  double Both(Metric metric, const Labels& with = {}) {
    double sum = 0;
    for (const auto& collector : collectors_) sum += Sum(collector->Collect(), metric, with).value_or(-1e9);
    return sum;
  }

  Cluster cluster_;
  const int64_t begun_ns_ = cluster_.NowNs();
  int64_t started_ns_ = 0;
  std::array<std::unique_ptr<MetricsCollector>, kIslands> collectors_;
};

class TwoIslands : public IslandsOf<instance::InProcessCluster> {
 protected:
  TwoIslands() : IslandsOf("none") {}
};

// With durability sync, a log, and rows in data files.
class TwoThatKeep : public IslandsOf<KeptCluster> {
 protected:
  TwoThatKeep() : IslandsOf("sync") {}
  void SetUp() override {
    IslandsOf::SetUp();
    const absl::Status loaded = cluster_.LoadAll();
    ASSERT_TRUE(loaded.ok()) << loaded;
  }
  double Epoch(const char* kind) { return Both(Metric::kLogEpoch, {{"kind", kind}}); }
  // Looks again and again, as whoever scrapes does.
  template <typename Predicate>
  bool Comes(const Predicate& predicate) {
    return cluster_.RunUntil(predicate, 30 * runtime::kNsPerSecond);
  }
};

TEST(MetricsPage, IsTheOneInTheRepository) {
  std::ifstream file(ISLANDS_METRICS_PAGE);
  std::stringstream text;
  text << file.rdbuf();
  EXPECT_EQ(text.str(), MetricsPage()) << "islandd --metrics-page > dashboards/METRICS.md";
}

TEST(MetricDescriptors, AreNamedByTheRules) {
  std::set<std::string_view> names;
  for (const MetricDescriptor& metric : AllMetrics()) {
    EXPECT_TRUE(names.insert(metric.name).second) << metric.name;
    EXPECT_TRUE(std::regex_match(std::string(metric.name), std::regex("[a-z]+(_[a-z]+)+"))) << metric.name;
    EXPECT_FALSE(metric.meaning.empty()) << metric.name;
    EXPECT_EQ(metric.meaning.find('|'), std::string_view::npos) << metric.name << ": it ends a cell";
    EXPECT_FALSE(metric.meaning.ends_with('.')) << metric.name;
    EXPECT_EQ(metric.type == "counter", metric.name.ends_with("_total")) << metric.name;
    EXPECT_EQ(metric.ours, metric.name.starts_with("islands_")) << metric.name;
  }
}

// label -> the values it may have; empty = any
std::map<std::string, std::set<std::string>> Promised(const MetricDescriptor& metric, bool* more) {
  std::map<std::string, std::set<std::string>> labels;
  std::istringstream words{std::string(metric.labels)};
  for (std::string word; words >> word;) {
    if (word == "*") {
      *more = true;
      continue;
    }
    const size_t equals = word.find('=');
    std::set<std::string>& values = labels[word.substr(0, equals)];
    if (equals == std::string::npos) continue;
    std::istringstream list(word.substr(equals + 1));
    for (std::string value; std::getline(list, value, '|');) values.insert(value);
  }
  return labels;
}

void ExpectAsDescribed(const MetricFamily& family, const MetricDescriptor& metric) {
  EXPECT_EQ(family.help, metric.meaning) << family.name;
  const MetricType type = metric.type == "counter"     ? MetricType::Counter
                          : metric.type == "histogram" ? MetricType::Histogram
                                                       : MetricType::Gauge;
  EXPECT_EQ(family.type, type) << family.name;
  ASSERT_FALSE(family.metric.empty()) << family.name;
  bool more = false;
  const auto promised = Promised(metric, &more);
  std::map<std::string, std::set<std::string>> seen;
  std::set<Labels> distinct;
  for (const ClientMetric& one : family.metric) {
    const Labels labels = LabelsOf(one);
    EXPECT_TRUE(distinct.insert(labels).second) << family.name << ": twice the same labels";
    EXPECT_EQ(labels.size(), one.label.size()) << family.name << ": twice the same label";
    EXPECT_EQ(one.label.front().name, "island") << family.name;
    if (!more) {
      EXPECT_EQ(labels.size(), promised.size() + 1) << family.name;
    }
    for (const auto& [name, values] : promised) {
      ASSERT_TRUE(labels.contains(name)) << family.name << " without " << name;
      seen[name].insert(labels.at(name));
    }
  }
  for (const auto& [name, values] : promised) {
    if (values.empty()) continue;
    EXPECT_TRUE(std::includes(values.begin(), values.end(), seen[name].begin(), seen[name].end()))
        << family.name << ", " << name << ": " << testing::PrintToString(seen[name]);
    // All of them, where an island does not have one of several.
    EXPECT_TRUE(family.metric.size() == 1 || seen[name] == values) << family.name << ", " << name;
  }
}

void ExpectServesThePage(const MetricsCollector& collector, bool keeps) {
  std::set<std::string_view> served;
  for (const MetricFamily& family : collector.Collect()) {
    const auto all = AllMetrics();
    const auto found = std::find_if(
        all.begin(), all.end(), [&](const MetricDescriptor& metric) { return metric.name == family.name; });
    ASSERT_NE(found, all.end()) << family.name << " is not on the page";
    EXPECT_TRUE(served.insert(found->name).second) << family.name << " twice";
    ExpectAsDescribed(family, *found);
  }
  for (const MetricDescriptor& metric : AllMetrics()) {
    // A machine may keep from processes where their memory lies.
    if (!metric.ours || metric.id == Metric::kMemoryNodeBytes) continue;
    const bool has = metric.section == kLogSection ? keeps : metric.section != kGatewaySection;
    EXPECT_EQ(served.contains(metric.name), has) << metric.name;
  }
}

TEST_F(TwoIslands, Collect_ServesWhatThePageSays) {
  StartRun();
  Pass(50);
  for (const auto& collector : collectors_) ExpectServesThePage(*collector, /*keeps=*/false);
  EndRun();
}

TEST_F(TwoThatKeep, Collect_ServesWhatThePageSays) {
  StartRun();
  Pass(50);
  for (const auto& collector : collectors_) ExpectServesThePage(*collector, /*keeps=*/true);
  EndRun();
}

TEST_F(TwoThatKeep, Log_MovesOnWithARunAndIsDurableAfterIt) {
  EXPECT_EQ(Both(Metric::kLogBytes), 0);
  EXPECT_EQ(Both(Metric::kLogRingCapacityBytes), kIslands * kWorkers * log::Ring::kLeastCapacity);
  StartRun();
  EXPECT_TRUE(Comes([this] { return Both(Metric::kCheckpoints) >= 4; }));
  EndRun();
  EXPECT_GT(Both(Metric::kLogBytes), 0);
  EXPECT_GT(Both(Metric::kCleanerPagesWritten), 0);
  EXPECT_EQ(Both(Metric::kCleanerFailed), 0);
  EXPECT_TRUE(Comes([this] { return Both(Metric::kAnswersWaiting) == 0; }));
  EXPECT_TRUE(Comes([this] { return Both(Metric::kLogRingUsedBytes) == 0; }));
  EXPECT_GE(Epoch("durable"), Epoch("commit"));
  EXPECT_GT(Epoch("current"), Epoch("durable"));
  EXPECT_TRUE(Comes([this] { return Epoch("checkpoint") > Epoch("commit"); }));
  Pass(600);
  EXPECT_LT(Both(Metric::kCheckpointAge), 0.9);
}

TEST_F(TwoThatKeep, Cleaner_RestsBetweenPasses) {
  StartRun();
  // One island: their passes are not in step. It has written, then nothing for a second, and then it writes
  // again.
  const auto written = [this] {
    return Sum(collectors_[0]->Collect(), Metric::kCleanerPagesWritten).value_or(-1);
  };
  double pages = 0;
  int64_t since_ns = 0;
  const auto rested = [&] {
    const double now = written();
    if (now != pages) since_ns = cluster_.NowNs();
    pages = now;
    return pages > 0 && cluster_.NowNs() - since_ns >= runtime::kNsPerSecond;
  };
  EXPECT_TRUE(Comes(rested));
  EXPECT_TRUE(Comes([&] { return written() > pages; }));
  EndRun();
}

// A start has nothing to repeat, however long the checkpoint does not move on.
TEST_F(TwoThatKeep, Checkpoint_GrowsNotOldWhereNothingIsCommitted) {
  cluster_.HoldLogger(true);
  Pass(600);
  EXPECT_LT(Both(Metric::kCheckpointAge), 0.9);
  cluster_.HoldLogger(false);
}

TEST_F(TwoThatKeep, DiskThatDoesNotAnswer_IsSeenInAnswersAndRings) {
  StartRun();
  EXPECT_TRUE(Comes([this] { return Both(Metric::kTransactions, {{"outcome", "committed"}}) > 0; }));
  cluster_.HoldLogger(true);
  EXPECT_TRUE(Comes([this] { return Both(Metric::kAnswersWaiting) > 0; }));
  EXPECT_TRUE(Comes([this] { return Both(Metric::kLogRingUsedBytes) > 0; }));
  EXPECT_TRUE(Comes([this] { return Both(Metric::kLogRoomWaits) > 0; }));
  EXPECT_TRUE(Comes([this] { return Both(Metric::kLogRoomWaitSeconds) > 0; }));
  EXPECT_TRUE(Comes([this] { return Both(Metric::kAnswersOverdue) > 0; }));
  const double durable = Epoch("durable");
  EXPECT_GT(Epoch("commit"), durable);
  Pass(100);
  EXPECT_EQ(Epoch("durable"), durable);
  cluster_.HoldLogger(false);
  EndRun();
  EXPECT_LE(Both(Metric::kAnswersOverdue), Both(Metric::kTransactions, {{"outcome", "unknown"}}));
}

TEST_F(TwoThatKeep, CleanerThatHasFailed_IsSeen) {
  StartRun();
  EXPECT_TRUE(Comes([this] { return Both(Metric::kCheckpoints) > 0; }));
  EXPECT_EQ(cluster_.island(0).Status().detail(), "");
  cluster_.FailDataFiles();
  EXPECT_TRUE(Comes([this] { return Both(Metric::kCleanerFailed) == kIslands; }));
  const double age_s = Both(Metric::kCheckpointAge);
  const double checkpoints = Both(Metric::kCheckpoints);
  Pass(500);
  EXPECT_GE(Both(Metric::kCheckpointAge), age_s + 2 * 0.5);
  EXPECT_EQ(Both(Metric::kCheckpoints), checkpoints);
  const std::string detail = cluster_.island(0).Status().detail();
  EXPECT_NE(detail.find("cannot write /data/rows"), std::string::npos) << detail;
  EndRun();
}

TEST_F(TwoIslands, Collect_DescribesIslandAndRun) {
  const MetricsCollector& collector = *collectors_[1];
  EXPECT_EQ(Sum(collector.Collect(), Metric::kExperimentInfo), std::nullopt);
  StartRun();
  const std::vector<MetricFamily> families = collector.Collect();
  EXPECT_EQ(Sum(families, Metric::kExperimentInfo,
                {{"island", "1"},
                 {"run_id", "77"},
                 {"workload", "pairs"},
                 {"mpl", "4"},
                 {"seed", "5"},
                 {"zipf", "0.5"},
                 {"update_percent", "a \"b\""},
                 {"parameter_island", "x"},
                 {"parameter_9", "y"}}),
            1.0);
  EXPECT_EQ(Sum(families, Metric::kIslandInfo,
                {{"layout", "2ISL"}, {"islands", "2"}, {"workers", "2"}, {"latching", "auto"}}),
            1.0);
  EXPECT_EQ(Sum(families, Metric::kBuildInfo,
                {{"island", "1"}, {"version", "1.2.3"}, {"commit", "abc"}, {"compiler", "some compiler"}}),
            1.0);
  EXPECT_EQ(Sum(families, Metric::kBootEpoch), 3.0);
  EXPECT_EQ(Sum(families, Metric::kRestarts), 2.0);
  EXPECT_EQ(Sum(families, Metric::kStartTime), 1.5e9);
  EndRun();
  EXPECT_EQ(Sum(collector.Collect(), Metric::kExperimentInfo), std::nullopt);
}

// No message was lost and nobody was in doubt for long, so what one side counts the other does.
TEST_F(TwoIslands, Counters_AgreeBetweenIslands) {
  StartRun();
  for (int round = 0; round < 50; ++round) {
    Pass(10);
    for (const auto& collector : collectors_) (void)collector->Collect();  // while the workers count
  }
  EndRun();
  const auto steps = [&](const char* phase) { return Both(Metric::kTwoPhase, {{"phase", phase}}); };
  EXPECT_GT(steps("prepare_sent"), 0);
  EXPECT_EQ(steps("prepare_sent"), steps("voted_yes") + steps("voted_read") + steps("voted_no"));
  EXPECT_GT(steps("commit_sent"), 0);
  EXPECT_EQ(steps("commit_sent"), steps("acknowledged"));
  EXPECT_EQ(Both(Metric::kInDoubt), 0);
  EXPECT_EQ(Both(Metric::kInDoubtOldest), 0);
  EXPECT_EQ(Both(Metric::kPeerQueueBytes), 0);
  EXPECT_EQ(Both(Metric::kInFlight), 0);
  EXPECT_EQ(Both(Metric::kLockWaiters), 0);
  EXPECT_GT(Both(Metric::kLockWaits), 0);
  EXPECT_GT(Both(Metric::kLockWaitSeconds), 0);
  EXPECT_GT(Both(Metric::kTransactions, {{"scope", "distributed"}, {"outcome", "committed"}}), 0);
  EXPECT_EQ(Both(Metric::kMessages, {{"direction", "sent"}}),
            Both(Metric::kMessages, {{"direction", "received"}}));
  EXPECT_EQ(Both(Metric::kMessageBytes, {{"direction", "sent"}}),
            Both(Metric::kMessageBytes, {{"direction", "received"}}));
}

TEST_F(TwoIslands, WorkerSeconds_AddUpToTheTimePassed) {
  Pass(300);
  StartRun();
  Pass(1000);
  EndRun();
  // On a busy machine threads take their time to begin and to end.
  const double least_s = static_cast<double>(cluster_.NowNs() - started_ns_) / 1e9;
  for (uint32_t i = 0; i < kIslands; ++i) cluster_.island(i).Stop();
  const double most_s = static_cast<double>(cluster_.NowNs() - begun_ns_) / 1e9;
  for (const auto& collector : collectors_) {
    const std::vector<MetricFamily> families = collector->Collect();
    for (uint32_t worker = 0; worker < kWorkers; ++worker) {
      const Labels one = {{"worker", std::to_string(worker)}};
      const double counted_s = Sum(families, Metric::kWorkerSeconds, one).value();
      EXPECT_LE(counted_s, most_s);
      EXPECT_GE(counted_s, 0.98 * least_s);
    }
    for (const char* activity : instance::kActivityNames) {
      EXPECT_GT(Sum(families, Metric::kWorkerSeconds, {{"activity", activity}}).value(), 0.001) << activity;
    }
    EXPECT_GT(Sum(families, Metric::kWorkerSeconds, {{"activity", "idle"}}).value(), 0.2 * kWorkers);
  }
}

}  // namespace
}  // namespace islands::server
