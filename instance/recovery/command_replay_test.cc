// Commands that are repeated by a workload that is not what it was.
#include "instance/recovery/command_replay.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "instance/recovery/commands_testing.h"
#include "instance/recovery/recovery.h"
#include "instance/recovery/recovery_testing.h"
#include "runtime/file_system_memory.h"

namespace islands::recovery {
namespace {

using instance::OperationKind;

// Does what it is given, and a little more, or less.
class OtherWorkload final : public GivenWorkload {
 public:
  enum How { kWritesMore, kGivesUp, kForgetsCommands };
  explicit OtherWorkload(How how) : how_(how) {}
  std::unique_ptr<instance::Request> MakeRequest() const override {
    return how_ == kForgetsCommands ? nullptr : GivenWorkload::MakeRequest();
  }
  runtime::Task<absl::Status> Run(instance::Transaction& transaction,
                                  const instance::Request& request) const override {
    if (how_ == kGivesUp) co_return absl::CancelledError("not today");
    GivenRequest other;
    other.batches = static_cast<const GivenRequest&>(request).batches;
    other.batches.front().front().row.front() = '!';
    runtime::Task<absl::Status> run = GivenWorkload::Run(transaction, other);
    co_return co_await run;
  }

 private:
  const How how_;
};

// An empty island on which two commands have run: the rows 1 and 2.
class CommandReplayTest : public testing::Test {
 protected:
  static constexpr std::array<uint32_t, 1> kWorkers = {1};
  static constexpr storage::StoreOptions kStore{.sites = {0, 1}, .pool_bytes = 1 << 20, .alone = true};

  CommandReplayTest() {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(100);
    catalog_ = std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 1));
    StartAnew();
  }
  ~CommandReplayTest() override { storage::page_change_sink = nullptr; }

  // A first life of the island.
  void StartAnew() {
    storage::page_change_sink = nullptr;
    executor_.reset();
    board_ = std::make_unique<log::Board>(kWorkers);
    ring_ = log::Ring::InMemory({1, 0, 0}, log::Ring::kLeastCapacity);
    journal_ = std::make_unique<log::Journal>(*board_, *ring_, log::Lsn());
    journal_->Listen();
    auto store = storage::Store::Create(*catalog_, kStore, files_);
    EXPECT_TRUE(store.ok());
    store_ = *std::move(store);
    journal_->AppendDone();
    executor_.emplace(*catalog_, *store_, locks_,
                      instance::ExecutorOptions{.alone = true, .journal = journal_.get()});
  }
  // `of`: whose command it says to be. Of a call: the call's input, if it is to be another one.
  void Insert(uint64_t key, const std::vector<std::byte>& of = EncodeWorkload("given", "given.so", {})) {
    Insert(key, {.workload = of}, {});
  }
  void InsertByCall(uint64_t key, std::vector<std::byte> input = {},
                    const std::vector<std::byte>& of = EncodeWorkload("given", "given.so", {})) {
    Insert(key, {.called = true, .workload = of}, std::move(input));
  }
  void Insert(uint64_t key, log::Command command, std::vector<std::byte> input) {
    GivenRequest request;
    request.batches = {{{OperationKind::kInsert, key, "a row"}}};
    if (input.empty()) input = command.called ? InputOfCall(request) : InputOf(request);
    command.input = input;
    instance::Branch branch;
    branch.locks.transaction = {0, 0, 1, key};
    instance::Batch batch;
    request.batches[0][0].AddTo(&batch);
    batch.ResetResults();
    const std::vector<instance::RoutedOperation> routes = {{0, 0, 0}};
    size_t cursor = 0;
    instance::Failure failure;
    ASSERT_EQ(executor_->Run(branch, batch, routes, &cursor, &failure), instance::Progress::kDone);
    branch.command = command;
    std::vector<locks::Wakeup> wakeups;
    executor_->Commit(branch, &wakeups);
    journal_->EndStep();
  }
  void InsertTwo() {
    for (const uint64_t key : {1, 2}) Insert(key, EncodeWorkload("given", "given.so", {{"size", "3"}}));
  }
  // What is found in an island that is repeated from nothing; `commands`: how many were.
  absl::Status Repeat(const WorkloadOpener& open, uint64_t commands) {
    storage::page_change_sink = nullptr;  // the life is over
    auto store = storage::Store::CreateForRedo(*catalog_, kStore);
    EXPECT_TRUE(store.ok());
    Recovery recovery(*catalog_, **store, {}, /*lanes=*/1, open);
    absl::Status repeated = VisitRecords(*ring_, 0, ring_->tail(), [&](const log::Record& record) {
      return recovery.Redo(ring_->stream(), record);
    });
    if (repeated.ok()) repeated = recovery.FindTrees();
    if (!repeated.ok()) return repeated;
    EXPECT_EQ(recovery.commands(), commands);
    EXPECT_EQ(RowsOf(**store), RowsOf(*store_));
    return (*store)->Check();
  }
  static WorkloadOpener Other(OtherWorkload::How how) {
    return [how](const std::string&, const storage::Catalog&, const instance::Parameters&) {
      return std::make_shared<const OtherWorkload>(how);
    };
  }

