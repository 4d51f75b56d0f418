#include "instance/storage/pages/page_guard.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "instance/storage/pages/buffer_pool.h"

namespace islands::storage {
namespace {

static_assert(std::is_nothrow_destructible_v<GuardO> && std::is_nothrow_move_constructible_v<GuardO>);
static_assert(std::is_nothrow_destructible_v<GuardS> && std::is_nothrow_move_constructible_v<GuardS>);
static_assert(std::is_nothrow_destructible_v<GuardX> && std::is_nothrow_move_constructible_v<GuardX>);
static_assert(!std::is_copy_constructible_v<GuardO> && !std::is_copy_constructible_v<GuardS> &&
              !std::is_copy_constructible_v<GuardX>);

// Two resident pages whose state words can be looked at; with latches and, for a thread that is alone,
// without.
class PageGuardTest : public testing::TestWithParam<bool> {
 protected:
  PageGuardTest() {
    for (uint8_t i = 0; i < 2; ++i)
      GuardX::FirstUse(Page(i)).Change({.bytes = 1})[0] = static_cast<std::byte>(7 + i);
  }
  PageRef Page(size_t i) { return PageRef(&states_[i], bytes_.data() + i * kPageBytes, GetParam()); }
  PageState State(size_t i) { return states_[i].Load(); }
  static uint8_t FirstByte(const GuardO& guard) { return guard.page().Array<uint8_t>(0)[0]; }

  std::array<AtomicPageState, 2> states_{};
  std::vector<std::byte> bytes_ = std::vector<std::byte>(2 * kPageBytes);
};

TEST(PageState, Fields_DoNotOverlap) {
  const PageState state = PageState(0)
                              .WithResidency(Residency::kMarked)
                              .WithLatch(PageState::kMaxShared)
                              .WithNextVersion()
                              .WithNextVersion();
  EXPECT_EQ(state.version(), 2u);
  EXPECT_EQ(state.residency(), Residency::kMarked);
  EXPECT_EQ(state.latch(), PageState::kMaxShared);
  EXPECT_FALSE(state.exclusive());
  EXPECT_EQ(state.WithResidency(Residency::kUntouched).WithLatch(0),
            PageState(0).WithNextVersion().WithNextVersion());
}

TEST_P(PageGuardTest, GuardX_ReleaseGivesANewVersion) {
  const uint64_t before = State(0).version();
  {
    const GuardX guard(Page(0));
    EXPECT_TRUE(State(0).exclusive());
    EXPECT_EQ(State(0).version(), before);
  }
  EXPECT_TRUE(State(0).free());
  EXPECT_EQ(State(0).version(), before + 1);
  EXPECT_EQ(State(0).residency(), Residency::kResident);
}

TEST_P(PageGuardTest, GuardX_MovedGuardReleasesOnce) {
  const uint64_t before = State(0).version();
  GuardX first(Page(0));
  GuardX second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT: what is left after the move is what is tested
  EXPECT_TRUE(second);
  first.Release();
  EXPECT_TRUE(State(0).exclusive());
  GuardX other(Page(1));
  other = std::move(second);  // releases page 1, takes page 0
  EXPECT_TRUE(State(1).free());
  EXPECT_TRUE(State(0).exclusive());
  other.Release();
  other.Release();
  EXPECT_EQ(State(0).version(), before + 1);
  EXPECT_TRUE(State(0).free());
}

TEST_P(PageGuardTest, GuardS_ManyHolders) {
  GuardS first(Page(0));
  GuardS second(Page(0));
  EXPECT_EQ(State(0).latch(), 2u);
  GuardS third(std::move(second));
  EXPECT_EQ(State(0).latch(), 2u);
  third = std::move(first);
  EXPECT_EQ(State(0).latch(), 1u);
  EXPECT_EQ(third.bytes()[0], std::byte{7});
  const uint64_t version = State(0).version();
  third.Release();
  EXPECT_TRUE(State(0).free());
  EXPECT_EQ(State(0).version(), version);  // readers do not disturb optimistic ones
}

TEST_P(PageGuardTest, GuardO_MovedGuard) {
  GuardO first(Page(0));
  GuardO second(std::move(first));
  EXPECT_FALSE(first);  // NOLINT
  EXPECT_TRUE(second.Valid());
  GuardO third(Page(1));
  EXPECT_EQ(FirstByte(third), 8u);
  third = std::move(second);
  EXPECT_EQ(FirstByte(third), 7u);
  EXPECT_TRUE(third.Valid());
  third.Release();
  EXPECT_TRUE(State(0).free());
  EXPECT_TRUE(State(1).free());
}

TEST_P(PageGuardTest, Upgrade_Succeeds) {
  GuardO optimistic(Page(0));
  GuardX exclusive = GuardX::Upgrade(optimistic);
  ASSERT_TRUE(exclusive);
  EXPECT_FALSE(optimistic);
  EXPECT_TRUE(State(0).exclusive());
  exclusive.Release();
  EXPECT_TRUE(State(0).free());
}

TEST_P(PageGuardTest, Upgrade_FailsWhileOthersRead) {
  GuardO optimistic(Page(0));
  GuardS shared(Page(0));
  EXPECT_FALSE(GuardX::Upgrade(optimistic));
  EXPECT_TRUE(optimistic);
  EXPECT_TRUE(optimistic.Valid());
  shared.Release();
  EXPECT_TRUE(GuardX::Upgrade(optimistic));
}

TEST_P(PageGuardTest, GuardO_InvalidDuringAndAfterAWrite) {
  GuardO before(Page(0));
  EXPECT_TRUE(State(0).free());
  EXPECT_TRUE(before.Valid());
  GuardX writer(Page(0));
  EXPECT_FALSE(before.Valid());
  writer.Release();
  EXPECT_FALSE(before.Valid());
  EXPECT_FALSE(GuardX::Upgrade(before));
  const GuardO after(Page(0));
  EXPECT_TRUE(after.Valid());
}

TEST_P(PageGuardTest, GuardO_StaysValidBesideReaders) {
  const GuardO optimistic(Page(0));
  const GuardS shared(Page(0));
  EXPECT_TRUE(optimistic.Valid());
}

TEST_P(PageGuardTest, GuardX_ExcludesWritersAndReaders) {
  if (GetParam()) GTEST_SKIP() << "several threads are not alone";
  constexpr int kThreads = 4;
  constexpr int kRounds = 5000;
  auto* counters = reinterpret_cast<uint64_t*>(bytes_.data());  // two that are always equal, behind the latch
  counters[0] = counters[1] = 0;
  const auto work = [&](int thread) {
    for (int i = 0; i < kRounds; ++i) {
      if ((i + thread) % 3 == 0) {
        const GuardS guard(Page(0));
        const auto* seen = reinterpret_cast<const uint64_t*>(guard.bytes());
        EXPECT_EQ(seen[0], seen[1]);
        continue;
      }
      const GuardX guard(Page(0));
      auto* own = reinterpret_cast<uint64_t*>(guard.Change({.bytes = 2 * sizeof(uint64_t)}));
      ++own[0];
      ++own[1];
    }
  };
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) threads.emplace_back(work, t);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counters[0], counters[1]);
  EXPECT_GE(counters[0], uint64_t{kThreads} * kRounds * 3 / 5);
  EXPECT_TRUE(State(0).free());
}

