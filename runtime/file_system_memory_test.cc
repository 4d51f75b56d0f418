// What the simulated disk promises: power loss, faults, delays.
#include "runtime/file_system_memory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/file_system_testing.h"

namespace islands::runtime {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kSeeds = 200;  // enough that whatever may happen does

// A file whose name and content "old..." are durable.
struct Disk {
  explicit Disk(const SimulatedDisk& options = {}, size_t bytes = 0)
      : files(options), queue(files.MakeQueue()) {
    file = files.Open("data", true, false).value();
    EXPECT_TRUE(files.SyncDirectory("").ok());
    std::string old(bytes, 'o');
    EXPECT_TRUE(Write(*queue, file, 0, old).ok());
    EXPECT_TRUE(Sync(*queue, file).ok());
  }
  std::string Content() { return files.ReadFile("data").value_or("no file"); }

  MemoryFileSystem files;
  std::unique_ptr<FileSystem::Queue> queue;
  FileHandle file = -1;
};

// What is left after power loss, over many seeds.
template <typename Prepare>
std::set<std::string> Outcomes(const SimulatedDisk& options, size_t bytes, const Prepare& prepare) {
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Disk disk(options, bytes);
    prepare(disk);
    disk.files.PowerLoss(seed);
    outcomes.insert(disk.Content());
  }
  return outcomes;
}

TEST(PowerLoss, WithoutSeed_KeepsExactlyWhatWasSynced) {
  Disk disk;
  ASSERT_TRUE(Write(*disk.queue, disk.file, 0, "kept").ok());
  ASSERT_TRUE(Sync(*disk.queue, disk.file).ok());
  ASSERT_TRUE(Write(*disk.queue, disk.file, 0, "lost").ok());
  EXPECT_EQ(disk.Content(), "lost");
  disk.files.PowerLoss();
  EXPECT_EQ(disk.Content(), "kept");
  EXPECT_FALSE(disk.files.Close(disk.file).ok());
}

TEST(PowerLoss, Sync_CoversOnlyWhatCompletedBeforeItsSubmission) {
  Disk disk;
  std::string early = "early";
  disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(early)});
  disk.queue->Submit({.kind = IoKind::kSync, .file = disk.file});
  for (const IoCompletion& done : PollAll(*disk.queue, 2)) EXPECT_TRUE(done.status.ok());
  disk.files.PowerLoss();
  EXPECT_EQ(disk.Content(), "");
}

TEST(PowerLoss, WithSeed_UnsyncedWritesSurviveEachByItself) {
  const std::string a(512, 'a'), b(512, 'b'), old(512, 'o');
  const std::set<std::string> outcomes = Outcomes({}, 1024, [&](Disk& disk) {
    ASSERT_TRUE(Write(*disk.queue, disk.file, 0, a).ok());
    ASSERT_TRUE(Write(*disk.queue, disk.file, 512, b).ok());
  });
  EXPECT_EQ(outcomes, (std::set<std::string>{old + old, a + old, old + b, a + b}));
}

TEST(PowerLoss, WithSeed_AnyOfSeveralWritesOfOneSectorMayBeTheLast) {
  const std::set<std::string> outcomes = Outcomes({}, 1, [&](Disk& disk) {
    for (const char* text : {"1", "2", "3"}) ASSERT_TRUE(Write(*disk.queue, disk.file, 0, text).ok());
  });
  EXPECT_EQ(outcomes, (std::set<std::string>{"o", "1", "2", "3"}));
}

TEST(PowerLoss, WithSeed_TearsAtSectors) {
  for (const uint32_t sector : {512u, 4096u}) {
    bool torn = false;
    for (const std::string& left : Outcomes({.sector_bytes = sector}, 4 * sector, [&](Disk& disk) {
           ASSERT_TRUE(Write(*disk.queue, disk.file, 0, std::string(4 * sector, 'n')).ok());
         })) {
      ASSERT_EQ(left.size(), 4 * sector);
      for (size_t at = 0; at < left.size(); at += sector) {
        EXPECT_EQ(left.substr(at, sector), std::string(sector, left[at]));
        torn |= left[at] != left[0];
      }
    }
    EXPECT_TRUE(torn);
  }
}

