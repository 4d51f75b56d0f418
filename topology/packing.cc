#include "topology/packing.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <limits>
#include <map>
#include <numeric>

#include "absl/container/flat_hash_map.h"

namespace islands::topology {
namespace {

using Cores = std::vector<uint32_t>;  // indexes, ascending

constexpr int kKinds = 3;

uint32_t Label(const CoreDomains& core, int kind) {
  return kind == 0 ? core.package : kind == 1 ? core.node : core.cache;
}

// Three counters that compare like a tuple and add like a number; 21 bits each are more than cores exist.
using Cost = uint64_t;
constexpr Cost kKindCost[kKinds] = {Cost{1} << 42, Cost{1} << 21, 1};

// Large and small islands inside a tree node.
struct State {
  uint32_t large = 0;
  uint32_t small = 0;
  bool operator==(const State&) const = default;
  auto operator<=>(const State&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const State& s) {
    return H::combine(std::move(h), s.large, s.small);
  }
};

struct Choice {
  Cost cost = std::numeric_limits<Cost>::max();
  State inner;  // in a `table`: what the children hold together; in a `suffix`: what the first child of it
                // holds
};
using Table = absl::flat_hash_map<State, Choice>;

// Ties go to more islands inside, then to large islands early, so that the result does not depend on hash
// order.
void Offer(Table& table, State state, Choice offered) {
  Choice& best = table[state];
  auto rank = [](const Choice& c) { return std::pair(c.inner.large + c.inner.small, c.inner.large); };
  if (offered.cost < best.cost || (offered.cost == best.cost && rank(offered) > rank(best))) best = offered;
}

struct Domain {
  Cores cores;
  Cost cost = 0;                 // of an island that lies in this domain but in none of its children
  std::vector<Domain> children;  // disjoint, together all cores; empty: nothing below matters
  std::vector<Table> suffix;     // [i]: children i and later together
  Table table;                   // with the islands formed here
};

// The largest domain around each core that is smaller than `cores`. Labels that cross each other (no hwloc
// tree has them) give the later domain what is left.
std::vector<Domain> Split(std::span<const CoreDomains> domains, const Cores& cores,
                          std::span<const int> kinds) {
  std::array<std::map<uint32_t, Cores>, kKinds> members;
  for (uint32_t core : cores) {
    for (int kind : kinds) members[kind][Label(domains[core], kind)].push_back(core);
  }
  std::vector<Domain> children;
  std::vector<bool> taken(cores.back() + 1, false);
  for (uint32_t core : cores) {
    if (taken[core]) continue;
    const Cores* largest = nullptr;
    for (int kind : kinds) {
      const Cores& candidate = members[kind][Label(domains[core], kind)];
      if (largest == nullptr || candidate.size() > largest->size()) largest = &candidate;
    }
    Domain& child = children.emplace_back();
    for (uint32_t member : *largest) {
      if (!taken[member]) child.cores.push_back(member);
      taken[member] = true;
    }
  }
  return children;
}

void Grow(std::span<const CoreDomains> domains, Domain& domain) {
  std::vector<int> divided;
  for (int kind = 0; kind < kKinds; ++kind) {
    uint32_t label = Label(domains[domain.cores.front()], kind);
    bool whole = std::all_of(domain.cores.begin(), domain.cores.end(),
                             [&](uint32_t core) { return Label(domains[core], kind) == label; });
    if (!whole) divided.push_back(kind);
    if (!whole) domain.cost += kKindCost[kind];
  }
  if (divided.empty()) return;
  domain.children = Split(domains, domain.cores, divided);
  for (Domain& child : domain.children) Grow(domains, child);
}

class Packer {
 public:
  Packer(std::span<const CoreDomains> domains, uint32_t islands)
      : small_size_(static_cast<uint32_t>(domains.size()) / islands),
        large_(static_cast<uint32_t>(domains.size()) % islands),
        small_(islands - large_) {
    root_.cores.resize(domains.size());
    std::iota(root_.cores.begin(), root_.cores.end(), 0);
    Grow(domains, root_);
  }

  std::vector<Cores> Pack() {
    Solve(root_, 0);
    assert(root_.table.contains(State{large_, small_}));
    Cores left = Assign(root_, {large_, small_});
    assert(left.empty());
    for (Cores& island : islands_) std::sort(island.begin(), island.end());
    std::sort(islands_.begin(), islands_.end());
    return std::move(islands_);
  }

