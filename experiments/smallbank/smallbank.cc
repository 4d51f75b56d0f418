#include "experiments/smallbank/smallbank.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "experiments/wanted_tables.h"

namespace islands::experiments {
namespace {

using absl::StatusCode;
using instance::Batch;
using partitioner::Uint64Key;
using Kind = SmallBankTransaction;

static_assert(std::endian::native == std::endian::little, "rows are read as they lie");

constexpr const char* kTableLines = R"(    - {name: account, key: [uint64], range: [0, 100000], row_bytes: 64}
    - {name: savings, key: [uint64], range: [0, 100000], row_bytes: 24}
    - {name: checking, key: [uint64], range: [0, 100000], row_bytes: 24})";
constexpr int64_t kLeastOpeningCents = 100'00;
constexpr int64_t kMostOpeningCents = 500'00;

bool OfTwo(Kind kind) { return kind == Kind::kAmalgamate || kind == Kind::kSendPayment; }
bool ReadsSavings(Kind kind) { return kind != Kind::kDepositChecking && kind != Kind::kSendPayment; }
bool ReadsChecking(Kind kind) { return kind != Kind::kTransactSavings; }

template <typename Row>
instance::RowView BytesOf(const Row& row) {
  return std::as_bytes(std::span(&row, 1));
}

void Change(BalanceRow* row, int64_t cents) {
  row->cents += cents;
  row->changes += 1;
}

// What it does to the rows that it has read; an error where there is not enough.
absl::Status Apply(const SmallBankRequest& request, SmallBankBalances* balances) {
  const auto too_little = [] {
    return absl::FailedPreconditionError("smallbank: there is not enough money");
  };
  switch (request.transaction) {
    case Kind::kBalance:
      break;
    case Kind::kDepositChecking:
      Change(&balances->checking, request.cents);
      break;
    case Kind::kTransactSavings:
      if (balances->savings.cents + request.cents < 0) return too_little();
      Change(&balances->savings, request.cents);
      break;
    case Kind::kAmalgamate: {
      const int64_t all = balances->savings.cents + balances->checking.cents;
      Change(&balances->savings, -balances->savings.cents);
      Change(&balances->checking, -balances->checking.cents);
      Change(&balances->other, all);
      break;
    }
    case Kind::kWriteCheck: {
      const bool enough = balances->savings.cents + balances->checking.cents >= request.cents;
      const int64_t penalty = enough ? 0 : kPenaltyCents;
      Change(&balances->checking, -request.cents - penalty);
      balances->checking.penalty_cents += penalty;
      break;
    }
    case Kind::kSendPayment:
      if (balances->checking.cents < request.cents) return too_little();
      Change(&balances->checking, -request.cents);
      Change(&balances->other, request.cents);
      break;
  }
  return absl::OkStatus();
}

// Money that comes in from outside or goes out, and rows that change.
int64_t AuditDelta(Kind kind, int64_t cents) {
  switch (kind) {
    case Kind::kBalance:
      return 0;
    case Kind::kDepositChecking:
    case Kind::kTransactSavings:
      return cents + kChangeWeight;
    case Kind::kAmalgamate:
      return 3 * kChangeWeight;
    case Kind::kWriteCheck:
      return -cents + kChangeWeight;
    case Kind::kSendPayment:
      break;
  }
  return 2 * kChangeWeight;
}

}  // namespace

uint64_t SmallBankGenerator::DrawCustomer(runtime::Random& random, uint32_t site) const {
  const auto begin = static_cast<uint64_t>(partition_.SiteBegin(site));
  const auto customers = static_cast<uint64_t>(partition_.SiteBegin(site + 1)) - begin;
  const uint64_t hot = std::min(options_.hotspot, customers);
  if (hot == 0 || hot == customers) return begin + random.Below(customers);
  if (random.Unit() * 100 < options_.hot_percent) return begin + random.Below(hot);
  return begin + hot + random.Below(customers - hot);
}