TEST(PowerLoss, WithSeed_LengthSurvivesOrNotToo) {
  const std::set<std::string> outcomes =
      Outcomes({}, 3, [&](Disk& disk) { ASSERT_TRUE(disk.files.Allocate(disk.file, 5).ok()); });
  EXPECT_EQ(outcomes, (std::set<std::string>{"ooo", std::string("ooo\0\0", 5)}));
  EXPECT_EQ(Outcomes({}, 3, [&](Disk& disk) { ASSERT_TRUE(disk.files.Truncate(disk.file, 1).ok()); }),
            (std::set<std::string>{"o", "ooo"}));
}

TEST(PowerLoss, InFlight_WritesHappenWholeInPartOrNotAtAllAndFail) {
  const std::string old(512, 'o'), fresh(512, 'n');
  std::set<std::string> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    Disk disk({}, 1024);
    std::string text = fresh + fresh;
    disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(text), .token = 7});
    disk.files.PowerLoss(seed);
    outcomes.insert(disk.Content());
    const IoCompletion done = PollAll(*disk.queue, 1).front();
    EXPECT_EQ(done.token, 7u);
    EXPECT_EQ(done.status.code(), absl::StatusCode::kUnavailable) << done.status;
    EXPECT_TRUE(outcomes.contains(disk.Content()));  // and nothing more happens
  }
  EXPECT_EQ(outcomes, (std::set<std::string>{old + old, old + fresh, fresh + old, fresh + fresh}));
}

TEST(PowerLoss, Names_AreDurableOnlyWithTheirDirectory) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("a").ok());
  ASSERT_TRUE(files.Open("a/lost", true, false).ok());
  files.PowerLoss();
  EXPECT_THAT(*files.List("a"), IsEmpty());
  ASSERT_TRUE(files.Open("a/one", true, false).ok());
  ASSERT_TRUE(files.Open("a/two", true, false).ok());
  ASSERT_TRUE(files.Open("elsewhere", true, false).ok());
  ASSERT_TRUE(files.SyncDirectory("a").ok());
  ASSERT_TRUE(files.Rename("a/one", "a/three").ok());
  ASSERT_TRUE(files.Remove("a/two").ok());
  EXPECT_THAT(*files.List("a"), ElementsAre("three"));
  files.PowerLoss();
  EXPECT_THAT(*files.List("a"), ElementsAre("one", "two"));
  EXPECT_THAT(*files.List("."), ElementsAre("a"));
}

TEST(PowerLoss, Directories_AreDurableOnlyWithTheirParent) {
  for (const bool again : {false, true}) {
    MemoryFileSystem files;
    files.LeaveDirectory("a");
    // Whoever comes next may not take it for durable.
    if (again) {
      ASSERT_TRUE(files.MakeDirectories("a").ok());
    }
    ASSERT_TRUE(files.MakeDirectories("a/b").ok());
    ASSERT_TRUE(files.ReplaceFile("a/b/file", "x").ok());
    files.PowerLoss();
    EXPECT_TRUE(files.Exists("a/b/file"));
  }
  std::set<bool> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryFileSystem files;
    files.LeaveDirectory("a");
    ASSERT_TRUE(files.ReplaceFile("a/file", "x").ok());
    files.PowerLoss(seed);
    EXPECT_EQ(files.Exists("a"), files.Exists("a/file"));
    outcomes.insert(files.Exists("a"));
  }
  EXPECT_EQ(outcomes.size(), 2u);
}

TEST(PowerLoss, WithSeed_ChangesOfDifferentNamesSurviveEachByItselfOfOneNameInOrder) {
  std::set<std::vector<std::string>> outcomes;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.Open("old", true, false).ok());
    ASSERT_TRUE(files.SyncDirectory(".").ok());
    ASSERT_TRUE(files.Open("new.tmp", true, false).ok());
    ASSERT_TRUE(files.Rename("new.tmp", "new").ok());
    ASSERT_TRUE(files.Remove("old").ok());
    files.PowerLoss(seed);
    outcomes.insert(*files.List("."));
  }
  using Names = std::vector<std::string>;
  EXPECT_EQ(outcomes,
            (std::set<Names>{{}, {"new"}, {"new.tmp"}, {"old"}, {"new", "old"}, {"new.tmp", "old"}}));
}