 private:
  uint64_t CoresIn(State state) const {
    return uint64_t{state.large} * (small_size_ + 1) + uint64_t{state.small} * small_size_;
  }

  void Solve(Domain& domain, uint64_t may_leave) {
    for (Domain& child : domain.children) Solve(child, small_size_);
    size_t count = domain.children.size();
    domain.suffix.resize(count + 1);
    domain.suffix[count][State{}] = {.cost = 0, .inner = {}};
    for (size_t i = count; i-- > 0;)
      Combine(domain.children[i].table, domain.suffix[i + 1], domain.suffix[i]);
    for (const auto& [inside, choice] : domain.suffix[0]) FormHere(domain, inside, choice.cost, may_leave);
  }

  void Combine(const Table& first, const Table& rest, Table& both) const {
    for (const auto& [a, choice_a] : first) {
      for (const auto& [b, choice_b] : rest) {
        State sum{a.large + b.large, a.small + b.small};
        if (sum.large > large_ || sum.small > small_) continue;
        Offer(both, sum, {.cost = choice_a.cost + choice_b.cost, .inner = a});
      }
    }
  }

  // All ways to make islands of what the children left over that leave at most `may_leave` cores.
  void FormHere(Domain& domain, State inside, Cost cost, uint64_t may_leave) const {
    uint64_t left = domain.cores.size() - CoresIn(inside);
    for (uint32_t x = 0; inside.large + x <= large_ && uint64_t{x} * (small_size_ + 1) <= left; ++x) {
      uint64_t for_small = left - uint64_t{x} * (small_size_ + 1);
      uint64_t least = for_small > may_leave ? (for_small - may_leave + small_size_ - 1) / small_size_ : 0;
      for (uint64_t y = least; inside.small + y <= small_ && y * small_size_ <= for_small; ++y) {
        State state{inside.large + x, inside.small + static_cast<uint32_t>(y)};
        Offer(domain.table, state, {.cost = cost + (x + y) * domain.cost, .inner = inside});
      }
    }
  }

  // Builds the islands of `state` and returns the cores that go upwards.
  Cores Assign(const Domain& domain, State state) {
    State inside = domain.table.at(state).inner;
    Cores left;
    if (domain.children.empty()) left = domain.cores;
    State rest = inside;
    for (size_t i = 0; i < domain.children.size(); ++i) {
      State child = domain.suffix[i].at(rest).inner;
      Cores from_child = Assign(domain.children[i], child);
      left.insert(left.end(), from_child.begin(), from_child.end());
      rest = {rest.large - child.large, rest.small - child.small};
    }
    size_t used = 0;
    auto form = [&](uint32_t count, uint32_t size) {
      for (; count > 0; --count, used += size) {
        islands_.emplace_back(left.begin() + used, left.begin() + used + size);
      }
    };
    form(state.large - inside.large, small_size_ + 1);
    form(state.small - inside.small, small_size_);
    left.erase(left.begin(), left.begin() + used);
    return left;
  }

  const uint32_t small_size_;
  const uint32_t large_;  // number of islands with one core more
  const uint32_t small_;
  Domain root_;
  std::vector<Cores> islands_;
};

}  // namespace

std::vector<std::vector<uint32_t>> PackIslands(std::span<const CoreDomains> cores, uint32_t islands) {
  assert(islands >= 1 && islands <= cores.size());
  return Packer(cores, islands).Pack();
}

std::vector<std::vector<uint32_t>> DealIslands(std::span<const CoreDomains> cores, uint32_t islands) {
  assert(islands >= 1 && islands <= cores.size());
  Cores order(cores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return cores[a].package < cores[b].package; });
  std::vector<Cores> dealt(islands);
  for (size_t i = 0; i < order.size(); ++i) dealt[i % islands].push_back(order[i]);
  return dealt;
}

StraddleCount CountStraddling(std::span<const CoreDomains> cores,
                              std::span<const std::vector<uint32_t>> islands) {
  StraddleCount count;
  for (const Cores& island : islands) {
    auto straddles = [&](int kind) {
      return std::any_of(island.begin(), island.end(), [&](uint32_t core) {
        return Label(cores[core], kind) != Label(cores[island.front()], kind);
      });
    };
    count.package += straddles(0);
    count.node += straddles(1);
    count.cache += straddles(2);
  }
  return count;
}

}  // namespace islands::topology
