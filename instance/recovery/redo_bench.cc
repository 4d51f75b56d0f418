// What it costs to repeat a log: ten updates of 8 bytes in each transaction, in 240,000 rows of 250 bytes.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstdint>
#include <span>

#include "instance/log/lsn.h"
#include "instance/recovery/redo_testing.h"
#include "instance/recovery/stream_merge.h"
#include "runtime/check.h"

namespace islands::recovery {
namespace {

const RedoLog& Log() {
  static const RedoLog log({.rows = 240'000, .sites = 2, .updates = 100'000});
  return log;
}

void Redo(benchmark::State& state) {
  const RedoLog& log = Log();
  const auto lanes = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    state.PauseTiming();
    const auto store = log.EmptyStore(/*alone=*/lanes == 1);
    Recovery recovery(log.catalog(), *store, {}, lanes);
    ISLANDS_CHECK(RedoLog::Repeat(recovery, log.load()).ok() && recovery.FindTrees().ok());
    store->BeginRedo();
    state.ResumeTiming();
    ISLANDS_CHECK(RedoLog::Repeat(recovery, log.updates()).ok() && recovery.FindTrees().ok());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(log.updates().size()));
}
BENCHMARK(Redo)->Arg(1)->Arg(2)->UseRealTime()->Unit(benchmark::kMillisecond);

// What the log of several workers has before that, by record: theirs come in rounds.
void Merge(benchmark::State& state) {
  constexpr size_t kRound = 100;
  constexpr uint64_t kBehind = 2;  // epochs that EPOCH does not cover yet
  const RedoLog::Records& records = Log().updates();
  for (auto _ : state) {
    StreamMerge merge;
    size_t visited = 0;
    const auto visit = [&](const log::StreamId&, const log::Record&) {
      ++visited;
      return absl::OkStatus();
    };
    for (size_t i = 0; i < records.size(); ++i) {
      const auto& [record, body] = records[i];
      const auto worker = static_cast<uint32_t>(i / kRound % 2);
      const uint64_t epoch = 1 + i / (2 * kRound);
      const log::Record whole{.lsn = log::Lsn::Of(epoch, i % kRound).value(),
                              .kind = record.kind,
                              .body = std::as_bytes(std::span(body)),
                              .settled = epoch - std::min(epoch, kBehind)};
      ISLANDS_CHECK(merge.Add({1, 0, worker}, whole, visit).ok());
    }
    ISLANDS_CHECK(merge.Finish(visit).ok() && visited == records.size());
  }
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(records.size()));
}
BENCHMARK(Merge)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace islands::recovery
