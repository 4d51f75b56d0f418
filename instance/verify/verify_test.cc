// Sound data gives no finding, whenever and however the island ended; each kind of damage gives the one that
// it is.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "instance/verify/streams.h"
#include "instance/verify/verify_testing.h"

namespace islands::verify {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

std::string Texts(const Report& report) {
  std::string texts;
  for (const Finding& finding : report.findings) texts += finding.text + "\n";
  return texts;
}
bool Notes(const Report& report, const std::string& what) {
  return std::any_of(report.notes.begin(), report.notes.end(),
                     [&](const std::string& note) { return note.find(what) != std::string::npos; });
}

TEST(Verify, Property_SoundDataGivesNoFinding) {
  uint64_t records = 0, undone = 0, in_doubt = 0, decisions = 0, dropped = 0, drained = 0;
  for (uint64_t seed = 1; seed <= 60 && !testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(seed);
    const End end = seed % 3 == 0 ? End::kDown : seed % 3 == 1 ? End::kKilled : End::kRingsLost;
    Walk walk(seed, {.pages = true, .two_phases = seed % 2 == 0});
    walk.Live(1200, /*cleans=*/seed % 5 != 0);
    walk.Stop(end);
    const Report report = walk.Look();
    EXPECT_EQ(Texts(report), "");
    ASSERT_EQ(report.islands.size(), 1u);
    EXPECT_GT(walk.progress(), 0);
    EXPECT_EQ(Notes(report, "takes them along"), end == End::kKilled);
    EXPECT_EQ(Notes(report, "power was lost"), end == End::kRingsLost);
    const IslandFigures& island = report.islands[0];
    records += island.records, undone += island.undone, in_doubt += island.in_doubt;
    decisions += island.decisions, dropped += island.dropped;
    drained += end == End::kKilled && walk.box().ring()->tail() > walk.box().ring()->head() ? 1 : 0;
  }
  EXPECT_GT(records, 1000u);
  EXPECT_GT(undone, 10u);
  EXPECT_GT(in_doubt, 10u);
  EXPECT_GT(decisions, 10u);
  EXPECT_GT(dropped, 10u);
  EXPECT_GT(drained, 5u);
}

// Before the island was taken down.
enum class Life {
  kNoCheckpoint,  // but the first, and two segments of the log
  kHome,          // all pages are home, and checkpoints have moved on
  kHomeAndMore,   // and there are records behind the last one
};

// Each kind of damage to it.
struct Damage {
  const char* what;
  Life life;
  std::function<void(Walk&)> plant;
  std::string path;                // of every finding, or its beginning
  std::vector<std::string> texts;  // a part of each
  bool stops = false;              // it costs no walk, and `up` does not start
};

const std::vector<Damage>& AllDamage() {
  static const std::vector<Damage> kAll = {
      {"nothing", Life::kHome, [](Walk&) {}, "", {}},
      {"a byte of the log's manifest",
       Life::kHome,
       [](Walk& w) { w.Flip("/log/MANIFEST", 20); },
       "/log/MANIFEST",
       {"is damaged: its checksum is wrong"},
       /*stops=*/true},
      {"no manifest of the log",
       Life::kHome,
       [](Walk& w) { (void)w.files().Remove("/log/MANIFEST"); },
       "/log/MANIFEST",
       {"is gone, and the log beside it was begun"},
       /*stops=*/true},
      {"a manifest of another time",
       Life::kHome,
       [](Walk& w) {
         ++w.manifest().lives[0];
         w.WriteManifest();
       },
       "/log/MANIFEST",
       {"one of both is an old copy"},
       /*stops=*/true},
      {"a manifest that knows less than the log",
       Life::kHomeAndMore,
       [](Walk& w) {
         --w.manifest().lives[0];
         w.WriteManifest();
       },
       "/log/island-0",
       {"MANIFEST knows of lives up to"}},
      {"an EPOCH that does not reach the log's end",
       Life::kHomeAndMore,
       [](Walk& w) {
         log::EpochBlock block = w.Epoch();
         block.reaches = 1;
         w.Write(block);
       },
       "/log/island-0",
       {"EPOCH says that the log reaches up to epoch 1 only"}},
      {"another cluster's manifest",
       Life::kHome,
       [](Walk& w) {
         w.manifest().cluster = 5;
         w.WriteManifest();
       },
       "/log/MANIFEST",
       {"belongs to other data"},
       /*stops=*/true},
      {"EPOCH, both blocks",
       Life::kHome,
       [](Walk& w) {
         w.Flip("/log/EPOCH", 25);
         w.Flip("/log/EPOCH", 4096 + 25);
       },
       "/log/EPOCH",
       {"is damaged: neither of its two blocks is whole"},
       /*stops=*/true},
      {"EPOCH, the older block",
       Life::kHome,
       [](Walk& w) { w.Flip("/log/EPOCH", (w.Epoch().number + 1) % 2 * 4096 + 25); },
       "/log/EPOCH",
       {"one of its two blocks is damaged"},
       /*stops=*/true},
      {"no EPOCH",
       Life::kHome,
       [](Walk& w) { (void)w.files().Remove("/log/EPOCH"); },
       "/log/EPOCH",
       {"restore"},
       /*stops=*/true},
      {"an old EPOCH",
       Life::kHome,
       [](Walk& w) {
         const uint64_t epoch = w.Epoch().epoch;
         w.manifest().cuts.push_back({epoch + 3, epoch + 9});
         w.WriteManifest();
       },
       "/log/EPOCH",
       {"it is an old copy"},
       /*stops=*/true},
      {"the checkpoint, both blocks",
       Life::kHome,
       [](Walk& w) {
         w.Flip(Walk::kCheckpoint, 45);
         w.Flip(Walk::kCheckpoint, 4096 + 45);
       },
       Walk::kCheckpoint,
       {"checkpoint is damaged: neither of its two blocks is whole"},
       /*stops=*/true},
      {"the checkpoint, the older block",
       Life::kHome,
       [](Walk& w) { w.Flip(Walk::kCheckpoint, (w.Checkpoint().number + 1) % 2 * 4096 + 45); },
       Walk::kCheckpoint,
       {"one of its two blocks is damaged"}},
      {"a checkpoint of the future",
       Life::kHome,
       [](Walk& w) {
         recovery::Checkpoint checkpoint = w.Checkpoint();
         checkpoint.taken = w.Epoch().epoch + 1;
         w.Write(checkpoint);
       },
       Walk::kCheckpoint,
       {"one of both is an old copy"},
       /*stops=*/true},
      {"a byte of a record",
       Life::kHomeAndMore,
       [](Walk& w) {
         const log::LogPosition end = w.Epoch().ends[0];
         w.Flip(Walk::kLog + log::SegmentName(end.segment), end.offset - 10);
       },
       "/log/island-0/segment-00000000",
       {"is damaged: no frame at offset"}},
      {"a byte of a segment's header",
       Life::kHome,
       [](Walk& w) { w.Flip(Walk::kLog + log::SegmentName(w.Epoch().ends[0].segment), 20); },
       "/log/island-0/segment-00000000",
       {"the checksum of its header is wrong"},
       /*stops=*/true},
      {"no segment",
       Life::kHome,
       [](Walk& w) {
         (void)w.files().Remove(Walk::kLog + log::SegmentName(w.Checkpoint().position.segment));
       },
       "/log/island-0/segment-00000000",
       {"is gone, and it is needed"},
       /*stops=*/true},
      {"not the first segment, and no checkpoint since",
       Life::kNoCheckpoint,
       [](Walk& w) { (void)w.files().Remove(Walk::kLog + log::SegmentName(1)); },
       "/log/island-0/segment-00000000",
       {"segment-0000000001 is gone, and the checkpoint needs the log from its beginning on"},
       /*stops=*/true},
      {"a byte of a page",
       Life::kHome,
       [](Walk& w) { w.Flip(Walk::kSite, w.Leaves()[0] * 4096 + 99); },
       Walk::kSite,
       {"is damaged: its checksum is wrong"}},
      {"an empty page",
       Life::kHome,
       [](Walk& w) { w.Write(w.Leaves()[0], storage::DiskPage{}, /*stamp=*/false); },
       Walk::kSite,
       {"is empty"}},
      {"two pages, one in the other's place",
       Life::kHome,
       [](Walk& w) {
         const std::vector<uint64_t> pages = w.Leaves();
         const storage::DiskPage first = w.Page(pages[0]), second = w.Page(pages[1]);
         w.Write(pages[0], second);
         w.Write(pages[1], first);
       },
       Walk::kSite,
       {"holds page", "holds page"}},
      {"a page of the future",
       Life::kHome,
       [](Walk& w) {
         storage::DiskPage page = w.Page(w.Leaves()[0]);
         reinterpret_cast<storage::PageHeader*>(page.bytes.data())->lsn =
             log::Lsn::Of(w.Epoch().epoch + 1, 0).value();
         w.Write(w.Leaves()[0], page);
       },
       Walk::kSite,
       {"page and log are not of one time"}},
      {"an older state of a page, whole",
       Life::kHome,
       [](Walk& w) {
         storage::DiskPage page = w.Page(w.Leaves()[0]);
         auto* node = storage::Node::At(page.bytes.data());
         node->Remove(0);
         w.Write(w.Leaves()[0], page);
       },
       Walk::kSite,
       {"index 'by_first_bytes'"}},
      {"a page in no tree",
       Life::kHome,
       [](Walk& w) {
         recovery::Checkpoint checkpoint = w.Checkpoint();
         const uint64_t number = checkpoint.sites[0].pages++;
         storage::DiskPage orphan{}, header = w.Page(0);
         *reinterpret_cast<storage::PageHeader*>(orphan.bytes.data()) = {
             .page_id = storage::PageId(0, number).value(), .lsn = 1};
         w.Write(number, orphan);
         reinterpret_cast<uint64_t*>(header.bytes.data())[5] = number + 1;  // the next page never used so far
         w.Write(0, header);
         w.Write(checkpoint);
       },
       Walk::kSite,
       {"pages, but 1 header"}},
      {"a file that is cut off",
       Life::kHome,
       [](Walk& w) {
         const std::string content = *w.files().ReadFile(Walk::kSite);
         ASSERT_TRUE(
             w.files()
                 .ReplaceFile(Walk::kSite, content.substr(0, w.Checkpoint().sites[0].pages * 4096 - 1))
                 .ok());
       },
       Walk::kSite,
       {"restore data and log from a copy"},
       /*stops=*/true},
      {"no file",
       Life::kHome,
       [](Walk& w) { (void)w.files().Remove(Walk::kSite); },
       Walk::kSite,
       {"site-00000"},
       /*stops=*/true},
  };
  return kAll;
}

class VerifyDamage : public testing::TestWithParam<size_t> {};
INSTANTIATE_TEST_SUITE_P(All, VerifyDamage, testing::Range<size_t>(0, AllDamage().size()));

TEST_P(VerifyDamage, IsTheFinding) {
  const Damage& damage = AllDamage()[GetParam()];
  SCOPED_TRACE(damage.what);
  Walk walk(3, {.pages = true});
  walk.Live(900, damage.life != Life::kNoCheckpoint);
  if (damage.life == Life::kNoCheckpoint) walk.box().KillLogger();  // its successor begins another segment
  if (damage.life != Life::kNoCheckpoint) walk.Clean();
  for (int i = 0; i < 20 && damage.life != Life::kHome; ++i) walk.box().Step();
  walk.Stop(End::kDown);
  if (damage.life != Life::kNoCheckpoint) walk.ForgetCopies();
  ASSERT_EQ(Texts(walk.Look()), "");
  damage.plant(walk);
  const Report report = walk.Look(), quick = walk.LookQuickly();
  EXPECT_EQ(std::any_of(quick.findings.begin(), quick.findings.end(),
                        [](const Finding& finding) { return finding.stops; }),
            damage.stops);
  ASSERT_EQ(report.findings.size(), damage.texts.size()) << Texts(report);
  for (size_t i = 0; i < damage.texts.size(); ++i) {
    EXPECT_THAT(report.findings[i].path, StartsWith(damage.path));
    EXPECT_THAT(report.findings[i].text, HasSubstr(damage.texts[i]));
    EXPECT_THAT(report.findings[i].text, HasSubstr(report.findings[i].path)) << "a line says where";
    EXPECT_EQ(report.findings[i].text.find('\n'), std::string::npos);
  }
}

// Streams may be at different LSNs, and each ascends.
TEST(StreamCheck, Take_SeesWhatDoesNotAscend) {
  StreamCheck streams(/*life=*/7, /*reaches=*/20);
  const auto take = [&](uint64_t life, uint32_t worker, log::Lsn lsn) {
    return streams.Take({life, 0, worker}, {.lsn = lsn.value()}).code();
  };
  EXPECT_EQ(take(6, 0, log::Lsn::Of(9, 5)), absl::StatusCode::kOk);
  EXPECT_EQ(take(7, 0, log::Lsn::Of(9, 3)), absl::StatusCode::kOk);
  EXPECT_EQ(take(7, 1, log::Lsn::Of(9, 1)), absl::StatusCode::kOk);
  EXPECT_EQ(take(7, 0, log::Lsn::Of(20, 0)), absl::StatusCode::kOk);
  EXPECT_EQ(take(7, 1, log::Lsn::Of(9, 1)), absl::StatusCode::kDataLoss) << "twice";
  EXPECT_EQ(take(7, 0, log::Lsn::Of(19, 0)), absl::StatusCode::kDataLoss);
  EXPECT_EQ(take(7, 2, log::Lsn::Of(21, 0)), absl::StatusCode::kDataLoss) << "beyond EPOCH";
  EXPECT_EQ(take(8, 0, log::Lsn::Of(9, 1)), absl::StatusCode::kDataLoss) << "nobody has begun that life";
}

// Undo takes the rows that it changes back for granted: without one of them there is no going on.
TEST(Verify, RowsThatUndoNeeds_AreLookedForFirst) {
  int missed = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    Walk walk(seed, {.pages = true});
    walk.Live(900, /*cleans=*/true);
    walk.Clean();
    walk.Stop(End::kDown);
    walk.ForgetCopies();
    if (walk.Look().islands.at(0).undone == 0) continue;
    for (const uint64_t number : walk.Leaves()) {
      storage::DiskPage page = walk.Page(number);
      auto* node = storage::Node::At(page.bytes.data());
      while (node->count() != 0) node->Remove(0);
      walk.Write(number, page);
    }
    Report report;  // where it does not page, or the log would mend what it has an image of
    runtime::OverlayFileSystem files(walk.files());
    ASSERT_TRUE(walk.Look(files, &report).ok());
    if (report.sound()) continue;  // of an insertion only, which may not have come to be
    missed += Texts(report).find("which is not as it has left it: a page is an old state of itself") !=
                      std::string::npos
                  ? 1
                  : 0;
  }
  EXPECT_GT(missed, 3);
}

