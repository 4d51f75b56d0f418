// Guards: the only way to the bytes of a page (vmcache, Leis et al. 2023, section 3.3; GuardO, GuardS,
// GuardX).
//
//   GuardO  optimistic: takes nothing, and gives no bytes but a TornPage (torn.h). Whatever was read counts
//           only if Valid() says so afterwards; until then any value may be torn, so that it must be bounded
//           before it is used as an offset.
//   GuardS  shared: several readers, no writer.
//   GuardX  exclusive: one writer, who says what it is about to change; its release gives the page a new
//           version.
//   GuardN  none: for a thread that has all pages to itself, until it changes or allocates one. Not even the
//           state word is touched.
//
// Latches are waited for from the root of a tree downwards only, upgrades never wait, and a site's header
// page comes last.
//
// On a one-worker island nobody else is there, and guards take no latches: the state word is written with
// plain stores. Guards still say what may be done, and versions still count.
//
// Thread safety: a guard belongs to one thread.
//
// Invariants:
//  1. A guard that holds something is released exactly once: by its destructor, Release, or the guard it was
//     moved into.
//  2. Destructors do not throw and do not wait.
//  3. If Valid() is true, no exclusive latch was held at any moment since the guard was made.
//  4. No byte of a page changes that was not named to Change of its exclusive guard before.
#pragma once

#include <cstddef>
#include <utility>

#include "instance/storage/pages/page.h"
#include "instance/storage/pages/page_change.h"
#include "instance/storage/pages/page_latch.h"
#include "instance/storage/pages/page_source.h"
#include "instance/storage/pages/page_state.h"
#include "instance/storage/pages/torn.h"
#include "runtime/check.h"
#include "runtime/latch_site.h"
#include "runtime/planted_bug.h"

namespace islands::storage {

// Where a page and its state word are, and whether one thread has all pages to itself. Gives no access to the
// bytes.
class PageRef {
 public:
  PageRef() = default;
  PageRef(AtomicPageState* state, std::byte* bytes, bool alone = false)
      : state_(state), bytes_(bytes), alone_(alone) {}
  // Whether it was ever touched; for recovery, while nobody else is there.
  bool touched() const { return state_->Load().residency() != Residency::kUntouched; }
  bool on_disk() const { return state_->Load().residency() == Residency::kOnDisk; }
  bool marked() const { return state_->Load().residency() == Residency::kMarked; }
  // Of a resident page that nobody has latched; false: it is none.
  bool Mark() const {
    PageState state = state_->Load();
    return state.residency() == Residency::kResident && state.free() &&
           Change(state, state.WithResidency(Residency::kMarked).WithLatch(PageState::kOut));
  }

 private:
  friend class GuardN;
  friend class GuardO;
  friend class GuardS;
  friend class GuardX;
  friend class PageWait;
  friend class Pager;
  bool Change(PageState& expected, PageState desired) const {
    return alone_ ? state_->Replace(expected, desired) : state_->CompareExchange(expected, desired);
  }
  AtomicPageState* state_ = nullptr;
  std::byte* bytes_ = nullptr;
  bool alone_ = false;
};

// Between two looks at a latch that somebody else has, or had. One wait is for one page, and for whoever was
// in the way first.
class PageWait {
 public:
  // `seen`: what is in the way.
  void Wait(runtime::LatchSite site, const PageRef& page, PageState seen) {
    if (page_change_sink != nullptr && !seen.out()) page_change_sink->BeforeWait();
    TryAgain(site, page, seen);
  }
  // The same for who has nothing latched meanwhile, and begins anew.
  void TryAgain(runtime::LatchSite site, const PageRef& page, PageState seen) {
    if (seen.out()) return BringIn(page.state_, seen);
    if (++rounds_ == 1 && page.bytes_ != nullptr) first_ = LookAtLatched(TornPage(page.bytes_), seen);
    runtime::BackOff(rounds_, site, first_.holder, first_.place);
  }

 private:
  uint32_t rounds_ = 0;
  Latched first_;
};

class GuardN {
 public:
  explicit GuardN(PageRef page) : bytes_(page.bytes_) { ISLANDS_CHECK(page.alone_); }
  const std::byte* bytes() const { return bytes_; }

 private:
  const std::byte* bytes_;
};

class GuardO {
 public:
  GuardO() = default;
  // Waits while the page is latched exclusively, or on disk. It must have been touched: the caller has its id
  // from a validated parent.
  explicit GuardO(PageRef page, runtime::LatchSite site = {}) : page_(page) {
    PageState state = page_.state_->Load();
    for (PageWait wait; state.exclusive(); wait.Wait(site, page_, state)) state = page_.state_->Load();
    ISLANDS_CHECK(state.residency() != Residency::kUntouched);
    seen_ = state;
  }
  // Empty where it would have to wait.
  static GuardO Try(PageRef page) {
    const PageState state = page.state_->Load();
    return state.exclusive() ? GuardO() : GuardO(page, state);
  }
  GuardO(GuardO&& other) noexcept : page_(std::exchange(other.page_, {})), seen_(other.seen_) {}
  GuardO& operator=(GuardO&& other) noexcept {
    page_ = std::exchange(other.page_, {});
    seen_ = other.seen_;
    return *this;
  }

  explicit operator bool() const { return page_.state_ != nullptr; }
  TornPage page() const { return TornPage(page_.bytes_); }

