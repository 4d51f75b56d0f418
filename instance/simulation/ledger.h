// The simulation's second workload: every kind of operation over a sparse table, with every access recorded.
//
//   row   | word, 8 bytes: history.h | amount, 8 bytes | colour, 4 bytes | up to kMostPadding bytes more |
//
// A key's colour never changes, and an index by colour may lead to its row: so a scan of the index has seen,
// of every key of its colours in its site, whether it is there.
//
// A request is a list of items, each with the batch it starts in: point reads, changes in two steps (read,
// then write, replace or upsert), blind additions, insertions, deletions, scans forwards and backwards over
// any borders, scans that are repeated in the last batch. Some requests fail on purpose after they have
// written. How these mix, and how hot the hot keys are, is drawn from the seed.
//
// Thread safety: none; a simulated cluster runs in one thread.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "instance/simulation/history.h"
#include "instance/workload/workload.h"
#include "partitioner/site_map.h"

namespace islands::simulation {

inline constexpr uint64_t kLoadedAmount = 100;
inline constexpr uint32_t kMostPadding = 400;
inline constexpr uint32_t kMostRowBytes = 20 + kMostPadding;

// In percent, unless said otherwise.
struct LedgerMix {
  uint32_t hot = 40;          // keys picked among the hot ones
  uint32_t hot_per_site = 1;  // number
  uint32_t local = 30;        // transactions on one site
  uint32_t multisite = 20;    // on several sites of their island; the rest is distributed
  uint32_t scans = 25;        // items
  uint32_t by_colour = 0;     // scans that use the index; 0: there is none
  uint32_t churn = 20;        // items that insert or delete
  uint32_t blind = 15;        // items that add blindly
  uint32_t reads = 20;        // items that only read; the rest changes in two steps
  uint32_t longer = 5;        // transactions of up to 10 items and 6 batches
  uint32_t failing = 5;       // transactions that give up at their end
  bool deletes = true;        // else churn is insertions only
  // Whose transactions change nothing, and read everywhere.
  std::optional<uint32_t> reading_island;
};

// What the ledgers of one cluster share.
struct LedgerContext {
  LedgerMix mix;
  uint64_t keys = 0;  // the table's range is [0, keys)
  partitioner::SiteMap sites;
  History* history = nullptr;
  std::function<int64_t()> now_ns;
  // Which life of the island's rows a transaction would reach now.
  std::function<uint64_t(const coordinator::TransactionId& transaction, uint32_t island)> life_of;
  uint64_t booting_life = 1;  // of the island that is being loaded
  // By which a change raises the number of a row's version. Another one after every loss of power, so that no
  // version is made twice: a row's number is then a sum of several kinds of steps.
  Word version_step = 1;
};
inline constexpr uint32_t kVersionStepBits = 11;  // a row is changed less often than that between two losses

// Every third key is loaded.
inline bool IsLoadedKey(uint64_t key) { return key % 3 == 0; }

inline constexpr uint32_t kColours = 4;
inline uint32_t ColourOf(uint64_t key) { return static_cast<uint32_t>(key % kColours); }

control::v1::TableSpec LedgerTable(uint64_t keys, bool indexed);
std::shared_ptr<const instance::Workload> OpenLedger(const storage::Catalog& catalog,
                                                     const std::shared_ptr<LedgerContext>& context);

// Word and amount of a row.
struct LedgerRow {
  Word word = kAbsent;
  int64_t amount = 0;
};
LedgerRow ParseLedgerRow(instance::RowView row);
uint64_t LedgerKey(instance::KeyView key);

}  // namespace islands::simulation