// What a loss of power may leave is none.
TEST(Verify, HalfWrittenBlocks_AreNotedWhereSomebodyMayHaveDied) {
  Walk walk(3, {.pages = true});
  walk.Live(900, /*cleans=*/true);
  walk.Stop(End::kRingsLost);
  walk.Flip("/log/EPOCH", (walk.Epoch().number + 1) % 2 * 4096 + 25);
  walk.Flip(Walk::kCheckpoint, (walk.Checkpoint().number + 1) % 2 * 4096 + 45);
  const Report report = walk.Look();
  EXPECT_EQ(Texts(report), "");
  EXPECT_TRUE(Notes(report, "/log/EPOCH: one of its two blocks"));
  EXPECT_TRUE(Notes(report, "checkpoint: one of its two blocks"));
}

// Half home after a loss of power: the copy counts, and is not written.
TEST(Verify, PagesWithACopy_AreWhole) {
  Walk walk(3, {.pages = true});
  walk.Live(900, /*cleans=*/true);
  walk.Clean();
  walk.Stop(End::kDown);
  const std::string content = *walk.files().ReadFile(Walk::kDoubleWrite);
  const auto batch = storage::DecodeBatch(std::as_bytes(std::span(content)));
  ASSERT_THAT(batch, testing::Not(IsEmpty()));
  const auto id = storage::PageId::FromValue(storage::HeaderOf(batch[0]).page_id);
  walk.Flip(Walk::kSite, id.number() * 4096 + 50);
  EXPECT_EQ(Texts(walk.Look()), "");
  walk.Flip(Walk::kDoubleWrite, 4096 + 50);
  const Report report = walk.Look();
  ASSERT_EQ(report.findings.size(), 1u) << Texts(report);
  EXPECT_THAT(report.findings[0].text, HasSubstr(fmt::format("page {} (of site 0)", id.number())));
}

