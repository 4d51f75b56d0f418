#include "instance/storage/pages/page_source.h"

#include <array>
#include <atomic>
#include <cstdint>

#include "runtime/check.h"

namespace islands::storage {
namespace {

// A process has one island; tests and simulations have some.
constexpr size_t kMostSources = 1024;

struct Place {
  std::atomic<bool> taken{false};
  std::atomic<uintptr_t> begin{0};
  std::atomic<uintptr_t> end{0};
  std::atomic<PageSource*> source{nullptr};
};
constinit std::array<Place, kMostSources> places;
constinit std::atomic<size_t> places_used = 0;  // those behind have never been taken

}  // namespace

PageSourceStretch::PageSourceStretch(PageSource* source, const void* begin, const void* end) {
  for (place_ = 0; place_ < kMostSources && places[place_].taken.exchange(true); ++place_) {
  }
  ISLANDS_CHECK(place_ < kMostSources);
  Place& place = places[place_];
  place.source.store(source, std::memory_order_relaxed);
  place.begin.store(reinterpret_cast<uintptr_t>(begin), std::memory_order_relaxed);
  place.end.store(reinterpret_cast<uintptr_t>(end), std::memory_order_release);
  for (size_t used = places_used.load();
       used <= place_ && !places_used.compare_exchange_weak(used, place_ + 1);) {
  }
}

PageSourceStretch::~PageSourceStretch() {
  Place& place = places[place_];
  place.end.store(0, std::memory_order_release);
  place.begin.store(0, std::memory_order_release);
  place.taken.store(false, std::memory_order_release);
}

void BringIn(AtomicPageState* state, PageState seen) {
  const auto address = reinterpret_cast<uintptr_t>(state);
  const size_t used = places_used.load(std::memory_order_acquire);
  for (size_t i = 0; i < used; ++i) {
    Place& place = places[i];
    if (address >= place.end.load(std::memory_order_acquire)) continue;
    if (address < place.begin.load(std::memory_order_relaxed)) continue;
    return place.source.load(std::memory_order_relaxed)->BringIn(state, seen);
  }
  ISLANDS_CHECK(false);  // a pool without a source has no such pages
}

}  // namespace islands::storage