  std::unique_ptr<storage::Catalog> catalog_;
  runtime::MemoryFileSystem files_;
  std::unique_ptr<log::Board> board_;
  std::shared_ptr<log::Ring> ring_;
  std::unique_ptr<log::Journal> journal_;
  std::unique_ptr<storage::Store> store_;
  locks::LockTable locks_{{.buckets = 1024}};
  std::optional<instance::Executor> executor_;
};

TEST_F(CommandReplayTest, Commands_DoWhatTheyHaveDone) {
  InsertTwo();
  const absl::Status repeated = Repeat(OpenGiven, 2);
  EXPECT_TRUE(repeated.ok()) << repeated;
}

TEST_F(CommandReplayTest, WhatIsNoCommand_MayComeBetween) {
  Insert(1);
  instance::Branch branch;
  branch.locks.transaction = {0, 0, 1, 50};
  instance::Batch batch;
  GivenOperation{OperationKind::kInsert, 50, "by its changes"}.AddTo(&batch);
  batch.ResetResults();
  const std::vector<instance::RoutedOperation> routes = {{0, 0, 0}};
  size_t cursor = 0;
  instance::Failure failure;
  ASSERT_EQ(executor_->Run(branch, batch, routes, &cursor, &failure), instance::Progress::kDone);
  executor_->EndStep();  // it suspends
  Insert(2);
  std::vector<locks::Wakeup> wakeups;
  executor_->Commit(branch, &wakeups);
  journal_->EndStep();
  const absl::Status repeated = Repeat(OpenGiven, 2);
  EXPECT_TRUE(repeated.ok()) << repeated;
}

// While a run goes on: nobody says again whose its commands are.
TEST_F(CommandReplayTest, Tables_MayComeBetween) {
  Insert(1);
  storage::Catalog::TableSpecs specs;
  for (const char* name : {"rows", "more"}) {
    control::v1::TableSpec* table = specs.Add();
    table->set_name(name);
    table->add_key("uint64");
    table->set_range_end(100);
  }
  storage::Catalog more = *storage::Catalog::Create(specs, 1);
  ASSERT_TRUE(store_->MakeTrees(more, [] { return absl::OkStatus(); }).ok());
  journal_->AppendRedoOnly();
  journal_->EndStep();
  Insert(2);
  std::swap(*catalog_, more);
  const absl::Status repeated = Repeat(OpenGiven, 2);
  EXPECT_TRUE(repeated.ok()) << repeated;
}

