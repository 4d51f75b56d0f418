#include "experiments/tatp/tatp.h"

#include <fmt/format.h>

#include <array>
#include <utility>

#include "experiments/tatp/tatp_generator.h"
#include "experiments/tatp/tatp_population.h"

namespace islands::experiments {
namespace {

using partitioner::KeySchema;
using partitioner::KeyType;
using storage::TableDefinition;

constexpr int64_t kMostSubscribers = 1'000'000'000'000'000;  // their numbers have 15 digits

constexpr std::array kTables = {"subscriber", "access_info", "special_facility", "call_forwarding"};
constexpr const char* kTableLines = R"(    - name: subscriber
      key: [uint64]
      range: [1, 100001]
      row_bytes: 100
      indexes: [{name: by_number, key: ['row:0:string:15']}]
    - {name: access_info, key: [uint64, uint8], range: [1, 100001], row_bytes: 10}
    - {name: special_facility, key: [uint64, uint8], range: [1, 100001], row_bytes: 16}
    - {name: call_forwarding, key: [uint64, uint8, uint8], range: [1, 100001], row_bytes: 16})";

absl::Status WrongTables(const std::string& what) {
  return absl::InvalidArgumentError(fmt::format(
      "tatp: {}; data.tables of the deployment must hold these, all of one range:\n{}", what, kTableLines));
}

absl::StatusOr<const TableDefinition*> FindTable(const storage::Catalog& catalog, const char* name,
                                                 const KeySchema& key, size_t row_bytes) {
  const TableDefinition* table = catalog.Find(name);
  if (table == nullptr) return WrongTables(fmt::format("there is no table '{}'", name));
  const bool fits = table->key == key && table->partition.has_value() &&
                    (table->row_bytes == 0 || table->row_bytes == row_bytes);
  if (!fits) return WrongTables(fmt::format("table '{}' has another key or row_bytes", name));
  if (table->partition->begin() < 0 || table->partition->end() > kMostSubscribers) {
    return WrongTables(fmt::format("the range of table '{}' leaves 0 to {}", name, kMostSubscribers));
  }
  return table;
}

absl::Status FindIndex(const TableDefinition& subscriber, instance::IndexId* by_number) {
  for (instance::IndexId i = 0; i < subscriber.indexes.size(); ++i) {
    const storage::IndexDefinition& index = subscriber.indexes[i];
    if (index.name != "by_number" || index.components.size() != 1) continue;
    const storage::IndexComponent& number = index.components.front();
    if (number.from_key || number.type != KeyType::kString || number.offset != 0 ||
        number.string_bytes != kTatpDigits) {
      continue;
    }
    *by_number = i;
    return absl::OkStatus();
  }
  return WrongTables("table 'subscriber' has no index 'by_number' on its first 15 bytes");
}

absl::StatusOr<TatpTables> FindTables(const storage::Catalog& catalog) {
  const KeySchema one = {KeyType::kUint64};
  const KeySchema two = {KeyType::kUint64, KeyType::kUint8};
  const KeySchema three = {KeyType::kUint64, KeyType::kUint8, KeyType::kUint8};
  TatpTables tables;
  const TableDefinition* first = nullptr;
  const auto find = [&](const char* name, const KeySchema& key, size_t row_bytes,
                        instance::TableId* id) -> absl::Status {
    const auto table = FindTable(catalog, name, key, row_bytes);
    if (!table.ok()) return table.status();
    if (first == nullptr) first = *table;
    *id = (*table)->id;
    const bool same = (*table)->partition->begin() == first->partition->begin() &&
                      (*table)->partition->end() == first->partition->end();
    if (same) return absl::OkStatus();
    return WrongTables(fmt::format("tables '{}' and '{}' have different ranges", first->name, name));
  };
  absl::Status status = find("subscriber", one, sizeof(SubscriberRow), &tables.subscriber);
  if (status.ok()) status = FindIndex(*first, &tables.by_number);
  if (status.ok()) status = find("access_info", two, sizeof(AccessInfoRow), &tables.access_info);
  if (status.ok())
    status = find("special_facility", two, sizeof(SpecialFacilityRow), &tables.special_facility);
  if (status.ok())
    status = find("call_forwarding", three, sizeof(CallForwardingRow), &tables.call_forwarding);
  if (!status.ok()) return status;
  return tables;
}

}  // namespace

const instance::Description& TatpWorkload::Describe() {
  using Kind = instance::Parameter::Kind;
  static const instance::Description description = {
      .parameters =
          {{.name = "mix",
            .kind = Kind::kChoice,
            .help = "all transactions; the three that read; the four that write; or in_place, those "
                    "that neither insert nor delete",
            .choices = {"standard", "read", "update", "in_place"},
            .preset = "standard"},
           {.name = "uniform",
            .kind = Kind::kChoice,
            .help = "no: subscribers of a site are drawn by TATP's rule, some of them more often than others",
            .choices = {"yes", "no"},
            .preset = "no"},
           {.name = "remote",
            .kind = Kind::kPercent,
            .help = "transactions that draw their subscriber from the whole table",
            .preset = "0"}},
      .tables = {kTables.begin(), kTables.end()},
      .tables_yaml = kTableLines};
  return description;
}

absl::StatusOr<std::unique_ptr<TatpWorkload>> TatpWorkload::Create(const storage::Catalog& catalog,
                                                                   const instance::Parameters& parameters) {
  const absl::StatusOr<instance::Parameters> read =
      instance::ReadParameters(Describe().parameters, parameters);
  if (!read.ok()) return read.status();
  const std::string& mix = read->at("mix");
  const TatpOptions options = {.mix = mix == "read"       ? TatpMix::kRead
                                      : mix == "update"   ? TatpMix::kUpdate
                                      : mix == "in_place" ? TatpMix::kInPlace
                                                          : TatpMix::kStandard,
                               .uniform = read->at("uniform") == "yes",
                               .remote_percent = instance::NumberOf(*read, "remote")};
  const absl::StatusOr<TatpTables> tables = FindTables(catalog);
  if (!tables.ok()) return tables.status();
  return std::unique_ptr<TatpWorkload>(new TatpWorkload(*tables, options));
}

std::vector<std::string> TatpWorkload::tables() const { return {kTables.begin(), kTables.end()}; }

absl::Status TatpWorkload::Load(instance::Loader& loader) const {
  const partitioner::RangePartition& subscribers = *loader.catalog().table(tables_.subscriber).partition;
  for (uint32_t site = 0; site < loader.catalog().sites(); ++site) {
    if (!loader.Owns(site)) continue;
    for (int64_t s_id = subscribers.SiteBegin(site); s_id < subscribers.SiteBegin(site + 1); ++s_id) {
      absl::Status status = LoadSubscriber(tables_, static_cast<uint64_t>(s_id), loader);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<instance::Generator>> TatpWorkload::MakeGenerator(
    const instance::GeneratorContext& context) const {
  return TatpGenerator::Create(options_, *context.catalog.table(tables_.subscriber).partition, context.sites);
}

int64_t TatpWorkload::AuditRow(instance::TableId table, instance::KeyView key, instance::RowView row) const {
  (void)key;
  if (table == tables_.subscriber) return RowOf<SubscriberRow>(row).changes;
  if (table == tables_.special_facility) return RowOf<SpecialFacilityRow>(row).changes;
  return table == tables_.call_forwarding ? 1 : 0;
}

}  // namespace islands::experiments
