#include "instance/log/logger_process.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"

namespace islands::log {
namespace {

constexpr int kLockRetryMs = 5;
constexpr int64_t kLookNs = runtime::kNsPerSecond;       // from a look for what has vanished to the next
constexpr int64_t kMostIdleNs = 10 * runtime::kNsPerMs;  // a ring must not fill up unseen
constexpr int kMostSteps = 64;                           // between two looks at what is said
constexpr size_t kMostLineBytes = 4096;

// The locks of a process that was killed fall when its last write in flight is over.
absl::StatusOr<std::unique_ptr<Logger>> OpenLog(runtime::FileSystem& files, const runtime::Clock& clock,
                                                Board& board, const LoggerProcess::Options& options) {
  const int64_t give_up_ns = clock.NowNs() + options.lock_wait_ns;
  for (;;) {
    absl::StatusOr<std::unique_ptr<Logger>> logger = Logger::Open(files, clock, board, options.log);
    if (!absl::IsUnavailable(logger.status()) || clock.NowNs() >= give_up_ns) return logger;
    poll(nullptr, 0, kLockRetryMs);
  }
}

std::string EpochPath(const LoggerProcess::Options& options) {
  return options.log.directory + "/" + kEpochFileName;
}

uint64_t InodeOf(const std::string& path) {
  struct stat info {};
  return stat(path.c_str(), &info) == 0 ? info.st_ino : 0;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoggerProcess>> LoggerProcess::Open(runtime::FileSystem& files,
                                                                   const runtime::Clock& clock, Board& board,
                                                                   Options options) {
  std::unique_ptr<LoggerProcess> process(new LoggerProcess(clock, board, std::move(options)));
  absl::StatusOr<std::unique_ptr<RingDirectory>> rings =
      RingDirectory::Open(process->options_.ring_directory);
  if (!rings.ok()) return rings.status();
  process->rings_ = *std::move(rings);
  absl::StatusOr<std::unique_ptr<Logger>> logger = OpenLog(files, clock, board, process->options_);
  if (!logger.ok()) return logger.status();
  process->logger_ = *std::move(logger);
  process->epoch_inode_ = InodeOf(EpochPath(process->options_));
  if (absl::Status added = process->AddRings(); !added.ok()) return added;
  return process;
}

// Behind the lock: the logger before us frees no room any more.
absl::Status LoggerProcess::AddRings() {
  absl::StatusOr<std::vector<RingDirectory::Found>> found = rings_->List();
  if (!found.ok()) return found.status();
  for (RingDirectory::Found& ring : *found) {
    if (!ring.ring.ok()) return ring.ring.status();
    if (absl::Status added = logger_->Add(*std::move(ring.ring)); !added.ok()) return added;
    Need(ring.stream);
  }
  return absl::OkStatus();
}

absl::Status LoggerProcess::Run(int commands, int signals) {
  while (logger_->failure().ok()) {
    if (absl::Status heard = Listen(commands, signals, WaitNs()); !heard.ok()) return heard;
    if (started_) {
      Work();
      Report();
    }
    SendAnswers(commands);
    if (!stopping_) continue;
    if (!started_ || logger_->drained()) return logger_->failure();
    if (clock_.NowNs() >= stop_by_ns_) return Stuck();
  }
  return logger_->failure();
}

int64_t LoggerProcess::WaitNs() const {
  if (!started_) return runtime::kNsPerSecond;
  if (logger_->busy()) return 0;  // it waits for the disk instead
  const int64_t idle_ns = std::min(options_.log.interval_ns, kMostIdleNs);
  const int64_t until_ns = logger_->NextDeadlineNs() - clock_.NowNs();
  return std::clamp<int64_t>(until_ns, 0, idle_ns);
}

void LoggerProcess::Work() {
  int steps = 0;
  while (steps < kMostSteps && logger_->RunOnce()) ++steps;
  if (steps == 0 && logger_->busy()) logger_->queue().Wait(kMostIdleNs);
}

void LoggerProcess::Report() {
  std::erase_if(dying_, [&](const auto& dying) {
    if (!logger_->ReleaseDrained(dying.first)) return false;
    std::erase_if(needed_, [&](const auto& ring) { return ring.first.island == dying.first; });
    Say(fmt::format("drained {} {}", dying.first, dying.second));
    return true;
  });
  if (const absl::Status shortage = logger_->TakeShortage(); !shortage.ok()) {
    spdlog::warn("{}; the log goes on in the room that was kept for this", std::string(shortage.message()));
  }
  if (const bool full = !logger_->full().ok(); full != full_) {
    full_ = full;
    full ? spdlog::warn("nothing can be changed until there is room: {}",
                        std::string(logger_->full().message()))
         : spdlog::info("the log has room again");
  }
  if (clock_.NowNs() < next_look_ns_) return;
  next_look_ns_ = clock_.NowNs() + kLookNs;
  // What we write goes to files that have no name any more, or one that nobody knows.
  const std::string epoch = EpochPath(options_);
  const bool nowhere = InodeOf(epoch) != epoch_inode_;
  Tell(nowhere, nowhere ? epoch : MissingRing());
}

void LoggerProcess::Tell(bool nowhere, const std::string& missing) {
  bool& told = nowhere ? vanished_ : exposed_;
  if (missing.empty() || std::exchange(told, true)) return;
  spdlog::error("{} was removed or moved while the log uses it: what is appended from now on is not {}",
                missing, nowhere ? "safe" : "safe from a kill");
  Say((nowhere ? "vanished " : "exposed ") + missing);
}

std::string LoggerProcess::MissingRing() const {
  if (rings_->Gone()) return rings_->path();
  for (const auto& [stream, inode] : needed_) {
    if (rings_->Inode(stream) != inode) return rings_->path() + "/" + RingName(stream);
  }
  return "";
}

// Rings of a life come when the life before it has been drained, and its rings go then.
void LoggerProcess::Need(const StreamId& stream) {
  std::erase_if(needed_, [&](const auto& ring) {
    return ring.first.island == stream.island && ring.first.life < stream.life;
  });
  needed_[stream] = rings_->Inode(stream);
}

absl::Status LoggerProcess::Stuck() const {
  if (!logger_->full().ok()) return logger_->full();
  return absl::DeadlineExceededError(
      fmt::format("not all that was appended is durable: EPOCH is {}, and a worker that was not said to be "
                  "dead goes on, or epoch {} is still held by it",
                  logger_->epoch_block().epoch, board_.Complete() + 1));
}

// ---- What is said ----

absl::Status LoggerProcess::Listen(int commands, int signals, int64_t wait_ns) {
  std::array<pollfd, 2> sources{{{commands, POLLIN, 0}, {signals, POLLIN, 0}}};
  const timespec wait{wait_ns / runtime::kNsPerSecond, wait_ns % runtime::kNsPerSecond};
  // Once it shall end, nobody tells it anything.
  if (stopping_) sources[0].fd = sources[1].fd = -1;
  if (ppoll(sources.data(), sources.size(), &wait, nullptr) <= 0) return absl::OkStatus();
  bool stop = sources[1].revents != 0;
  if (sources[0].revents != 0) {
    std::array<char, kMostLineBytes> bytes;
    const ssize_t got = recv(commands, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (got > 0) heard_.append(bytes.data(), static_cast<size_t>(got));
    stop |= got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
  }
  if (stop) {
    stopping_ = true;
    stop_by_ns_ = clock_.NowNs() + options_.stop_wait_ns;
  }
  for (size_t end; (end = heard_.find('\n')) != std::string::npos; heard_.erase(0, end + 1)) {
    if (absl::Status done = Hear(std::string_view(heard_).substr(0, end)); !done.ok()) return done;
  }
  if (heard_.size() <= kMostLineBytes) return absl::OkStatus();
  return absl::InvalidArgumentError("a command has no end");
}

absl::Status LoggerProcess::Hear(std::string_view line) {
  if (line == "start" && !started_) return Start();
  const std::vector<std::string> words = absl::StrSplit(std::string(line), ' ');
  uint32_t island = 0;
  uint64_t life = 0;
  const bool names_a_life = words.size() == 3 && absl::SimpleAtoi(words[1], &island) &&
                            absl::SimpleAtoi(words[2], &life) && island < options_.workers.size();
  if (names_a_life && words[0] == "life") return AddLife(island, life);
  if (!names_a_life || words[0] != "dead") {
    Say(fmt::format("error \"{}\" makes no sense to a logger{}", line, started_ ? " that was started" : ""));
    return absl::OkStatus();
  }
  logger_->OnIslandDead(island, life);
  dying_[island] = life;
  return absl::OkStatus();
}

absl::Status LoggerProcess::AddLife(uint32_t island, uint64_t life) {
  for (uint32_t worker = 0; worker < options_.workers[island]; ++worker) {
    absl::StatusOr<std::shared_ptr<Ring>> ring = rings_->OpenRing({life, island, worker});
    if (started_ && absl::IsNotFound(ring.status())) {
      // Of a life that has not begun there is nothing to lose, and others are to be drained.
      Tell(/*nowhere=*/false, rings_->path() + "/" + RingName({life, island, worker}));
      return absl::OkStatus();
    }
    if (!ring.ok()) return ring.status();
    const absl::Status added = logger_->Add(*std::move(ring));
    if (!added.ok() && !absl::IsAlreadyExists(added)) return added;
    Need({life, island, worker});
  }
  Say(fmt::format("added {} {}", island, life));
  return absl::OkStatus();
}

absl::Status LoggerProcess::Start() {
  if (absl::Status started = logger_->Start(); !started.ok()) return started;
  started_ = true;
  Say(fmt::format("ready {}", logger_->epoch_block().epoch));
  return absl::OkStatus();
}

// Who does not listen is not waited for.
void LoggerProcess::SendAnswers(int commands) {
  if (answers_.empty()) return;
  const ssize_t sent = send(commands, answers_.data(), answers_.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (sent > 0) answers_.erase(0, static_cast<size_t>(sent));
}

}  // namespace islands::log
