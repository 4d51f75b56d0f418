// A YAML document as a plain tree that remembers where everything stands, and the list of what is wrong with
// it.
//
// A stricter YAML than the standard's: one document, no aliases, anchors or tags. Duplicate keys are kept
// here and found by whoever reads the map.
//
// Thread safety: plain values and functions.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "deploy/file/deployment.h"

namespace islands::deploy {

// What is wrong with a file, in file order.
class Complaints {
 public:
  explicit Complaints(std::string filename) : filename_(std::move(filename)) {}

  void Add(Position at, std::string text) { found_.emplace_back(at, std::move(text)); }
  bool empty() const { return found_.empty(); }
  size_t size() const { return found_.size(); }
  // OK if empty, else INVALID_ARGUMENT with one `file:line:column: text` per line.
  absl::Status ToStatus() const;

 private:
  std::string filename_;
  std::vector<std::pair<Position, std::string>> found_;
};

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap, kAlias };  // kAlias: already complained about
  Kind kind = Kind::kNull;
  Position at = {};
  std::string text = {};             // scalars
  bool quoted = false;               // '250' is a string, 250 a number
  std::vector<YamlNode> items = {};  // lists: the items; maps: key, value, key, value, ...

  // For "found ...": "nothing", "a list", "a map", "'text'".
  std::string Describe() const;
};

// 'text' with control characters made visible, shortened to what fits a line.
std::string Quote(std::string_view text);

// Fills `*root`; what is not allowed goes to `complaints`. False if there is no tree to read on with. Never
// throws.
bool ParseYaml(std::string_view text, YamlNode* root, Complaints* complaints);

}  // namespace islands::deploy
