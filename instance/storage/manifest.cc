#include "instance/storage/manifest.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "fmt/format.h"
#include "runtime/check.h"

namespace islands::storage {
namespace {

using Json = nlohmann::ordered_json;  // keys in the order in which the header shows them
using control::v1::IndexSpec;
using control::v1::TableSpec;

constexpr std::string_view kRemedy =
    "change the deployment file back, or remove the data with `islands destroy FILE`";
constexpr std::string_view kOtherCut =
    "change the deployment file back, have the rows cut anew by `islands relayout FILE`, or remove the data "
    "with "
    "`islands destroy FILE`";

std::string PathOf(const std::string& directory) { return fmt::format("{}/{}", directory, kManifestName); }

Json StringsToJson(const google::protobuf::RepeatedPtrField<std::string>& strings) {
  Json list = Json::array();
  for (const std::string& text : strings) list.push_back(text);
  return list;
}

Json TableToJson(const TableSpec& table) {
  Json indexes = Json::array();
  for (const IndexSpec& index : table.indexes()) {
    indexes.push_back(Json{{"name", index.name()}, {"key", StringsToJson(index.key())}});
  }
  return Json{{"name", table.name()},
              {"key", StringsToJson(table.key())},
              {"range", Json::array({table.range_begin(), table.range_end()})},
              {"row_bytes", table.row_bytes()},
              {"replicated", table.replicated()},
              {"indexes", std::move(indexes)}};
}

// Notes the offset of the first character that is not JSON.
class SyntaxErrorFinder : public nlohmann::json_sax<Json> {
 public:
  size_t offset = 0;
  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return true; }
  bool end_object() override { return true; }
  bool start_array(size_t) override { return true; }
  bool end_array() override { return true; }
  bool key(string_t&) override { return true; }
  bool parse_error(size_t position, const std::string&, const nlohmann::detail::exception&) override {
    offset = position;
    return false;
  }
};

// Takes fields out of JSON values and remembers the first thing that was wrong, by path: "tables[1].range".
class Reader {
 public:
  const std::string& error() const { return error_; }

  const Json* Member(const Json& object, const std::string& where, const char* name) {
    if (!object.is_object()) return Fail(where, "an object");
    const auto found = object.find(name);
    return found == object.end() ? Fail(where, fmt::format("a field \"{}\"", name)) : &*found;
  }
  void String(const Json& object, const std::string& where, const char* name, std::string* value) {
    const Json* field = Member(object, where, name);
    if (field == nullptr) return;
    const auto* text = field->get_ptr<const std::string*>();
    text == nullptr ? void(Fail(where + "." + name, "a string")) : void(*value = *text);
  }
  void Bool(const Json& object, const std::string& where, const char* name, bool* value) {
    const Json* field = Member(object, where, name);
    if (field == nullptr) return;
    const auto* flag = field->get_ptr<const bool*>();
    flag == nullptr ? void(Fail(where + "." + name, "true or false")) : void(*value = *flag);
  }
  template <typename Unsigned>
  void Number(const Json& object, const std::string& where, const char* name, Unsigned* value) {
    if (const Json* field = Member(object, where, name)) Number(*field, where + "." + name, value);
  }
  template <typename Unsigned>
  void Number(const Json& field, const std::string& where, Unsigned* value) {
    const auto* number = field.get_ptr<const Json::number_unsigned_t*>();
    if (number == nullptr || *number > std::numeric_limits<Unsigned>::max()) {
      Fail(where, fmt::format("a whole number of 0 to {}", std::numeric_limits<Unsigned>::max()));
      return;
    }
    *value = static_cast<Unsigned>(*number);
  }
  int64_t Signed(const Json& field, const std::string& where) {
    if (const auto* number = field.get_ptr<const Json::number_unsigned_t*>()) {
      if (*number <= static_cast<uint64_t>(INT64_MAX)) return static_cast<int64_t>(*number);
    } else if (const auto* negative = field.get_ptr<const Json::number_integer_t*>()) {
      return *negative;
    }
    Fail(where, "a whole number of 64 bits");
    return 0;
  }
  // Calls `read(element, path)` for each element of a list.
  template <typename Read>
  void List(const Json& object, const std::string& where, const char* name, Read read) {
    const Json* field = Member(object, where, name);
    if (field == nullptr) return;
    if (!field->is_array()) {
      Fail(where + "." + name, "a list");
      return;
    }
    size_t i = 0;
    for (const Json& element : *field) read(element, fmt::format("{}.{}[{}]", where, name, i++));
  }
  void Strings(const Json& object, const std::string& where, const char* name,
               google::protobuf::RepeatedPtrField<std::string>* strings) {
    List(object, where, name, [&](const Json& element, const std::string& path) {
      const auto* text = element.get_ptr<const std::string*>();
      text == nullptr ? void(Fail(path, "a string")) : void(*strings->Add() = *text);
    });
  }
  std::nullptr_t Fail(const std::string& where, std::string_view expected) {
    if (error_.empty()) error_ = fmt::format("{}: expected {}", where, expected);
    return nullptr;
  }

