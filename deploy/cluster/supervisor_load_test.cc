// Loads of a deployment that keeps its rows, with islands that only answer, and look at the manifest while
// they do: what is there at each of these moments is what a kill would leave.
#include "deploy/cluster/supervisor_load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/messaging/control_channel.h"
#include "instance/storage/table_specs.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using control::v1::Reply;
using control::v1::Request;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint32_t kIslands = 2;

class GenerationLoadsTest : public testing::Test {
 protected:
  // What an island was asked, and what the manifest on disk said then.
  struct Asked {
    bool load = false;  // or to go on
    uint64_t generation = 0;
    uint64_t on_disk = 0;
    friend bool operator==(const Asked&, const Asked&) = default;
    friend std::ostream& operator<<(std::ostream& out, const Asked& asked) {
      return out << (asked.load ? "load " : "go on with ") << asked.generation << ", on disk "
                 << asked.on_disk;
    }
  };

  GenerationLoadsTest() : base_(testing::TempDir() + "islands-loads-XXXXXX") {
    EXPECT_NE(mkdtemp(base_.data()), nullptr);
    controls_.directory = base_ + "/control";
    resolved_.deployment.name = "test";
    resolved_.deployment.durability = Durability::kLazy;
    resolved_.plan.sites = 4;
    resolved_.plan.islands.resize(kIslands);
    control::v1::TableSpec table;
    table.set_name("rows");
    table.add_key("uint64");
    table.set_range_end(100);
    resolved_.deployment.tables.push_back(table);
    resolved_.data_directory = base_ + "/data";
    resolved_.log_directory = base_ + "/data/log";
    data_ = ClusterData::Open(resolved_, controls_).value();
    EXPECT_TRUE(data_->NoteWorkers({1, 1}).ok());  // before there is data
    client_ = std::make_unique<ClusterClient>(controls_);
    loads_ = std::make_unique<GenerationLoads>(*client_, *data_, kIslands);
    asked_.resize(kIslands);
    answers_.resize(kIslands);
    servers_.resize(kIslands);
    for (uint32_t island = 0; island < kIslands; ++island) StartIsland(island);
  }
  ~GenerationLoadsTest() override {
    servers_.clear();
    fs::remove_all(base_);
  }

  void StartIsland(uint32_t island) {
    auto server = messaging::ControlServer::Start(
        controls_.IslandSocket(island),
        [this, island](const Request& request) { return Answer(island, request); });
    ASSERT_TRUE(server.ok()) << server.status();
    servers_[island] = *std::move(server);
  }
  Reply Answer(uint32_t island, const Request& request) {
    if (request.load().check_only() || request.tables().check_only()) {
      ++checked_;
      if (unsettled_.fetch_sub(1) > 0) return messaging::ErrorReply(absl::AbortedError("try again"));
      return may_load_.ok() ? Reply() : messaging::ErrorReply(may_load_);
    }
    const uint64_t generation =
        request.has_load() ? request.load().generation() : request.switch_().generation();
    asked_[island].push_back({request.has_load(), generation, OnDisk().data_generation});
    const absl::Status status = answers_[island] ? answers_[island](request) : absl::OkStatus();
    return status.ok() ? Reply() : messaging::ErrorReply(status);
  }
  storage::Manifest OnDisk() const {
    const auto files = runtime::MakePosixFileSystem();
    const auto manifest = storage::LoadManifest(resolved_.data_directory, *files);
    EXPECT_TRUE(manifest.ok()) << manifest.status();
    control::v1::IslandConfig config;
    EXPECT_TRUE(DescribeLoad(*manifest, &config).ok());
    return *manifest;
  }
  static control::v1::LoadSpec LoadOf(const std::string& workload, int64_t rows) {
    control::v1::LoadSpec load;
    load.set_workload(workload);
    control::v1::TableSpec* table = load.add_tables();
    table->set_name(workload + "_rows");
    table->add_key("uint64");
    table->set_range_end(rows);
    return load;
  }
  absl::Status Load(const control::v1::LoadSpec& load, const absl::Status& check = absl::OkStatus()) {
    return loads_->Load(
        load, [&] { return check; },
        [&](uint64_t generation, const Loads& loads) {
          switched_.push_back(generation);
          EXPECT_EQ(OnDisk().data_generation, generation);
          last_loads_ = loads;
        });
  }