void SmallBankGenerator::Next(runtime::Random& random, instance::Request& request) {
  auto& bank = static_cast<SmallBankRequest&>(request);
  uint64_t left = random.Below(100);
  size_t kind = 0;
  while (left >= kSmallBankShares[kind]) left -= kSmallBankShares[kind++];
  bank.transaction = static_cast<SmallBankTransaction>(kind);
  const uint32_t site = own_.first + static_cast<uint32_t>(random.Below(own_.count));
  bank.customer = DrawCustomer(random, site);
  if (OfTwo(bank.transaction)) {
    const bool remote = random.Unit() * 100 < options_.remote_percent;
    const uint32_t others = remote ? static_cast<uint32_t>(random.Below(partition_.sites())) : site;
    bank.other = DrawCustomer(random, others);
    // With one hot customer of whom all draws are there would be no end of drawing again.
    if (bank.other == bank.customer) {
      const int64_t next = static_cast<int64_t>(bank.other) + 1;
      bank.other = static_cast<uint64_t>(
          next == partition_.SiteBegin(others + 1) ? partition_.SiteBegin(others) : next);
    }
  }
  bank.cents = 1 + static_cast<int64_t>(random.Below(kMostCents));
  if (bank.transaction == Kind::kTransactSavings && random.Below(2) == 0) bank.cents = -bank.cents;
  bank.audit_delta = AuditDelta(bank.transaction, bank.cents);
}

const instance::Description& SmallBankWorkload::Describe() {
  using ParameterKind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters =
          {{.name = "hotspot",
            .kind = ParameterKind::kWhole,
            .help = "customers of each site that are hot; 0: all are alike",
            .max = 1e12,
            .preset = "0"},
           {.name = "hot",
            .kind = ParameterKind::kPercent,
            .help = "draws of a customer that are of the hot ones",
            .preset = "90",
            .idle_with = {{"hotspot", "0"}}},
           {.name = "remote",
            .kind = ParameterKind::kPercent,
            .help = "transactions of two customers that draw the second one's site from the whole table, the "
                    "others are of one site",
            .preset = "0"}},
      .tables = {"account", "savings", "checking"},
      .tables_yaml = kTableLines,
      .row_per_key = true};
  return description;
}

absl::StatusOr<std::unique_ptr<SmallBankWorkload>> SmallBankWorkload::Create(
    const storage::Catalog& catalog, const instance::Parameters& parameters) {
  const auto read = instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const partitioner::KeySchema key = {partitioner::KeyType::kUint64};
  const auto tables = FindTables(catalog, "smallbank",
                                 {{"account", key, sizeof(AccountRow)},
                                  {"savings", key, sizeof(BalanceRow)},
                                  {"checking", key, sizeof(BalanceRow)}},
                                 kTableLines);
  if (!tables.ok()) return tables.status();
  const SmallBankOptions options = {.hotspot = static_cast<uint64_t>(instance::NumberOf(*read, "hotspot")),
                                    .hot_percent = instance::NumberOf(*read, "hot"),
                                    .remote_percent = instance::NumberOf(*read, "remote")};
  const SmallBankTables ids = {(*tables)[0]->id, (*tables)[1]->id, (*tables)[2]->id};
  return std::unique_ptr<SmallBankWorkload>(new SmallBankWorkload(ids, options));
}

absl::Status SmallBankWorkload::CheckRun(const storage::Catalog& catalog) const {
  const partitioner::RangePartition& customers = *catalog.table(tables_.account).partition;
  const int64_t total = customers.end() - customers.begin();
  if (total / catalog.sites() >= 2) return absl::OkStatus();
  return absl::InvalidArgumentError(fmt::format(
      "smallbank: found {} customers in {} sites, expected at least 2 in each", total, catalog.sites()));
}

