#include "instance/simulation/graph.h"

#include <algorithm>
#include <deque>
#include <limits>
#include <unordered_map>

namespace islands::simulation {

namespace {
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();
}  // namespace

std::string_view EdgeKindName(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kWriteWrite:
      return "ww";
    case EdgeKind::kWriteRead:
      return "wr";
    case EdgeKind::kReadWrite:
      return "rw";
    case EdgeKind::kPredicateWrite:
      return "rw(scan)";
    case EdgeKind::kRealTime:
      return "real time";
  }
  return "invalid";
}

uint32_t Graph::AddNode(bool helper) {
  out_.emplace_back();
  helper_.push_back(helper);
  return static_cast<uint32_t>(out_.size() - 1);
}

void Graph::AddEdge(uint32_t from, const Edge& edge) {
  if (from == edge.to) return;
  out_[from].push_back(edge);
  ++edges_;
}

// Tarjan's strongly connected components, without recursion. A node on no cycle gets a component of its own.
std::vector<uint32_t> Graph::Components(bool with_real_time) const {
  const size_t n = out_.size();
  std::vector<uint32_t> component(n, kNone), index(n, kNone), low(n, 0), stack;
  std::vector<std::pair<uint32_t, size_t>> calls;  // node, next edge
  uint32_t next_index = 0, next_component = 0;
  for (uint32_t root = 0; root < n; ++root) {
    if (index[root] != kNone) continue;
    calls.emplace_back(root, 0);
    while (!calls.empty()) {
      const uint32_t node = calls.back().first;
      if (calls.back().second == 0) {
        index[node] = low[node] = next_index++;
        stack.push_back(node);
      }
      if (calls.back().second < out_[node].size()) {
        const Edge& edge = out_[node][calls.back().second++];
        if (edge.kind == EdgeKind::kRealTime && !with_real_time) continue;
        if (index[edge.to] == kNone) {
          calls.emplace_back(edge.to, 0);
        } else if (component[edge.to] == kNone) {
          low[node] = std::min(low[node], index[edge.to]);
        }
        continue;
      }
      calls.pop_back();
      if (!calls.empty()) low[calls.back().first] = std::min(low[calls.back().first], low[node]);
      if (low[node] != index[node]) continue;
      for (uint32_t member = kNone; member != node;) {
        member = stack.back();
        stack.pop_back();
        component[member] = next_component;
      }
      ++next_component;
    }
  }
  return component;
}

// Breadth first, helpers at no cost, within one component.
std::vector<Graph::Step> Graph::ShortestThrough(uint32_t start, const std::vector<uint32_t>& component,
                                                bool with_real_time, size_t limit) const {
  std::unordered_map<uint32_t, std::pair<uint32_t, Edge>> came_from;
  std::unordered_map<uint32_t, uint32_t> distance;
  std::deque<std::pair<uint32_t, uint32_t>> queue{{start, 0}};
  while (!queue.empty() && !came_from.contains(start)) {
    const auto [node, far] = queue.front();
    queue.pop_front();
    if (node != start && distance[node] < far) continue;
    for (const Edge& edge : out_[node]) {
      if (edge.kind == EdgeKind::kRealTime && !with_real_time) continue;
      if (component[edge.to] != component[start]) continue;
      const uint32_t cost = far + (helper_[edge.to] ? 0 : 1);
      if (cost >= limit) continue;
      const auto [known, fresh] = distance.try_emplace(edge.to, cost);
      if (!fresh && known->second <= cost) continue;
      known->second = cost;
      came_from[edge.to] = {node, edge};
      if (helper_[edge.to]) {
        queue.emplace_front(edge.to, cost);
      } else {
        queue.emplace_back(edge.to, cost);
      }
    }
  }
  std::vector<Step> steps;
  if (!came_from.contains(start)) return steps;
  uint32_t node = start;
  do {
    const auto& [from, edge] = came_from.at(node);
    if (!helper_[from]) steps.push_back({from, edge});
    node = from;
  } while (node != start);
  std::reverse(steps.begin(), steps.end());
  return steps;
}

std::vector<Graph::Step> Graph::SmallestCycle(bool with_real_time) const {
  const std::vector<uint32_t> component = Components(with_real_time);
  const size_t n = out_.size();
  std::vector<size_t> members(n, 0);
  for (const uint32_t c : component) ++members[c];
  std::vector<Step> smallest;
  size_t starts = 0;
  for (uint32_t node = 0; node < n && starts < kStarts; ++node) {
    if (helper_[node] || members[component[node]] < 2) continue;
    ++starts;
    const size_t limit = smallest.empty() ? n + 1 : smallest.size();
    std::vector<Step> cycle = ShortestThrough(node, component, with_real_time, limit);
    if (!cycle.empty()) smallest = std::move(cycle);
    if (smallest.size() == 2) break;
  }
  return smallest;
}

}  // namespace islands::simulation
