// For unit tests of a worker's parts: those of one worker, of island 0, wired as worker.h wires them, without
// sockets, threads or a loop; and island 1, which says what it is told to and writes down what it hears.
//
// Thread safety: none.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "instance/messaging/memory_transport.h"
#include "instance/worker/branches.h"
#include "instance/worker/coordinated.h"
#include "instance/worker/mailbox.h"
#include "instance/worker/probes.h"
#include "proto/data.pb.h"
#include "runtime/file_system.h"

namespace islands::instance {

// All that comes in, one line each.
class Heard : public CoordinatorInbox, public ParticipantInbox, public ProbeInbox, public RunInbox {
 public:
  using Id = coordinator::TransactionId;
  std::vector<std::string> lines;
  std::vector<uint64_t> epochs;  // that messages carried

  void OnExecuteReply(uint32_t from, const data::v1::ExecuteReply& reply) override {
    Add("execute reply from {}: step {} code {} reason {} wrote {}", from, reply.step(), reply.code(),
        reply.abort_reason(), reply.wrote());
    epochs.push_back(reply.commit_epoch());
  }
  void OnVote(uint32_t from, const Id& id, coordinator::VoteKind vote) override {
    Add("vote from {} on {}: {}", from, id.sequence, coordinator::VoteName(vote));
  }
  void OnAcknowledge(uint32_t from, const Id& id, bool gone) override {
    Add("{} from {} of {}", gone ? "gone" : "acknowledge", from, id.sequence);
  }
  void OnOnePhaseReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) override {
    epochs.push_back(epoch);
    Add("one-phase reply from {} on {}: {}", from, id.sequence, OutcomeName(outcome));
  }
  void OnInquiry(uint32_t from, const Id& id) override { Add("inquiry from {} about {}", from, id.sequence); }
  void OnDecidersReply(uint32_t from, const Id& id, coordinator::Outcome outcome, uint64_t epoch) override {
    epochs.push_back(epoch);
    Add("decider's reply from {} on {}: {}", from, id.sequence, OutcomeName(outcome));
  }
  void OnExecute(const messaging::Origin&, const data::v1::ExecuteRequest& request) override {
    std::string open;
    for (const uint64_t sequence : request.still_open()) open += fmt::format(" open {}", sequence);
    Add("execute {} step {} epoch {} ended below {}{}", request.sequence(), request.step(),
        request.participant_epoch(), request.ended_below(), open);
  }
  void OnPrepare(const Id& id, uint64_t epoch, bool early, std::span<const Fellow> fellows) override {
    std::string text;
    for (const Fellow& fellow : fellows) text += fmt::format(" {}/{}", fellow.island, fellow.boot_epoch);
    Add("prepare {} epoch {}{} fellows{}", id.sequence, epoch, early ? " early" : "", text);
  }
  void OnDecision(const Id& id, uint64_t epoch, bool commit) override {
    Add("{} {} epoch {}", commit ? "commit" : "abort", id.sequence, epoch);
  }
  void OnCommitOnePhase(const Id& id, uint64_t epoch) override {
    Add("commit one-phase {} epoch {}", id.sequence, epoch);
  }
  void OnConfirm(const Id& id) override { Add("confirm {}", id.sequence); }
  void OnInquiryToDecider(const Id& id, uint64_t epoch) override {
    Add("inquiry to decider {} epoch {}", id.sequence, epoch);
  }
  void OnInquiryReply(const Id& id, coordinator::Outcome outcome) override {
    Add("inquiry reply on {}: {}", id.sequence, OutcomeName(outcome));
  }
  void OnDecisionRequest(const messaging::Origin& origin, const Id& id, uint64_t epoch) override {
    last_origin = origin;
    Add("decision request {} epoch {}", id.sequence, epoch);
  }
  void OnDecisionReply(uint32_t from, const Id& id, coordinator::Outcome outcome,
                       std::span<const uint32_t> gone) override {
    Add("decision reply from {} on {}: {}, {} gone", from, id.sequence, OutcomeName(outcome), gone.size());
  }
  void OnProbe(const Probe& probe) override {
    Add("probe of {} to {} hops {} chase {} from {}{}", probe.initiator.sequence, probe.blocked_on.sequence,
        probe.hops, probe.chase, probe.from_island, probe.at_participant ? " at participant" : "");
  }

  void OnClients(uint64_t run_id, std::span<const int64_t> due_ns) override {
    Add("clients of run {}: {}", run_id, fmt::join(due_ns, " "));
  }