// Balances depend on the customer alone, so they are the same in every layout.
absl::Status SmallBankWorkload::Load(instance::Loader& loader) const {
  const partitioner::RangePartition& customers = *loader.catalog().table(tables_.account).partition;
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (int64_t number = customers.SiteBegin(site); number < customers.SiteBegin(site + 1); ++number) {
      const Uint64Key key(static_cast<uint64_t>(number));
      runtime::Random random(static_cast<uint64_t>(number));
      const auto opening = [&] {
        return BalanceRow{.cents = kLeastOpeningCents + static_cast<int64_t>(random.Below(
                                                            kMostOpeningCents - kLeastOpeningCents + 1)),
                          .penalty_cents = 0,
                          .changes = 0};
      };
      AccountRow account{};
      fmt::format_to_n(account.name.data(), account.name.size(), "customer {}", number);
      absl::Status status = loader.Insert(tables_.account, key, BytesOf(account));
      if (status.ok()) status = loader.Insert(tables_.savings, key, BytesOf(opening()));
      if (status.ok()) status = loader.Insert(tables_.checking, key, BytesOf(opening()));
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> SmallBankWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  if (absl::Status fits = CheckRun(context.catalog); !fits.ok()) return fits;
  return std::make_unique<SmallBankGenerator>(options_, *context.catalog.table(tables_.account).partition,
                                              context.sites);
}

// Of two customers the smaller one's rows first, whoever it is: transactions lock in the same order, and
// seldom deadlock. Balance reads without the locks that updates need.
void SmallBankWorkload::AddReads(const SmallBankRequest& request, Batch& batch) const {
  const Kind kind = request.transaction;
  const auto read = [&](instance::TableId table, uint64_t customer) {
    if (kind == Kind::kBalance || table == tables_.account) {
      batch.Read(table, Uint64Key(customer));
    } else {
      batch.ReadForUpdate(table, Uint64Key(customer));
    }
  };
  const auto add_other = [&] {
    read(tables_.account, request.other);
    read(tables_.checking, request.other);
  };
  if (OfTwo(kind) && request.other < request.customer) add_other();
  read(tables_.account, request.customer);
  if (ReadsSavings(kind)) read(tables_.savings, request.customer);
  if (ReadsChecking(kind)) read(tables_.checking, request.customer);
  if (OfTwo(kind) && request.other > request.customer) add_other();
}

absl::Status SmallBankWorkload::TakeReads(const SmallBankRequest& request, const Batch& batch,
                                          SmallBankBalances* balances) const {
  const Uint64Key other(request.other);
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    const size_t bytes = operation.table == tables_.account ? sizeof(AccountRow) : sizeof(BalanceRow);
    if (batch.code(i) != StatusCode::kOk || batch.row(i).size() != bytes) {
      return absl::FailedPreconditionError(
          fmt::format("smallbank: customer {} or {}: a row is missing; load the workload again",
                      request.customer, request.other));
    }
    if (operation.table == tables_.account) continue;
    const bool of_other =
        OfTwo(request.transaction) && std::ranges::equal(batch.View(operation.key), instance::KeyView(other));
    BalanceRow& row = of_other                             ? balances->other
                      : operation.table == tables_.savings ? balances->savings
                                                           : balances->checking;
    std::memcpy(&row, batch.row(i).data(), sizeof(row));
  }
  return absl::OkStatus();
}

void SmallBankWorkload::AddWrites(const SmallBankRequest& request, const SmallBankBalances& balances,
                                  Batch& batch) const {
  const Kind kind = request.transaction;
  const Uint64Key customer(request.customer);
  if (kind == Kind::kTransactSavings || kind == Kind::kAmalgamate)
    batch.Write(tables_.savings, customer, 0, BytesOf(balances.savings));
  if (kind != Kind::kTransactSavings) batch.Write(tables_.checking, customer, 0, BytesOf(balances.checking));
  if (OfTwo(kind)) batch.Write(tables_.checking, Uint64Key(request.other), 0, BytesOf(balances.other));
}

runtime::Task<absl::Status> SmallBankWorkload::Run(instance::Transaction& transaction,
                                                   const instance::Request& request) const {
  const auto& bank = static_cast<const SmallBankRequest&>(request);
  Batch& batch = transaction.batch();
  AddReads(bank, batch);
  absl::Status status = co_await transaction.Execute(batch);
  SmallBankBalances balances;
  if (status.ok()) status = TakeReads(bank, batch, &balances);
  if (status.ok()) status = Apply(bank, &balances);
  if (!status.ok() || bank.transaction == Kind::kBalance) co_return status;
  batch.Clear();
  AddWrites(bank, balances, batch);
  batch.LastElsewhere();
  status = co_await transaction.Execute(batch);
  co_return status;
}

int64_t SmallBankWorkload::AuditRow(instance::TableId table, instance::KeyView key,
                                    instance::RowView row) const {
  (void)key;
  BalanceRow balance{};
  if ((table != tables_.savings && table != tables_.checking) || row.size() != sizeof(balance)) return 0;
  std::memcpy(&balance, row.data(), sizeof(balance));
  return balance.cents + balance.penalty_cents + kChangeWeight * balance.changes;
}

}  // namespace islands::experiments
