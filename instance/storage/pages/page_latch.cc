#include "instance/storage/pages/page_latch.h"

namespace islands::storage {

Latched LookAtLatched(TornPage page, PageState seen) {
  Latched latched;
  const uint64_t number = seen.exclusive() ? seen.latch() - PageState::kExclusive : 0;
  if (number > 0 && number < kExclusiveSiteNames.size()) latched.holder = kExclusiveSiteNames[number].data();
  // Any value will do: it is shown to people.
  const PageType type = page.Load(&PageHeader::type);
  const PageId id = PageId::FromValue(page.Load(&PageHeader::page_id));
  if (type == PageType::kSiteHeader) latched.place = PagePlace(type, id.site(), 0, 0).value();
  if (type == PageType::kTree) {
    latched.place =
        PagePlace(type, id.site(), page.Load(&PageHeader::tree), page.Load(&PageHeader::level)).value();
  }
  return latched;
}

}  // namespace islands::storage
