// What a load, its switch and a start leave of the generations of an island's files, whoever dies when.
#include "instance/island/keeper.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/log_reader.h"
#include "instance/log/logger.h"
#include "runtime/file_system_memory.h"

namespace islands::instance {
namespace {

using testing::Contains;
using testing::ElementsAre;

constexpr char kData[] = "/data/island-0";
const std::vector<uint32_t> kWorkers{1};

// Whoever asks it for the time waits for the logger, which goes on meanwhile.
class LoggersTurns final : public runtime::Clock {
 public:
  explicit LoggersTurns(std::function<void()> turn) : turn_(std::move(turn)) {}
  int64_t NowNs() const override {
    turn_();
    return 0;
  }

 private:
  const std::function<void()> turn_;
};

class KeeperTest : public testing::Test {
 protected:
  KeeperTest() : board_(kWorkers) {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(100);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    logger_ = log::Logger::Open(files_, loggers_clock_, board_, {.directory = "/log", .cluster = 1}).value();
    EXPECT_TRUE(logger_->Start().ok());
    seam_.board = &board_;
    seam_.make_ring = [this](const log::StreamId& stream) -> absl::StatusOr<std::shared_ptr<log::Ring>> {
      std::shared_ptr<log::Ring> ring = log::Ring::InMemory(stream, log::Ring::kLeastCapacity);
      if (absl::Status added = logger_->Add(ring); !added.ok()) return added;
      return ring;
    };
    seam_.read = [](uint32_t, const log::LogPosition&, LogSeam::TakeRecord) { return absl::OkStatus(); };
    seam_.cluster = 1;
    seam_.log_directory = "/log";
    seam_.data_directory = kData;
  }
  ~KeeperTest() override { End(); }

  // The next life, with the rows of this generation; 0: there are none yet.
  absl::Status Begin(uint64_t generation) {
    End();
    ++life_;
    keeper_ = std::make_unique<Keeper>(seam_, files_, clock_, Keeper::Options{.life = life_});
    const storage::StoreOptions options{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true};
    store_ = generation == 0 ? storage::Store::Create(*catalog_, options, files_).value()
                             : storage::Store::CreateForRedo(*catalog_, options).value();
    return keeper_->Recover(*catalog_, *store_, generation);
  }
  // Killed: its files' locks fall.
  void End() {
    keeper_.reset();
    store_.reset();
    if (life_ == 0) return;
    logger_->OnIslandDead(0, life_);
    while (!logger_->ReleaseDrained(0)) StepLogger();
  }
  absl::Status Load(uint64_t generation, uint64_t row) {
    const partitioner::Uint64Key key(row);
    EXPECT_EQ(store_->At(0, 0)->Insert(key, storage::RowView(key)), absl::StatusCode::kOk);
    return keeper_->WriteGeneration(*catalog_, *store_, generation);
  }
  void StepLogger() {
    loggers_clock_.AdvanceNs(runtime::kNsPerMs);
    logger_->RunOnce();
    ASSERT_TRUE(logger_->failure().ok()) << logger_->failure();
    // From now on the load alone writes.
    if (fault_after_ && board_.wanted() != 0 && board_.durable() >= board_.wanted())
      files_.Inject(*std::exchange(fault_after_, std::nullopt), runtime::DiskFault::kEnospc);
  }
  std::set<std::string> Generations() {
    std::set<std::string> found;
    const std::vector<std::string> names = files_.List(kData).value();
    for (const std::string& name : names) found.insert(name.substr(0, sizeof("generation-0000000001") - 1));
    return found;
  }
  static std::string Name(uint64_t generation) { return "generation-000000000" + std::to_string(generation); }
  uint64_t Rows() const { return store_->CountRows(0); }

