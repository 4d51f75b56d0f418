// Many seeds. Which ones: ISLANDS_SEEDS=FIRST:COUNT, as CMakeLists.txt cuts them into shards, or one of them
// with everything that was done to it: ISLANDS_SEED=N. A failure prints that command, also when the process
// dies. ISLANDS_KEEPS=1: of clusters that keep what they promise, in a log. `lazy`, `sync` and `forced`
// (`votes: forced`): of those that lose power, too, and whose disk has faults.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <spdlog/spdlog.h>
#include <sys/time.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <system_error>

#include "instance/simulation/seed_runner.h"
#include "runtime/seeds_testing.h"

namespace islands::simulation {
namespace {

#ifdef __SANITIZE_ADDRESS__
constexpr uint64_t kShare = 10;  // of the seeds: 1 in 10
#else
constexpr uint64_t kShare = 1;
#endif
// Fewer cannot be expected to hit every pair of state and fault.
constexpr uint64_t kEnoughForCoverage = 400;
constexpr uint64_t kEnoughForDisks = 100;  // likewise, of faults of the disk
// Of losses of power. `make test` runs 600 such seeds, which makes more than 2,000.
constexpr uint64_t kLeastImagesOfASeed = 4;
constexpr uint64_t kEnoughForCommands = 20;
constexpr uint64_t kLeastCommandsOfASeed = 1000;
constexpr uint64_t kTwice = 50;          // every so many seeds one runs again
constexpr time_t kSecondsPerSeed = 240;  // of CPU: what loops is ended, not what has millions of attempts

std::string KeepsText() {
  const char* keeps = std::getenv("ISLANDS_KEEPS");
  return keeps == nullptr ? "0" : keeps;
}

Keeps KeepsOf(const std::string& text) {
  if (text == "lazy") return Keeps::kLazy;
  if (text == "command") return Keeps::kCommand;
  if (text == "sync") return Keeps::kSync;
  if (text == "forced") return Keeps::kForced;
  return text == "0" ? Keeps::kNothing : Keeps::kWhatWasAppended;
}

char last_words[256];  // written before a seed runs, because a signal handler can format nothing

// Of this very program: others of the same tests have bugs planted or are sanitized.
std::string CommandFor(uint64_t seed) {
  std::error_code error;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe", error).string();
  const size_t build = self.rfind("/build/");
  const char* bug = std::getenv("ISLANDS_PLANTED_BUG");
  return fmt::format("{}{}ISLANDS_SEED={} {}",
                     KeepsText() != "0" ? fmt::format("ISLANDS_KEEPS={} ", KeepsText()) : "",
                     bug != nullptr ? fmt::format("ISLANDS_PLANTED_BUG={} ", bug) : "", seed,
                     build != std::string::npos ? self.substr(build + 1) : self);
}

void OnDeath(int signal) {
  (void)!write(STDERR_FILENO, last_words, std::strlen(last_words));
  std::signal(signal, SIG_DFL);
  (void)raise(signal);
}

void EndAfter(time_t cpu_s) {
  const itimerval timer{.it_interval = {}, .it_value = {cpu_s, 0}};
  setitimer(ITIMER_PROF, &timer, nullptr);
}

SeedReport Watched(uint64_t seed) {
  const std::string words =
      fmt::format("\nthe process ends within seed {0}; to repeat it: {1}\n", seed, CommandFor(seed));
  std::snprintf(last_words, sizeof(last_words), "%s", words.c_str());
  for (const int signal : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGPROF}) std::signal(signal, OnDeath);
  EndAfter(kSecondsPerSeed);
  SeedReport report = RunSeed(seed, KeepsOf(KeepsText()));
  EndAfter(0);
  return report;
}

struct Range {
  uint64_t first = 1;
  uint64_t count = 0;
};

Range SeedsToRun() {
  const auto [first, count] = runtime::SeedsToRun(20 * kShare);
  return {first, count / kShare};
}

TEST(Seeds, Repeat_OneSeedWithAllItsEvents) {
  const char* text = std::getenv("ISLANDS_SEED");
  if (text == nullptr) GTEST_SKIP() << "ISLANDS_SEED=N runs seed N";
  const SeedReport report = Watched(std::strtoull(text, nullptr, 10));
  std::fputs(report.Text().c_str(), stdout);
  EXPECT_TRUE(report.ok());
}

TEST(Seeds, Simulate_HistoriesStayStrictlySerializable) {
  if (std::getenv("ISLANDS_SEED") != nullptr) GTEST_SKIP() << "the one seed of ISLANDS_SEED was run";
  const Range range = SeedsToRun();
  Coverage coverage;
  uint64_t attempts = 0, committed = 0, unknown = 0, torn = 0, crashes = 0, faults = 0, deadlocks = 0,
           timeouts = 0, no_room = 0, escalations = 0, probes = 0, probe_victims = 0, power_losses = 0,
           images = 0, lost = 0, lost_answers = 0, disk_errors = 0, box_stops = 0, full_disks = 0,
           pages_read = 0, waits_for_pages = 0, failed_reads = 0, commands = 0;
  for (uint64_t seed = range.first; seed < range.first + range.count; ++seed) {
    const SeedReport report = Watched(seed);
    EXPECT_TRUE(report.ok()) << report.Text() << "to repeat it: " << CommandFor(seed);
    if (!report.ok() && GTEST_FLAG_GET(fail_fast)) return;
    if (seed % kTwice == 0) {
      EXPECT_EQ(Watched(seed).trace, report.trace) << "not the same twice: " << CommandFor(seed);
    }
    coverage.Merge(report.coverage);
    attempts += report.attempts, committed += report.committed, unknown += report.unknown,
        torn += report.torn;
    crashes += report.crashes, faults += report.faults;
    deadlocks += report.deadlocks, timeouts += report.lock_timeouts;
    no_room += report.no_room, escalations += report.escalations;
    probes += report.probes, probe_victims += report.probe_victims;
    power_losses += report.power_losses, images += report.images;
    commands += report.commands;
    lost += report.lost, lost_answers += report.lost_answers;
    pages_read += report.pages_read, waits_for_pages += report.waits_for_pages,
        failed_reads += report.failed_reads;
    disk_errors += report.disk_errors, box_stops += report.box_stops, full_disks += report.full_disks;
    const uint64_t done = seed - range.first + 1;
    if (done % 100 == 0) {
      fmt::print("{} of {} seeds\n", done, range.count);
      std::fflush(stdout);
    }
  }
  fmt::print(
      "seeds {} to {}: {} transactions, {} committed, {} unknown, {} torn by a crash, {} deadlocks, {} of "
      "them found by {} probes, {} lock timeouts, {} without room, {} escalations, "
      "{} faults, {} of them crashes, {} losses of power in {} images that took {} transactions, {} of them "
      "answered, {} commands in logs that were read, {} "
      "errors of the disk that stopped {} boxes, {} times a full one, {} pages read and {} waits for them, "
      "{} "
      "reads that failed\n{}",
      range.first, range.first + range.count - 1, attempts, committed, unknown, torn, deadlocks,
      probe_victims, probes, timeouts, no_room, escalations, faults, crashes, power_losses, images, lost,
      lost_answers, commands, disk_errors, box_stops, full_disks, pages_read, waits_for_pages, failed_reads,
      coverage.Table());
  if (range.count >= kEnoughForDisks && KeepsOf(KeepsText()) >= Keeps::kLazy) {
    EXPECT_GT(box_stops, 0u);
    EXPECT_GT(full_disks, 0u);
    EXPECT_GT(images, range.count * kLeastImagesOfASeed);
  }
  if (range.count >= kEnoughForCommands) {
    EXPECT_EQ(commands > range.count * kLeastCommandsOfASeed, KeepsText() == "command");
  }
  if (range.count < kEnoughForCoverage) return;
  EXPECT_GT(no_room, 0u);
  EXPECT_GT(escalations, 0u);
  if (KeepsText() == "0") {
    EXPECT_GT(waits_for_pages, 0u);
    EXPECT_GT(failed_reads, 0u);
  }
  for (const std::string& pair : coverage.Unreached(KeepsText() != "0"))
    ADD_FAILURE() << "no seed met " << pair;
}

}  // namespace
}  // namespace islands::simulation

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  spdlog::set_level(std::getenv("ISLANDS_SEED") == nullptr ? spdlog::level::off : spdlog::level::warn);
  return RUN_ALL_TESTS();
}