  static control::v1::TablesRequest Added(const std::string& name, int64_t rows) {
    control::v1::TablesRequest request;
    request.add_add()->set_name(name);
    request.mutable_add(0)->add_key("uint64");
    request.mutable_add(0)->set_range_end(rows);
    return request;
  }
  static control::v1::TablesRequest Dropped(const std::string& name) {
    control::v1::TablesRequest request;
    request.set_drop(name);
    return request;
  }
  absl::Status Change(const control::v1::TablesRequest& request) {
    return loads_->ChangeTables(request, [&] {
      const auto loads = LoadsAfter(data_->manifest().tables, 4, last_loads_, request);
      if (!loads.ok()) return loads.status();
      if (!save_.ok()) return save_;
      ++saved_;
      last_loads_ = *loads;
      return data_->SwitchTo(data_->manifest().data_generation, *LoadsToText(last_loads_));
    });
  }
  // As an island that begins has them.
  std::vector<std::string> Tables(const Loads& loads) const {
    storage::Catalog::TableSpecs specs = data_->manifest().tables;
    for (const control::v1::LoadSpec& load : loads) storage::ReplaceTables(load.tables(), &specs);
    std::vector<std::string> tables;
    for (const control::v1::TableSpec& table : specs) {
      tables.push_back(table.name() + " " + std::to_string(table.range_end()) +
                       (table.dropped() != 0 ? " dropped" : ""));
      if (table.dropped() != 0) {
        EXPECT_EQ(table.dropped(), tables.size());
      }
    }
    return tables;
  }

  std::string base_;
  ControlFiles controls_;
  ResolvedDeployment resolved_;
  std::unique_ptr<ClusterData> data_;
  std::unique_ptr<ClusterClient> client_;
  std::unique_ptr<GenerationLoads> loads_;
  std::vector<std::vector<Asked>> asked_;  // by island; each has its server's thread
  std::vector<std::function<absl::Status(const Request&)>> answers_;
  absl::Status may_load_;           // what all say when they are asked before
  std::atomic<int> unsettled_ = 0;  // so many times they say first that transactions are under way
  std::atomic<int> checked_ = 0;
  std::vector<std::unique_ptr<messaging::ControlServer>> servers_;
  std::vector<uint64_t> switched_;
  Loads last_loads_;
  absl::Status save_;
  int saved_ = 0;
};

TEST_F(GenerationLoadsTest, Load_OneRenameSwitchesAllIslands) {
  ASSERT_TRUE(Load({}).ok());  // as `up` does the first time: nothing, into generation 1
  EXPECT_EQ(OnDisk().load, "");
  const absl::Status loaded = Load(LoadOf("micro", 50));
  ASSERT_TRUE(loaded.ok()) << loaded;
  for (const std::vector<Asked>& asked : asked_) {
    EXPECT_THAT(asked,
                ElementsAre(Asked{true, 1, 0}, Asked{false, 1, 1}, Asked{true, 2, 1}, Asked{false, 2, 2}));
  }
  EXPECT_THAT(switched_, ElementsAre(1, 2));
  // Whoever comes after a kill knows which files count, and what has shaped their tables.
  data_.reset();
  data_ = ClusterData::Open(resolved_, controls_).value();
  control::v1::IslandConfig config;
  ASSERT_TRUE(DescribeLoad(data_->manifest(), &config).ok());
  EXPECT_EQ(data_->manifest().data_generation, 2u);
  ASSERT_EQ(config.loads().size(), 2);
  EXPECT_EQ(config.loads()[0].tables()[0].range_end(), 50);
  EXPECT_EQ(config.loads()[1].workload(), "micro");
  EXPECT_EQ(config.loads()[1].tables()[0].range_end(), 50);
}