// ---- the pool that pages come from ----

INSTANTIATE_TEST_SUITE_P(, PageGuardTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Alone" : "Latched"; });

TEST(BufferPool, Create_BindsTheRegionBeforeAnyPageIsTouched) {
  void* bound = nullptr;
  size_t bound_bytes = 0;
  auto bind = [&](void* address, size_t bytes) {
    bound = address;
    bound_bytes = bytes;
  };
  absl::FunctionRef<void(void*, size_t)> bind_memory = bind;
  const auto pool =
      BufferPool::Create({.capacity_bytes = 3 * kPageBytes + 1, .slots = 2, .bind_memory = &bind_memory});
  ASSERT_TRUE(pool.ok()) << pool.status();
  EXPECT_EQ(bound, (*pool)->region());
  EXPECT_EQ(bound_bytes, (*pool)->region_bytes());
  EXPECT_EQ((*pool)->resident_pages(), 0u);
  EXPECT_EQ((*pool)->capacity_pages(), 3u);
}

TEST(BufferPool, ClaimPage_UntilFull) {
  const auto pool = *BufferPool::Create({.capacity_bytes = 2 * kPageBytes});
  EXPECT_TRUE(pool->ClaimPage());
  EXPECT_TRUE(pool->ClaimPage());
  EXPECT_FALSE(pool->ClaimPage());
  EXPECT_EQ(pool->resident_pages(), 2u);
}

TEST(BufferPool, Slot_PagesDoNotOverlap) {
  const auto pool =
      *BufferPool::Create({.capacity_bytes = 64 * kPageBytes, .slots = 3, .region_bytes = 1 << 20});
  std::vector<GuardX> guards;
  for (uint32_t slot = 0; slot < 3; ++slot) {
    const PageArray pages = pool->Slot(slot);
    ASSERT_GE(pages.size(), 64u);
    for (const uint64_t number : {uint64_t{0}, uint64_t{1}, pages.size() - 1}) {
      guards.push_back(GuardX::FirstUse(pages.At(number)));
      for (size_t i = 0; i < kPageBytes; ++i) ASSERT_EQ(guards.back().bytes()[i], std::byte{0});
      std::fill_n(guards.back().Change({.bytes = kPageBytes}), kPageBytes,
                  static_cast<std::byte>(guards.size()));
    }
  }
  for (size_t g = 0; g < guards.size(); ++g) {
    EXPECT_EQ(guards[g].bytes()[0], static_cast<std::byte>(g + 1));
    EXPECT_EQ(guards[g].bytes()[kPageBytes - 1], static_cast<std::byte>(g + 1));
  }
}

TEST(BufferPool, Create_ErrorsSayWhy) {
  EXPECT_EQ(BufferPool::Create({.capacity_bytes = 100}).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(BufferPool::Create({.capacity_bytes = kPageBytes, .slots = 0}).status().code(),
            absl::StatusCode::kInvalidArgument);
  const absl::Status too_large =
      BufferPool::Create({.capacity_bytes = uint64_t{1} << 50, .slots = 100}).status();
  EXPECT_EQ(too_large.code(), absl::StatusCode::kResourceExhausted) << too_large;
}

}  // namespace
}  // namespace islands::storage