  runtime::MemoryFileSystem files_;
  runtime::ManualClock loggers_clock_;
  LoggersTurns clock_{[this] { StepLogger(); }};
  std::optional<uint64_t> fault_after_;  // so many steps of a load
  log::Board board_;
  std::unique_ptr<storage::Catalog> catalog_;
  std::unique_ptr<log::Logger> logger_;
  LogSeam seam_;
  uint64_t life_ = 0;
  std::unique_ptr<storage::Store> store_;
  std::unique_ptr<Keeper> keeper_;
};

TEST_F(KeeperTest, Switch_RemovesTheGenerationBefore) {
  ASSERT_TRUE(Begin(0).ok());
  ASSERT_TRUE(Load(1, 7).ok());
  ASSERT_TRUE(keeper_->Switch().ok());
  ASSERT_TRUE(Load(2, 8).ok());
  EXPECT_THAT(Generations(), ElementsAre(Name(1), Name(2)));  // both whole: either may come to count
  ASSERT_TRUE(keeper_->Switch().ok());
  EXPECT_THAT(Generations(), ElementsAre(Name(2)));
  ASSERT_TRUE(Begin(2).ok());
  EXPECT_EQ(Rows(), 2u);
}

// They are in the log, and in no data file: a table that was added, and one that the next life only hears of.
TEST_F(KeeperTest, MakeTrees_OfTablesThatCameLater) {
  seam_.read = [this](uint32_t, const log::LogPosition& begin, LogSeam::TakeRecord take) {
    log::LogReader reader(files_, {.directory = "/log/island-0", .cluster = 1, .island = 0, .begin = begin},
                          logger_->epoch_block().ends[0]);
    return reader.Read(take);
  };
  ASSERT_TRUE(Begin(0).ok());
  ASSERT_TRUE(Load(1, 7).ok());
  ASSERT_TRUE(keeper_->Switch().ok());
  for (const std::string name : {"first", "second"}) {
    control::v1::TableSpec table;
    table.set_name(name);
    table.add_key("uint64");
    table.set_range_end(100);
    for (int i = 0; i < 20; ++i) {  // a ring has no room for all of them at once
      control::v1::IndexSpec* index = table.add_indexes();
      index->set_name(std::to_string(i));
      index->add_key("key:0");
    }
    ASSERT_TRUE(catalog_->Add(table).ok());
    if (name == "first") {
      ASSERT_TRUE(keeper_->MakeTrees(*catalog_, *store_).ok());
    }
  }
  for (int life = 0; life < 3; ++life) {
    const absl::Status begun = Begin(1);
    ASSERT_TRUE(begun.ok()) << begun;
    EXPECT_EQ(store_->MissingTrees(*catalog_), 0u);
    EXPECT_EQ(Rows(), 1u);
    ASSERT_NE(store_->At(2, 0), nullptr);
    const absl::Status sound = store_->Check();
    EXPECT_TRUE(sound.ok()) << sound;
  }
  // Another generation has them as it has the others.
  ASSERT_TRUE(keeper_->WriteGeneration(*catalog_, *store_, 2).ok());
  ASSERT_TRUE(keeper_->Switch().ok());
  seam_.read = [](uint32_t, const log::LogPosition&, LogSeam::TakeRecord) { return absl::OkStatus(); };
  ASSERT_TRUE(Begin(2).ok());
  EXPECT_TRUE(store_->Check().ok());
  // Tables go behind the others, and nowhere else.
  storage::Catalog::TableSpecs others;
  *others.Add() = control::v1::TableSpec();
  others[0].set_name("other");
  others[0].add_key("uint64");
  others[0].set_range_end(100);
  catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(others, 1));
  EXPECT_EQ(Begin(2).code(), absl::StatusCode::kFailedPrecondition);
}

// The manifest named it, and then everybody was killed: the next life goes by the manifest.
TEST_F(KeeperTest, Recover_AfterADeathBeforeTheSwitch_HasEitherGeneration) {
  for (const uint64_t named : {1, 2}) {
    ASSERT_TRUE(Begin(0).ok());
    ASSERT_TRUE(Load(1, 7).ok());
    ASSERT_TRUE(keeper_->Switch().ok());
    ASSERT_TRUE(Load(2, 8).ok());
    ASSERT_TRUE(Begin(named).ok());
    EXPECT_EQ(Rows(), named);
    EXPECT_THAT(Generations(), ElementsAre(Name(named)));
    const std::vector<std::string> names = files_.List(kData).value();
    for (const std::string& name : names) ASSERT_TRUE(files_.Remove(kData + ("/" + name)).ok());
  }
}

// A load that ends at any step of the disk leaves what counted, and nothing else once there is another life.
TEST_F(KeeperTest, Recover_RemovesWhatAFailedLoadHasLeft) {
  ASSERT_TRUE(Begin(0).ok());
  ASSERT_TRUE(Load(1, 7).ok());
  ASSERT_TRUE(keeper_->Switch().ok());
  size_t failed = 0;
  for (uint64_t steps = 0; steps < 20; ++steps) {
    ASSERT_TRUE(Begin(1).ok());
    EXPECT_EQ(Rows(), 1u);
    EXPECT_THAT(Generations(), ElementsAre(Name(1)));
    fault_after_ = steps;
    if (Load(2, 8).ok()) break;
    ++failed;
    EXPECT_THAT(Generations(), Contains(Name(1)));
  }
  EXPECT_GT(failed, 5u);
}

}  // namespace
}  // namespace islands::instance
