// No engine at all: the lookups of a transaction and nothing else, on a tree that only knows that.
#include <fmt/format.h>

#include "experiments/micro/micro_row.h"
#include "experiments/peers/descent_tree.h"
#include "experiments/peers/peer.h"

namespace islands::experiments {
namespace {

class DescentPeer final : public Peer {
 public:
  DescentPeer(const PeerOptions& options, bool interleaved)
      : options_(options), interleaved_(interleaved), row_(options.row_bytes) {}

  PeerFacts Facts() const override {
    return {.version =
                interleaved_ ? "bare loop of B+tree descents, interleaved" : "bare loop of B+tree descents",
            .keeps = "a change does not outlive the process",
            .isolation = "none"};
  }

  absl::Status Load() override {
    auto tree = DescentTree::Create(options_.range, options_.row_bytes);
    if (!tree.ok()) return tree.status();
    tree_ = *std::move(tree);
    for (uint64_t key = 0; key < options_.range; ++key) {
      FillMicroRow(key, std::span(tree_->Find(key), options_.row_bytes));
    }
    return absl::OkStatus();
  }

  absl::Status Read(std::span<const uint64_t> keys, std::byte* rows) override {
    return ForEach(keys, DescentTree::Fetch::kWholeRow, [&](size_t i, std::byte* row) {
      std::memcpy(rows + i * options_.row_bytes, row, options_.row_bytes);
    });
  }

  absl::Status Update(std::span<const uint64_t> keys) override {
    return ForEach(keys, DescentTree::Fetch::kWholeRow, [&](size_t, std::byte* row) {
      std::memcpy(row_.data(), row, row_.size());
      AddToCounter(row_.data());
      std::memcpy(row, row_.data(), row_.size());
    });
  }

  absl::Status Add(std::span<const uint64_t> keys) override {
    return ForEach(keys, DescentTree::Fetch::kFirstLine, [](size_t, std::byte* row) { AddToCounter(row); });
  }

  absl::StatusOr<int64_t> SumCounters() override {
    int64_t sum = 0;
    for (uint64_t key = 0; key < options_.range; ++key) sum += CounterOf(tree_->Find(key));
    return sum;
  }

 private:
  template <typename Use>
  absl::Status ForEach(std::span<const uint64_t> keys, DescentTree::Fetch fetch, const Use& use) {
    if (interleaved_) {
      found_.resize(keys.size());
      tree_->FindAll(keys, fetch, found_.data());
    }
    for (size_t i = 0; i < keys.size(); ++i) {
      std::byte* row = interleaved_ ? found_[i] : tree_->Find(keys[i]);
      if (row == nullptr) return absl::NotFoundError(fmt::format("descents: no row {}", keys[i]));
      use(i, row);
    }
    return absl::OkStatus();
  }

  const PeerOptions options_;
  const bool interleaved_;
  std::vector<std::byte> row_;
  std::unique_ptr<DescentTree> tree_;
  std::vector<std::byte*> found_;
};

}  // namespace

std::unique_ptr<Peer> MakeDescentPeer(const PeerOptions& options, bool interleaved) {
  return std::make_unique<DescentPeer>(options, interleaved);
}

}  // namespace islands::experiments
