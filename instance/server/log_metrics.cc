#include "instance/server/log_metrics.h"

#include "instance/server/metric_family.h"

namespace islands::server {

using instance::CleanerCounters;
using instance::Keeper;
using instance::WorkerCounters;
using prometheus::MetricFamily;

namespace {

void AddRings(const instance::Island& island, const Keeper& keeper, std::vector<MetricFamily>* families) {
  Family bytes(Metric::kLogBytes, island);
  Family used(Metric::kLogRingUsedBytes, island);
  Family capacity(Metric::kLogRingCapacityBytes, island);
  for (const auto& worker : island.workers()) {
    const log::Ring& ring = keeper.ring(worker->options().index);
    const uint64_t head = ring.head();  // first: it is never beyond a tail that is read later
    const uint64_t tail = ring.tail();
    bytes.Add({WorkerLabel(*worker)}, tail);
    used.Add({WorkerLabel(*worker)}, tail - head);
    capacity.Add({WorkerLabel(*worker)}, uint64_t{ring.capacity()});
  }
  families->push_back(bytes.Take());
  families->push_back(used.Take());
  families->push_back(capacity.Take());
}

// Durable is read before current, so it is never seen ahead of it.
void AddEpochs(const instance::Island& island, const Keeper& keeper, const CleanerCounters& cleaner,
               std::vector<MetricFamily>* families) {
  Family epochs(Metric::kLogEpoch, island);
  epochs.Add({{"kind", "checkpoint"}}, cleaner.checkpoint_bound.Get());
  epochs.Add({{"kind", "durable"}}, keeper.board().durable());
  epochs.Add({{"kind", "commit"}}, keeper.commit_epoch());
  epochs.Add({{"kind", "current"}}, keeper.board().epoch());
  families->push_back(epochs.Take());
}

}  // namespace

void AddLog(const instance::Island& island, std::vector<MetricFamily>* families) {
  const Keeper* keeper = island.keeper();
  if (keeper == nullptr) return;
  const CleanerCounters& cleaner = island.workers().front()->counters().cleaner;
  const auto add = [&](Metric metric, auto value) { families->push_back(One(island, metric, {}, value)); };
  const auto add_each = [&](Metric metric, auto value) {
    families->push_back(PerWorker(island, metric, value));
  };
  AddRings(island, *keeper, families);
  add_each(Metric::kLogRoomWaits, [](const WorkerCounters& c) { return c.room.waits.Get(); });
  add_each(Metric::kLogRoomWaitSeconds, [](const WorkerCounters& c) { return Seconds(c.room.ns.Get()); });
  AddEpochs(island, *keeper, cleaner, families);
  add_each(Metric::kAnswersWaiting, [](const WorkerCounters& c) { return c.answers_waiting.Get(); });
  add_each(Metric::kAnswersOverdue, [](const WorkerCounters& c) { return c.answers_overdue.Get(); });
  add(Metric::kCheckpoints, cleaner.checkpoints.Get());
  add(Metric::kCheckpointAge, SecondsSince(cleaner.covered_ns));
  add(Metric::kCleanerPagesWritten, cleaner.pages_written.Get());
  add(Metric::kCleanerFailed, cleaner.failed.Get());
  add(Metric::kLogDiskFull, uint64_t{keeper->board().full()});
  const Keeper::Recovered& recovered = keeper->recovered();
  add(Metric::kRecoverySeconds, recovered.seconds);
  add(Metric::kRecoveryRecords, recovered.records);
  add(Metric::kRecoveryUndone, recovered.undone);
}

}  // namespace islands::server
