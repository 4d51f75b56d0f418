// The logger with real processes: islands that append, and everybody is killed, again and again.
#include "instance/log/logger_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/log/log_reader.h"
#include "instance/log/lsn.h"
#include "instance/log/record.h"
#include "runtime/descriptor.h"
#include "runtime/random.h"

namespace islands::log {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

constexpr uint64_t kCluster = 77;
constexpr int kPatienceMs = 60'000;  // longer than anything takes that does not hang
const std::vector<uint32_t> kWorkers{1, 2};

// What record `number` of the stream holds.
std::string BodyOf(const StreamId& stream, uint64_t number) {
  runtime::Random random(stream.life * 1'000'003 + stream.island * 101 + stream.worker * 7 + number);
  std::string body(8 + random.Below(300), '\0');
  for (char& c : body) c = static_cast<char>(random());
  std::memcpy(body.data(), &number, sizeof(number));
  return body;
}

// An island's worker as a process: appends until it is killed.
[[noreturn]] void AppendForever(int board_fd, const std::string& ring_path, uint64_t seed) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const std::unique_ptr<Board> board = Board::Map(board_fd, kWorkers).value();
  const std::unique_ptr<Ring> ring = Ring::Open(ring_path).value();
  const StreamId& stream = ring->stream();
  runtime::Random random(seed);
  RingWriter writer(*ring);
  EpochHold hold(*board, stream.island, stream.worker);
  for (uint64_t number = 0;;) {
    for (uint64_t records = random.Below(4); records > 0; --records) {
      const std::string body = BodyOf(stream, number);
      if (writer.Room() < RecordBytes(body.size())) break;
      const uint64_t epoch = hold.Take();
      Append(writer, 1, Lsn::Of(epoch, 0).value(), {std::as_bytes(std::span(body))});
      ++number;
    }
    writer.Show();
    hold.Release();
    if (random.Below(50) == 0) sched_yield();
  }
}

class LoggerProcessTest : public testing::Test {
 protected:
  LoggerProcessTest()
      : base_(testing::TempDir() + "islands_logger_process_test"),
        files_(runtime::MakePosixFileSystem()),
        board_fd_(Board::MakeShared(kWorkers).value()),
        board_(Board::Map(board_fd_.get(), kWorkers).value()) {
    fs::remove_all(base_);
    fs::create_directory(base_);
    rings_ = RingDirectory::Make(base_ + "/rings", base_).value();
  }
  ~LoggerProcessTest() override {
    for (const auto& [island, workers] : processes_) {
      for (const pid_t worker : workers) End(worker, SIGKILL);
    }
    if (logger_ > 0) End(logger_, SIGKILL);
    fs::remove_all(base_);
  }

  static int End(pid_t process, int signal) {
    kill(process, signal);
    int status = 0;
    EXPECT_EQ(waitpid(process, &status, 0), process);
    return status;
  }

  // ---- The logger ----

