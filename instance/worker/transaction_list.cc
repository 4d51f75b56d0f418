#include "instance/worker/transaction_list.h"

#include <algorithm>
#include <vector>

namespace islands::instance {
namespace {

using control::v1::TransactionWork;
using coordinator::Coordinator;
using coordinator::Participant;

// One of the three.
struct Found {
  int64_t begun_ns = 0;
  const ParticipantEntry* branch = nullptr;
  const CoordinatorEntry* coordination = nullptr;
  const RunningTransaction* local = nullptr;
};

std::vector<Found> FindAll(const TransactionSources& sources, bool in_doubt) {
  std::vector<Found> found;
  for (const ParticipantEntry* branch : sources.branches.All()) {
    if (!in_doubt || branch->machine.in_doubt())
      found.push_back({.begun_ns = branch->begun_ns, .branch = branch});
  }
  if (in_doubt) return found;  // coordinators never are
  for (const CoordinatorEntry* coordination : sources.coordinated.All())
    found.push_back({.begun_ns = coordination->begun_ns, .coordination = coordination});
  const auto add = [&](const RunningTransaction& transaction, int64_t begun_ns) {
    if (transaction.entry == nullptr) found.push_back({.begun_ns = begun_ns, .local = &transaction});
  };
  sources.clients.VisitBegun(add);
  sources.sessions.VisitBegun(add);
  return found;
}

// Of what was found, as a message.
class Describer {
 public:
  explicit Describer(const TransactionSources& sources) : sources_(sources), now_ns_(sources.turns.NowNs()) {}

  void Describe(const Found& found, TransactionWork* work) const {
    work->set_worker(sources_.options.index);
    work->set_age_us(Since(found.begun_ns));
    if (found.branch != nullptr) {
      DescribeBranch(*found.branch, work);
    } else if (found.coordination != nullptr) {
      DescribeCoordination(*found.coordination, work);
    } else {
      Name(found.local->own_id, work);
      work->set_state(control::v1::RUNNING);
      DescribeLocks(*found.local, work);
    }
    for (const uint32_t island : work->awaited()) {
      const bool coordinates = found.branch != nullptr && island == found.branch->id.island;
      const bool silent = coordinates ? sources_.peers.Silent(found.branch->coordinator().peer)
                                      : sources_.peers.Silent(island);
      if (silent || !sources_.links.IsUp(island)) work->add_out_of_reach(island);
    }
  }

 private:
  int64_t Since(int64_t ns) const { return std::max<int64_t>(0, now_ns_ - ns) / runtime::kNsPerUs; }

  static void Name(const coordinator::TransactionId& id, TransactionWork* work) {
    work->set_id(id.ToString());
    work->set_coordinator(id.island);
  }

  static void Await(control::v1::TransactionWait wait, const std::vector<uint32_t>& islands,
                    TransactionWork* work) {
    work->set_wait(wait);
    work->mutable_awaited()->Assign(islands.begin(), islands.end());
  }

  void DescribeLocks(const Waiter& waiter, TransactionWork* work) const {
    work->set_locks(waiter.branch.locks.held());
    if (!waiter.branch.locks.waiting()) return;
    work->set_wait(control::v1::FOR_LOCK);
    work->set_wait_us(Since(waiter.lock_wait_since_ns));
  }

  void DescribeBranch(const ParticipantEntry& branch, TransactionWork* work) const {
    Name(branch.id, work);
    work->set_restored(branch.restored);
    DescribeLocks(branch, work);
    if (branch.machine.in_doubt() || !branch.fellows.empty()) {
      work->add_participants(sources_.options.island);
      for (const Fellow& fellow : branch.fellows) work->add_participants(fellow.island);
      std::sort(work->mutable_participants()->begin(), work->mutable_participants()->end());
    }
    if (branch.machine.in_doubt()) work->set_in_doubt_us(Since(branch.in_doubt_since_ns));
    switch (branch.machine.state()) {
      case Participant::State::kActive:
        work->set_state(control::v1::RUNNING);
        if (!branch.executing) Await(control::v1::FOR_NEXT_STEP, {branch.id.island}, work);
        return;
      case Participant::State::kPreparing:
      case Participant::State::kPrepared:
        work->set_state(control::v1::PREPARED);
        return Await(control::v1::FOR_DECISION, {branch.id.island}, work);
      case Participant::State::kOrphaned:
        work->set_state(control::v1::ORPHANED);
        return Await(control::v1::FOR_FELLOWS, branch.machine.OpenFellows(), work);
      case Participant::State::kCommitting:
        work->set_state(control::v1::COMMITTING);
        return;
      case Participant::State::kDeciding:
      case Participant::State::kDecided:
      case Participant::State::kDone:
        work->set_state(control::v1::DECIDED);
        return Await(control::v1::FOR_CONFIRMATION, {branch.id.island}, work);
    }
  }

  void DescribeCoordination(const CoordinatorEntry& coordination, TransactionWork* work) const {
    Name(coordination.id, work);
    work->set_restored(!sources_.options.Began(coordination.id));
    if (coordination.transaction != nullptr) DescribeLocks(*coordination.transaction, work);
    std::vector<uint32_t> due;
    for (const CoordinatorEntry::Peer& peer : coordination.peers) {
      work->add_participants(peer.island);
      if (peer.answer_due) due.push_back(peer.island);
    }
    std::sort(work->mutable_participants()->begin(), work->mutable_participants()->end());
    const std::vector<uint32_t> awaited = coordination.machine.Awaited();
    switch (coordination.machine.state()) {
      case Coordinator::State::kExecuting:
        work->set_state(control::v1::RUNNING);
        if (work->wait() == control::v1::NO_WAIT && !due.empty()) Await(control::v1::FOR_REPLIES, due, work);
        return;
      case Coordinator::State::kVoting:
        work->set_state(control::v1::VOTING);
        return Await(control::v1::FOR_VOTES, awaited, work);
      case Coordinator::State::kForcing:
      case Coordinator::State::kCommitting:
      case Coordinator::State::kDone:
        work->set_state(control::v1::COMMITTING);
        return Await(control::v1::FOR_ACKNOWLEDGEMENTS, awaited, work);
      case Coordinator::State::kOnePhase:
      case Coordinator::State::kInquiring:
        work->set_state(control::v1::DECIDER_ASKED);
        return Await(control::v1::FOR_DECIDER, awaited, work);
    }
  }

  const TransactionSources& sources_;
  const int64_t now_ns_;
};

}  // namespace

control::v1::Transactions ListTransactions(const TransactionSources& sources,
                                           const control::v1::TransactionsRequest& request) {
  std::vector<Found> found = FindAll(sources, request.in_doubt());
  control::v1::Transactions transactions;
  transactions.set_total(found.size());
  const size_t listed = std::min<size_t>(found.size(), request.most());
  std::partial_sort(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(listed), found.end(),
                    [](const Found& a, const Found& b) { return a.begun_ns < b.begun_ns; });
  const Describer describer(sources);
  for (size_t i = 0; i < listed; ++i) describer.Describe(found[i], transactions.add_work());
  return transactions;
}

void KeepOldest(uint32_t most, control::v1::Transactions* transactions) {
  auto& work = *transactions->mutable_work();
  std::stable_sort(work.begin(), work.end(), [](const TransactionWork& a, const TransactionWork& b) {
    return a.age_us() > b.age_us();
  });
  if (work.size() > static_cast<int>(most))
    work.DeleteSubrange(static_cast<int>(most), work.size() - static_cast<int>(most));
}

}  // namespace islands::instance