TEST_F(CommandReplayTest, CallsAndRequests_OfSeveralWorkloads) {
  const std::vector<std::byte> other = EncodeWorkload("other", "given.so", {});
  Insert(1);
  InsertByCall(2);
  InsertByCall(3, {}, other);
  InsertByCall(4, {}, other);
  Insert(5);
  InsertByCall(6);
  const absl::Status repeated = Repeat(OpenGiven, 6);
  EXPECT_TRUE(repeated.ok()) << repeated;
}

// So recovery may begin with any epoch.
TEST_F(CommandReplayTest, FirstOfAnEpoch_SaysWhoseItIs) {
  for (uint64_t key = 1; key <= 6; ++key) {
    if (key % 3 == 0) board_->RaiseEpoch(board_->epoch() + 1);
    key % 2 == 0 ? Insert(key) : InsertByCall(key);
  }
  std::vector<bool> said;
  ASSERT_TRUE(VisitRecords(*ring_, 0, ring_->tail(), [&](const log::Record& record) {
                const absl::StatusOr<log::Entry> entry = log::DecodeEntry(record);
                if (entry.ok() && log::IsCommand(entry->kind)) said.push_back(!entry->workload.empty());
                return entry.status();
              }).ok());
  EXPECT_EQ(said, (std::vector<bool>{true, false, true, false, false, true}));
}

TEST_F(CommandReplayTest, CallsThatAreNone_AreSaidBeforeAnythingIsLost) {
  const std::vector<std::vector<std::byte>> inputs = {
      InputOfCall("by_chance", {int64_t{0}}), InputOfCall("forgotten", {int64_t{0}}),
      InputOfCall("carry_out", {int64_t{0}}), InputOfCall("carry_out", {int64_t{0}, 1.5})};
  for (size_t i = 0; i < inputs.size(); ++i) {
    StartAnew();
    InsertByCall(1);
    InsertByCall(2, inputs[i]);
    const absl::Status none = Repeat(OpenGiven, 2);
    EXPECT_EQ(none.code(), absl::StatusCode::kFailedPrecondition) << i << ": " << none;
    EXPECT_NE(none.message().find("calls of procedure 'given."), std::string::npos) << none;
  }
}

TEST_F(CommandReplayTest, CallThatIsCutOff_IsDataLoss) {
  std::vector<std::byte> input = InputOfCall("carry_out", {int64_t{0}, std::string("text")});
  input.pop_back();
  InsertByCall(1, input);
  const absl::Status cut = Repeat(OpenGiven, 1);
  EXPECT_EQ(cut.code(), absl::StatusCode::kDataLoss) << cut;
}

TEST_F(CommandReplayTest, AnotherProcedure_IsDataLoss) {
  InsertTwo();
  const absl::Status other = Repeat(Other(OtherWorkload::kWritesMore), 2);
  EXPECT_EQ(other.code(), absl::StatusCode::kDataLoss) << other;
  EXPECT_NE(other.message().find("changes something else"), std::string::npos) << other;
  const absl::Status gives_up = Repeat(Other(OtherWorkload::kGivesUp), 2);
  EXPECT_EQ(gives_up.code(), absl::StatusCode::kDataLoss) << gives_up;
  EXPECT_NE(gives_up.message().find("not today"), std::string::npos) << gives_up;
}

TEST_F(CommandReplayTest, NoWorkload_IsSaidBeforeAnythingIsLost) {
  InsertTwo();
  for (const WorkloadOpener& open :
       {WorkloadOpener(), Other(OtherWorkload::kForgetsCommands),
        WorkloadOpener(
            [](const std::string& object, const storage::Catalog&, const instance::Parameters& given)
                -> absl::StatusOr<std::shared_ptr<const instance::Workload>> {
              EXPECT_EQ(object, "given.so");
              EXPECT_EQ(given, (instance::Parameters{{"size", "3"}}));
              return absl::NotFoundError("no such file");
            })}) {
    const absl::Status none = Repeat(open, 2);
    EXPECT_EQ(none.code(), open ? absl::StatusCode::kFailedPrecondition : absl::StatusCode::kUnimplemented)
        << none;
    EXPECT_NE(none.message().find("workload 'given'"), std::string::npos) << none;
  }
}

