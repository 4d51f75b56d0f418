#include "experiments/voter/voter.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>

#include "experiments/wanted_tables.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;
using instance::Batch;

static_assert(std::endian::native == std::endian::little, "rows are read as they lie");

constexpr const char* kTableLines = R"(    - {name: contestant, key: [uint8], replicated: true, row_bytes: 50}
    - {name: phone, key: [uint64], range: [0, 100000], row_bytes: 8}
    - {name: vote, key: [uint64, uint32], range: [0, 100000], row_bytes: 8}
    - {name: total, key: [uint64, uint8], range: [0, 100000], row_bytes: 16})";

// A shorter row, of a table that leaves lengths open, leaves the rest zero.
template <typename Row>
Row RowOf(instance::RowView bytes) {
  Row row{};
  std::memcpy(&row, bytes.data(), std::min(sizeof(row), bytes.size()));
  return row;
}

template <typename Row>
instance::RowView BytesOf(const Row& row) {
  return std::as_bytes(std::span(&row, 1));
}

}  // namespace

uint64_t VoterGenerator::DrawPhone(runtime::Random& random, partitioner::SiteRun sites) const {
  const auto begin = static_cast<uint64_t>(partition_.SiteBegin(sites.first));
  const auto end = static_cast<uint64_t>(partition_.SiteBegin(sites.first + sites.count));
  return begin + random.Below(end - begin);
}

void VoterGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& voter = static_cast<VoterRequest&>(request);
  const bool remote = random.Unit() * 100 < options_.remote_percent;
  voter.phone = DrawPhone(random, remote ? partitioner::SiteRun{0, partition_.sites()} : own_);
  const uint32_t site = *partition_.Find(static_cast<int64_t>(voter.phone));
  voter.first_phone = static_cast<uint64_t>(partition_.SiteBegin(site));
  const bool nobody = random.Below(kNobodyOneIn) == 0;
  voter.contestant =
      static_cast<uint8_t>(1 + (nobody ? options_.contestants : random.Below(options_.contestants)));
  voter.audit_delta = nobody ? 0 : kCallWeight;
}

std::optional<uint32_t> VoterGenerator::DrawSite(runtime::Random& random) {
  return partition_.Find(static_cast<int64_t>(DrawPhone(random, {0, partition_.sites()})));
}

const instance::Description& VoterWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters = {{.name = "contestants",
                      .kind = Kind::kWhole,
                      .help = "to vote for",
                      .min = 1,
                      .max = kMostContestants,
                      .preset = "6",
                      .loads = true},
                     {.name = "limit",
                      .kind = Kind::kWhole,
                      .help = "votes that a phone may give; all further ones are rejected, which commits",
                      .min = 1,
                      .max = 1e9,
                      .preset = "1000",
                      .loads = true},
                     {.name = "remote",
                      .kind = Kind::kPercent,
                      .help = "votes whose phone is drawn from the whole table",
                      .preset = "0",
                      .grows = true}},
      .tables = {"contestant", "phone", "vote", "total"},
      .tables_yaml = kTableLines};
  return description;
}

absl::StatusOr<std::unique_ptr<VoterWorkload>> VoterWorkload::Create(const storage::Catalog& catalog,
                                                                     const instance::Parameters& parameters) {
  using enum partitioner::KeyType;
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const auto tables = FindTables(catalog, "voter",
                                 {{"contestant", {kUint8}, sizeof(ContestantRow), /*replicated=*/true},
                                  {"phone", {kUint64}, sizeof(PhoneRow)},
                                  {"vote", {kUint64, kUint32}, sizeof(VoteRow)},
                                  {"total", {kUint64, kUint8}, sizeof(TotalRow)}},
                                 kTableLines);
  if (!tables.ok()) return tables.status();
  const VoterTables ids = {(*tables)[0]->id, (*tables)[1]->id, (*tables)[2]->id, (*tables)[3]->id};
  const partitioner::RangePartition& phones = *(*tables)[1]->partition;
  if (phones.end() - phones.begin() < catalog.sites()) {
    return absl::InvalidArgumentError(
        fmt::format("voter: found {} phones in {} sites, expected one in each at least",
                    phones.end() - phones.begin(), catalog.sites()));
  }
  const VoterOptions options = {.contestants = static_cast<uint8_t>(instance::NumberOf(*read, "contestants")),
                                .limit = static_cast<uint32_t>(instance::NumberOf(*read, "limit")),
                                .remote_percent = instance::NumberOf(*read, "remote")};
  return std::unique_ptr<VoterWorkload>(new VoterWorkload(ids, options));
}