TEST(Verify, BeyondEpoch_IsSaidAndNoFinding) {
  Walk walk(3, {.pages = true});
  walk.Live(900, /*cleans=*/true);
  walk.Stop(End::kDown);
  const std::string path = Walk::kLog + log::SegmentName(99);
  const std::vector<std::byte> header = log::EncodeSegmentHeader({.cluster = 1, .number = 99, .bytes = 8192});
  ASSERT_TRUE(
      walk.files().ReplaceFile(path, {reinterpret_cast<const char*>(header.data()), header.size()}).ok());
  const Report report = walk.Look();
  EXPECT_EQ(Texts(report), "");
  EXPECT_TRUE(Notes(report, "1 later segments are beyond EPOCH"));
}

// A ring that is not whole is as good as none: that is damage, and power is lost.
TEST(Verify, DamagedRing_IsAFinding) {
  Walk walk(4, {.pages = true});
  walk.Live(900, /*cleans=*/true);
  walk.Stop(End::kKilled);
  walk.rings()[0].ring = absl::DataLossError("the ring is damaged: no record");
  const Report report = walk.Look();
  ASSERT_EQ(report.findings.size(), 1u) << Texts(report);
  EXPECT_THAT(report.findings[0].text, HasSubstr("the ring is damaged"));
  EXPECT_TRUE(Notes(report, "power was lost"));
}

// Somebody else has the files: nothing can be said of them.
TEST(Verify, WhoWantsAnEnd_GetsOne) {
  Walk walk(2, {.pages = true});
  walk.Live(900, /*cleans=*/true);
  walk.Stop(End::kDown);
  runtime::OverlayFileSystem files(walk.files());
  Report report;
  const int before = walk.progress();
  ASSERT_TRUE(walk.Look(files, &report).ok());
  for (int words = walk.progress() - before; words > 0; --words) {
    walk.EndAt(words);
    EXPECT_EQ(walk.Look(files, &report).code(), absl::StatusCode::kCancelled) << words;
  }
}

TEST(Verify, LockedFiles_CannotBeLookedAt) {
  Walk walk(4, {.pages = true});
  walk.Live(300, /*cleans=*/true);
  walk.Stop(End::kDown);
  const auto file = walk.files().Open(Walk::kSite, /*create=*/false, /*direct=*/false);
  ASSERT_TRUE(file.ok() && walk.files().Lock(*file).ok());
  runtime::OverlayFileSystem files(walk.files());
  Report report;
  EXPECT_EQ(walk.Look(files, &report).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Texts(report), "");
}

}  // namespace
}  // namespace islands::verify