TEST(PowerLoss, SameSeed_SameOutcome) {
  const auto run = [](uint64_t seed) {
    Disk disk({.seed = seed}, 100'000);
    for (uint64_t i = 0; i < 50; ++i) {
      EXPECT_TRUE(
          Write(*disk.queue, disk.file, i * 1777, std::string(5000, static_cast<char>('A' + i))).ok());
    }
    disk.files.PowerLoss(seed);
    return disk.Content();
  };
  EXPECT_EQ(run(3), run(3));
  EXPECT_NE(run(3), run(4));
}

TEST(FailAfter, ReplaceFile_CrashAtAnyStepLeavesOldOrNew) {
  bool completed = false;
  for (uint64_t steps = 0; !completed; ++steps) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      MemoryFileSystem files;
      ASSERT_TRUE(files.ReplaceFile("path", "old").ok());
      files.FailAfter(steps);
      completed = files.ReplaceFile("path", "new").ok();
      if (seed == 0) {
        files.PowerLoss();
        EXPECT_EQ(*files.ReadFile("path"), completed ? "new" : "old") << steps;
      } else {
        files.PowerLoss(seed);
        const std::string left = *files.ReadFile("path");
        EXPECT_TRUE(left == "new" || (!completed && left == "old")) << steps << ": " << left;
      }
      EXPECT_TRUE(files.ReplaceFile("path", "newest").ok());
    }
    ASSERT_LT(steps, 10u);
  }
}

TEST(FailAfter, WritesAfterThePowerIsGoneNeverHappen) {
  const std::set<std::string> outcomes = Outcomes({}, 1, [](Disk& disk) {
    disk.files.FailAfter(0);
    EXPECT_EQ(Write(*disk.queue, disk.file, 0, "1").code(), absl::StatusCode::kUnavailable);
    static std::string late = "2";
    disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(late)});
  });
  EXPECT_EQ(outcomes, std::set<std::string>{"o"});
}

TEST(DiskFault, ErrorsChangeNothingAndNameThePlace) {
  Disk disk({}, 3);
  disk.files.Inject(0, DiskFault::kEio);
  disk.files.Inject(1, DiskFault::kEnospc);
  absl::Status status = Write(*disk.queue, disk.file, 1, "new");
  EXPECT_THAT(std::string(status.message()), HasSubstr("cannot write data at offset 1: Input/output error"));
  EXPECT_EQ(Write(*disk.queue, disk.file, 1, "new").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(disk.Content(), "ooo");
  EXPECT_TRUE(Write(*disk.queue, disk.file, 1, "new").ok());
  EXPECT_EQ(disk.Content(), "onew");
}

// What is in flight, what is unsynced, names: as if it had happened here.
TEST(PowerLoss, After_IsAnotherDisk) {
  std::set<std::string> lost;
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    std::unique_ptr<MemoryFileSystem> after;
    Disk disk({.seed = 1}, 1024);
    ASSERT_TRUE(Write(*disk.queue, disk.file, 0, std::string(512, 'n')).ok());
    ASSERT_TRUE(disk.files.Rename("data", "moved").ok());
    std::string more(512, 'm');
    disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .offset = 512, .buffer = Bytes(more)});
    after = disk.files.AfterPowerLoss(seed);
    const std::string before = *disk.files.ReadFile("moved");
    EXPECT_EQ(before, std::string(512, 'n') + std::string(512, 'o')) << "it goes on";
    const std::string name = after->Exists("moved") ? "moved" : "data";
    EXPECT_TRUE(after->Exists(name));
    lost.insert(name + *after->ReadFile(name));
    const FileHandle file = *after->Open(name, false, false);
    EXPECT_TRUE(after->Lock(file).ok());
    const auto queue = after->MakeQueue();
    EXPECT_TRUE(Write(*queue, file, 0, "other").ok());
    EXPECT_EQ(*disk.files.ReadFile("moved"), before) << "and has other files";
    disk.files.PowerLoss(seed);
    EXPECT_EQ(disk.files.Exists("moved"), name == "moved") << "the same seed, the same loss";
  }
  EXPECT_EQ(lost.size(), 8u);
}

