#include "deploy/file/yaml_tree.h"

#include <fmt/format.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/mark.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <sstream>

namespace islands::deploy {
namespace {

// Far more than a deployment file needs, far less than what recursion over the tree could not bear.
constexpr size_t kMaxDepth = 32;
// More complaints than anybody reads.
constexpr size_t kMaxShown = 100;

Position ToPosition(const YAML::Mark& mark) {
  if (mark.is_null()) return Position{1, 1};
  return Position{static_cast<uint32_t>(mark.line) + 1, static_cast<uint32_t>(mark.column) + 1};
}

class TreeBuilder final : public YAML::EventHandler {
 public:
  TreeBuilder(YamlNode* root, Complaints* complaints) : complaints_(complaints) {
    open_.push_back({root, false});
  }

  // Inside of [] or {}, where indentation means nothing.
  bool in_flow() const { return open_.back().flow; }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    Place(YamlNode{.kind = YamlNode::Kind::kNull, .at = ToPosition(mark)}, "", anchor);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    complaints_->Add(ToPosition(mark), "found an alias (*), expected the value itself");
    Place(YamlNode{.kind = YamlNode::Kind::kAlias, .at = ToPosition(mark)}, "", 0);
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    Place(
        YamlNode{
            .kind = YamlNode::Kind::kScalar, .at = ToPosition(mark), .text = value, .quoted = tag == "!"},
        tag, anchor);
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value style) override {
    Begin(YamlNode::Kind::kList, mark, tag, anchor, style);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value style) override {
    Begin(YamlNode::Kind::kMap, mark, tag, anchor, style);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    YamlNode* node;
    bool flow;
  };

  void Begin(YamlNode::Kind kind, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
             YAML::EmitterStyle::value style) {
    if (open_.size() > kMaxDepth) {
      throw YAML::ParserException(mark, fmt::format("more than {} levels of nesting", kMaxDepth));
    }
    YamlNode* placed = Place(YamlNode{.kind = kind, .at = ToPosition(mark)}, tag, anchor);
    open_.push_back({placed, style == YAML::EmitterStyle::Flow});
  }

  // The innermost open list or map gets the node; the pointer stays valid while the node is open, because its
  // parent grows only after it is closed.
  YamlNode* Place(YamlNode node, const std::string& tag, YAML::anchor_t anchor) {
    if (anchor != 0) complaints_->Add(node.at, "found an anchor (&), expected the value alone");
    if (!tag.empty() && tag != "?" && tag != "!") {
      complaints_->Add(node.at, fmt::format("found the tag {}, expected the value alone", Quote(tag)));
    }
    YamlNode* parent = open_.back().node;
    if (open_.size() == 1) {
      *parent = std::move(node);
      return parent;
    }
    parent->items.push_back(std::move(node));
    return &parent->items.back();
  }

  Complaints* complaints_;
  std::vector<Open> open_;
};

// That the line is indented with, if it is. Its parser says other things of it.
std::optional<Position> TabOfIndentation(std::string_view text, uint32_t line) {
  for (uint32_t i = 1; i < line; ++i) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  const size_t tab = text.find_first_not_of(' ');
  if (tab == std::string_view::npos || text[tab] != '\t') return std::nullopt;
  return Position{line, static_cast<uint32_t>(tab) + 1};
}

}  // namespace

absl::Status Complaints::ToStatus() const {
  if (found_.empty()) return absl::OkStatus();
  std::vector<std::pair<Position, std::string>> sorted = found_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string lines;
  for (size_t i = 0; i < sorted.size() && i < kMaxShown; ++i) {
    const auto& [at, text] = sorted[i];
    lines += fmt::format("{}{}:{}:{}: {}", i == 0 ? "" : "\n", filename_, at.line, at.column, text);
  }
  if (sorted.size() > kMaxShown) {
    const Position at = sorted[kMaxShown].first;
    lines += fmt::format("\n{}:{}:{}: found {} more, expected none", filename_, at.line, at.column,
                         sorted.size() - kMaxShown);
  }
  return absl::InvalidArgumentError(lines);
}

std::string Quote(std::string_view text) {
  constexpr size_t kLongest = 60;
  std::string quoted = "'";
  for (const char c : text.substr(0, kLongest)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      quoted += fmt::format("\\x{:02x}", byte);
    } else {
      quoted += c;
    }
  }
  return quoted + (text.size() > kLongest ? "...'" : "'");
}

std::string YamlNode::Describe() const {
  switch (kind) {
    case Kind::kNull:
      return "nothing";
    case Kind::kScalar:
      return Quote(text);
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
    case Kind::kAlias:
      return "an alias";
  }
  return "";
}

bool ParseYaml(std::string_view text, YamlNode* root, Complaints* complaints) {
  *root = YamlNode{.at = Position{1, 1}};
  TreeBuilder builder(root, complaints);
  try {
    std::istringstream stream{std::string(text)};
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(builder)) {
      complaints->Add(Position{1, 1},
                      "found an empty file, expected a deployment that starts with 'version: 1'");
      return false;
    }
    YamlNode second;
    TreeBuilder rest(&second, complaints);
    if (parser.HandleNextDocument(rest)) {
      complaints->Add(second.at, "found a second document, expected one deployment per file");
    }
    return true;
  } catch (const YAML::Exception& error) {
    const Position at = ToPosition(error.mark);
    if (const auto tab = builder.in_flow() ? std::nullopt : TabOfIndentation(text, at.line)) {
      complaints->Add(*tab, "found a tab, expected spaces: YAML wants spaces as indentation");
    } else {
      complaints->Add(at, fmt::format("found a YAML error ({}), expected well-formed YAML", error.msg));
    }
  } catch (const std::exception& error) {
    complaints->Add(Position{1, 1},
                    fmt::format("found a YAML error ({}), expected well-formed YAML", error.what()));
  }
  return false;
}

}  // namespace islands::deploy