  void SpawnLogger(const std::vector<std::string>& more = {}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    socket_.Reset(pair[0]);
    heard_.clear();
    lines_.clear();
    const runtime::UniqueFd theirs(pair[1]);
    std::vector<std::string> words = {ISLANDS_LOGGER,
                                      "--board",
                                      std::to_string(board_fd_.get()),
                                      "--commands",
                                      std::to_string(theirs.get()),
                                      "--workers",
                                      fmt::format("{}", fmt::join(kWorkers, ",")),
                                      "--log-directory",
                                      base_ + "/log",
                                      "--ring-directory",
                                      base_ + "/rings",
                                      "--cluster",
                                      std::to_string(kCluster),
                                      "--segment-mib",
                                      "1"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    logger_ = fork();
    if (logger_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{most_file_bytes_, most_file_bytes_};
    setrlimit(RLIMIT_FSIZE, &limit);
    fcntl(board_fd_.get(), F_SETFD, 0);
    fcntl(theirs.get(), F_SETFD, 0);
    const int errors = open(ErrorsPath().c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    dup2(errors, STDERR_FILENO);
    execv(arguments[0], arguments.data());
    _exit(127);
  }
  void StartLogger() {
    const std::array engines = {"threads", runtime::CheckIoUring().ok() ? "io_uring" : "auto", "caller"};
    SpawnLogger({"--engine", engines[++starts_ % engines.size()]});
    for (const auto& [island, life] : dying_) Say(fmt::format("dead {} {}", island, life));
    Say("start");
    Await("ready");
  }
  // What it has written must be there for the next one, and nothing that it has promised may be less.
  void KillLogger() {
    End(std::exchange(logger_, -1), SIGKILL);
    CheckEpoch();
    StartLogger();
  }
  void CheckEpoch() {
    const absl::StatusOr<EpochBlock> block = ReadEpochFile(*files_, base_ + "/log/EPOCH", kCluster, 2);
    ASSERT_TRUE(block.ok()) << block.status();
    EXPECT_GE(block->epoch, board_->durable());
    EXPECT_GE(block->epoch, last_epoch_);
    last_epoch_ = block->epoch;
  }
  std::string ErrorsPath() const { return base_ + "/errors"; }
  std::string Errors() const { return files_->ReadFile(ErrorsPath()).value_or(""); }
  // How it ended by itself.
  int AwaitExit() {
    int status = 0;
    EXPECT_EQ(waitpid(std::exchange(logger_, -1), &status, 0) > 0, true);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  void Say(const std::string& line) {
    const std::string bytes = line + "\n";
    ASSERT_EQ(send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Until a line begins so. Others stay for whoever awaits them: islands drain in any order.
  std::string Await(const std::string& begin) {
    for (;;) {
      for (size_t end; (end = heard_.find('\n')) != std::string::npos; heard_.erase(0, end + 1))
        lines_.push_back(heard_.substr(0, end));
      const auto is_it = [&](const std::string& line) { return line.starts_with(begin); };
      if (const auto found = std::find_if(lines_.begin(), lines_.end(), is_it); found != lines_.end()) {
        std::string line = *found;
        lines_.erase(found);
        return line;
      }
      pollfd source{socket_.get(), POLLIN, 0};
      char bytes[4096];
      const ssize_t got =
          poll(&source, 1, kPatienceMs) == 1 ? recv(socket_.get(), bytes, sizeof(bytes), 0) : -1;
      if (got <= 0) {
        ADD_FAILURE() << "the logger does not say " << begin << ": " << Errors();
        return "";
      }
      heard_.append(bytes, static_cast<size_t>(got));
    }
  }

  // ---- Islands ----

  void StartIsland(uint32_t island) {
    const uint64_t life = ++lives_[island];
    std::vector<StreamId> streams;
    for (uint32_t worker = 0; worker < kWorkers[island]; ++worker) {
      streams.push_back({life, island, worker});
      const auto ring = rings_->MakeRing(streams.back(), Ring::kLeastCapacity);
      ASSERT_TRUE(ring.ok()) << ring.status();
      appended_[streams.back()] = *ring;
    }
    Say(fmt::format("life {} {}", island, life));
    Await(fmt::format("added {} {}", island, life));
    ASSERT_TRUE(rings_->RemoveEarlier(island, life).ok());
    for (const StreamId& stream : streams) {
      const std::string path = rings_->path() + "/" + RingName(stream);
      const pid_t process = fork();
      if (process == 0) AppendForever(board_fd_.get(), path, ++seed_);
      processes_[island].push_back(process);
    }
  }
  void KillIsland(uint32_t island) {
    for (const pid_t worker : std::exchange(processes_[island], {})) End(worker, SIGKILL);
    dying_[island] = lives_[island];
    Say(fmt::format("dead {} {}", island, lives_[island]));
  }
  void AwaitDrained(uint32_t island) {
    Await(fmt::format("drained {} {}", island, lives_[island]));
    dying_.erase(island);
  }

  // Of an island that is not a process.
  std::shared_ptr<Ring> BeginLife() {
    const std::shared_ptr<Ring> ring = rings_->MakeRing({1, 0, 0}, Ring::kLeastCapacity).value();
    appended_[ring->stream()] = ring;
    Say("life 0 1");
    Await("added 0 1");
    return ring;
  }
  void AppendOne(Ring& ring) {
    EpochHold hold(*board_, 0, 0);
    RingWriter writer(ring);
    const std::string body = BodyOf(ring.stream(), 0);
    Append(writer, 1, Lsn::Of(hold.Take(), 0).value(), {std::as_bytes(std::span(body))});
    writer.Show();
    hold.Release();
  }

  // Until the log has gone on by that many epochs.
  void AwaitProgress(uint64_t epochs) {
    const uint64_t until = board_->durable() + epochs;
    const runtime::MonotonicClock clock;
    const int64_t give_up_ns = clock.NowNs() + kPatienceMs * runtime::kNsPerMs;
    while (board_->durable() < until && clock.NowNs() < give_up_ns) sched_yield();
    ASSERT_GE(board_->durable(), until) << Errors();
  }

  // Everything that was appended by anybody is in the files, in order.
  void CompareFiles() {
    const absl::StatusOr<EpochBlock> block = ReadEpochFile(*files_, base_ + "/log/EPOCH", kCluster, 2);
    ASSERT_TRUE(block.ok()) << block.status();
    std::map<StreamId, uint64_t> numbers, ends;
    for (uint32_t island = 0; island < kWorkers.size(); ++island) {
      LogReader reader(
          *files_,
          {.directory = IslandDirectory(base_ + "/log", island), .cluster = kCluster, .island = island},
          block->ends[island]);
      const absl::Status read = reader.Read([&](const StreamId& stream, const Record& record) {
        const std::string body = BodyOf(stream, numbers[stream]++);
        const std::string_view found(reinterpret_cast<const char*>(record.body.data()), record.body.size());
        EXPECT_TRUE(found == body) << RingName(stream) << " record " << numbers[stream] - 1;
        ends[stream] += RecordBytes(record.body.size());
        return testing::Test::HasFailure() ? absl::InternalError("enough") : absl::OkStatus();
      });
      ASSERT_TRUE(read.ok()) << read;
    }
    for (const auto& [stream, ring] : appended_) {
      EXPECT_EQ(ends[stream], ring->tail()) << RingName(stream);
      records_ += numbers[stream];
    }
  }

  const std::string base_;
  const std::unique_ptr<runtime::FileSystem> files_;
  const runtime::UniqueFd board_fd_;
  const std::unique_ptr<Board> board_;
  std::unique_ptr<RingDirectory> rings_;
  pid_t logger_ = -1;
  runtime::UniqueFd socket_;
  std::string heard_;               // of a line that is not complete
  std::vector<std::string> lines_;  // that nobody has awaited yet
  std::map<uint32_t, uint64_t> lives_;
  std::map<uint32_t, uint64_t> dying_;
  std::map<uint32_t, std::vector<pid_t>> processes_;
  std::map<StreamId, std::shared_ptr<Ring>> appended_;
  uint64_t last_epoch_ = 0;
  int starts_ = 0;
  rlim_t most_file_bytes_ = RLIM_INFINITY;  // of the next logger
  uint64_t seed_ = 0;
  uint64_t records_ = 0;
};

TEST_F(LoggerProcessTest, Kill_OfAnybodyLosesNothing) {
  StartLogger();
  for (uint32_t island = 0; island < kWorkers.size(); ++island) StartIsland(island);
  runtime::Random random(1);
  for (int step = 0; step < 30 && !HasFailure(); ++step) {
    AwaitProgress(random.Below(20));
    const auto island = static_cast<uint32_t>(random.Below(kWorkers.size()));
    const uint64_t what = random.Below(4);
    if (what == 0) {
      KillLogger();
      continue;
    }
    KillIsland(island);
    if (what == 1) KillLogger();  // before it has drained it, or in the middle
    AwaitDrained(island);
    if (what == 2) KillLogger();  // and the next life begins with another one
    StartIsland(island);
  }
  if (HasFatalFailure()) return;
  for (uint32_t island = 0; island < kWorkers.size(); ++island) KillIsland(island);
  KillLogger();
  for (uint32_t island = 0; island < kWorkers.size(); ++island) AwaitDrained(island);
  kill(logger_, SIGTERM);
  EXPECT_EQ(AwaitExit(), 0) << Errors();
  CheckEpoch();
  CompareFiles();
  EXPECT_GT(records_, 1'000u);
}

TEST_F(LoggerProcessTest, Sigterm_DrainsWhatThereIs) {
  StartLogger();
  const std::shared_ptr<Ring> ring = BeginLife();
  AppendOne(*ring);
  kill(logger_, SIGTERM);
  EXPECT_EQ(AwaitExit(), 0) << Errors();
  EXPECT_EQ(ring->head(), ring->tail());
  CompareFiles();
}

TEST_F(LoggerProcessTest, Sigterm_SaysWhatIsStillHeld) {
  SpawnLogger({"--stop-wait-ms", "50"});
  const std::shared_ptr<Ring> ring = rings_->MakeRing({1, 0, 0}, Ring::kLeastCapacity).value();
  Say("life 0 1");
  Say("start");
  Await("ready");
  EpochHold hold(*board_, 0, 0);
  RingWriter writer(*ring);
  Append(writer, 1, Lsn::Of(hold.Take(), 0).value(), {});
  writer.Show();
  socket_.Reset();  // as SIGTERM: nobody is there to tell it anything
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), HasSubstr("is still held"));
}

// It says why, and promises nothing; what was appended waits in its ring.
TEST_F(LoggerProcessTest, DiskFails_EndsItAndTheNextOneGoesOn) {
  most_file_bytes_ = 100'000;  // EPOCH, and no segment
  StartLogger();
  const std::shared_ptr<Ring> ring = BeginLife();
  const uint64_t durable = board_->durable();
  AppendOne(*ring);
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), testing::AllOf(HasSubstr("the log cannot go on"), HasSubstr("File too large")));
  EXPECT_EQ(board_->durable(), durable);
  EXPECT_EQ(ring->head(), 0u);
  most_file_bytes_ = RLIM_INFINITY;
  StartLogger();
  kill(logger_, SIGTERM);
  EXPECT_EQ(AwaitExit(), 0) << Errors();
  EXPECT_GT(board_->durable(), durable);
  CompareFiles();
}

TEST_F(LoggerProcessTest, Second_IsRefused) {
  StartLogger();
  const pid_t first = logger_;
  const runtime::UniqueFd first_socket(socket_.Release());
  SpawnLogger({"--lock-wait-ms", "0"});
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), HasSubstr("somebody else holds it"));
  logger_ = first;
}

TEST_F(LoggerProcessTest, DamagedRing_EndsIt) {
  StartLogger();
  const std::shared_ptr<Ring> ring = rings_->MakeRing({1, 0, 0}, Ring::kLeastCapacity).value();
  Say("life 0 1");
  Await("added 0 1");
  RingWriter writer(*ring);
  std::memset(writer.Next(64), 0xee, 64);
  writer.Advance(3);  // no record has that length
  writer.Show();
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), HasSubstr("the log cannot go on"));
  SpawnLogger();  // and the next one does not believe it either
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), HasSubstr(RingName({1, 0, 0})));
}

