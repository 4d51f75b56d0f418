#include "instance/gateway/translate.h"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "instance/gateway/tokens.h"
#include "partitioner/key_codec.h"

namespace islands::gateway {

using instance::Batch;
using instance::OperationKind;
using partitioner::KeyComponent;
using partitioner::KeySchema;
using partitioner::KeyType;
using storage::RowView;
using storage::TableDefinition;

namespace {

RowView BytesOf(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }
std::string TextOf(RowView bytes) { return {reinterpret_cast<const char*>(bytes.data()), bytes.size()}; }

std::string_view NameOf(client::v1::KeyPart::PartCase part) {
  switch (part) {
    case client::v1::KeyPart::kUnsigned:
      return "an unsigned number";
    case client::v1::KeyPart::kSigned:
      return "a signed number";
    case client::v1::KeyPart::kText:
      return "text";
    default:
      return "nothing";
  }
}

// As procedures write types.
std::string_view NameOf(client::v1::Value::KindCase kind) {
  switch (kind) {
    case client::v1::Value::kNumber:
      return "int64";
    case client::v1::Value::kReal:
      return "double";
    case client::v1::Value::kText:
      return "text";
    default:
      return "nothing";
  }
}

// What the component's type makes of the part; empty: it has no such values.
std::optional<KeyComponent> ComponentOf(KeyType type, const client::v1::KeyPart& part) {
  const bool text = type == KeyType::kString;
  switch (part.part_case()) {
    case client::v1::KeyPart::kText:
      if (text) return part.text();
      return std::nullopt;
    case client::v1::KeyPart::kUnsigned:
      if (text) return std::nullopt;
      if (!partitioner::IsSigned(type)) return part.unsigned_();
      if (part.unsigned_() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return static_cast<int64_t>(part.unsigned_());
    case client::v1::KeyPart::kSigned:
      if (text) return std::nullopt;
      if (partitioner::IsSigned(type)) return part.signed_();
      if (part.signed_() < 0) return std::nullopt;
      return static_cast<uint64_t>(part.signed_());
    default:
      return std::nullopt;
  }
}

std::string SchemaText(const KeySchema& schema) {
  std::string text;
  for (const KeyType type : schema)
    text += fmt::format("{}{}", text.empty() ? "" : ", ", partitioner::KeyTypeName(type));
  return text;
}

// `whole`: all components; otherwise the first ones, which may be none.
absl::Status Encode(const KeySchema& schema, const client::v1::Key& key, bool whole, std::string* encoded) {
  encoded->clear();
  const auto given = static_cast<size_t>(key.parts_size());
  if (given > schema.size() || (whole && given != schema.size())) {
    return absl::InvalidArgumentError(
        fmt::format("a key of {} part(s), expected {}: {}", given, schema.size(), SchemaText(schema)));
  }
  std::vector<KeyComponent> components;
  components.reserve(given);
  for (size_t i = 0; i < given; ++i) {
    const client::v1::KeyPart& part = key.parts(static_cast<int>(i));
    std::optional<KeyComponent> component = ComponentOf(schema[i], part);
    if (!component) {
      return absl::InvalidArgumentError(fmt::format("part {} of the key is {}, expected one that {} can hold",
                                                    i, NameOf(part.part_case()),
                                                    partitioner::KeyTypeName(schema[i])));
    }
    components.push_back(*std::move(component));
  }
  absl::StatusOr<std::string> bytes = partitioner::EncodeKey(
      KeySchema(schema.begin(), schema.begin() + static_cast<ptrdiff_t>(given)), components);
  if (!bytes.ok()) return bytes.status();
  *encoded = *std::move(bytes);
  return absl::OkStatus();
}

void Decode(const KeySchema& schema, storage::KeyView bytes, client::v1::Key* key) {
  const auto components = partitioner::DecodeKey(schema, bytes);
  if (!components.ok()) return;  // rows have keys of their table
  for (const KeyComponent& component : *components) {
    client::v1::KeyPart* part = key->add_parts();
    if (const auto* number = std::get_if<uint64_t>(&component)) part->set_unsigned_(*number);
    if (const auto* number = std::get_if<int64_t>(&component)) part->set_signed_(*number);
    if (const auto* text = std::get_if<std::string>(&component)) part->set_text(*text);
  }
}

absl::Status CheckRow(const TableDefinition& table, const std::string& value) {
  if (table.row_bytes != 0 && value.size() != table.row_bytes) {
    return absl::InvalidArgumentError(
        fmt::format("a row of {} bytes, expected {} as all of the table", value.size(), table.row_bytes));
  }
  if (value.size() > storage::kMaxRowBytes) {
    return absl::InvalidArgumentError(
        fmt::format("a row of {} bytes, expected at most {}", value.size(), storage::kMaxRowBytes));
  }
  return absl::OkStatus();
}

KeySchema SchemaOf(const TableDefinition& table, const storage::IndexDefinition& index) {
  KeySchema schema;
  for (const storage::IndexComponent& component : index.components)
    schema.push_back(component.from_key ? table.key[component.component] : component.type);
  return schema;
}

// Translates operations one by one, with room for keys that all of them share.
class Translator {
 public:
  Translator(const View& view, Batch* batch, std::vector<uint32_t>* may_miss)
      : view_(view), batch_(*batch), may_miss_(*may_miss) {}

  absl::Status Take(const client::v1::Operation& operation) {
    const TableDefinition* table = view_.catalog.Find(operation.table());
    if (table == nullptr || operation.table().starts_with(kSystemPrefix))
      return absl::InvalidArgumentError("there is no such table");
    table_ = table;
    switch (operation.kind_case()) {
      case client::v1::Operation::kGet:
        if (absl::Status status = Whole(operation.get().key()); !status.ok()) return status;
        operation.get().for_update() ? batch_.ReadForUpdate(table->id, Key()) : batch_.Read(table->id, Key());
        return absl::OkStatus();
      case client::v1::Operation::kPut:
        return Row(operation.put(), &Batch::Put);
      case client::v1::Operation::kInsert:
        return Row(operation.insert(), &Batch::Insert);
      case client::v1::Operation::kReplace:
        return Row(operation.replace(), &Batch::Replace);
      case client::v1::Operation::kDelete:
        if (absl::Status status = Whole(operation.delete_().key()); !status.ok()) return status;
        if (operation.delete_().may_miss()) may_miss_.push_back(static_cast<uint32_t>(batch_.size()));
        batch_.Delete(table->id, Key());
        return absl::OkStatus();
      case client::v1::Operation::kAdd:
        return Add(operation.add());
      case client::v1::Operation::kScan:
        return Scan(operation.scan());
      case client::v1::Operation::kIndexScan:
        return IndexScan(operation.index_scan());
      case client::v1::Operation::KIND_NOT_SET:
        break;
    }
    return absl::InvalidArgumentError("an operation of no kind that this version knows");
  }

 private:
  storage::KeyView Key() const { return BytesOf(key_); }
  absl::Status Whole(const client::v1::Key& key) { return Encode(table_->key, key, /*whole=*/true, &key_); }

  template <typename Message>
  absl::Status Row(const Message& message,
                   size_t (Batch::*add)(storage::TableId, storage::KeyView, RowView)) {
    if (absl::Status status = Whole(message.key()); !status.ok()) return status;
    if (absl::Status status = CheckRow(*table_, message.value()); !status.ok()) return status;
    (batch_.*add)(table_->id, Key(), BytesOf(message.value()));
    return absl::OkStatus();
  }

  absl::Status Add(const client::v1::Add& add) {
    if (absl::Status status = Whole(add.key()); !status.ok()) return status;
    if (add.offset() > storage::kMaxRowBytes ||
        (table_->row_bytes != 0 && add.offset() + 8 > table_->row_bytes)) {
      return absl::InvalidArgumentError(
          fmt::format("offset {}: a row has no 8 bytes there, it has {} at most", add.offset(),
                      table_->row_bytes != 0 ? table_->row_bytes : storage::kMaxRowBytes));
    }
    batch_.Add(table_->id, Key(), add.offset(), add.delta());
    return absl::OkStatus();
  }

  absl::Status Scan(const client::v1::Scan& scan) {
    if (absl::Status status = Encode(table_->key, scan.begin(), /*whole=*/false, &key_); !status.ok())
      return status;
    if (absl::Status status = Encode(table_->key, scan.end(), /*whole=*/false, &end_); !status.ok())
      return status;
    batch_.Scan(table_->id, Key(), BytesOf(end_), scan.limit(), scan.reverse());
    return absl::OkStatus();
  }

  absl::Status IndexScan(const client::v1::IndexScan& scan) {
    uint32_t number = 0;
    while (number < table_->indexes.size() && table_->indexes[number].name != scan.index()) ++number;
    if (number == table_->indexes.size())
      return absl::InvalidArgumentError(fmt::format("there is no index '{}'", scan.index()));
    const KeySchema schema = SchemaOf(*table_, table_->indexes[number]);
    if (absl::Status status = Encode(schema, scan.begin(), /*whole=*/false, &key_); !status.ok())
      return status;
    if (absl::Status status = Encode(schema, scan.end(), /*whole=*/false, &end_); !status.ok()) return status;
    if (scan.at().parts().empty())
      return absl::InvalidArgumentError(
          "indexes are local to a partition: `at` says which, by the first part of a key");
    if (absl::Status status = Encode(table_->key, Completed(*table_, scan.at()), /*whole=*/true, &at_);
        !status.ok())
      return status;
    batch_.IndexScan(table_->id, number, BytesOf(at_), Key(), BytesOf(end_), scan.limit(), scan.reverse());
    return absl::OkStatus();
  }

  const View& view_;
  Batch& batch_;
  std::vector<uint32_t>& may_miss_;
  const TableDefinition* table_ = nullptr;
  std::string key_, end_, at_;
};

client::v1::Result::Code CodeOf(absl::StatusCode code) {
  switch (code) {
    case absl::StatusCode::kOk:
      return client::v1::Result::DONE;
    case absl::StatusCode::kNotFound:
      return client::v1::Result::NOT_FOUND;
    case absl::StatusCode::kAlreadyExists:
      return client::v1::Result::ALREADY_EXISTS;
    default:
      return client::v1::Result::CODE_UNSPECIFIED;
  }
}

}  // namespace

client::v1::Key Completed(const TableDefinition& table, const client::v1::Key& key) {
  client::v1::Key whole;
  for (size_t i = 0; i < table.key.size(); ++i) {
    client::v1::KeyPart* part = whole.add_parts();
    if (i < static_cast<size_t>(key.parts_size())) {
      *part = key.parts(static_cast<int>(i));
    } else if (table.key[i] == KeyType::kString) {
      part->set_text("");
    } else {
      part->set_unsigned_(0);
    }
  }
  return whole;
}

absl::Status TranslateArguments(const control::v1::ProcedureSpec& procedure,
                                const client::v1::CallRequest& request, data::v1::ClientRequest* to) {
  if (request.arguments_size() != procedure.arguments_size()) {
    std::string expected;
    for (const control::v1::ValueSpec& each : procedure.arguments())
      expected += fmt::format("{}{} {}", expected.empty() ? "" : ", ", each.name(), each.type());
    return absl::InvalidArgumentError(fmt::format("procedure '{}': found {} argument(s), expected {}: {}",
                                                  procedure.name(), request.arguments_size(),
                                                  procedure.arguments_size(), expected));
  }
  for (int i = 0; i < request.arguments_size(); ++i) {
    const client::v1::Value& argument = request.arguments(i);
    const std::string& type = procedure.arguments(i).type();
    data::v1::Value* value = to->add_arguments();
    const std::string_view found = NameOf(argument.kind_case());
    if (argument.has_number() && type == "double") {
      value->set_real(static_cast<double>(argument.number()));
    } else if (found != type) {
      return absl::InvalidArgumentError(fmt::format("procedure '{}', argument {} '{}': found {}, expected {}",
                                                    procedure.name(), i + 1, procedure.arguments(i).name(),
                                                    found, type));
    } else if (argument.has_number()) {
      value->set_number(argument.number());
    } else if (argument.has_real()) {
      value->set_real(argument.real());
    } else {
      value->set_text(argument.text());
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<uint32_t> SiteOfCall(const View& view, const control::v1::ProcedureSpec& procedure,
                                    const data::v1::ClientRequest& request) {
  const TableDefinition* table = view.catalog.Find(procedure.home_table());
  if (table == nullptr || !table->partition || request.arguments().empty()) {
    return absl::InvalidArgumentError(fmt::format("procedure '{}': its home table '{}' is not there",
                                                  procedure.name(), procedure.home_table()));
  }
  const absl::StatusOr<uint32_t> site = table->partition->SiteOf(request.arguments(0).number());
  if (site.ok()) return site;
  return absl::InvalidArgumentError(fmt::format(
      "procedure '{}', argument 1 '{}', of table '{}': {}", procedure.name(), procedure.arguments(0).name(),
      procedure.home_table(), std::string(site.status().message())));
}

void FillValues(const data::v1::ClientReply& reply, client::v1::CallResponse* response) {
  for (const data::v1::Value& value : reply.values()) {
    client::v1::Value* result = response->add_results();
    if (value.has_number()) result->set_number(value.number());
    if (value.has_real()) result->set_real(value.real());
    if (value.has_text()) result->set_text(value.text());
  }
}

absl::Status Translate(const View& view, const Operations& operations, Batch* batch,
                       std::vector<uint32_t>* may_miss) {
  if (static_cast<size_t>(operations.size()) > kMostOperations) {
    return absl::InvalidArgumentError(
        fmt::format("{} operations in one request, expected at most {}", operations.size(), kMostOperations));
  }
  Translator translator(view, batch, may_miss);
  for (const client::v1::Operation& operation : operations) {
    const absl::Status status = translator.Take(operation);
    if (!status.ok()) {
      const std::string which = operations.size() == 1 ? "" : fmt::format("operation {}, ", batch->size());
      return absl::InvalidArgumentError(
          fmt::format("{}table '{}': {}", which, operation.table(), std::string(status.message())));
    }
  }
  return absl::OkStatus();
}

std::optional<uint32_t> SiteOf(const View& view, const Batch& batch) {
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    const TableDefinition& table = view.catalog.table(operation.table);
    if (table.replicated()) continue;
    if (operation.kind == OperationKind::kScan) {
      const auto span = instance::SitesOfRange(table, view.catalog.sites(), batch.View(operation.key),
                                               batch.View(operation.end_key));
      if (!span.ok()) return std::nullopt;
      return operation.reverse ? span->last : span->first;
    }
    const bool by_index = operation.kind == OperationKind::kIndexScan;
    const auto site =
        view.catalog.SiteOf(operation.table, batch.View(by_index ? operation.site_key : operation.key));
    return site.ok() ? std::optional(*site) : std::nullopt;  // the island says what is wrong with it
  }
  return std::nullopt;
}

uint32_t HomeOf(const View& view, const Batch& batch, uint32_t any) {
  const std::optional<uint32_t> site = SiteOf(view, batch);
  return site ? view.sites.IslandOf(*site) : any;
}

control::v1::TableSpec SpecOf(const client::v1::Table& table) {
  control::v1::TableSpec spec;
  spec.set_name(table.name());
  *spec.mutable_key() = table.key();
  spec.set_range_begin(table.range_begin());
  spec.set_range_end(table.range_end());
  spec.set_row_bytes(table.row_bytes());
  spec.set_replicated(table.replicated());
  for (const client::v1::Index& index : table.indexes()) {
    control::v1::IndexSpec* made = spec.add_indexes();
    made->set_name(index.name());
    *made->mutable_key() = index.key();
  }
  *spec.mutable_key_names() = table.key_names();
  for (const client::v1::Field& field : table.fields()) {
    control::v1::FieldSpec* made = spec.add_fields();
    made->set_name(field.name());
    made->set_type(field.type());
  }
  return spec;
}

client::v1::Table TableOf(const control::v1::TableSpec& spec) {
  client::v1::Table table;
  table.set_name(spec.name());
  *table.mutable_key() = spec.key();
  table.set_range_begin(spec.range_begin());
  table.set_range_end(spec.range_end());
  table.set_row_bytes(spec.row_bytes());
  table.set_replicated(spec.replicated());
  for (const control::v1::IndexSpec& index : spec.indexes()) {
    client::v1::Index* described = table.add_indexes();
    described->set_name(index.name());
    *described->mutable_key() = index.key();
  }
  *table.mutable_key_names() = spec.key_names();
  for (const control::v1::FieldSpec& field : spec.fields()) {
    client::v1::Field* described = table.add_fields();
    described->set_name(field.name());
    described->set_type(field.type());
  }
  return table;
}

void FillResults(const View& view, const Batch& batch, Results* results) {
  results->Reserve(static_cast<int>(batch.size()));
  for (size_t i = 0; i < batch.size(); ++i) {
    const Batch::Operation& operation = batch.operation(i);
    client::v1::Result* result = results->Add();
    result->set_code(CodeOf(batch.code(i)));
    const RowView row = batch.row(i);
    if (operation.kind == OperationKind::kAdd) {
      int64_t number = 0;
      if (row.size() == sizeof(number)) std::memcpy(&number, row.data(), sizeof(number));
      result->set_number(number);
    } else if (!row.empty()) {
      result->set_value(TextOf(row));
    }
    const TableDefinition& table = view.catalog.table(operation.table);
    for (size_t n = 0; n < batch.scanned_rows(i); ++n) {
      client::v1::Row* scanned = result->add_rows();
      Decode(table.key, batch.scanned_key(i, n), scanned->mutable_key());
      scanned->set_value(TextOf(batch.scanned_row(i, n)));
    }
  }
}

}  // namespace islands::gateway