 private:
  std::string error_;
};

void ReadTable(const Json& json, const std::string& where, Reader* reader, TableSpec* table) {
  reader->String(json, where, "name", table->mutable_name());
  reader->Strings(json, where, "key", table->mutable_key());
  std::vector<int64_t> range;
  reader->List(json, where, "range", [&](const Json& bound, const std::string& path) {
    range.push_back(reader->Signed(bound, path));
  });
  if (range.size() != 2) {
    reader->Fail(where + ".range", "begin and end");
    return;
  }
  table->set_range_begin(range[0]);
  table->set_range_end(range[1]);
  uint32_t row_bytes = 0;
  reader->Number(json, where, "row_bytes", &row_bytes);
  table->set_row_bytes(row_bytes);
  bool replicated = false;
  reader->Bool(json, where, "replicated", &replicated);
  table->set_replicated(replicated);
  reader->List(json, where, "indexes", [&](const Json& index, const std::string& path) {
    IndexSpec* spec = table->add_indexes();
    reader->String(index, path, "name", spec->mutable_name());
    reader->Strings(index, path, "key", spec->mutable_key());
  });
}

void ReadData(const Json& data, Reader* reader, Manifest* manifest) {
  const std::string where = "manifest.data";
  reader->Number(data, where, "generation", &manifest->data_generation);
  reader->String(data, where, "load", &manifest->load);
  reader->List(data, where, "workers", [&](const Json& workers, const std::string& path) {
    reader->Number(workers, path, &manifest->workers.emplace_back(0));
  });
  if (data.is_object() && data.contains("relaid")) reader->Number(data, where, "relaid", &manifest->relaid);
  if (manifest->workers.size() != manifest->islands)
    reader->Fail(where + ".workers", fmt::format("one number for each of {} islands", manifest->islands));
}

Manifest ReadManifest(const Json& json, Reader* reader) {
  Manifest manifest;
  const std::string top = "manifest";
  reader->String(json, top, "cluster_id", &manifest.cluster_id);
  reader->String(json, top, "deployment", &manifest.deployment);
  reader->Number(json, top, "layout_generation", &manifest.layout_generation);
  reader->Number(json, top, "sites", &manifest.sites);
  reader->Number(json, top, "islands", &manifest.islands);
  reader->List(json, top, "tables", [&](const Json& table, const std::string& path) {
    ReadTable(table, path, reader, manifest.tables.Add());
  });
  reader->List(json, top, "boot_epochs", [&](const Json& epoch, const std::string& path) {
    reader->Number(epoch, path, &manifest.boot_epochs.emplace_back(0));
  });
  if (manifest.boot_epochs.size() != manifest.islands) {
    reader->Fail("manifest.boot_epochs", fmt::format("one epoch for each of {} islands", manifest.islands));
  }
  if (json.is_object() && json.contains("data")) ReadData(json["data"], reader, &manifest);
  return manifest;
}

const TableSpec* FindNamed(const Catalog::TableSpecs& tables, const std::string& name) {
  const auto found = std::ranges::find(tables, name, &TableSpec::name);
  return found == tables.end() ? nullptr : &*found;
}

// A table that only one of them has, and what to do; empty: they have the same ones.
std::string LackingTable(const Catalog::TableSpecs& have, const Catalog::TableSpecs& want) {
  for (const TableSpec& table : have) {
    if (FindNamed(want, table.name()) != nullptr) continue;
    return fmt::format("the data has table '{}', the deployment has none of that name; {}", table.name(),
                       kRemedy);
  }
  for (const TableSpec& table : want) {
    if (FindNamed(have, table.name()) != nullptr) continue;
    return fmt::format(
        "the deployment has table '{}', the data has none of that name; leave it out of the deployment file "
        "and make it with `islands table FILE create` after `islands up`, or remove the data with `islands "
        "destroy FILE`",
        table.name());
  }
  return "";
}

}  // namespace

