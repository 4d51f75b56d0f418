// An island's life on a simulated disk (recovery/box_testing.h), ended, and looked at as `islands verify`
// does it.
//
// Thread safety: none.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "instance/recovery/box_testing.h"
#include "instance/storage/files/disk_page.h"
#include "instance/storage/files/double_write.h"
#include "instance/verify/box.h"
#include "instance/verify/island.h"
#include "runtime/random.h"

namespace islands::verify {

// How it ended.
enum class End { kDown, kKilled, kRingsLost };

class Walk {
 public:
  static constexpr uint64_t kFewPages = 24;
  static constexpr char kLog[] = "/log/island-0/";
  static constexpr char kSite[] = "/data/generation-0000000001-site-00000";
  static constexpr char kCheckpoint[] = "/data/generation-0000000001-checkpoint";
  static constexpr char kDoubleWrite[] = "/data/generation-0000000001-double-write";

  Walk(uint64_t seed, recovery::Box::Options options) : random_(seed + 77), box_(seed, options) {}

  recovery::Box& box() { return box_; }
  runtime::MemoryFileSystem& files() { return box_.files(); }
  log::BoxManifest& manifest() { return manifest_; }
  std::vector<log::RingDirectory::Found>& rings() { return rings_; }

  // Everybody does something.
  void Live(int steps, bool cleans) {
    for (int i = 0; i < steps && !testing::Test::HasFailure(); ++i) {
      random_.Below(2) == 0 ? box_.Step() : box_.StepLogger();
      if (cleans && random_.Below(3) == 0) box_.StepCleaner();
      const uint64_t dies = random_.Below(500);
      if (dies < 4) box_.EndStep();
      if (dies == 0) box_.Kill();
      if (dies == 1) box_.KillAll();
      if (dies == 2) box_.LosePower();
    }
  }
  // Until changed pages are home and a checkpoint says so, as far as open transactions let it.
  void Clean() {
    for (int i = 0; i < 60; ++i) {
      box_.WantWhatCleanerWaitsFor();
      box_.DrainAll();
      for (int step = 0; step < 300; ++step) box_.StepCleaner();
    }
  }
  void Stop(End end) {
    box_.Stop(/*drained=*/end == End::kDown);
    manifest_ = {.cluster = 1, .lives = {box_.life()}};
    for (const log::EpochCut& cut : box_.cuts()) AddCut(cut);
    manifest_.boot = kBoot;
    if (end != End::kDown) manifest_.ring_directory = kRings;
    if (end == End::kKilled) rings_.push_back({box_.ring()->stream(), box_.ring()});
    WriteManifest();
  }
  void WriteManifest() { ASSERT_TRUE(log::WriteBoxManifest(files(), "/log", manifest_).ok()); }