TEST(SimulatedDisk, AfterKill_HasWhatWasInFlight) {
  Disk disk({}, 4);
  ASSERT_TRUE(disk.files.Lock(disk.file).ok());
  std::string text = "new!", read = "....";
  disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(text)});
  disk.queue->Submit({.kind = IoKind::kRead, .file = disk.file, .buffer = Bytes(read)});
  const auto after = disk.files.AfterKill();
  EXPECT_EQ(read, "....") << "who wanted to read it is dead";
  EXPECT_EQ(disk.Content(), "oooo");
  EXPECT_EQ(*after->ReadFile("data"), "new!");
  EXPECT_TRUE(after->Lock(*after->Open("data", false, false)).ok());
  after->PowerLoss();
  EXPECT_EQ(*after->ReadFile("data"), "oooo") << "it was not synced";
}

TEST(SimulatedDisk, LeaveInFlight_HappensAfterItsQueueAndItsBufferAreGone) {
  for (const bool power : {true, false}) {
    Disk disk({}, 4);
    ASSERT_TRUE(disk.files.Lock(disk.file).ok());
    std::string text = "new!", read = "....";
    disk.files.LeaveInFlight(true);
    disk.queue->Submit({.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(text)});
    disk.queue->Submit({.kind = IoKind::kRead, .file = disk.file, .buffer = Bytes(read)});
    disk.queue.reset();
    disk.files.LeaveInFlight(false);
    text = read = "gone";
    ASSERT_TRUE(disk.files.Close(disk.file).ok());
    const FileHandle other = *disk.files.Open("data", false, false);
    EXPECT_EQ(disk.Content(), "oooo");
    EXPECT_EQ(disk.files.Lock(other).code(), absl::StatusCode::kUnavailable);
    if (!power) disk.files.PowerLoss();
    disk.files.FinishLeft();
    EXPECT_EQ(disk.Content(), power ? "new!" : "oooo");
    EXPECT_EQ(read, "gone");
    EXPECT_EQ(disk.files.Lock(other).ok(), power);  // handles are gone with power
  }
}

TEST(DiskFault, EveryKindOfStepCanFail) {
  const std::vector<std::function<absl::Status(Disk&)>> steps = {
      [](Disk& disk) { return disk.files.Open("new", true, false).status(); },
      [](Disk& disk) { return Write(*disk.queue, disk.file, 0, "x"); },
      [](Disk& disk) { return Sync(*disk.queue, disk.file); },
      [](Disk& disk) { return disk.files.Allocate(disk.file, 10); },
      [](Disk& disk) { return disk.files.Truncate(disk.file, 1); },
      [](Disk& disk) { return disk.files.Rename("data", "other"); },
      [](Disk& disk) { return disk.files.SyncDirectory("."); },
      [](Disk& disk) { return disk.files.Remove("data"); },
  };
  for (const auto& step : steps) {
    Disk disk;
    const uint64_t before = disk.files.steps();
    disk.files.Inject(0, DiskFault::kEnospc);
    const absl::Status failed = step(disk);
    EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << failed;
    EXPECT_EQ(disk.files.steps(), before + 1);
    EXPECT_THAT(*disk.files.List("."), ElementsAre("data"));
    EXPECT_TRUE(step(disk).ok());
    EXPECT_EQ(disk.files.steps(), before + 2);
  }
}

TEST(DiskFault, MakeDirectories_CanFailAtEachStep) {
  for (uint64_t step = 0; step < 4; ++step) {  // two are made, and their parents synced
    MemoryFileSystem files;
    files.Inject(step, DiskFault::kEnospc);
    const absl::Status failed = files.MakeDirectories("a/b");
    EXPECT_EQ(failed.code(), absl::StatusCode::kResourceExhausted) << failed;
    EXPECT_EQ(files.steps(), step + 1);
    files.PowerLoss();
    EXPECT_FALSE(files.Exists("a/b"));
    EXPECT_TRUE(files.MakeDirectories("a/b").ok());
  }
}