// The first of a log that was cut off behind the one that says whose they are.
TEST_F(CommandReplayTest, CommandOfNobody_IsDataLoss) {
  InsertTwo();
  storage::page_change_sink = nullptr;
  auto store = storage::Store::CreateForRedo(*catalog_, kStore);
  ASSERT_TRUE(store.ok());
  Recovery recovery(*catalog_, **store, {}, /*lanes=*/1, OpenGiven);
  bool left_out = false;
  const absl::Status repeated = VisitRecords(*ring_, 0, ring_->tail(), [&](const log::Record& record) {
    const bool command = record.kind == static_cast<uint8_t>(log::EntryKind::kCommand);
    if (command && !std::exchange(left_out, true)) return absl::OkStatus();
    return recovery.Redo(ring_->stream(), record);
  });
  EXPECT_EQ(repeated.code(), absl::StatusCode::kDataLoss) << repeated;
}

TEST(CodeCall, WhatIsWritten_IsRead) {
  const std::vector<instance::Value> written = {int64_t{-5}, 2.5, std::string("\0text", 5), std::string()};
  const std::vector<std::byte> bytes = InputOfCall("procedure", written);
  // Into values of other types, as they were left by the call before.
  std::vector<instance::Value> read = {std::string("a"), int64_t{1}, 1.5, 1.5, 1.5};
  std::string name = "another";
  instance::InputCoder reader{std::span<const std::byte>(bytes)};
  instance::CodeCall(reader, name, read);
  EXPECT_TRUE(reader.ok());
  EXPECT_EQ(name, "procedure");
  EXPECT_EQ(read, written);
  for (size_t end = 0; end < bytes.size(); ++end) {
    instance::InputCoder cut{std::span<const std::byte>(bytes).first(end)};
    instance::CodeCall(cut, name, read);
    EXPECT_FALSE(cut.ok()) << end;
  }
  std::vector<std::byte> unknown = InputOfCall("", {int64_t{0}});
  unknown[2] = std::byte{3};  // the type
  instance::InputCoder other{std::span<const std::byte>(unknown)};
  instance::CodeCall(other, name, read);
  EXPECT_FALSE(other.ok());
}

TEST(InputCoder, WhatIsWritten_IsRead) {
  struct Fields {
    int64_t small = -3, least = INT64_MIN;
    uint64_t most = UINT64_MAX;
    OperationKind kind = OperationKind::kDelete;
    bool yes = true;
    std::array<char, 3> bytes = {'a', 'b', 'c'};
    std::vector<uint32_t> list = {1, 1'000'000};
    void Code(instance::InputCoder& coder) {
      coder.Code(small);
      coder.Code(least);
      coder.Code(most);
      coder.Code(kind);
      coder.Code(yes);
      coder.CodeBytes(bytes);
      coder.CodeList(list);
    }
    bool operator==(const Fields&) const = default;
  };
  Fields written, read{0, 0, 0, OperationKind::kRead, false, {}, {}};
  std::vector<std::byte> bytes;
  instance::InputCoder writer(&bytes);
  written.Code(writer);
  instance::InputCoder reader{std::span<const std::byte>(bytes)};
  read.Code(reader);
  EXPECT_TRUE(reader.ok());
  EXPECT_TRUE(read == written);
  for (size_t end = 0; end < bytes.size(); ++end) {
    instance::InputCoder cut{std::span<const std::byte>(bytes).first(end)};
    read.Code(cut);
    EXPECT_FALSE(cut.ok()) << end;
  }
  bytes.push_back({});
  instance::InputCoder longer{std::span<const std::byte>(bytes)};
  read.Code(longer);
  EXPECT_FALSE(longer.ok());
}

}  // namespace
}  // namespace islands::recovery