  Report Look() {
    Report report;
    runtime::OverlayFileSystem files(box_.files());
    const std::map<std::string, std::string> before = Contents();
    const uint64_t steps = box_.files().steps();
    std::unique_ptr<storage::Store> rows;
    const absl::Status looked = Look(files, &report, &rows);
    EXPECT_TRUE(looked.ok()) << looked;
    const Report quick = LookQuickly();
    for (const Finding& finding : quick.findings) {
      const bool same =
          std::any_of(report.findings.begin(), report.findings.end(), [&](const Finding& other) {
            return other.text == finding.text && other.path == finding.path && other.stops == finding.stops;
          });
      EXPECT_TRUE(same) << "only who does not look closely finds: " << finding.text;
    }
    EXPECT_EQ(box_.files().steps(), steps) << "nothing may be written";
    EXPECT_EQ(Contents(), before);
    CheckFindsTheSame(report, rows.get());
    return report;
  }
  // Who pages.
  void CheckFindsTheSame(const Report& report, const storage::Store* rows) {
    Report paged;
    runtime::OverlayFileSystem files(box_.files());
    std::unique_ptr<storage::Store> paged_rows;
    paged_ = true;
    const absl::Status looked = Look(files, &paged, &paged_rows);
    paged_ = false;
    EXPECT_TRUE(looked.ok()) << looked;
    ASSERT_EQ(paged_rows == nullptr, rows == nullptr);
    if (rows != nullptr) {
      CheckAtHome(files, *paged_rows);
      EXPECT_EQ(RowsOf(*paged_rows), RowsOf(*rows));
    }
    ASSERT_EQ(paged.findings.size(), report.findings.size());
    for (size_t i = 0; i < paged.findings.size(); ++i) {
      EXPECT_EQ(paged.findings[i].path, report.findings[i].path);
      EXPECT_EQ(paged.findings[i].text, report.findings[i].text);
      EXPECT_EQ(paged.findings[i].stops, report.findings[i].stops);
    }
    ASSERT_EQ(paged.islands.size(), report.islands.size());
    for (size_t i = 0; i < paged.islands.size(); ++i) {
      EXPECT_EQ(paged.islands[i].pages, report.islands[i].pages);
      EXPECT_EQ(paged.islands[i].undone, report.islands[i].undone);
    }
  }
  // What its pager may let go of is in the file.
  static void CheckAtHome(runtime::FileSystem& files, const storage::Store& store) {
    const std::string file = *files.ReadFile(kSite);
    for (uint64_t number = 0; number < store.space(0).end_page(); ++number) {
      if (store.space(0).OnDisk(number)) continue;
      storage::DiskPage page;
      const storage::GuardS there(store.space(0).At(number), ISLANDS_LATCH("test.page"));
      std::copy_n(there.bytes(), storage::kPageBytes, page.bytes.begin());
      if (storage::HeaderOf(page.bytes).lsn != store.space(0).Home(number)) continue;
      storage::StampChecksum(page.bytes);
      EXPECT_EQ(
          std::memcmp(page.bytes.data(), file.data() + number * storage::kPageBytes, storage::kPageBytes), 0)
          << "page " << number;
    }
  }
  static std::map<std::string, std::string> RowsOf(const storage::Store& store) {
    std::map<std::string, std::string> rows;
    const auto text = [](std::span<const std::byte> bytes) {
      return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    };
    store.At(0, 0)->Scan({}, {}, false, [&](storage::KeyView key, storage::RowView row) {
      rows[text(key)] = text(row);
      return true;
    });
    return rows;
  }
  // As `up` does.
  Report LookQuickly() {
    Report report;
    runtime::OverlayFileSystem files(box_.files());
    const absl::StatusOr<std::optional<Box>> box = LookAtBox(files, OptionsOfBox(), &report);
    EXPECT_TRUE(box.ok()) << box.status();
    if (!box.ok() || !box->has_value()) return report;
    const absl::Status looked = LookAtIsland(files, box_.catalog(), OptionsOfIsland(), **box, &report);
    EXPECT_TRUE(looked.ok()) << looked;
    return report;
  }
  absl::Status Look(runtime::OverlayFileSystem& files, Report* report,
                    std::unique_ptr<storage::Store>* rows = nullptr) {
    const auto find = [&](const log::BoxId& known) -> absl::StatusOr<Rings> {
      return rings_.empty() ? Rings{} : Rings{known, rings_};
    };
    const absl::StatusOr<std::optional<Box>> box = OpenBox(files, OptionsOfBox(), find, report);
    if (!box.ok()) return box.status();
    if (!box->has_value()) return absl::OkStatus();
    const auto progress = [this](const std::string& what, uint64_t done, uint64_t all) {
      EXPECT_FALSE(what.empty());
      EXPECT_TRUE(all == 0 || done <= all);
      return ++progress_ == ends_at_ ? absl::CancelledError("as somebody wants") : absl::OkStatus();
    };
    IslandOptions options = OptionsOfIsland();
    options.paged = paged_;
    if (paged_) options.pool_bytes = kFewPages * storage::kPageBytes;
    return VerifyIsland(files, box_.catalog(), options, **box, progress, report, rows);
  }
  // The next look, at the so manyth word of progress; 0: not at all.
  void EndAt(int progress) { ends_at_ = progress_ + progress; }
  int progress() const { return progress_; }