absl::Status VoterWorkload::Load(instance::Loader& loader) const {
  for (uint8_t contestant = 1; contestant <= options_.contestants; ++contestant) {
    ContestantRow row{};
    fmt::format_to_n(row.name, sizeof(row.name), "contestant {}", contestant);
    absl::Status status = loader.Insert(tables_.contestant, ContestantKey(contestant), BytesOf(row));
    if (!status.ok()) return status;
  }
  const partitioner::RangePartition& phones = *loader.catalog().table(tables_.phone).partition;
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (uint8_t contestant = 1; contestant <= options_.contestants; ++contestant) {
      const auto key = TotalKey(static_cast<uint64_t>(phones.SiteBegin(site)), contestant);
      absl::Status status = loader.Insert(tables_.total, key, BytesOf(TotalRow{}));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> VoterWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  return std::make_unique<VoterGenerator>(options_, *context.catalog.table(tables_.phone).partition,
                                          context.sites);
}

// The phone is locked before it is known whether it has a row: its first two votes do not both find none.
runtime::Task<absl::Status> VoterWorkload::Run(instance::Transaction& transaction,
                                               const instance::Request& request) const {
  const auto& voter = static_cast<const VoterRequest&>(request);
  const auto phone = PhoneKey(voter.phone);
  Batch& batch = transaction.batch();
  batch.Read(tables_.contestant, ContestantKey(voter.contestant));
  batch.ReadForUpdate(tables_.phone, phone);
  absl::Status status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk) co_return absl::OkStatus();  // a vote for nobody
  const int64_t votes = batch.code(1) == StatusCode::kOk ? RowOf<PhoneRow>(batch.row(1)).votes : 0;
  batch.Clear();
  const auto total = TotalKey(voter.first_phone, voter.contestant);
  const bool rejected = votes >= options_.limit;
  batch.Add(tables_.total, total, rejected ? offsetof(TotalRow, rejected) : offsetof(TotalRow, votes), 1);
  if (!rejected) {
    const VoteRow vote = {.contestant = voter.contestant};
    batch.Insert(tables_.vote, VoteKey(voter.phone, static_cast<uint32_t>(votes)), BytesOf(vote));
    const PhoneRow counted = {.votes = votes + 1};
    batch.Put(tables_.phone, phone, BytesOf(counted));
  }
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  if (!status.ok()) co_return status;
  if (batch.code(0) != StatusCode::kOk)
    co_return absl::FailedPreconditionError("voter: a total is missing; load the workload again");
  if (!rejected && batch.code(1) != StatusCode::kOk) {
    co_return absl::DataLossError(
        fmt::format("voter: phone {} has given {} votes, and there is one more", voter.phone, votes));
  }
  co_return absl::OkStatus();
}

int64_t VoterWorkload::AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const {
  (void)key;
  if (table == tables_.vote) return kVoteWeight;
  if (table == tables_.phone) return kPhoneWeight * RowOf<PhoneRow>(row).votes;
  if (table != tables_.total) return 0;
  const auto total = RowOf<TotalRow>(row);
  return kTotalWeight * total.votes + kCallWeight * total.rejected;
}

}  // namespace islands::experiments
