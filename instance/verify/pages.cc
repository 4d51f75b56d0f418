#include "instance/verify/pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "instance/storage/btree/btree_node.h"
#include "instance/storage/files/blocking_queue.h"
#include "instance/storage/files/disk_page.h"

namespace islands::verify {
namespace {

using storage::PageId;

constexpr uint64_t kMostPerFile = 8;  // a copy of another time has thousands of them

// Why recovery has left it out.
std::string FaultOf(const storage::DiskPage& page, PageId id) {
  const storage::PageHeader header = storage::HeaderOf(page.bytes);
  const PageId found = PageId::FromValue(header.page_id);
  if (std::all_of(page.bytes.begin(), page.bytes.end(), [](std::byte byte) { return byte == std::byte{0}; }))
    return "is empty";
  if (found != id && storage::IsWhole(page.bytes, found))
    return fmt::format("holds page {} of site {}", found.number(), found.site());
  if (!storage::IsWhole(page.bytes, id)) return "is damaged: its checksum is wrong";
  const char* fault = storage::Node::At(page.bytes.data())->FindFault();
  return fmt::format("is whole, and no page of a tree: {}",
                     fault == nullptr ? "it has no place here" : fault);
}

class FileWalk {
 public:
  FileWalk(runtime::FileSystem& files, const recovery::IslandData& data, size_t slot, Report* report)
      : files_(files), data_(data), slot_(slot), report_(*report), path_(data.files->PathOf(slot)) {}

  absl::Status OnMissing(PageId id, bool mended) {
    if (++found_ > kMostPerFile) return absl::OkStatus();
    std::vector<storage::DiskPage> page(1);
    storage::BlockingQueue queue(files_);
    const absl::Status read = queue.Do({.kind = runtime::IoKind::kRead,
                                        .file = data_.files->site(slot_),
                                        .offset = id.number() * storage::kPageBytes,
                                        .buffer = storage::AsBytes(std::span(page))});
    if (!read.ok()) return report_.Take(read, path_);
    const char* what =
        mended ? "the log has all of it, and `up` brings it back; look at the disk before there are more"
               : "it is not in the double-write area, and the log does not have all of it";
    Say(fmt::format("page {} (of site {}) {}; {}{}", id.number(), id.site(), FaultOf(page[0], id), what,
                    mended ? "" : fmt::format(": {}", kRestore)));
    return absl::OkStatus();
  }
  void OnFuture(PageId id, log::Lsn lsn, const PageBounds& bounds) {
    if (++found_ > kMostPerFile) return;
    const bool beyond_epoch = lsn.epoch() > bounds.durable;
    Say(fmt::format("page {} (of site {}) has LSN {}, and {}: page and log are not of one time; {}",
                    id.number(), id.site(), log::ToString(lsn),
                    beyond_epoch ? fmt::format("EPOCH says that only epoch {} is durable", bounds.durable)
                                 : fmt::format("the log ends with {}", log::ToString(bounds.last)),
                    kRestore));
  }
  void End() {
    if (found_ > kMostPerFile)
      Say(fmt::format("and {} pages more of which the like is to be said", found_ - kMostPerFile));
  }

 private:
  void Say(const std::string& what) {
    report_.findings.push_back({path_, fmt::format("{}: {}", path_, what)});
  }

  runtime::FileSystem& files_;
  const recovery::IslandData& data_;
  const size_t slot_;
  Report& report_;
  const std::string path_;
  uint64_t found_ = 0;
};

}  // namespace

absl::Status CheckPages(runtime::FileSystem& files, const recovery::IslandData& data,
                        const storage::Store& store, const PageBounds& bounds, Report* report,
                        uint64_t* missing) {
  for (size_t slot = 0; slot < data.checkpoint.sites.size(); ++slot) {
    FileWalk walk(files, data, slot, report);
    for (uint64_t number = 0; number < data.checkpoint.sites[slot].pages; ++number) {
      const PageId id(data.files->SiteOf(slot), number);
      const log::Lsn lsn = log::Lsn::FromValue(store.space(slot).Home(number));
      if (lsn.value() == 0) {
        const bool mended = store.HasPage(id) && !store.space(slot).OnDisk(number);
        *missing += mended ? 0 : 1;
        if (absl::Status read = walk.OnMissing(id, mended); !read.ok()) return read;
      } else if (lsn.epoch() > bounds.durable || lsn > bounds.last) {
        walk.OnFuture(id, lsn, bounds);
      }
    }
    walk.End();
  }
  return absl::OkStatus();
}

}  // namespace islands::verify