std::string TableDifference(const TableSpec& have, const TableSpec& want) {
  const auto strings = [](const auto& list) { return fmt::format("[{}]", fmt::join(list, ", ")); };
  if (strings(have.key()) != strings(want.key())) {
    return fmt::format("has key {}, the deployment says {}", strings(have.key()), strings(want.key()));
  }
  if (have.replicated() != want.replicated())
    return fmt::format("is {}replicated, the deployment says otherwise", have.replicated() ? "" : "not ");
  const bool same_range = have.range_begin() == want.range_begin() && have.range_end() == want.range_end();
  if (!have.replicated() && !same_range) {
    return fmt::format("has range [{}, {}), the deployment says [{}, {})", have.range_begin(),
                       have.range_end(), want.range_begin(), want.range_end());
  }
  if (have.row_bytes() != want.row_bytes()) {
    return fmt::format("has rows of {} bytes, the deployment says {}", have.row_bytes(), want.row_bytes());
  }
  if (TableToJson(have)["indexes"] != TableToJson(want)["indexes"])
    return "has other indexes than the deployment says";
  return "";
}

uint64_t Manifest::NextBootEpoch(uint32_t island) {
  ISLANDS_CHECK(island < boot_epochs.size());
  return ++boot_epochs[island];
}

absl::StatusOr<Manifest> ParseManifest(std::string_view text, const std::string& path) {
  SyntaxErrorFinder syntax;
  if (!Json::sax_parse(text.begin(), text.end(), &syntax)) {
    return absl::DataLossError(
        fmt::format("{}, offset {}: not JSON; restore the file from a copy", path, syntax.offset));
  }
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  Reader reader;
  uint32_t format = 0;
  reader.Number(json, "manifest", "format", &format);
  if (reader.error().empty() && format != kManifestFormat) {
    return absl::DataLossError(
        fmt::format("{}: format {}, this version reads {}; use the version of islands that wrote it", path,
                    format, kManifestFormat));
  }
  Manifest manifest = ReadManifest(json, &reader);
  if (!reader.error().empty()) return absl::DataLossError(fmt::format("{}: {}", path, reader.error()));
  return manifest;
}

std::string ManifestToText(const Manifest& manifest) {
  Json tables = Json::array();
  for (const TableSpec& table : manifest.tables) tables.push_back(TableToJson(table));
  Json json{{"format", kManifestFormat},         {"cluster_id", manifest.cluster_id},
            {"deployment", manifest.deployment}, {"layout_generation", manifest.layout_generation},
            {"sites", manifest.sites},           {"islands", manifest.islands},
            {"tables", std::move(tables)},       {"boot_epochs", manifest.boot_epochs}};
  if (!manifest.workers.empty()) {
    json["data"] = Json{
        {"generation", manifest.data_generation}, {"load", manifest.load}, {"workers", manifest.workers}};
    if (manifest.relaid != 0) json["data"]["relaid"] = manifest.relaid;
  }
  // Names that are not UTF-8 must not throw here; they do not come back the same, and are refused where they
  // are read.
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

absl::StatusOr<Manifest> LoadManifest(const std::string& directory, runtime::FileSystem& files) {
  const std::string path = PathOf(directory);
  const absl::StatusOr<std::string> text = files.ReadFile(path);
  if (!text.ok()) return text.status();
  return ParseManifest(*text, path);
}

absl::Status SaveManifest(const Manifest& manifest, const std::string& directory,
                          runtime::FileSystem& files) {
  ISLANDS_CHECK(manifest.boot_epochs.size() == manifest.islands);
  return files.ReplaceFile(PathOf(directory), ManifestToText(manifest));
}

absl::Status CheckSameData(const Manifest& have, const Manifest& want) {
  const auto differs = [](std::string what) { return absl::FailedPreconditionError(std::move(what)); };
  if (have.deployment != want.deployment) {
    return differs(fmt::format(
        "the data is of the deployment '{}', the file's name is '{}'; give this file a data.directory of its "
        "own, or, if it is for these rows, their name",
        have.deployment, want.deployment));
  }
  if (have.sites != want.sites) {
    return differs(
        fmt::format("the data has {} sites, the deployment says {}; {}", have.sites, want.sites, kOtherCut));
  }
  if (std::string lacking = LackingTable(have.tables, want.tables); !lacking.empty())
    return differs(std::move(lacking));
  for (int i = 0; i < have.tables.size(); ++i) {
    const TableSpec& table = have.tables[i];
    if (table.name() != want.tables[i].name()) {
      return differs(fmt::format("table {} of the data is '{}', the deployment says '{}'; {}", i + 1,
                                 table.name(), want.tables[i].name(), kRemedy));
    }
    if (const std::string what = TableDifference(table, want.tables[i]); !what.empty()) {
      return differs(fmt::format("table '{}' {}; {}", table.name(), what, kRemedy));
    }
  }
  if (have.islands != want.islands) {
    return differs(fmt::format("the data is cut for {} islands, the deployment says {}; {}", have.islands,
                               want.islands, kOtherCut));
  }
  return absl::OkStatus();
}

}  // namespace islands::storage
