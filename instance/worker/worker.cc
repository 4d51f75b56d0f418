#include "instance/worker/worker.h"

#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "instance/worker/transaction_list.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "topology/binding.h"

namespace islands::instance {

using runtime::Work;

namespace {

// Deadlines are checked a hundred times a second by looking at what is open, which costs less than a timer
// per wait.
constexpr int64_t kSweepIntervalNs = 10 * runtime::kNsPerMs;
// Between two pieces of the cleaner's work, and before it is asked again while it waits, or had none. A piece
// takes some ten microseconds, so the cleaner has a few hundredths of the core at most.
constexpr int64_t kCleanIntervalNs = 500 * runtime::kNsPerUs;
constexpr int64_t kCleanWaitNs = 5 * runtime::kNsPerMs;
constexpr int64_t kNothingToCleanNs = 100 * runtime::kNsPerMs;
// While a paged pool wants pages to be written home, for which somebody may be waiting; and before it is seen
// that it does.
constexpr int64_t kHurriedNs = 100 * runtime::kNsPerUs;
constexpr int64_t kSeeHurryNs = 5 * runtime::kNsPerMs;
// A pass begins so long after the one before has begun, or so much log of the island later, and in between
// the cleaner rests: a page that changes all the time is written once for each pass. What a restart repeats
// of the log grows by that much at most. ARCHITECTURE.md ("The cleaner rests") says what it costs and saves.
constexpr int64_t kPassEveryNs = 5 * runtime::kNsPerSecond;
constexpr uint64_t kPassEveryBytes = 256 << 20;

}  // namespace

Worker::Worker(WorkerOptions options, WorkerShared& shared, std::unique_ptr<messaging::Transport> transport,
               messaging::LinksOptions links)
    : options_(std::move(options)),
      shared_(shared),
      transport_(std::move(transport)),
      links_(std::move(links), *transport_, *shared.clock, *this),
      mailbox_([this] { Wake(); }),
      turns_(*shared.clock),
      time_(*shared.clock, counters_),
      sampler_(*shared.clock, counters_, options_.seed + options_.index),
      lock_waits_(options_, shared_, turns_, counters_),
      engine_(options_, shared_, lock_waits_),
      peers_(options_, shared_, links_),
      outbox_(links_, shared_, counters_, options_.journal),
      coordinated_(options_, shared_, turns_, engine_, peers_, links_, outbox_, counters_),
      branches_(options_, shared_, turns_, time_, lock_waits_, engine_, peers_, links_, outbox_, counters_),
      clients_(options_, shared_, turns_, lock_waits_, engine_, peers_, outbox_, coordinated_, counters_),
      sessions_(options_, shared_, turns_, lock_waits_, engine_, peers_, coordinated_, links_, counters_),
      probes_(
          options_, shared_, turns_, lock_waits_, peers_, outbox_, counters_,
          [this](const coordinator::TransactionId& id) {
            CoordinatedTransaction* found = clients_.FindExecuting(id);
            return found != nullptr ? found : sessions_.FindExecuting(id);
          },
          [this](const coordinator::TransactionId& id) { return branches_.Find(id); }),
      inbox_({.island = options_.island,
              .islands = static_cast<uint32_t>(links_.workers_per_island().size()),
              .workers = links_.workers_per_island()[options_.island],
              .boot_epoch = options_.boot_epoch,
              .keeps = shared_.keeps},
             coordinated_, branches_, probes_, clients_) {
  ISLANDS_CHECK(shared_.colleagues.size() == options_.index);
  shared_.colleagues.push_back({&mailbox_, &branches_, &probes_});
}

// Where one thread runs several workers it is that thread's own.
Worker::~Worker() {
  if (runtime::latch_waits == &latch_waits_) runtime::latch_waits = nullptr;
}

absl::Status Worker::BindThread() const {
  absl::Status status;
  if (options_.cpu >= 0) {
    status = topology::BindThreadToCpu(static_cast<uint32_t>(options_.cpu));
  } else if (!options_.cpus.empty()) {
    status = topology::BindThreadToCpus(options_.cpus);
  }
  if (options_.memory_policy != topology::MemoryPolicy::kDefault) {
    const absl::Status memory = topology::SetThreadMemoryPolicy(options_.numa_nodes, options_.memory_policy);
    if (status.ok()) status = memory;
  }
  return status;
}

void Worker::OnThreadStart() {
  runtime::latch_waits = &latch_waits_;
  time_.Spent(Activity::kIdle);  // while no scheduler ran it
  const absl::Status status = BindThread();
  {
    const runtime::MutexLock lock(trouble_mutex_, ISLANDS_LATCH("worker.trouble"));
    binding_error_ = std::string(status.message());
  }
  // Last: whoever looks at the thread of this number sees it bound, or knows why it is not.
  tid_.store(static_cast<int32_t>(syscall(SYS_gettid)), std::memory_order_release);
}

std::string Worker::binding_error() {
  const runtime::MutexLock lock(trouble_mutex_, ISLANDS_LATCH("worker.trouble"));
  return binding_error_;
}

std::string Worker::cleaner_failure() {
  const runtime::MutexLock lock(trouble_mutex_, ISLANDS_LATCH("worker.trouble"));
  return cleaner_failure_;
}

bool Worker::RunOnce() {
  turns_.BeginRound(/*alone=*/coordinated_.empty() && branches_.empty(), /*hurries=*/!lock_waits_.empty());
  engine_.BeginStep();
  time_.Spent(between_rounds_, turns_.now_ns());
  const bool measured = sampler_.Due();
  if (measured) [[unlikely]]
    sampler_.Begin(turns_.now_ns());
  peers_.Beat();
  size_t work = mailbox_.Drain([this](const locks::Wakeup& wakeup) { lock_waits_.Wake(wakeup.wake_token); });
  work += Poll();
  SendAtOnce();
  work += clients_.GiveDurable() + sessions_.GiveDurable();
  work += clients_.Arrive();
  const bool sweep_due = turns_.now_ns() >= next_sweep_ns_;
  if (turns_.now_ns() >= peers_.next_look_ns()) LookAtPeers();
  if (sweep_due) Sweep();
  probes_.ChaseWaits();
  work += turns_.WakeSleepers();
  if (engine_.reading()) work += engine_.PollPages(turns_.queue());
  counters_.ready.Set(turns_.ready());
  if (turns_.ready() != 0) {
    const ExecutingScope executing(time_);
    const runtime::WorkScope procedures(Work::kExecuting);
    work += turns_.ResumeReady([this] { engine_.EndQuiet(); }, [this] { SendAtOnce(); });
  }
  engine_.EndStep();  // what messages speak of is in the log
  const bool cleans = turns_.now_ns() >= next_clean_ns_;
  if (cleans) Clean();
  work += Send();
  if (sweep_due) links_.PublishQueues();  // of what the peers do not take
  branches_.Reap();
  if constexpr (runtime::kCheckEveryRound) CheckInvariants();
  // A round without work is part of the wait.
  const bool open = clients_.busy() || sessions_.active() || !branches_.empty() || !coordinated_.empty();
  if (measured) [[unlikely]]
    sampler_.End(work != 0 || cleans);
  if (cleans) time_.Spent(Activity::kMessaging);  // whatever comes of the rest of the round
  between_rounds_ = work != 0 ? Activity::kMessaging : open ? Activity::kWaiting : Activity::kIdle;
  return work != 0;
}

size_t Worker::Poll() {
  const runtime::WorkScope reading(Work::kReading);
  return links_.Poll();
}

// What others wait for leaves before anybody begins.
void Worker::SendAtOnce() {
  if (!links_.unsent()) return;
  const runtime::WorkScope building(Work::kBuilding);
  engine_.EndStep();  // as at the round's end
  Flush();
  engine_.BeginStep();
}

size_t Worker::Send() {
  const runtime::WorkScope building(Work::kBuilding);
  const size_t held = outbox_.SendHeld();
  clients_.Send();
  Flush();
  return held;
}

void Worker::Flush() {
  ISLANDS_CHECK(engine_.shown());
  links_.Flush();
}

absl::Status Worker::Restore(const recovery::Unsettled& unsettled) {
  absl::Status status =
      recovery::CheckDeployment(unsettled, options_.boot_epoch, links_.workers_per_island());
  if (!status.ok()) return status;
  const auto serves = [this](const coordinator::TransactionId& id) {
    return id.worker % shared_.colleagues.size() == options_.index;
  };
  for (const auto& [id, prepared] : unsettled.prepared) {
    if (serves(id)) status.Update(branches_.RestorePrepared(id, prepared));
  }
  for (const auto& [id, decided] : unsettled.decided) {
    if (serves(id)) branches_.RestoreDecided(id, decided);
  }
  for (const auto& [id, decision] : unsettled.decisions) {
    if (id.worker == options_.index) coordinated_.Restore(id, decision);
  }
  return status;
}

control::v1::Transactions Worker::ListTransactions(const control::v1::TransactionsRequest& request) {
  return instance::ListTransactions({.options = options_,
                                     .turns = turns_,
                                     .clients = clients_,
                                     .sessions = sessions_,
                                     .coordinated = coordinated_,
                                     .branches = branches_,
                                     .peers = peers_,
                                     .links = links_},
                                    request);
}

void Worker::CheckInvariants() const {
  links_.CheckInvariants();
  turns_.CheckInvariants();
  engine_.CheckInvariants();
  lock_waits_.CheckInvariants();
  coordinated_.CheckInvariants();
  branches_.CheckInvariants();
  clients_.CheckInvariants();
  sessions_.CheckInvariants();
}

void Worker::Sleep(int64_t timeout_ns) {
  if (engine_.reading()) {
    return mailbox_.Sleep(
        [this, timeout_ns] { engine_.WaitForPages(std::min(timeout_ns, kLongestReadWaitNs)); });
  }
  mailbox_.Sleep([this, timeout_ns] { transport_->Wait(timeout_ns); });
}

int64_t Worker::NextDeadlineNs() const {
  if (turns_.ready() != 0) return turns_.now_ns();
  int64_t next_ns = std::min({links_.NextDeadlineNs(), peers_.next_look_ns(), turns_.NextDeadlineNs(),
                              probes_.NextDeadlineNs(), clients_.NextDeadlineNs(), next_clean_ns_});
  if (clients_.waits() || sessions_.waits() || outbox_.holds())
    next_ns = std::min(next_ns, turns_.now_ns() + kLookAtEpochNs);  // nobody wakes us
  if (engine_.reading()) next_ns = std::min(next_ns, turns_.now_ns() + kLongestReadWaitNs);
  const bool timed = !lock_waits_.empty() || !coordinated_.empty() || !branches_.empty() ||
                     sessions_.active() || clients_.leaves() || engine_.HasGhosts();
  return timed ? std::min(next_ns, next_sweep_ns_) : next_ns;
}

void Worker::Sweep() {
  next_sweep_ns_ = turns_.now_ns() + kSweepIntervalNs;
  lock_waits_.Sweep();
  clients_.Sweep();
  sessions_.Sweep();
  coordinated_.Sweep();
  branches_.Sweep();
  coordinated_.NoteEnded(std::min(clients_.OldestBegun(), sessions_.OldestBegun()));
  if (engine_.HasGhosts()) engine_.RemoveGhosts();
  peers_.CountUp();
}

void Worker::SetCleaner(std::unique_ptr<recovery::Cleaner> cleaner) {
  cleaner_ = std::move(cleaner);
  next_clean_ns_ = cleaner_ == nullptr ? INT64_MAX : 0;
  counters_.cleaner.failed.Set(0);
  counted_pages_ = 0;
  next_pass_ns_ = 0;
  counters_.cleaner.covered_ns.Set(cleaner_ == nullptr ? 0 : static_cast<uint64_t>(shared_.clock->NowNs()));
  if (cleaner_ != nullptr) {
    counted_checkpoint_ = cleaner_->checkpoint().number;
    counters_.cleaner.checkpoint_bound.Set(cleaner_->checkpoint().bound);
  }
  const runtime::MutexLock lock(trouble_mutex_, ISLANDS_LATCH("worker.trouble"));
  cleaner_failure_.clear();
}

void Worker::CleanUp(int64_t most_ns) {
  if (cleaner_ == nullptr || !cleaner_->takes_snapshots()) return;
  log::Board& board = *shared_.board;
  const uint64_t epoch = board.epoch();
  const int64_t give_up_ns = shared_.clock->NowNs() + most_ns;
  const auto goes_on = [&] { return shared_.clock->NowNs() < give_up_ns && cleaner_->failure().ok(); };
  for (board.Want(epoch); board.durable() < epoch && goes_on();) poll(nullptr, 0, /*timeout=*/1);
  // Twice: the first time it may have read EPOCH before.
  const uint64_t nothing = cleaner_->found_nothing() + 2;
  const auto over = [&] {
    return cleaner_->checkpoint().taken >= epoch || cleaner_->found_nothing() >= nothing;
  };
  while (!over() && goes_on()) {
    if (cleaner_->RunOnce()) continue;
    if (const uint64_t wanted = cleaner_->waits_for(); wanted != 0) board.Want(wanted);
    poll(nullptr, 0, /*timeout=*/1);
  }
  if (!over()) {
    spdlog::warn(
        "the last snapshot has not come to its end in time: commands stay in the log, the next start repeats "
        "them, and until then nobody can verify, relayout or compact");
  }
  board.SetNeededSegment(options_.island, cleaner_->checkpoint().position.segment);
}

void Worker::CountCleaner() {
  CleanerCounters& counters = counters_.cleaner;
  counters.pages_written.Add(cleaner_->pages_written() - counted_pages_);
  counted_pages_ = cleaner_->pages_written();
  const recovery::Checkpoint& checkpoint = cleaner_->checkpoint();
  counters.checkpoints.Add(checkpoint.number - counted_checkpoint_);
  counters.checkpoint_bound.Set(checkpoint.bound);
  // One behind which nothing was committed is as good as one of now: there is nothing to repeat.
  if (checkpoint.number != counted_checkpoint_ || options_.journal->commit_epoch() < checkpoint.bound) {
    counters.covered_ns.Set(static_cast<uint64_t>(turns_.now_ns()));
  }
  counted_checkpoint_ = checkpoint.number;
}

// While the log's disk is full only a checkpoint makes room there.
bool Worker::CleanerRests() {
  if (!cleaner_->idle() || cleaner_->hurried()) return false;
  const int64_t now_ns = turns_.now_ns();
  const uint64_t appended = options_.journal->appended_bytes() * shared_.colleagues.size();  // about
  if (now_ns < next_pass_ns_ && appended < next_pass_at_ && !shared_.board->full()) return true;
  next_pass_ns_ = now_ns + kPassEveryNs;
  next_pass_at_ = appended + kPassEveryBytes;
  return false;
}

void Worker::Clean() {
  const runtime::WorkScope cleaning(Work::kCleaning);
  const bool warms = cleaner_->KeepWarm(turns_.now_ns());
  const bool some = !CleanerRests() && cleaner_->RunOnce();
  CountCleaner();
  if (!cleaner_->failure().ok()) {
    spdlog::error("pages are not written home any more, so the log grows and a restart takes long: {}",
                  std::string(cleaner_->failure().message()));
    next_clean_ns_ = INT64_MAX;
    counters_.cleaner.failed.Set(1);
    const runtime::MutexLock lock(trouble_mutex_, ISLANDS_LATCH("worker.trouble"));
    cleaner_failure_ = std::string(cleaner_->failure().message());
    cleaner_->SetWarmUp(nullptr);  // nobody comes here again
    return;
  }
  if (const bool full = !cleaner_->full().ok(); full != data_full_) {
    data_full_ = full;
    full ? spdlog::warn("pages cannot be written home, so the log grows: {}",
                        std::string(cleaner_->full().message()))
         : spdlog::info("pages are written home again");
  }
  shared_.board->SetPagesFull(options_.island, data_full_);
  if (const uint64_t epoch = cleaner_->waits_for(); epoch != 0) shared_.board->Want(epoch);
  shared_.board->SetNeededSegment(options_.island, cleaner_->checkpoint().position.segment);
  const int64_t idle_ns = shared_.store->pager() != nullptr ? kSeeHurryNs : kNothingToCleanNs;
  int64_t wait_ns = some ? kCleanIntervalNs : cleaner_->idle() ? idle_ns : kCleanWaitNs;
  if (warms) wait_ns = std::min(wait_ns, kCleanIntervalNs);
  if (cleaner_->hurried()) wait_ns = kHurriedNs;
  next_clean_ns_ = turns_.now_ns() + wait_ns;
}

void Worker::LookAtPeers() {
  peers_.Look(turns_.now_ns(), [this](messaging::Address peer) {
    // Who is not there is not silent. But its own link to us may be up when ours to it is not.
    if (links_.IsUp(peer.island)) {
      spdlog::warn("island {} worker {} does not move; nothing new is begun with it", peer.island,
                   peer.worker);
      if (peer.worker == peers_.Serving(peer.island)) coordinated_.OnPeerSilent(peer.island);
    }
    branches_.OnCoordinatorSilent(peer);
  });
}

void Worker::OnPeerUp(uint32_t island, uint64_t boot_epoch) {
  peers_.CountUp();
  coordinated_.OnPeerUp(island, boot_epoch);
}

void Worker::OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) {
  spdlog::info("island {} (epoch {}) lost: {}", island, boot_epoch, std::string(why.message()));
  peers_.CountUp();
  coordinated_.OnPeerLost(island, boot_epoch, why);
}

}  // namespace islands::instance