  // Damage.
  void Flip(const std::string& path, size_t offset) {
    std::string content = *files().ReadFile(path);
    ASSERT_LT(offset, content.size()) << path;
    content[offset] ^= 1;
    ASSERT_TRUE(files().ReplaceFile(path, content).ok());
  }
  log::EpochBlock Epoch() { return *log::ReadEpochFile(files(), "/log/EPOCH", 1, 1); }
  recovery::Checkpoint Checkpoint() {
    const std::string content = *files().ReadFile(kCheckpoint);
    return *recovery::DecodeCheckpointFile(std::as_bytes(std::span(content)));
  }
  // The newest block says this.
  void Write(const recovery::Checkpoint& checkpoint) {
    std::string content = *files().ReadFile(kCheckpoint);
    const std::vector<std::byte> block = recovery::EncodeCheckpoint(checkpoint);
    std::memcpy(content.data() + checkpoint.number % 2 * block.size(), block.data(), block.size());
    ASSERT_TRUE(files().ReplaceFile(kCheckpoint, content).ok());
  }
  void Write(const log::EpochBlock& epoch) {
    std::string content = *files().ReadFile("/log/EPOCH");
    const std::vector<std::byte> block = log::EncodeEpochBlock(epoch);
    std::memcpy(content.data() + epoch.number % 2 * block.size(), block.data(), block.size());
    ASSERT_TRUE(files().ReplaceFile("/log/EPOCH", content).ok());
  }
  storage::DiskPage Page(uint64_t number) {
    const std::string content = *files().ReadFile(kSite);
    storage::DiskPage page{};
    std::memcpy(page.bytes.data(), content.data() + number * storage::kPageBytes, storage::kPageBytes);
    return page;
  }
  // With the checksum that it has, or a new one.
  void Write(uint64_t number, const storage::DiskPage& wanted, bool stamp = true) {
    storage::DiskPage page = wanted;
    if (stamp) storage::StampChecksum(page.bytes);
    std::string content = *files().ReadFile(kSite);
    content.resize(std::max<size_t>(content.size(), (number + 1) * storage::kPageBytes));
    std::memcpy(content.data() + number * storage::kPageBytes, page.bytes.data(), storage::kPageBytes);
    ASSERT_TRUE(files().ReplaceFile(kSite, content).ok());
  }
  // No batch is in the double-write area, as before the first one: what is at home counts.
  void ForgetCopies() { Flip(kDoubleWrite, 0); }
  // Of trees.
  std::vector<uint64_t> Leaves() {
    std::vector<uint64_t> pages;
    for (uint64_t number = 1; number < Checkpoint().sites[0].pages; ++number) {
      const storage::PageHeader header = storage::HeaderOf(Page(number).bytes);
      if (header.type == storage::PageType::kTree && header.level == 0) pages.push_back(number);
    }
    return pages;
  }

 private:
  static constexpr log::BoxId kBoot = {1}, kRings = {2};

  BoxOptions OptionsOfBox() {
    return {
        .log_directory = "/log", .cluster = 1, .workers = {1}, .boot_epochs = {box_.life()}, .boot = kBoot};
  }
  IslandOptions OptionsOfIsland() {
    return {.data_directory = "/data",
            .log_directory = "/log",
            .cluster = 1,
            .next_life = box_.life() + 1,
            .workers = {1, 1, 1, 1},
            .sites = {0, 1},
            .pool_bytes = 16 << 20};
  }

  // As log::Cut merges them.
  void AddCut(log::EpochCut cut) {
    std::vector<log::EpochCut>& cuts = manifest_.cuts;
    for (; !cuts.empty() && cut.durable < cuts.back().next - 1; cuts.pop_back())
      cut.durable = std::min(cut.durable, cuts.back().durable);
    if (cut.durable < cut.next - 1) cuts.push_back(cut);
  }
  std::map<std::string, std::string> Contents() {
    std::map<std::string, std::string> contents;
    for (const char* directory : {"/log", "/log/island-0", "/data"}) {
      const absl::StatusOr<std::vector<std::string>> names = files().List(directory);
      for (const std::string& name : *names) {
        const std::string path = std::string(directory) + "/" + name;
        const absl::StatusOr<std::string> content = files().ReadFile(path);
        contents[path] = content.ok() ? *content : "";
      }
    }
    return contents;
  }

  runtime::Random random_;
  recovery::Box box_;
  log::BoxManifest manifest_;
  std::vector<log::RingDirectory::Found> rings_;
  int progress_ = 0;
  int ends_at_ = 0;
  bool paged_ = false;  // that who looks does
};

}  // namespace islands::verify