// Linux marks what it could not write as clean: it is read, and it is gone.
TEST(DiskFault, FailedSync_LaterSyncsSucceedWithoutTheData) {
  for (const bool with_seed : {false, true}) {
    Disk disk({}, 1024);
    ASSERT_TRUE(Write(*disk.queue, disk.file, 0, std::string(512, 'x')).ok());
    disk.files.Inject(0, DiskFault::kEio);
    const absl::Status failed = Sync(*disk.queue, disk.file);
    EXPECT_THAT(std::string(failed.message()), HasSubstr("cannot sync data"));
    ASSERT_TRUE(Write(*disk.queue, disk.file, 512, std::string(512, 'y')).ok());
    EXPECT_TRUE(Sync(*disk.queue, disk.file).ok());
    EXPECT_EQ(disk.Content(), std::string(512, 'x') + std::string(512, 'y'));
    with_seed ? disk.files.PowerLoss(1) : disk.files.PowerLoss();
    EXPECT_EQ(disk.Content(), std::string(512, 'o') + std::string(512, 'y'));
  }
}

TEST(DiskFault, Lost_WritesShowUntilPowerIsLost) {
  Disk disk({}, 1);
  disk.files.Inject(0, DiskFault::kLost);
  EXPECT_TRUE(Write(*disk.queue, disk.file, 0, "x").ok());
  EXPECT_TRUE(Sync(*disk.queue, disk.file).ok());
  EXPECT_EQ(disk.Content(), "x");
  disk.files.PowerLoss(1);
  EXPECT_EQ(disk.Content(), "o");
}

TEST(DiskFault, Lost_SyncsMakeNothingDurable) {
  Disk disk({}, 1);
  ASSERT_TRUE(Write(*disk.queue, disk.file, 0, "x").ok());
  ASSERT_TRUE(disk.files.Rename("data", "other").ok());
  disk.files.Inject(0, DiskFault::kLost);
  disk.files.Inject(1, DiskFault::kLost);
  EXPECT_TRUE(Sync(*disk.queue, disk.file).ok());
  EXPECT_TRUE(disk.files.SyncDirectory(".").ok());
  disk.files.PowerLoss();
  EXPECT_EQ(disk.Content(), "o");
}

TEST(DiskFault, Lost_NamesShowUntilPowerIsLost) {
  Disk disk;
  disk.files.Inject(0, DiskFault::kLost);
  ASSERT_TRUE(disk.files.Open("new", true, false).ok());
  EXPECT_TRUE(disk.files.SyncDirectory(".").ok());
  EXPECT_THAT(*disk.files.List("."), ElementsAre("data", "new"));
  disk.files.PowerLoss();
  EXPECT_THAT(*disk.files.List("."), ElementsAre("data"));
}

TEST(DiskFault, Short_TheRestIsAStepOfItsOwn) {
  Disk disk({}, 1000);
  disk.files.Inject(0, DiskFault::kShort);
  uint64_t before = disk.files.steps();
  EXPECT_TRUE(Write(*disk.queue, disk.file, 0, std::string(1000, 'x')).ok());
  EXPECT_EQ(disk.files.steps(), before + 2);
  EXPECT_EQ(disk.Content(), std::string(1000, 'x'));

  disk.files.Inject(0, DiskFault::kShort);
  disk.files.Inject(1, DiskFault::kEio);
  std::string text(1000, 'y');
  const IoCompletion done =
      Do(*disk.queue, {.kind = IoKind::kWrite, .file = disk.file, .buffer = Bytes(text)});
  EXPECT_FALSE(done.status.ok());
  EXPECT_GT(done.bytes, 0u);
  EXPECT_LT(done.bytes, 1000u);
  EXPECT_EQ(disk.Content(), std::string(done.bytes, 'y') + std::string(1000 - done.bytes, 'x'));
}