  std::vector<std::string> Take() { return std::exchange(lines, {}); }
  messaging::Origin last_origin;

 private:
  template <typename... Args>
  void Add(fmt::format_string<Args...> format, Args&&... args) {
    lines.push_back(fmt::format(format, std::forward<Args>(args)...));
  }
};

inline constexpr uint64_t kOurEpoch = 3;
inline constexpr uint64_t kTheirEpoch = 5;

// Island 1.
class FarIsland : public messaging::LinksHandler {
 public:
  FarIsland(messaging::MemoryHub& hub, const runtime::Clock& clock, messaging::LinksOptions options)
      : transport(hub.MakeTransport({1, 0})), links(std::move(options), *transport, clock, *this) {}
  void OnPeerUp(uint32_t, uint64_t) override {}
  void OnPeerLost(uint32_t, uint64_t, const absl::Status&) override {}
  void OnMessage(const messaging::Origin& origin, messaging::FrameType type,
                 std::span<const std::byte> payload) override {
    (shared.keeps ? keeping_inbox : inbox).Take(origin, type, payload);
  }

  std::unique_ptr<messaging::Transport> transport;
  messaging::Links links;
  WorkerCounters counters;
  WorkerShared shared;
  Outbox outbox{links, shared, counters};
  Heard heard;
  Inbox inbox{
      {.island = 1, .islands = 3, .workers = 1, .boot_epoch = kTheirEpoch}, heard, heard, heard, heard};
  // In a deployment that keeps what it promises.
  Inbox keeping_inbox{{.island = 1, .islands = 3, .workers = 1, .boot_epoch = kTheirEpoch, .keeps = true},
                      heard,
                      heard,
                      heard,
                      heard};
};

class WorkerPartsTest : public testing::Test, public messaging::LinksHandler {
 protected:
  using Id = coordinator::TransactionId;
  static constexpr uint64_t kRowsPerSite = 1000;  // of table 0; site i is on island i

  // `log`: what happens between engine_.BeginStep and EndStep goes there. `journal`: of whoever keeps a log
  // of his own (answers_test.cc).
  explicit WorkerPartsTest(bool log = false, log::Journal* journal = nullptr)
      : options_{.boot_epoch = kOurEpoch, .journal = log ? &journal_ : journal} {
    shared_.keeps = far_.shared.keeps = log;
    shared_.colleagues.push_back({&mailbox_, &branches_, &probes_});
    EXPECT_TRUE(links_.Start().ok());
    EXPECT_TRUE(far_.links.Start().ok());
    for (int i = 0; i < 50 && !(links_.IsUp(1) && far_.links.IsUp(0)); ++i) {
      clock_.AdvanceNs(runtime::kNsPerMs);
      Pump();
    }
    EXPECT_TRUE(links_.IsUp(1) && far_.links.IsUp(0));
  }

  void OnPeerUp(uint32_t, uint64_t) override {}
  void OnPeerLost(uint32_t, uint64_t, const absl::Status&) override {}
  void OnMessage(const messaging::Origin& origin, messaging::FrameType type,
                 std::span<const std::byte> payload) override {
    inbox_.Take(origin, type, payload);
  }

  // What is under way arrives, and whoever is ready goes on.
  void Pump() {
    turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
    for (int i = 0; i < 4; ++i) {
      links_.Flush(), far_.links.Flush();
      links_.Poll(), far_.links.Poll();
      mailbox_.Drain([this](const locks::Wakeup& wakeup) { lock_waits_.Wake(wakeup.wake_token); });
      turns_.WakeSleepers();
      turns_.ResumeReady([this] { engine_.EndQuiet(); }, [] {});
      branches_.Reap();
    }
  }
  void Advance(int64_t by_ns) {
    clock_.AdvanceNs(by_ns);
    turns_.BeginRound(/*alone=*/true, /*hurries=*/false);
  }
  // What island 1 has heard until now.
  std::vector<std::string> FarHeard() {
    Pump();
    return far_.heard.Take();
  }