// A generation has all tables: of the loads before it the shapes stay that it has nothing to say of, and
// all keep their places, by which the islands that live know them.
TEST_F(GenerationLoadsTest, Load_RemembersTheShapesOfOtherTables) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  ASSERT_TRUE(Load(LoadOf("tatp", 60)).ok());
  ASSERT_TRUE(Load(LoadOf("micro", 70)).ok());
  ASSERT_EQ(last_loads_.size(), 2);
  EXPECT_EQ(last_loads_[0].workload(), "");
  EXPECT_EQ(last_loads_[1].workload(), "micro");
  EXPECT_THAT(Tables(last_loads_), ElementsAre("rows 100", "micro_rows 70", "tatp_rows 60"));
}

TEST_F(GenerationLoadsTest, ChangeTables_TheyKeepTheirPlaces) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  ASSERT_TRUE(Change(Added("mine", 10)).ok());
  EXPECT_THAT(Tables(last_loads_), ElementsAre("rows 100", "micro_rows 50", "mine 10"));
  EXPECT_EQ(last_loads_.size(), 2);
  ASSERT_TRUE(Load(LoadOf("tatp", 60)).ok());
  ASSERT_TRUE(Load(LoadOf("micro", 70)).ok());
  ASSERT_TRUE(Change(Added("mine", 10)).ok()) << "it is there, and the same";
  ASSERT_TRUE(Change(Added("too", 11)).ok());
  EXPECT_THAT(Tables(last_loads_),
              ElementsAre("rows 100", "micro_rows 70", "mine 10", "tatp_rows 60", "too 11"));
  ASSERT_TRUE(Change(Dropped("mine")).ok());
  EXPECT_THAT(Tables(last_loads_),
              ElementsAre("rows 100", "micro_rows 70", "mine 10 dropped", "tatp_rows 60", "too 11"));
  ASSERT_TRUE(Change(Added("mine", 12)).ok());
  ASSERT_TRUE(Change(Dropped("mine")).ok());
  ASSERT_TRUE(Load(LoadOf("tatp", 61)).ok());
  EXPECT_THAT(Tables(last_loads_), ElementsAre("rows 100", "micro_rows 70", "mine 10 dropped", "tatp_rows 61",
                                               "too 11", "mine 12 dropped"));
}

TEST_F(GenerationLoadsTest, ChangeTables_WhatCannotBe) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  ASSERT_TRUE(Change(Added("mine", 10)).ok());
  const auto what = [&](const control::v1::TablesRequest& request) {
    const absl::Status status = Change(request);
    return absl::StatusCodeToString(status.code()) + ": " + std::string(status.message());
  };
  EXPECT_EQ(what(Added("mine", 11)), "ALREADY_EXISTS: there is another table 'mine'");
  EXPECT_EQ(what(Dropped("yours")), "NOT_FOUND: there is no table 'yours'");
  EXPECT_THAT(what(Dropped("rows")),
              HasSubstr("FAILED_PRECONDITION: table 'rows' is in the deployment file"));
  EXPECT_THAT(what(Dropped("micro_rows")), HasSubstr("FAILED_PRECONDITION: table 'micro_rows' is one of"));
  EXPECT_THAT(what(Added("none", 0)), HasSubstr("INVALID_ARGUMENT: table 'none', range"));
  control::v1::TablesRequest replicated = Added("all", 10);
  replicated.mutable_add(0)->set_replicated(true);
  EXPECT_THAT(what(replicated), HasSubstr("INVALID_ARGUMENT: table 'all': the rows of a replicated"));
  EXPECT_THAT(Tables(last_loads_), ElementsAre("rows 100", "micro_rows 50", "mine 10"));
  EXPECT_THAT(loads_->TakeUseless(), IsEmpty());
}

