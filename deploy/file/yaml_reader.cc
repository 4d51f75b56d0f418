#include "deploy/file/yaml_reader.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>

#include "deploy/cli/output.h"
#include "topology/machine.h"
#include "topology/planner.h"

namespace islands::deploy {
namespace {

std::string UnknownKey(const std::string& key, const std::vector<std::string>& keys) {
  if (const auto near = Nearest(key, keys)) {
    return fmt::format("found unknown key {}, expected '{}'?", Quote(key), *near);
  }
  return fmt::format("found unknown key {}, expected one of: {}", Quote(key), fmt::join(keys, ", "));
}

}  // namespace

MapReader::MapReader(const YamlNode& node, std::string path, std::vector<std::string> keys,
                     Positions* positions, Complaints* complaints)
    : path_(std::move(path)), at_(node.at), complaints_(complaints) {
  for (size_t i = 0; i + 1 < node.items.size(); i += 2) {
    const YamlNode& key = node.items[i];
    const YamlNode& value = node.items[i + 1];
    if (key.kind != YamlNode::Kind::kScalar) {
      complaints_->Add(key.at, fmt::format("found {} as a key, expected a word", key.Describe()));
    } else if (std::find(keys.begin(), keys.end(), key.text) == keys.end()) {
      complaints_->Add(key.at, UnknownKey(key.text, keys));
    } else if (const Entry* first = FindEntry(key.text)) {
      complaints_->Add(key.at, fmt::format("found '{}' a second time, expected it once (first on line {})",
                                           key.text, first->at.line));
    } else {
      const Position at = value.kind == YamlNode::Kind::kNull ? key.at : value.at;
      entries_.push_back(Entry{key.text, &value, at});
      (*positions)[Path(key.text)] = at;
    }
  }
}

const MapReader::Entry* MapReader::FindEntry(std::string_view key) const {
  for (const Entry& entry : entries_) {
    if (entry.key == key) return &entry;
  }
  return nullptr;
}

const YamlNode* MapReader::Find(std::string_view key) const {
  const Entry* entry = FindEntry(key);
  return entry == nullptr ? nullptr : entry->value;
}

std::string MapReader::Path(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void MapReader::Complain(std::string_view key, std::string text) const {
  const Entry* entry = FindEntry(key);
  complaints_->Add(entry == nullptr ? at_ : entry->at, std::move(text));
}

void MapReader::Unexpected(std::string_view key, std::string_view expected) const {
  const YamlNode& node = *Find(key);
  if (node.kind == YamlNode::Kind::kAlias) return;  // has been complained about
  Complain(key, fmt::format("found {}, expected {}", node.Describe(), expected));
}

std::optional<std::string> MapReader::Text(std::string_view key, std::string_view expected) const {
  const YamlNode* node = Find(key);
  if (node == nullptr) return std::nullopt;
  if (node->kind == YamlNode::Kind::kScalar && !node->text.empty()) return node->text;
  Unexpected(key, expected);
  return std::nullopt;
}

std::optional<int64_t> MapReader::Integer(std::string_view key, int64_t min, int64_t max) const {
  const YamlNode* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const std::optional<int64_t> value = ParseInteger(*node);
  if (value && *value >= min && *value <= max) return value;
  Unexpected(key, fmt::format("a whole number from {} to {}", min, max));
  return std::nullopt;
}

std::optional<bool> MapReader::Bool(std::string_view key) const {
  const YamlNode* node = Find(key);
  if (node == nullptr) return std::nullopt;
  if (node->kind == YamlNode::Kind::kScalar && !node->quoted) {
    if (node->text == "true") return true;
    if (node->text == "false") return false;
  }
  Unexpected(key, "true or false");
  return std::nullopt;
}

std::optional<uint64_t> MapReader::Bytes(std::string_view key) const {
  constexpr std::string_view kExpected = "a size such as 12GiB, 64MiB or a plain number of bytes";
  const auto text = Text(key, kExpected);
  if (!text) return std::nullopt;
  const auto bytes = topology::ParseSize(*text);
  if (bytes.ok() && *bytes > 0) return *bytes;
  const auto nearest = bytes.ok() ? std::nullopt : topology::NearestSize(*text);
  Unexpected(key,
             nearest ? fmt::format("{}; did you mean {}?", kExpected, *nearest) : std::string(kExpected));
  return std::nullopt;
}

std::optional<std::string> MapReader::Word(std::string_view key,
                                           const std::vector<std::string_view>& allowed) const {
  const auto index = Choice(key, allowed);
  if (!index) return std::nullopt;
  return std::string(allowed[*index]);
}

std::optional<size_t> MapReader::Choice(std::string_view key,
                                        std::span<const std::string_view> allowed) const {
  const YamlNode* node = Find(key);
  if (node == nullptr) return std::nullopt;
  const auto found = std::find(allowed.begin(), allowed.end(), node->text);
  if (node->kind == YamlNode::Kind::kScalar && found != allowed.end()) return found - allowed.begin();
  Unexpected(key, fmt::format("{}", fmt::join(allowed, " | ")));
  return std::nullopt;
}

std::optional<std::string> MapReader::Directory(std::string_view key) const {
  const auto text = Text(key, "a directory");
  if (!text) return std::nullopt;
  const bool printable = std::none_of(
      text->begin(), text->end(), [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; });
  if (printable && text->size() <= 4096) return text;
  Unexpected(key, "a directory name of at most 4096 printable characters");
  return std::nullopt;
}

std::optional<std::vector<uint32_t>> MapReader::CpuList(std::string_view key,
                                                        std::string_view expected) const {
  const auto text = Text(key, expected);
  if (!text) return std::nullopt;
  auto list = topology::ParseCpuList(*text);
  if (list.ok() && !list->empty()) return *std::move(list);
  Unexpected(key, expected);
  return std::nullopt;
}

const std::vector<YamlNode>& MapReader::List(std::string_view key, std::string_view expected) const {
  static const std::vector<YamlNode> kEmpty;
  const YamlNode* node = Find(key);
  if (node == nullptr) return kEmpty;
  if (node->kind == YamlNode::Kind::kList && !node->items.empty()) return node->items;
  if (node->kind == YamlNode::Kind::kList) {
    Complain(key, fmt::format("found an empty list, expected {}", expected));
  } else {
    Unexpected(key, expected);
  }
  return kEmpty;
}

const YamlNode* MapReader::Map(std::string_view key) const {
  const YamlNode* node = Find(key);
  if (node == nullptr || node->kind == YamlNode::Kind::kMap) return node;
  Unexpected(key, "a map");
  return nullptr;
}

std::optional<int64_t> ParseInteger(const YamlNode& node) {
  if (node.kind != YamlNode::Kind::kScalar || node.quoted) return std::nullopt;
  int64_t value = 0;
  const char* end = node.text.data() + node.text.size();
  const auto [stop, error] = std::from_chars(node.text.data(), end, value);
  if (error != std::errc() || stop != end) return std::nullopt;
  return value;
}

}  // namespace islands::deploy