  static Id OurId(uint64_t sequence) { return {0, 0, kOurEpoch, sequence}; }
  static Id TheirId(uint64_t sequence) { return {1, 0, kTheirEpoch, sequence}; }
  static partitioner::Uint64Key Key(uint32_t site, uint64_t row) {
    return partitioner::Uint64Key(site * kRowsPerSite + row);
  }
  // Gives the row a counter of 0 at its start.
  void PutRow(uint64_t row) {
    Batch batch;
    Branch branch;
    const std::string zeros(16, '\0');
    batch.Insert(0, Key(0, row), std::as_bytes(std::span(zeros.data(), zeros.size())));
    ASSERT_EQ(Run(branch, batch), Progress::kDone);
    engine_.Commit(branch);
  }
  int64_t Counter(uint64_t row) {
    std::vector<std::byte> bytes;
    int64_t counter = -1;
    if (store_->At(0, 0)->Read(Key(0, row), &bytes) == absl::StatusCode::kOk)
      std::memcpy(&counter, bytes.data(), sizeof(counter));
    return counter;
  }
  // All of it on this island.
  Progress Run(Branch& branch, Batch& batch) {
    batch.ResetResults();
    std::vector<RoutedOperation> routes;
    for (uint32_t i = 0; i < batch.size(); ++i) routes.push_back({i, 0, 0});
    size_t cursor = 0;
    Failure failure;
    return engine_.RunSome(branch, batch, routes, &cursor, &failure);
  }

  static std::unique_ptr<storage::Catalog> MakeCatalog() {
    storage::Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(3 * kRowsPerSite);
    return std::make_unique<storage::Catalog>(*storage::Catalog::Create(specs, 3));
  }
  std::unique_ptr<storage::Store> MakeStore() {
    storage::StoreOptions options;
    options.sites = {0, 1};
    options.pool_bytes = 1 << 20;
    return *storage::Store::Create(*catalog_, options, *files_);
  }
  WorkerShared& FilledShared() {
    shared_.clock = &clock_;
    shared_.catalog = catalog_.get();
    shared_.sites = &sites_;
    shared_.store = store_.get();
    shared_.locks = &locks_;
    shared_.alone = options_.journal != nullptr;
    return shared_;
  }
  static messaging::LinksOptions LinksOf(uint32_t island, uint64_t epoch) {
    messaging::LinksOptions options;
    options.cluster_id = "parts";
    options.self = {island, 0};
    options.boot_epoch = epoch;
    options.workers_per_island = {1, 1, 1};
    return options;
  }

  runtime::ManualClock clock_;
  messaging::MemoryHub hub_;
  const std::unique_ptr<runtime::FileSystem> files_ = runtime::MakeMemoryFileSystem();
  const std::unique_ptr<storage::Catalog> catalog_ = MakeCatalog();
  const std::unique_ptr<storage::Store> store_ = MakeStore();
  const partitioner::SiteMap sites_ = *partitioner::SiteMap::Create(3, 3);
  locks::LockTable locks_{locks::LockTableOptions{.buckets = 1024}};
  log::Board board_{std::vector<uint32_t>{1, 1, 1}};
  const std::unique_ptr<log::Ring> ring_ = log::Ring::InMemory({kOurEpoch, 0, 0}, log::Ring::kLeastCapacity);
  log::Journal journal_{board_, *ring_, {}};
  const WorkerOptions options_;
  WorkerShared shared_;
  WorkerCounters counters_;
  const std::unique_ptr<messaging::Transport> transport_ = hub_.MakeTransport({0, 0});
  messaging::Links links_{LinksOf(0, kOurEpoch), *transport_, clock_, *this};
  FarIsland far_{hub_, clock_, LinksOf(1, kTheirEpoch)};

  Mailbox mailbox_{[] {}};
  Turns turns_{clock_};
  TimeAccount time_{clock_, counters_};
  LockWaits lock_waits_{options_, shared_, turns_, counters_};
  Engine engine_{options_, FilledShared(), lock_waits_};
  Peers peers_{options_, shared_, links_};
  Outbox outbox_{links_, shared_, counters_, options_.journal};
  Coordinated coordinated_{options_, shared_, turns_, engine_, peers_, links_, outbox_, counters_};
  Branches branches_{options_, shared_, turns_, time_,   lock_waits_,
                     engine_,  peers_,  links_, outbox_, counters_};
  CoordinatedTransaction* executing_ = nullptr;  // which probes may find
  Probes probes_{options_,
                 shared_,
                 turns_,
                 lock_waits_,
                 peers_,
                 outbox_,
                 counters_,
                 [this](const Id& id) {
                   return executing_ != nullptr && executing_->own_id == id ? executing_ : nullptr;
                 },
                 [this](const Id& id) { return branches_.Find(id); }};
  Heard run_;  // what islands say of runs
  Inbox inbox_{{.island = 0, .islands = 3, .workers = 1, .boot_epoch = kOurEpoch},
               coordinated_,
               branches_,
               probes_,
               run_};
};

}  // namespace islands::instance
