// Pools that hold less than there is: whatever is evicted and read again, trees are as a map is; and each of
// what could go wrong on the way is seen.
#include "instance/storage/files/pager.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance/storage/files/page_fetcher.h"
#include "instance/storage/store.h"
#include "partitioner/key_codec.h"
#include "runtime/file_system_forwarding.h"
#include "runtime/file_system_memory.h"
#include "runtime/random.h"

namespace islands::storage {
namespace {

using partitioner::Uint64Key;

RowView Bytes(const std::string& text) { return std::as_bytes(std::span(text.data(), text.size())); }

// Who hears of reads when they have come.
class FilesWithHook final : public runtime::ForwardingFileSystem {
 public:
  explicit FilesWithHook(runtime::FileSystem& below) : ForwardingFileSystem(below), below_(below) {}
  std::unique_ptr<Queue> MakeQueue() override { return std::make_unique<HookedQueue>(*this); }

  std::function<void(const runtime::IoRequest&)> after_read;

 private:
  class HookedQueue final : public Queue {
   public:
    explicit HookedQueue(FilesWithHook& files) : files_(files), queue_(files.below_.MakeQueue()) {}
    void Submit(const runtime::IoRequest& request) override {
      requests_[request.token] = request;
      queue_->Submit(request);
    }
    size_t Poll(std::vector<runtime::IoCompletion>* completions) override {
      const size_t before = completions->size(), count = queue_->Poll(completions);
      for (size_t i = before; i < completions->size(); ++i) {
        const runtime::IoRequest& request = requests_[(*completions)[i].token];
        if (request.kind == runtime::IoKind::kRead && files_.after_read) files_.after_read(request);
      }
      return count;
    }
    void Wait(int64_t timeout_ns) override { queue_->Wait(timeout_ns); }

   private:
    FilesWithHook& files_;
    std::map<uint64_t, runtime::IoRequest> requests_;
    std::unique_ptr<Queue> queue_;
  };

  runtime::FileSystem& below_;
};

class PagerTest : public testing::Test {
 protected:
  void Make(uint64_t pages, bool alone, bool indexed = false) {
    Catalog::TableSpecs specs;
    control::v1::TableSpec* table = specs.Add();
    table->set_name("rows");
    table->add_key("uint64");
    table->set_range_end(1 << 20);
    if (indexed) {
      control::v1::IndexSpec* index = table->add_indexes();
      index->set_name("by_first_bytes");
      index->add_key("row:0:uint32");
    }
    catalog_ = std::make_unique<Catalog>(*Catalog::Create(specs, 1));
    store_ = *Store::Create(
        *catalog_, {.sites = {0, 1}, .pool_bytes = pages * kPageBytes, .alone = alone, .paged = true},
        files_);
    auto data = DataFiles::Create(files_, {.directory = "/data", .generation = ++made_, .sites = {0}});
    ASSERT_TRUE(data.ok());
    data_ = std::make_shared<DataFiles>(*std::move(data));
    ASSERT_TRUE(store_->pager()->MoveTo(files_, data_).ok());
  }
  SiteTable& rows() { return *store_->At(0, 0); }
  Pager& pager() { return *store_->pager(); }
  // As after a load: what has been written counts as clean, and no more is.
  void BeClean() {
    ASSERT_TRUE(pager().HasRoom(store_->Usage().capacity_pages / 2));
    ASSERT_TRUE(pager().EndSpill().ok());
  }
  void Fill(uint64_t count, size_t bytes = 200, uint64_t first = 0) {
    for (uint64_t key = first; key < count; ++key)
      ASSERT_EQ(rows().Insert(Uint64Key(key), Bytes(std::string(bytes, static_cast<char>('a' + key % 26)))),
                absl::StatusCode::kOk);
  }
  // Some page that is in a state, beginning with the last one.
  template <typename Is>
  uint64_t Find(Is is) {
    for (uint64_t number = store_->space(0).end_page() - 1; number > 0; --number) {
      if (is(number)) return number;
    }
    ADD_FAILURE() << "there is none";
    return 0;
  }
  std::vector<Pager::Place> OnDisk(size_t most) {  // the first ones
    std::vector<Pager::Place> places;
    for (uint64_t number = 1; number < store_->space(0).end_page() && places.size() < most; ++number) {
      if (store_->space(0).OnDisk(number)) places.push_back({0, number});
    }
    return places;
  }
  uint64_t FindOnDisk() {
    return Find([&](uint64_t number) { return store_->space(0).OnDisk(number); });
  }
  std::byte* WriteTo(uint64_t number, std::byte value) {
    const GuardX page(store_->space(0).At(number));
    std::byte* bytes = page.Change({.bytes = kPageBytes});
    bytes[kPageBytes - 1] = value;
    reinterpret_cast<PageHeader*>(bytes)->lsn += 1;
    return bytes;
  }

