// Random changes and syncs on the simulated disk beside a model of what may be left after power loss: of each
// sector some version that it had since it was last synced, and of what has not changed since exactly that.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "runtime/file_system_memory.h"
#include "runtime/file_system_testing.h"

namespace islands::runtime {
namespace {

constexpr uint64_t kSector = 512;
constexpr uint64_t kSectors = 24;
constexpr uint64_t kBytes = kSector * kSectors;

// Every state that the file has had since the last sync that is over, the first of them synced.
class Model {
 public:
  void Write(uint64_t offset, const std::string& bytes) {
    std::string next = versions_.rbegin()->second;
    next.resize(std::max<size_t>(next.size(), offset + bytes.size()));
    Add(next.replace(offset, bytes.size(), bytes));
  }
  void Resize(uint64_t bytes) {
    std::string next = versions_.rbegin()->second;
    next.resize(bytes);
    Add(next);
  }

  const std::string& content() const { return versions_.rbegin()->second; }
  uint64_t now() const { return versions_.rbegin()->first; }
  // A sync that was submitted at `version` has succeeded.
  void Sync(uint64_t version) { versions_.erase(versions_.begin(), versions_.find(version)); }

  void ExpectPossible(const std::string& left) const {
    uint64_t shortest = UINT64_MAX, longest = 0;
    for (const auto& [number, version] : versions_) {
      shortest = std::min<uint64_t>(shortest, version.size());
      longest = std::max<uint64_t>(longest, version.size());
    }
    EXPECT_GE(left.size(), shortest);
    EXPECT_LE(left.size(), longest);
    for (uint64_t sector = 0; sector < kSectors; ++sector) {
      const bool possible = std::any_of(versions_.begin(), versions_.end(), [&](const auto& version) {
        return Sector(version.second, sector) == Sector(left, sector);
      });
      EXPECT_TRUE(possible) << "sector " << sector << " was never like that since it was synced";
    }
  }

 private:
  static std::string Sector(const std::string& file, uint64_t sector) {
    std::string bytes = sector * kSector < file.size() ? file.substr(sector * kSector, kSector) : "";
    bytes.resize(kSector);
    return bytes;
  }
  void Add(const std::string& version) { versions_.emplace(now() + 1, version); }

  std::map<uint64_t, std::string> versions_{{0, ""}};
};

struct Pending {
  IoRequest request;
  std::string text;
  uint64_t version = 0;  // of a sync: the model's at its submission
};

class DiskRun {
 public:
  explicit DiskRun(uint64_t seed)
      : random_(seed),
        files_({.clock = &clock_, .min_delay_ns = 0, .max_delay_ns = 100, .seed = seed}),
        queue_(files_.MakeQueue()),
        file_(files_.Open("data", true, false).value()) {
    EXPECT_TRUE(files_.SyncDirectory(".").ok());
  }

  void Go(uint64_t actions) {
    for (uint64_t i = 0; i < actions; ++i) Act();
    EXPECT_EQ(*files_.ReadFile("data"), model_.content());
    // One write in flight may be there as well.
    while (!pending_.empty()) PassTime();
    if (random_.Below(2) == 0) {
      const uint64_t token = SubmitWrite();
      model_.Write(pending_[token].request.offset, pending_[token].text);
    }
    files_.PowerLoss(random_());
    model_.ExpectPossible(*files_.ReadFile("data"));
  }

 private:
  void Act() {
    switch (random_.Below(8)) {
      case 0:
        Submit({.kind = IoKind::kSync});
        break;
      case 1:
        Resize(random_.Below(4) == 0
                   ? random_.Below(kBytes)
                   : random_.Below(kBytes - model_.content().size() + 1) + model_.content().size());
        break;
      case 2:
      case 3:
        PassTime();
        break;
      default:
        SubmitWrite();
    }
  }

  uint64_t SubmitWrite() {
    const uint64_t offset = random_.Below(kBytes);
    const uint64_t bytes = 1 + random_.Below(std::min<uint64_t>(kBytes - offset, 3 * kSector));
    std::string text(bytes, '\0');
    for (char& byte : text) byte = static_cast<char>(random_());
    return Submit({.kind = IoKind::kWrite, .offset = offset}, std::move(text));
  }

  uint64_t Submit(IoRequest request, std::string text = "") {
    request.token = ++submitted_;
    Pending& pending = pending_[request.token];
    pending = {.request = request, .text = std::move(text), .version = model_.now()};
    pending.request.file = file_;
    pending.request.buffer = Bytes(pending.text);
    queue_->Submit(pending.request);
    return request.token;
  }

  void Resize(uint64_t bytes) {
    const bool cut = bytes < model_.content().size();
    ASSERT_TRUE((cut ? files_.Truncate(file_, bytes) : files_.Allocate(file_, bytes)).ok());
    if (bytes != model_.content().size()) model_.Resize(bytes);
  }

  void PassTime() {
    clock_.AdvanceNs(static_cast<int64_t>(random_.Below(60)));
    std::vector<IoCompletion> done;
    queue_->Poll(&done);
    for (const IoCompletion& each : done) {
      ASSERT_TRUE(each.status.ok()) << each.status;
      const Pending& pending = pending_[each.token];
      if (pending.request.kind == IoKind::kWrite) model_.Write(pending.request.offset, pending.text);
      // Syncs overtake one another: an older one adds nothing.
      if (pending.request.kind == IoKind::kSync && pending.version >= synced_) {
        synced_ = pending.version;
        model_.Sync(synced_);
      }
      pending_.erase(each.token);
    }
  }

  Random random_;
  ManualClock clock_;
  MemoryFileSystem files_;
  std::map<uint64_t, Pending> pending_;  // by token; outlives the queue
  std::unique_ptr<FileSystem::Queue> queue_;
  const FileHandle file_;
  Model model_;
  uint64_t submitted_ = 0;
  uint64_t synced_ = 0;
};

TEST(SimulatedDiskProperty, PowerLoss_LeavesOfEachSectorAVersionSinceItsSync) {
  for (uint64_t seed = 0; seed < 3000 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    DiskRun(seed).Go(1 + seed % 60);
  }
}

}  // namespace
}  // namespace islands::runtime