TEST(SimulatedDisk, DiskBytes_AreAllThereIs) {
  Disk disk({.disk_bytes = 10'000}, 6000);
  const FileHandle other = disk.files.Open("other", true, false).value();
  EXPECT_EQ(disk.files.Allocate(other, 4001).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*disk.files.Size(other), 0u);
  EXPECT_TRUE(disk.files.Allocate(other, 4000).ok());
  EXPECT_EQ(Write(*disk.queue, disk.file, 6000, "x").code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Write(*disk.queue, disk.file, 5999, "x").ok());  // no more than it had
  EXPECT_FALSE(disk.files.ReplaceFile("more", "x").ok());
  ASSERT_TRUE(disk.files.Remove("other").ok());
  EXPECT_FALSE(Write(*disk.queue, disk.file, 6000, "x").ok());  // still open
  ASSERT_TRUE(disk.files.Close(other).ok());
  EXPECT_TRUE(Write(*disk.queue, disk.file, 6000, "x").ok());
}

TEST(SimulatedDisk, SetRoom_IsWhatMayBeAddedUntilItIsSetAgain) {
  Disk disk({}, 100);
  disk.files.SetRoom(1);
  EXPECT_TRUE(Write(*disk.queue, disk.file, 100, "x").ok());
  EXPECT_EQ(Write(*disk.queue, disk.file, 101, "x").code(), absl::StatusCode::kResourceExhausted);
  disk.files.SetRoom(UINT64_MAX);
  EXPECT_TRUE(Write(*disk.queue, disk.file, 101, std::string(100'000, 'x')).ok());
}

TEST(DiskFault, ForgetFaults_NothingIsPlannedAnyMore) {
  Disk disk({}, 1);
  disk.files.Inject(0, DiskFault::kEio);
  disk.files.FailAfter(0);
  disk.files.ForgetFaults();
  EXPECT_TRUE(Write(*disk.queue, disk.file, 0, "x").ok());
}

// The order in which ten requests complete, which is checked to be within its times.
std::vector<uint64_t> DelayedOrder(uint64_t seed) {
  ManualClock clock;
  MemoryFileSystem files({.clock = &clock, .min_delay_ns = 1000, .max_delay_ns = 2000, .seed = seed});
  const FileHandle file = files.Open("data", true, false).value();
  auto queue = files.MakeQueue();
  EXPECT_EQ(files.NextCompletionNs(), INT64_MAX);
  const int64_t start_ns = clock.NowNs();
  std::string text(10, 'x');
  for (size_t i = 0; i < 10; ++i) {
    queue->Submit(
        {.kind = IoKind::kWrite, .file = file, .offset = i, .buffer = Bytes(text).subspan(i, 1), .token = i});
  }
  std::vector<IoCompletion> done;
  EXPECT_EQ(queue->Poll(&done), 0u);
  queue->Wait(INT64_MAX);  // does not sleep
  while (files.NextCompletionNs() != INT64_MAX) {
    const int64_t after_ns = files.NextCompletionNs() - start_ns;
    EXPECT_TRUE(1000 <= after_ns && after_ns <= 2000) << after_ns;
    clock.AdvanceNs(files.NextCompletionNs() - clock.NowNs());
    EXPECT_GT(queue->Poll(&done), 0u);
  }
  EXPECT_EQ(*files.ReadFile("data"), text);
  std::vector<uint64_t> order;
  for (const IoCompletion& each : done) order.push_back(each.token);
  return order;
}

TEST(SimulatedDisk, Delays_RequestsOvertakeOneAnotherAsTheSeedSays) {
  EXPECT_EQ(DelayedOrder(1), DelayedOrder(1));
  EXPECT_NE(DelayedOrder(1), DelayedOrder(2));
  const std::vector<uint64_t> order = DelayedOrder(1);
  EXPECT_FALSE(std::is_sorted(order.begin(), order.end()));
  EXPECT_EQ(std::set<uint64_t>(order.begin(), order.end()).size(), 10u);
}

TEST(SimulatedDisk, Lock_FallsAfterTheLastRequestInFlight) {
  ManualClock clock;
  MemoryFileSystem files({.clock = &clock, .min_delay_ns = 100, .max_delay_ns = 100});
  const FileHandle first = files.Open("data", true, false).value(),
                   second = *files.Open("data", false, false);
  auto queue = files.MakeQueue();
  ASSERT_TRUE(files.Lock(first).ok());
  std::string text = "text";
  queue->Submit({.kind = IoKind::kWrite, .file = first, .buffer = Bytes(text)});
  ASSERT_TRUE(files.Close(first).ok());
  EXPECT_EQ(files.Lock(second).code(), absl::StatusCode::kUnavailable);
  clock.AdvanceNs(100);
  EXPECT_TRUE(PollAll(*queue, 1).front().status.ok());
  EXPECT_TRUE(files.Lock(second).ok());
  EXPECT_EQ(*files.ReadFile("data"), "text");
}

}  // namespace
}  // namespace islands::runtime