// Of the places for tables one stays for the deployment's own.
TEST_F(GenerationLoadsTest, ChangeTables_LeavesAPlaceForTokens) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  control::v1::TablesRequest request = Added("wide", 10);
  for (size_t i = 0; i < storage::kMaxTrees - 4; ++i) {
    control::v1::IndexSpec* index = request.mutable_add(0)->add_indexes();
    index->set_name("by" + std::to_string(i));
    index->add_key("key:0");
  }
  ASSERT_TRUE(Change(request).ok());  // with "rows" and "micro_rows" all but one
  const absl::Status full = Change(Added("more", 10));
  EXPECT_EQ(full.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("table 'more' and its indexes need 1 of a deployment's 255 places for tables and "
                        "indexes, and 255 are taken, 0 of them by dropped ones"));
  EXPECT_TRUE(Change(request).ok());  // is there
  EXPECT_TRUE(Change(Added("islands.tokens", 10)).ok());
  EXPECT_TRUE(Change(Dropped("wide")).ok());
  EXPECT_THAT(std::string(Change(Added("more", 10)).message()),
              HasSubstr("256 are taken, 253 of them by dropped ones, which keep theirs for good"));
}

// First all are asked, then it is made to last, then it is done; who does not do it is useless.
TEST_F(GenerationLoadsTest, ChangeTables_LastsBeforeAnybodyDoesIt) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  may_load_ = absl::ResourceExhaustedError("its pool is full");
  EXPECT_EQ(Change(Added("mine", 10)).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(saved_, 0);
  may_load_ = absl::OkStatus();
  save_ = absl::ResourceExhaustedError("the disk is full");
  EXPECT_EQ(Change(Added("mine", 10)).code(), absl::StatusCode::kResourceExhausted);
  for (const std::vector<Asked>& asked : asked_) EXPECT_EQ(asked.size(), 2u) << "of the load";
  save_ = absl::OkStatus();
  answers_[1] = [&](const Request& request) {
    EXPECT_TRUE(request.has_tables());
    EXPECT_TRUE(loads_->under_way());
    EXPECT_EQ(saved_, 1);
    return absl::UnavailableError("it has died");
  };
  ASSERT_TRUE(Change(Added("mine", 10)).ok());
  EXPECT_THAT(loads_->TakeUseless(), ElementsAre(1));
  EXPECT_FALSE(loads_->under_way());
}

TEST_F(GenerationLoadsTest, Load_WaitsForTransactionsThatAreUnderWayAndForNothingElse) {
  unsettled_ = 3;
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  EXPECT_EQ(checked_, 6) << "both islands until neither says it";
  may_load_ = absl::FailedPreconditionError("a workload is running");
  EXPECT_EQ(Load(LoadOf("tatp", 60)).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(checked_, 8) << "refused for good";
}

TEST_F(GenerationLoadsTest, Load_ThatFailsSomewhere_LeavesTheGenerationBefore) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  const storage::Manifest before = OnDisk();
  answers_[1] = [](const Request& request) {
    return request.has_load() ? absl::ResourceExhaustedError("its disk is full") : absl::OkStatus();
  };
  for (std::vector<Asked>& asked : asked_) asked.clear();
  const absl::Status failed = Load(LoadOf("tatp", 60));
  EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(failed.message()), HasSubstr("island 1: "));
  EXPECT_EQ(storage::ManifestToText(OnDisk()), storage::ManifestToText(before));
  EXPECT_THAT(switched_, ElementsAre(1));
  // All go on with what counts, the one that could as well.
  for (const std::vector<Asked>& asked : asked_)
    EXPECT_THAT(asked, ElementsAre(Asked{true, 2, 1}, Asked{false, 1, 1}));
  EXPECT_THAT(loads_->TakeUseless(), IsEmpty());
  // And the number is used again.
  answers_[1] = nullptr;
  ASSERT_TRUE(Load(LoadOf("tatp", 60)).ok());
  EXPECT_EQ(OnDisk().data_generation, 2u);
}

