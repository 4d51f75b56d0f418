// A graph of transactions and its smallest cycle.
//
// Thread safety: none.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace islands::simulation {

enum class EdgeKind : uint8_t {
  kWriteWrite,
  kWriteRead,
  kReadWrite,       // anti-dependency: read a version that the other one replaced
  kPredicateWrite,  // the same by a scan
  kRealTime,        // was answered before the other one began
};
std::string_view EdgeKindName(EdgeKind kind);

struct Edge {
  uint32_t to = 0;
  EdgeKind kind = EdgeKind::kWriteWrite;
  uint64_t key = 0;
  uint64_t life = 0;
};

class Graph {
 public:
  // A helper stands for no transaction: it costs nothing on a cycle and is not part of it.
  uint32_t AddNode(bool helper = false);
  void AddEdge(uint32_t from, const Edge& edge);
  uint64_t edges() const { return edges_; }

  struct Step {
    uint32_t node = 0;
    Edge edge;  // to the next step's node, the last one's to the first's; helpers are left out
  };
  // The one with the fewest transactions; empty if there is none. Looked for from the first `kStarts` nodes
  // on cycles, which makes it the smallest but for very broken histories.
  std::vector<Step> SmallestCycle(bool with_real_time) const;

 private:
  static constexpr size_t kStarts = 200;

  std::vector<uint32_t> Components(bool with_real_time) const;
  // Empty: there is none of fewer than `limit` transactions.
  std::vector<Step> ShortestThrough(uint32_t start, const std::vector<uint32_t>& component,
                                    bool with_real_time, size_t limit) const;

  std::vector<std::vector<Edge>> out_;
  std::vector<bool> helper_;
  uint64_t edges_ = 0;
};

}  // namespace islands::simulation
