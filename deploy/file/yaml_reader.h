// Typed reading of a YamlNode tree: every value that is not what it should be becomes a complaint and is left
// out, so that one pass finds everything.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/file/yaml_tree.h"

namespace islands::deploy {

using Positions = std::map<std::string, Position, std::less<>>;

// One map of the document. Its constructor complains about keys that are unknown, duplicate or not plain
// words, and notes where each value stands.
class MapReader {
 public:
  // `path` names the map in `positions`: "" for the document, else for example "data.tables[0]".
  MapReader(const YamlNode& node, std::string path, std::vector<std::string> keys, Positions* positions,
            Complaints* complaints);

  // Null when the key is not there.
  const YamlNode* Find(std::string_view key) const;
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  std::string Path(std::string_view key) const;
  Position at() const { return at_; }

  // Each returns nullopt when the key is not there or its value is wrong, which has then been complained
  // about.
  std::optional<std::string> Text(std::string_view key, std::string_view expected) const;
  std::optional<int64_t> Integer(std::string_view key, int64_t min, int64_t max) const;
  std::optional<bool> Bool(std::string_view key) const;
  std::optional<uint64_t> Bytes(std::string_view key) const;
  std::optional<std::string> Word(std::string_view key, const std::vector<std::string_view>& allowed) const;
  // The same as an index into `allowed`.
  std::optional<size_t> Choice(std::string_view key, std::span<const std::string_view> allowed) const;
  std::optional<std::string> Directory(std::string_view key) const;
  std::optional<std::vector<uint32_t>> CpuList(std::string_view key, std::string_view expected) const;
  // The items of a list; empty when not there or wrong.
  const std::vector<YamlNode>& List(std::string_view key, std::string_view expected) const;
  // A map below this one; null when not there or not a map.
  const YamlNode* Map(std::string_view key) const;

  void Complain(std::string_view key, std::string text) const;
  void Complain(Position at, std::string text) const { complaints_->Add(at, std::move(text)); }
  // "found 'x', expected EXPECTED" at the value of `key`.
  void Unexpected(std::string_view key, std::string_view expected) const;

 private:
  struct Entry {
    std::string key;
    const YamlNode* value;
    Position at;  // of the value; of the key when there is none, since a missing value stands nowhere
  };
  const Entry* FindEntry(std::string_view key) const;

  std::string path_;
  Position at_;
  std::vector<Entry> entries_;
  Complaints* complaints_;
};

// A whole decimal number, unquoted.
std::optional<int64_t> ParseInteger(const YamlNode& node);

}  // namespace islands::deploy