  const std::unique_ptr<runtime::FileSystem> disk_ = runtime::MakeMemoryFileSystem();
  FilesWithHook files_{*disk_};
  uint64_t made_ = 0;
  std::unique_ptr<Catalog> catalog_;
  std::shared_ptr<DataFiles> data_;
  std::unique_ptr<Store> store_;
};

void Check(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

// Rows come, change and go, at random; ten times what the pool holds.
TEST_F(PagerTest, Model_InAPoolOf32Pages) {
#ifdef ISLANDS_TSAN
  constexpr int kSteps = 5000;  // nobody else is there
#else
  constexpr int kSteps = 20'000;
#endif
  for (const bool alone : {true, false}) {
    ASSERT_NO_FATAL_FAILURE(Make(32, alone, /*indexed=*/true));
    std::map<uint64_t, std::string> model;
    runtime::Random random(7);
    std::vector<std::byte> found;
    for (int step = 0; step < kSteps; ++step) {
      const uint64_t key = random.Below(4000);
      const std::string row(8 + random.Below(600), static_cast<char>('a' + random.Below(26)));
      const bool there = model.contains(key);
      switch (random.Below(step < kSteps / 2 ? 3 : 5)) {
        case 0:
        case 1:
          ASSERT_EQ(rows().Insert(Uint64Key(key), Bytes(row)),
                    there ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kOk);
          model.try_emplace(key, row);
          break;
        case 2:
          ASSERT_EQ(rows().Replace(Uint64Key(key), Bytes(row)),
                    there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
          if (there) model[key] = row;
          break;
        case 3:
          ASSERT_EQ(rows().MarkGhost(Uint64Key(key)),
                    there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
          if (there) {
            ASSERT_EQ(rows().RemoveGhost(Uint64Key(key)), absl::StatusCode::kOk);
          }
          model.erase(key);
          break;
        default: {
          ASSERT_EQ(rows().Read(Uint64Key(key), &found),
                    there ? absl::StatusCode::kOk : absl::StatusCode::kNotFound);
          if (there) {
            ASSERT_TRUE(std::ranges::equal(found, Bytes(model[key])));
          }
        }
      }
    }
    ASSERT_LE(store_->Usage().resident_pages, 32u + 16u);
    EXPECT_GT(pager().counters().evicted, 1000u);
    auto expected = model.begin();
    rows().Scan({}, {}, false, [&](KeyView key, RowView row) {
      EXPECT_TRUE(expected != model.end() && std::ranges::equal(key, KeyView(Uint64Key(expected->first))) &&
                  std::ranges::equal(row, Bytes(expected->second)));
      ++expected;
      return !HasFailure();
    });
    EXPECT_TRUE(expected == model.end());
    uint64_t backwards = 0;
    rows().Scan({}, {}, true, [&](KeyView, RowView) { return ++backwards, true; });
    EXPECT_EQ(backwards, model.size());
    Check(store_->Check());
    Check(pager().spill_status());
  }
}

// Threads that read and change neighbours, while pages come and go.
TEST_F(PagerTest, Stress_ThreeThreadsInAPoolOf64Pages) {
  constexpr uint64_t kRows = 3000, kThreads = 3;
  ASSERT_NO_FATAL_FAILURE(Make(64, /*alone=*/false));
  Fill(kRows);
#ifdef ISLANDS_TSAN
  constexpr int kSteps = 3000;
#else
  constexpr int kSteps = 20'000;
#endif
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([this, thread] {
      runtime::Random random(thread);
      std::vector<std::byte> found;
      std::map<uint64_t, uint64_t> counts;  // of the rows that are this thread's
      for (int step = 0; step < kSteps && !HasFailure(); ++step) {
        const uint64_t key = random.Below(kRows / kThreads) * kThreads + thread;
        if (random.Below(2) == 0) {
          EXPECT_EQ(rows().Modify(Uint64Key(key), {0, 8},
                                  [&](std::span<std::byte> row) {
                                    const uint64_t count = ++counts[key];
                                    std::memcpy(row.data(), &count, sizeof(count));
                                  }),
                    absl::StatusCode::kOk);
          continue;
        }
        EXPECT_EQ(rows().Read(Uint64Key(key), &found), absl::StatusCode::kOk);
        if (counts.contains(key)) {
          uint64_t count = 0;
          std::memcpy(&count, found.data(), sizeof(count));
          EXPECT_EQ(count, counts[key]) << "of row " << key;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(pager().counters().evicted, 1000u);
  Check(store_->Check());
}

TEST_F(PagerTest, Fetch_OfManyIsTogetherAndOfTheSameOnce) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  std::vector<Pager::Place> places = OnDisk(10);
  places.push_back(places.front());
  const uint64_t read = pager().counters().read;
  Check(pager().Fetch(places));
  EXPECT_EQ(pager().counters().read - read, 10u);
  for (const Pager::Place& place : places) EXPECT_FALSE(pager().OnDisk(place));
  EXPECT_EQ(pager().counters().waited, 0u) << "nobody looked at one that was not there";
}

// Whoever is alone looks at no state word while all pages are in memory, and not marked; only then.
TEST_F(PagerTest, Unguarded_WhileNoPageIsOut) {
  ASSERT_NO_FATAL_FAILURE(Make(128, true));
  const SiteSpace& space = store_->space(0);
  Fill(2000);
  EXPECT_TRUE(space.unguarded());
  ASSERT_NO_FATAL_FAILURE(BeClean());
  EXPECT_FALSE(space.unguarded());
  std::vector<uint64_t> out;
  for (uint64_t number = 1; number < space.end_page(); ++number) {
    if (space.OnDisk(number) || space.At(number).marked()) out.push_back(number);
  }
  for (const uint64_t number : out) {
    EXPECT_FALSE(space.unguarded());
    const GuardS look(space.At(number));
  }
  EXPECT_TRUE(space.unguarded());
  store_->space(0).Mark(1);
  EXPECT_FALSE(space.unguarded());
  { const GuardS look(space.At(1)); }
  EXPECT_TRUE(space.unguarded());

  ASSERT_NO_FATAL_FAILURE(Make(256, false));
  Fill(100);
  EXPECT_FALSE(store_->space(0).unguarded()) << "others may change pages";
}

// Lines of this process's memory maps, of the mapping that has the address.
uint64_t KibOf(const void* address, const std::string& name) {
  std::ifstream file("/proc/self/smaps");
  bool inside = false;
  for (std::string line; std::getline(file, line);) {
    uintptr_t first = 0, end = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx ", &first, &end) == 2)
      inside = reinterpret_cast<uintptr_t>(address) >= first && reinterpret_cast<uintptr_t>(address) < end;
    if (inside && line.starts_with(name + ":")) return std::stoull(line.substr(name.size() + 1));
  }
  return 0;
}

uint64_t HugePagesSplit() {  // since the machine began
  std::ifstream file("/proc/vmstat");
  std::string name;
  for (uint64_t count = 0; file >> name >> count;) {
    if (name == "thp_split_page") return count;
  }
  return 0;
}

TEST_F(PagerTest, HugePages_UntilNotAllPagesFit) {
  constexpr uint64_t kPool = 20'000;  // pages: 78 MiB
  ASSERT_NO_FATAL_FAILURE(Make(kPool, true));
  const auto huge_kib = [&] { return KibOf(GuardS(store_->space(0).At(1)).bytes(), "AnonHugePages"); };
  Fill(50'000);
  const uint64_t huge_before = huge_kib(), split_before = HugePagesSplit();
  if (huge_before == 0) GTEST_SKIP() << "this kernel gives none";
  EXPECT_EQ(pager().counters().spilled, 0u);
  Fill(450'000, 200, 50'000);
  EXPECT_GT(store_->space(0).end_page(), kPool) << "more than the pool holds";
  // Where the hand does not split them the kernel keeps their memory.
  EXPECT_GE(2048 * (HugePagesSplit() - split_before) + huge_kib(), kPool * kPageBytes / 1024 * 9 / 10);
  EXPECT_LE(KibOf(GuardS(store_->space(0).At(1)).bytes(), "Rss"),
            store_->Usage().resident_pages * kPageBytes / 1024 + 2048);

  // In the next life, which has more pages than fit from the first on, those that are read do not take a
  // huge page each.
  std::vector<Pager::Place> apart;
  for (uint64_t number = 1; number < store_->space(0).end_page(); number += 512) {
    if (store_->space(0).OnDisk(number)) apart.push_back({0, number});
  }
  ASSERT_GT(apart.size(), 5u);
  const auto later = *Store::CreateForRedo(
      *catalog_, {.sites = {0, 1}, .pool_bytes = kPool * kPageBytes, .alone = true, .paged = true});
  later->pager()->Attach(files_, data_);
  Check(later->pager()->PutOnDisk(0, store_->space(0).end_page()));
  Check(later->pager()->Fetch(apart));
  EXPECT_EQ(KibOf(GuardS(later->space(0).At(apart[0].number)).bytes(), "AnonHugePages"), 0u);
}

TEST_F(PagerTest, HugePages_NoneWhereTheyAreNotWanted) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));  // the catalog
  const auto store = *Store::Create(
      *catalog_, {.sites = {0, 1}, .pool_bytes = 64 << 20, .alone = true, .huge_pages = false}, files_);
  for (uint64_t key = 0; key < 50'000; ++key)
    ASSERT_EQ(store->At(0, 0)->Insert(Uint64Key(key), Bytes(std::string(200, 'a'))), absl::StatusCode::kOk);
  EXPECT_EQ(KibOf(GuardS(store->space(0).At(1)).bytes(), "AnonHugePages"), 0u);
}

TEST_F(PagerTest, Hand_LeavesWhatHasChangedAndNamesIt) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  pager().TakeVictims();
  const uint64_t changed = FindOnDisk();
  const std::byte* bytes = WriteTo(changed, std::byte{77});
  // All others may go.
  for (int i = 0; i < 4; ++i) {
    Check(pager().Fetch(OnDisk(60)));
  }
  EXPECT_FALSE(store_->space(0).OnDisk(changed));
  EXPECT_EQ(bytes[kPageBytes - 1], std::byte{77});
  EXPECT_EQ(std::ranges::count(pager().TakeVictims(), Pager::Place{0, changed}), 1);
}

TEST_F(PagerTest, Hand_LeavesWhatIsLatched) {
  ASSERT_NO_FATAL_FAILURE(Make(64, false));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  const uint64_t number = FindOnDisk();
  const GuardX page(store_->space(0).At(number));
  const auto before = std::vector<std::byte>(page.bytes(), page.bytes() + kPageBytes);
  for (int i = 0; i < 4; ++i) {
    Check(pager().Fetch(OnDisk(60)));
  }
  EXPECT_TRUE(std::ranges::equal(before, std::span(page.bytes(), kPageBytes)));
}

// What is looked at again and again stays, though the hand goes round all the time.
TEST_F(PagerTest, Hand_LeavesWhatIsLookedAt) {
  ASSERT_NO_FATAL_FAILURE(Make(128, true));
  Fill(6000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  runtime::Random random(3);
  const uint64_t end = store_->space(0).end_page();
  const uint64_t loved = FindOnDisk();
  uint64_t missed = 0;
  for (int step = 0; step < 4000; ++step) {
    if (step % 20 == 0) {
      missed += store_->space(0).OnDisk(loved);
      const GuardS look(store_->space(0).At(loved));
    }
    const Pager::Place other{0, 1 + random.Below(end - 1)};
    if (other.number != loved) Check(pager().Fetch({&other, 1}));
  }
  EXPECT_LE(missed, 2u) << "of 200 looks; a page that nobody marks first is lost every third time";
}

// Who reads without a latch may have seen the page's memory while the page was away: zeros.
TEST_F(PagerTest, Hand_EndsWhatReadersHaveSeen) {
  ASSERT_NO_FATAL_FAILURE(Make(64, false));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  const Pager::Place place{0, FindOnDisk()};
  Check(pager().Fetch({&place, 1}));
  const GuardO reader(store_->space(0).At(place.number));
  EXPECT_TRUE(reader.Valid());
  for (int i = 0; i < 20 && !pager().OnDisk(place); ++i) {
    for (uint64_t other = 1; other < store_->space(0).end_page(); ++other) {
      const Pager::Place another{0, other};
      if (another != place) Check(pager().Fetch({&another, 1}));
    }
  }
  ASSERT_TRUE(pager().OnDisk(place));
  EXPECT_FALSE(reader.Valid());
  Check(pager().Fetch({&place, 1}));
  EXPECT_FALSE(reader.Valid());
}

// While a page is being read somebody else reads it, changes it, and it is evicted again, after it was
// written home.
TEST_F(PagerTest, Fetch_DoesNotPutBackWhatIsOldMeanwhile) {
  for (const bool evicted_again : {false, true}) {
    ASSERT_NO_FATAL_FAILURE(Make(64, true));
    Fill(3000);
    ASSERT_NO_FATAL_FAILURE(BeClean());
    const Pager::Place place{0, FindOnDisk()};
    bool first = true;
    files_.after_read = [&](const runtime::IoRequest& request) {
      if (request.offset != place.number * kPageBytes || !std::exchange(first, false)) return;
      const std::byte* bytes = WriteTo(place.number, std::byte{42});  // reads it by itself
      if (!evicted_again) return;
      DiskPage copy;
      std::copy_n(bytes, kPageBytes, copy.bytes.begin());
      StampChecksum(copy.bytes);
      BlockingQueue queue(files_);
      Check(queue.Do({.kind = runtime::IoKind::kWrite,
                      .file = data_->site(0),
                      .offset = place.number * kPageBytes,
                      .buffer = copy.bytes}));
      store_->space(0).SetHome(place.number, HeaderOf(copy.bytes).lsn);
      pager().NoteCleaned({&place, 1});
      for (int i = 0; i < 20 && !pager().OnDisk(place); ++i) {
        for (uint64_t other = 1; other < store_->space(0).end_page(); ++other) {
          const Pager::Place another{0, other};
          if (another != place) Check(pager().Fetch({&another, 1}));
        }
      }
      ASSERT_TRUE(pager().OnDisk(place));
    };
    Check(pager().Fetch({&place, 1}));
    files_.after_read = nullptr;
    const GuardS page(store_->space(0).At(place.number));
    EXPECT_EQ(page.bytes()[kPageBytes - 1], std::byte{42}) << "evicted again: " << evicted_again;
    store_->pager()->TakeVictims();
  }
}

TEST_F(PagerTest, Fetch_SaysWhatTheDiskHasLost) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  const Pager::Place place{0, FindOnDisk()};
  BlockingQueue queue(files_);
  DiskPage page;
  runtime::IoRequest request{.kind = runtime::IoKind::kRead,
                             .file = data_->site(0),
                             .offset = place.number * kPageBytes,
                             .buffer = page.bytes};
  Check(queue.Do(request));
  const DiskPage whole = page;
  request.kind = runtime::IoKind::kWrite;
  const auto fetch = [&] {
    Check(queue.Do(request));
    return std::string(pager().Fetch({&place, 1}).message());
  };
  page.bytes[2000] ^= std::byte{1};
  EXPECT_NE(fetch().find("site-00000: page " + std::to_string(place.number) + " is not whole"),
            std::string::npos);
  page = whole;
  reinterpret_cast<PageHeader*>(page.bytes.data())->lsn += 1;
  StampChecksum(page.bytes);
  EXPECT_NE(fetch().find("is an old state of itself"), std::string::npos);
  page = whole;
  reinterpret_cast<PageHeader*>(page.bytes.data())->page_id += 1;
  StampChecksum(page.bytes);
  EXPECT_NE(fetch().find("is not whole"), std::string::npos);
  EXPECT_TRUE(pager().OnDisk(place));
  page = whole;
  EXPECT_EQ(fetch(), "");
  EXPECT_FALSE(pager().OnDisk(place));
}

// Two want some pages each, of which they share some, and one asks for the same twice.
TEST_F(PagerTest, Fetcher_ReadsOncePerPageAndTellsAll) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  std::vector<Pager::Place> places = OnDisk(10);
  const Pager::Place there{0, 0};  // in memory
  PageFetcher fetcher(pager());
  PagesWanted first, second, third;
  const uint64_t read = pager().counters().read;
  fetcher.Start(std::array{places[0], places[1], places[1], places[2], there}, &first);
  fetcher.Start(std::array{places[2], places[3]}, &second);
  fetcher.Start(std::array{there}, &third);
  EXPECT_EQ(first.left, 3u);
  EXPECT_EQ(second.left, 2u);
  EXPECT_EQ(third.left, 0u);
  EXPECT_TRUE(fetcher.reading());
  std::vector<PagesWanted*> over;
  while (fetcher.reading()) fetcher.WaitFor(1'000'000), fetcher.Poll(&over);
  EXPECT_EQ(over.size(), 2u);
  EXPECT_EQ(first.left + second.left, 0u);
  Check(first.status);
  Check(second.status);
  EXPECT_EQ(pager().counters().read - read, 4u);
  EXPECT_EQ(pager().counters(0).read, pager().counters().read) << "all of them are of the one site";
  EXPECT_EQ(pager().counters(1).read, 0u);
  for (int i = 0; i < 4; ++i) EXPECT_FALSE(pager().OnDisk(places[i]));
  EXPECT_EQ(fetcher.Poll(&over), 0u);
  fetcher.Start(std::span(places).subspan(5), &first);  // it ends with reads under way
}

TEST_F(PagerTest, Fetcher_TellsAllWhatTheDiskHasLost) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  const Pager::Place place{0, FindOnDisk()};
  BlockingQueue queue(files_);
  DiskPage page{};
  runtime::IoRequest request{.kind = runtime::IoKind::kRead,
                             .file = data_->site(0),
                             .offset = place.number * kPageBytes,
                             .buffer = page.bytes};
  Check(queue.Do(request));
  PageFetcher fetcher(pager());
  std::vector<PagesWanted*> over;
  const auto fetch = [&](PagesWanted* first, PagesWanted* second) {
    over.clear();
    fetcher.Start({&place, 1}, first);
    fetcher.Start({&place, 1}, second);
    while (fetcher.reading()) fetcher.WaitFor(1'000'000), fetcher.Poll(&over);
    EXPECT_EQ(over.size(), 2u);
  };
  request.kind = runtime::IoKind::kWrite;
  page.bytes[2000] ^= std::byte{1};
  Check(queue.Do(request));
  {
    PagesWanted first, second;
    fetch(&first, &second);
    EXPECT_EQ(first.status.code(), absl::StatusCode::kDataLoss);
    EXPECT_EQ(second.status.code(), absl::StatusCode::kDataLoss);
    EXPECT_TRUE(pager().OnDisk(place));
  }
  page.bytes[2000] ^= std::byte{1};
  Check(queue.Do(request));
  // Somebody else is faster.
  files_.after_read = [&, first = true](const runtime::IoRequest& read) mutable {
    if (read.offset == place.number * kPageBytes && std::exchange(first, false))
      WriteTo(place.number, std::byte{42});
  };
  PagesWanted first, second;
  fetch(&first, &second);
  files_.after_read = nullptr;
  Check(first.status);
  const GuardS found(store_->space(0).At(place.number));
  EXPECT_EQ(found.bytes()[kPageBytes - 1], std::byte{42});
}

TEST_F(PagerTest, Spill_KeepsALoadWithinThePool) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  EXPECT_LE(store_->Usage().resident_pages, 64u);
  EXPECT_GT(pager().counters().spilled, 100u);
  Check(store_->Check());
  EXPECT_EQ(rows().Count(), 3000u);
}

// Without a log: what is read and not changed is not written again, and what is changed is.
TEST_F(PagerTest, Swap_WritesWhatHasChangedAndNothingElse) {
  constexpr uint64_t kRows = 3000;
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Check(pager().SwapTo(files_, data_));
  MarksChanges marks;
  page_change_sink = &marks;
  Fill(kRows);
  const auto change = [&](uint64_t key, std::byte value) {
    EXPECT_EQ(rows().Modify(Uint64Key(key), {0, 1}, [&](std::span<std::byte> row) { row[0] = value; }),
              absl::StatusCode::kOk);
  };
  const auto read_all = [&](std::byte value) {
    std::vector<std::byte> row;
    for (uint64_t key = 0; key < kRows; ++key) {
      ASSERT_EQ(rows().Read(Uint64Key(key), &row), absl::StatusCode::kOk);
      ASSERT_EQ(row[0], value) << key;
    }
  };
  for (uint64_t key = 0; key < kRows; ++key) change(key, std::byte{1});
  read_all(std::byte{1});
  const uint64_t spilled = pager().counters().spilled, read = pager().counters().read;
  read_all(std::byte{1});
  EXPECT_EQ(pager().counters().spilled, spilled);
  EXPECT_GT(pager().counters().read, read + 100);
  for (uint64_t key = 0; key < kRows; ++key) change(key, std::byte{2});
  EXPECT_GT(pager().counters().spilled, spilled + 100);
  read_all(std::byte{2});
  page_change_sink = nullptr;
  EXPECT_LE(store_->Usage().resident_pages, 64u);
  Check(store_->Check());
}

// A full disk costs memory, and nothing is lost; once it has room pages go there.
TEST_F(PagerTest, Swap_KeepsWhatTheDiskDoesNotTake) {
  runtime::MemoryFileSystem disk({.disk_bytes = 100 * kPageBytes});
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  auto made = DataFiles::Create(disk, {.directory = "/swap", .generation = 1, .sites = {0}});
  ASSERT_TRUE(made.ok()) << made.status();
  Check(pager().SwapTo(disk, std::make_shared<DataFiles>(*std::move(made))));
  MarksChanges marks;
  page_change_sink = &marks;
  Fill(6000);
  EXPECT_TRUE(absl::IsResourceExhausted(pager().spill_status())) << pager().spill_status();
  EXPECT_GT(store_->Usage().resident_pages, 150u);
  EXPECT_EQ(rows().Count(), 6000u);
  disk.SetRoom(1000 * kPageBytes);
  std::vector<std::byte> row;  // of a page that has gone, so that the hand has to find room for it
  for (uint64_t key = 0; key < 6000; ++key)
    EXPECT_EQ(rows().Read(Uint64Key(key), &row), absl::StatusCode::kOk);
  page_change_sink = nullptr;
  Check(pager().spill_status());
  EXPECT_LE(store_->Usage().resident_pages, 100u);
  store_.reset();  // before the disk
}

// A disk that fails writes while it is told to.
class WritesFail final : public runtime::ForwardingFileSystem {
 public:
  explicit WritesFail(runtime::FileSystem& below) : ForwardingFileSystem(below), below_(below) {}
  std::unique_ptr<Queue> MakeQueue() override { return std::make_unique<FailingQueue>(*this); }
  bool fail = false;

 private:
  class FailingQueue final : public Queue {
   public:
    explicit FailingQueue(WritesFail& disk) : disk_(disk), queue_(disk.below_.MakeQueue()) {}
    void Submit(const runtime::IoRequest& request) override {
      if (disk_.fail && request.kind == runtime::IoKind::kWrite) {
        done_.push_back({.token = request.token, .status = absl::UnavailableError("EIO"), .bytes = 0});
        return;
      }
      queue_->Submit(request);
    }
    size_t Poll(std::vector<runtime::IoCompletion>* completions) override {
      const size_t n = done_.size();
      completions->insert(completions->end(), done_.begin(), done_.end());
      done_.clear();
      return n + queue_->Poll(completions);
    }
    void Wait(int64_t timeout_ns) override {
      if (done_.empty()) queue_->Wait(timeout_ns);
    }

   private:
    WritesFail& disk_;
    std::unique_ptr<Queue> queue_;
    std::vector<runtime::IoCompletion> done_;
  };
  runtime::FileSystem& below_;
};

// A page that has been there once, has changed since, and could not be written is no less changed for it.
TEST_F(PagerTest, Swap_LosesNothingWhereWritesFail) {
  WritesFail disk(files_);
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  auto made = DataFiles::Create(disk, {.directory = "/swap", .generation = 1, .sites = {0}});
  ASSERT_TRUE(made.ok()) << made.status();
  Check(pager().SwapTo(disk, std::make_shared<DataFiles>(*std::move(made))));
  MarksChanges marks;
  page_change_sink = &marks;
  Fill(3000);
  const auto change = [&](uint64_t key, std::byte value) {
    EXPECT_EQ(rows().Modify(Uint64Key(key), {0, 1}, [&](std::span<std::byte> row) { row[0] = value; }),
              absl::StatusCode::kOk);
  };
  for (uint64_t key = 0; key < 3000; ++key) change(key, std::byte{1});
  disk.fail = true;
  for (uint64_t key = 0; key < 3000; ++key) change(key, std::byte{2});
  disk.fail = false;
  size_t lost = 0;
  std::vector<std::byte> row;
  for (uint64_t key = 0; key < 3000; ++key) {
    ASSERT_EQ(rows().Read(Uint64Key(key), &row), absl::StatusCode::kOk);
    lost += row[0] != std::byte{2};
  }
  EXPECT_EQ(lost, 0u);
  page_change_sink = nullptr;
  store_.reset();
}

TEST_F(PagerTest, Death_OfAPageThatIsWantedAndLost) {
  ASSERT_NO_FATAL_FAILURE(Make(64, true));
  Fill(3000);
  ASSERT_NO_FATAL_FAILURE(BeClean());
  BlockingQueue queue(files_);
  DiskPage zero{};
  for (uint64_t number = 1; number < store_->space(0).end_page(); ++number)
    Check(queue.Do({.kind = runtime::IoKind::kWrite,
                    .file = data_->site(0),
                    .offset = number * kPageBytes,
                    .buffer = zero.bytes}));
  EXPECT_EXIT(rows().Count(), testing::ExitedWithCode(EXIT_FAILURE), "site-00000: page [0-9]+ is not whole");
}

}  // namespace
}  // namespace islands::storage
