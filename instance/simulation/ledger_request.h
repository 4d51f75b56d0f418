// What a ledger transaction is asked to do, and the generator that makes it up.
//
// Thread safety: none.
#pragma once

#include <memory>
#include <vector>

#include "instance/simulation/ledger.h"

namespace islands::simulation {

enum class Act : uint8_t {
  kRead,
  kWrite,        // read for update; write in the next batch
  kReplace,      // the same with another row length
  kUpsert,       // read; write or insert in the next batch: locks are converted
  kAdd,          // blind
  kInsert,       // and read what is there then
  kDelete,       // read for update and delete in one batch
  kDeleteLater,  // read; delete in the next batch
  kScan,
  kRescan,      // again in the last batch
  kColourScan,  // of the index: colours [key, end_key) of the site of `site_key`
};

struct Item {
  Act act = Act::kRead;
  uint32_t batch = 0;
  uint64_t key = 0;
  uint64_t end_key = 0;  // scans
  uint64_t site_key = 0;
  uint32_t limit = 0;
  bool reverse = false;
  int64_t amount = 0;
  uint32_t padding = 0;

  bool scans() const { return act >= Act::kScan; }
  bool two_steps() const {
    return act == Act::kWrite || act == Act::kReplace || act == Act::kUpsert || act == Act::kDeleteLater ||
           act == Act::kRescan;
  }
};

struct LedgerRequest final : instance::Request {
  std::vector<Item> items;
  uint32_t batches = 1;
  uint32_t last_elsewhere = UINT32_MAX;  // the batch that says it is the last one for other islands, if any
  bool fails = false;
  int64_t asked_ns = 0;
  // What Run takes from elsewhere, for who repeats it (durability `command`).
  mutable size_t attempt = 0;  // in the history
  mutable Word version_step = 1;
  bool repeated = false;  // it has been in the history since it ran first

  void CodeInput(instance::InputCoder& coder) override;
};

std::unique_ptr<instance::Generator> MakeLedgerGenerator(const std::shared_ptr<LedgerContext>& context,
                                                         const partitioner::RangePartition& range,
                                                         uint32_t island);

}  // namespace islands::simulation