  // Whether everything read from the page so far is one consistent state of it. The only place that
  // validates.
  [[nodiscard]] bool Valid() const {
    runtime::SchedulingPoint();
    EndTornReads();
    const PageState now = page_.state_->LoadRelaxed();
    return now.version() == seen_.version() && !now.exclusive();
  }

  void Release() noexcept { page_ = {}; }

  // For a look at the same page later, as long as it stays as it is: GuardO(page, seen()) is Valid() then.
  PageState seen() const { return seen_; }
  GuardO(PageRef page, PageState seen) : page_(page), seen_(seen) {}

  // Somebody has been faster here (empty: who knows where): before trying again.
  void WaitToTryAgain(PageWait& wait, runtime::LatchSite site) const {
    wait.TryAgain(site, page_, page_.state_ != nullptr ? page_.state_->Load() : PageState());
  }

 private:
  friend class GuardX;

  PageRef page_;
  PageState seen_;
};

class GuardS {
 public:
  GuardS() = default;
  // Waits while the page is latched exclusively.
  explicit GuardS(PageRef page, runtime::LatchSite site = {}) : page_(page) {
    PageState state = page_.state_->Load();
    for (PageWait wait;
         state.latch() >= PageState::kMaxShared || !page_.Change(state, state.WithLatch(state.latch() + 1));
         wait.Wait(site, page_, state)) {
      state = page_.state_->Load();
    }
  }
  GuardS(GuardS&& other) noexcept : page_(std::exchange(other.page_, {})) {}
  GuardS& operator=(GuardS&& other) noexcept {
    if (this != &other) {
      Release();
      page_ = std::exchange(other.page_, {});
    }
    return *this;
  }
  ~GuardS() { Release(); }

  explicit operator bool() const { return page_.state_ != nullptr; }
  const std::byte* bytes() const { return page_.bytes_; }
  void Release() noexcept {
    if (page_.state_ != nullptr) {
      PageState state = page_.state_->LoadRelaxed();
      while (!page_.Change(state, state.WithLatch(state.latch() - 1))) {
      }
    }
    page_ = {};
  }

 private:
  PageRef page_;
};

class GuardX {
 public:
  GuardX() = default;
  // Waits until nobody else holds the page.
  explicit GuardX(PageRef page, ExclusiveSite site = {}) : page_(page) {
    PageState state = page_.state_->Load();
    for (PageWait wait; !state.free() || !page_.Change(state, state.WithLatch(site.latch()));
         wait.Wait(site.site(), page_, state)) {
      state = page_.state_->Load();
    }
  }
  // A page that was never touched becomes resident, zeroed and latched.
  static GuardX FirstUse(PageRef page) {
    PageState state = page.state_->Load();
    ISLANDS_CHECK(state.residency() == Residency::kUntouched && state.free());
    const PageState desired = state.WithResidency(Residency::kResident).WithLatch(PageState::kExclusive);
    ISLANDS_CHECK(page.Change(state, desired));
    GuardX guard;
    guard.page_ = page;
    return guard;
  }
  // A page on disk that will be written anew, all of it: likewise, without being read.
  static GuardX Anew(PageRef page) {
    PageState state = page.state_->Load();
    ISLANDS_CHECK(state.residency() == Residency::kOnDisk && state.out());
    const PageState desired = state.WithResidency(Residency::kResident).WithLatch(PageState::kExclusive);
    ISLANDS_CHECK(page.Change(state, desired));
    GuardX guard;
    guard.page_ = page;
    return guard;
  }
  // Makes an optimistic guard exclusive if nobody changed or latched the page since; never waits. On success
  // `from` is empty and what it read is valid; otherwise the result is empty.
  [[nodiscard]] static GuardX Upgrade(GuardO& from, ExclusiveSite site = {}) {
    PageState expected = from.seen_.WithLatch(0);
    GuardX guard;
    if (from.page_.Change(expected, expected.WithLatch(site.latch()))) {
      guard.page_ = std::exchange(from.page_, {});
    }
    return guard;
  }
  GuardX(GuardX&& other) noexcept : page_(std::exchange(other.page_, {})) {}
  GuardX& operator=(GuardX&& other) noexcept {
    if (this != &other) {
      Release();
      page_ = std::exchange(other.page_, {});
    }
    return *this;
  }
  ~GuardX() { Release(); }

  explicit operator bool() const { return page_.state_ != nullptr; }
  const std::byte* bytes() const { return page_.bytes_; }
  // The page's bytes, to make this change.
  std::byte* Change(const PageChange& change) const {
    if (page_change_sink != nullptr && !runtime::Planted(runtime::PlantedBug::kForgetPageChange))
      page_change_sink->BeforeChange(page_.bytes_, change);
    return page_.bytes_;
  }
  // The page's bytes, to make changes again that are in the log already: nobody hears of them.
  std::byte* Redo() const {
    ISLANDS_CHECK(page_change_sink == nullptr);
    return page_.bytes_;
  }
  void Release() noexcept {
    if (page_.state_ != nullptr) {
      if (page_change_sink != nullptr) page_change_sink->BeforeRelease(page_.bytes_);
      PageState state = page_.state_->LoadRelaxed();
      while (!page_.Change(state, state.WithLatch(0).WithNextVersion())) {
      }
    }
    page_ = {};
  }

 private:
  PageRef page_;
};

}  // namespace islands::storage
