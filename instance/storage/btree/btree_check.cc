// The walk behind Store::Check: every page of a tree against its neighbours.
#include "absl/container/flat_hash_set.h"
#include "fmt/format.h"
#include "instance/storage/btree/btree.h"

namespace islands::storage {

struct BTree::Walk {
  absl::flat_hash_set<uint64_t> seen;
  Totals totals;
};

absl::Status BTree::CheckNode(Walk* walk, uint64_t number, KeyView lower, KeyView upper, int level) const {
  const auto fault = [&](std::string_view what) {
    return absl::DataLossError(
        fmt::format("site {}, tree {}, page {}: {}", site_->site(), tree_, number, what));
  };
  if (number == 0 || !walk->seen.insert(number).second) return fault("reached twice, or never allocated");
  if (!site_->HasPage(number)) return fault("is not there");
  const GuardS guard(site_->At(number), ISLANDS_LATCH("btree.check"));
  const Node* node = Node::At(guard.bytes());
  if (node->header().page_id != PageId(site_->site(), number).value())
    return fault("carries another page's id");
  if (node->header().type != PageType::kTree || node->header().tree != tree_)
    return fault("not a page of this tree");
  if (level >= 0 && node->level() != level)
    return fault(fmt::format("level {}, not {}", node->level(), level));
  if (const char* what = node->FindFault()) return fault(what);
  if (CompareKeys(node->lower_fence(), lower) != 0 || CompareKeys(node->upper_fence(), upper) != 0) {
    return fault("its fences are not the separators in its parent");
  }
  ++walk->totals.pages;
  if (node->is_leaf()) {
    for (uint32_t i = 0; i < node->count(); ++i) walk->totals.rows += node->ghost(i) ? 0 : 1;
    return absl::OkStatus();
  }
  if (number == root_ && node->count() == 0) return fault("a root with a single child");
  KeyBuffer left, right;
  left.Set(lower);
  for (uint32_t i = 0; i <= node->count(); ++i) {
    i < node->count() ? node->CopyKey(i, &right) : right.Set(upper);
    absl::Status child = CheckNode(walk, node->child(i), left.view(), right.view(), node->level() - 1);
    if (!child.ok()) return child;
    left = right;
  }
  return absl::OkStatus();
}

absl::StatusOr<BTree::Totals> BTree::Check() const {
  Walk walk;
  if (absl::Status status = CheckNode(&walk, root_, lower_.view(), upper_.view(), -1); !status.ok())
    return status;
  const GuardS root(site_->At(root_), ISLANDS_LATCH("btree.check"));
  walk.totals.levels = Node::At(root.bytes())->level() + 1u;
  return walk.totals;
}

}  // namespace islands::storage