TEST_F(GenerationLoadsTest, Load_WhoCannotGoOn_IsUselessOnce) {
  answers_[0] = [](const Request& request) {
    return request.has_load() ? absl::OkStatus() : absl::FailedPreconditionError("its rows are gone");
  };
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());  // it counts all the same
  EXPECT_EQ(OnDisk().data_generation, 1u);
  EXPECT_THAT(loads_->TakeUseless(), ElementsAre(0));
  EXPECT_THAT(loads_->TakeUseless(), IsEmpty());
  // One that dies meanwhile is no other case; then the load is lost, too.
  answers_[1] = [](const Request&) { return absl::UnavailableError("it has died"); };
  EXPECT_FALSE(Load(LoadOf("micro", 60)).ok());
  EXPECT_EQ(OnDisk().data_generation, 1u);
  EXPECT_THAT(loads_->TakeUseless(), ElementsAre(0, 1));
}

// Who refuses when asked costs nobody his rows: no island has begun.
TEST_F(GenerationLoadsTest, Load_ThatWouldLoseRows_BeginsNowhere) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  for (std::vector<Asked>& asked : asked_) asked.clear();
  may_load_ = absl::FailedPreconditionError("table 'accounts' has rows");
  EXPECT_THAT(std::string(Load(LoadOf("tatp", 60)).message()), HasSubstr("table 'accounts' has rows"));
  may_load_ = absl::OkStatus();
  servers_[1].reset();  // nor if one is not there
  EXPECT_FALSE(Load(LoadOf("tatp", 60)).ok());
  EXPECT_THAT(switched_, ElementsAre(1));
  EXPECT_THAT(loads_->TakeUseless(), IsEmpty());
  for (const std::vector<Asked>& asked : asked_) EXPECT_THAT(asked, IsEmpty());
}

TEST_F(GenerationLoadsTest, Load_ManifestThatCannotBeWritten_SwitchesNobody) {
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  for (std::vector<Asked>& asked : asked_) asked.clear();
  // In the way of the file that is renamed over the manifest.
  fs::create_directory(resolved_.data_directory + "/MANIFEST.json.tmp");
  EXPECT_FALSE(Load(LoadOf("tatp", 60)).ok());
  EXPECT_EQ(OnDisk().data_generation, 1u);
  EXPECT_THAT(switched_, ElementsAre(1));
  for (const std::vector<Asked>& asked : asked_)
    EXPECT_THAT(asked, ElementsAre(Asked{true, 2, 1}, Asked{false, 1, 1}));
}

TEST_F(GenerationLoadsTest, Load_OnlyOneAtATime_AndOnlyWhenItMay) {
  const absl::Status refused = Load(LoadOf("micro", 50), absl::UnavailableError("is being taken down"));
  EXPECT_EQ(refused.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(asked_[0], IsEmpty());
  absl::Status second;
  answers_[0] = [&](const Request& request) {
    EXPECT_TRUE(loads_->under_way());
    if (request.has_load()) second = Load(LoadOf("tatp", 60));
    return absl::OkStatus();
  };
  ASSERT_TRUE(Load(LoadOf("micro", 50)).ok());
  EXPECT_EQ(second.code(), absl::StatusCode::kFailedPrecondition) << second;
  EXPECT_FALSE(loads_->under_way());
  EXPECT_EQ(OnDisk().data_generation, 1u);
}

TEST_F(GenerationLoadsTest, DescribeLoad_RefusesWhatMakesNoSense) {
  storage::Manifest manifest = OnDisk();
  manifest.load = "{\"loads\": 7}";
  control::v1::IslandConfig config;
  const absl::Status described = DescribeLoad(manifest, &config);
  EXPECT_EQ(described.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(described.message()), HasSubstr(storage::kManifestName));
}

}  // namespace
}  // namespace islands::deploy