TEST_F(LoggerProcessTest, LifeThatHasBegunAlready_EndsIt) {
  StartLogger();
  const std::shared_ptr<Ring> ring = rings_->MakeRing({1, 0, 0}, Ring::kLeastCapacity).value();
  RingWriter writer(*ring);
  Append(writer, 1, Lsn::Of(board_->epoch(), 0).value(), {});
  writer.Show();
  Say("life 0 1");
  EXPECT_EQ(AwaitExit(), 1);
  EXPECT_THAT(Errors(), HasSubstr("before the logger knew its ring"));
}

TEST_F(LoggerProcessTest, Nonsense_IsAnsweredAndRemovedRingsAreNoticed) {
  StartLogger();
  for (const char* line : {"start", "dead", "dead 0", "dead 2 1", "life x 1", "", "dead 0 1 1"}) {
    Say(line);
    EXPECT_THAT(Await("error"), HasSubstr(fmt::format("\"{}\"", line)));
  }
  Say("dead 0 1");  // there is nothing of it
  Await("drained 0 1");
  fs::remove_all(base_ + "/rings");
  EXPECT_THAT(Await("exposed"), HasSubstr(base_ + "/rings"));
}

// Another ring in its place has nothing of what the worker appends; one of a life that was drained may go.
TEST_F(LoggerProcessTest, ARingThatIsNeededAndRemoved_IsNoticed) {
  StartLogger();
  BeginLife();
  const std::string first = base_ + "/rings/" + RingName({1, 0, 0});
  const std::string second = base_ + "/rings/" + RingName({2, 0, 0});
  Say("dead 0 1");
  Await("drained 0 1");
  fs::remove(first);
  ASSERT_TRUE(rings_->MakeRing({2, 0, 0}, Ring::kLeastCapacity).ok());
  Say("life 0 2");
  Await("added 0 2");
  poll(nullptr, 0, 1500);  // longer than from a look to the next
  Say("dead 1 1");
  EXPECT_EQ(Await("drained 1 1"), "drained 1 1") << "and nothing vanished before that";
  fs::remove(second);
  ASSERT_TRUE(rings_->MakeRing({2, 0, 0}, Ring::kLeastCapacity).ok());
  EXPECT_THAT(Await("exposed"), HasSubstr(second));
}

}  // namespace
}  // namespace islands::log
