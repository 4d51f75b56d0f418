// disk_faults.so, for LD_PRELOAD: the nth call with which a process of a deployment changes its disk goes
// wrong.
//
//   ISLANDS_FAULTS         the plan: a file of disk_faults.py's that all processes map
//   ISLANDS_FAULTS_UNDER   whose files are the disk: the deployment's data directory
//
// Counted are, once the plan is armed, the calls of the supervisor, the logger and the islands, of each role
// all together: those that write (pwrite, write, fallocate, ftruncate), that sync (fdatasync, fsync, also of
// directories), and that change names (open of a new file, rename, unlink). io_uring would go past us, so
// there is none: queues are threads. What happens at the nth call of the role that the plan names, once:
//
//   kill     the process dies by SIGKILL: in the middle of a write, before anything else
//   EIO      the call fails. If it is a sync, what was written to the file since the last one is gone as
//            well, as when the kernel has dropped what it could not write
//   ENOSPC   the call fails; of a write, one half succeeds, and the rest fails
//   lost     power fails, soon, and the call was for nothing: of a write, when the process syncs its file,
//            of a name, when it syncs the directory, or after kPatience more calls; at a sync at once, and
//            all is gone that was written to the file since the last one. All processes of the deployment
//            die; whoever made the plan has to remove the rings
//
// And of all roles, whatever the place that the plan names:
//
//   EINTR    every call is interrupted by a signal, has done nothing, and is carried out when it is made
//            again; but those with names, which cannot be, except that a file is created
//   EROFS    every call fails until there is another plan, as on a disk that was found damaged and made
//            read-only
//
// Thread safety: calls on the disk come one after the other as long as the plan is armed.
//
// Invariant: 1. no lock is taken for calls that have nothing to do with the disk: between fork and exec there
// may be nobody to give it back.
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/mutex.h"

namespace islands::e2e {
namespace {

namespace fs = std::filesystem;

enum class Role : uint32_t { kSupervisor, kLogger, kIsland, kNobody };
enum class Fault : uint32_t { kNone, kKill, kEio, kEnospc, kLost, kEintr, kErofs };

// As disk_faults.py has it.
struct Plan {
  std::atomic<uint32_t> armed;
  Role role;
  Fault fault;
  std::atomic<uint32_t> struck;
  uint64_t nth;                    // from 1 on
  std::atomic<uint64_t> calls[3];  // by role
  char what[464];                  // the call that was struck; valid when `struck` is set
};
static_assert(sizeof(Plan) == 512);

constexpr uint64_t kPatience = 50;

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

Role RoleOf(std::string_view command_line) {
  const std::string_view program = command_line.substr(0, command_line.find('\0'));
  const std::string_view rest = command_line.substr(std::min(program.size() + 1, command_line.size()));
  if (program.ends_with("/islandd")) return Role::kIsland;
  if (program.ends_with("/islands-logger")) return Role::kLogger;
  const bool keeps =  // the manifest
      rest.starts_with("supervise") || rest.starts_with("relayout") || rest.starts_with("compact");
  return program.ends_with("/islands") && keeps ? Role::kSupervisor : Role::kNobody;
}

Plan* MapPlan() {
  const char* path = getenv("ISLANDS_FAULTS");
  const int file = path == nullptr ? -1 : open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return nullptr;
  void* mapped = mmap(nullptr, sizeof(Plan), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  close(file);
  return mapped == MAP_FAILED ? nullptr : static_cast<Plan*>(mapped);
}

template <typename Function>
Function* Real(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

struct Calls {
  decltype(::open)* open = Real<decltype(::open)>("open");
  decltype(::pwrite)* pwrite = Real<decltype(::pwrite)>("pwrite");
  decltype(::write)* write = Real<decltype(::write)>("write");
  decltype(::fdatasync)* fdatasync = Real<decltype(::fdatasync)>("fdatasync");
  decltype(::fsync)* fsync = Real<decltype(::fsync)>("fsync");
  decltype(::fallocate)* fallocate = Real<decltype(::fallocate)>("fallocate");
  decltype(::ftruncate)* ftruncate = Real<decltype(::ftruncate)>("ftruncate");
  decltype(::rename)* rename = Real<decltype(::rename)>("rename");
  decltype(::unlink)* unlink = Real<decltype(::unlink)>("unlink");
};

const Calls& real() {
  static const Calls calls;
  return calls;
}

// ---- The processes of a deployment ----

std::string StatOf(pid_t process) {  // from the state on
  const std::string stat = ReadAll(fmt::format("/proc/{}/stat", process));
  const size_t end = stat.rfind(") ");
  return end == std::string::npos ? "" : stat.substr(end + 2);
}

std::vector<pid_t> Deployment(Role self) {
  const pid_t supervisor = self == Role::kSupervisor ? getpid() : getppid();
  std::vector<pid_t> found{supervisor};
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = atoi(entry.path().filename().c_str());
    if (process > 0 && StatOf(process).append(" ").substr(1).starts_with(fmt::format(" {} ", supervisor)))
      found.push_back(process);
  }
  return found;
}

// ---- What happens to the disk ----

class Disk {
 public:
  explicit Disk(Plan* plan) : plan_(plan), role_(RoleOf(ReadAll("/proc/self/cmdline"))) {
    const char* under = getenv("ISLANDS_FAULTS_UNDER");
    if (under != nullptr) under_ = std::string(under) + "/";
    real();
  }

  // Calls of others are none of ours.
  bool Has(std::string_view path) const {
    return plan_ != nullptr && role_ != Role::kNobody && plan_->armed.load() != 0 && path.starts_with(under_);
  }
  runtime::Mutex& mutex() { return mutex_; }
  bool Remembers() const { return plan_->fault == Fault::kLost || plan_->fault == Fault::kEio; }

  // Which fault is for this call; kNone: it is carried out.
  Fault Count(const char* call, const std::string& path) {
    const uint64_t number = ++plan_->calls[static_cast<size_t>(role_)];
    if (lost_ && --patience_ == 0) LosePower({std::exchange(lost_, {})});
    if (std::exchange(full_, false)) return Fault::kEnospc;
    if (plan_->fault == Fault::kEintr || plan_->fault == Fault::kErofs) return OfAll(call, path);
    if (role_ != plan_->role || number != plan_->nth || plan_->struck.load() != 0) return Fault::kNone;
    fmt::format_to_n(plan_->what, sizeof(plan_->what) - 1, "{} {}", call, path);
    if (plan_->fault != Fault::kLost) plan_->struck = 1;
    return plan_->fault;
  }
  void FillUp() { full_ = true; }

  Fault OfAll(const char* call, const std::string& path) {
    const bool name = std::string_view("rename unlink").find(call) != std::string_view::npos;
    const bool again = plan_->fault == Fault::kEintr &&
                       (name || !interrupted_.insert(fmt::format("{} {} {}", call, path, gettid())).second);
    if (again) {
      interrupted_.erase(fmt::format("{} {} {}", call, path, gettid()));
      return Fault::kNone;
    }
    if (plan_->struck.load() == 0)
      fmt::format_to_n(plan_->what, sizeof(plan_->what) - 1, "{} {}", call, path);
    plan_->struck = 1;
    return plan_->fault;
  }

  using Undo = std::function<void()>;
  // What undoes a call that was carried out, until `where` is synced: a file, or the directory of a name.
  void Remember(Fault fault, const std::string& where, Undo undo) {
    if (!Remembers()) return;
    if (fault == Fault::kLost) {
      lost_ = undo;
      lost_at_ = where;
      patience_ = kPatience;
    }
    unsynced_[where].push_back(std::move(undo));
  }
  // Before `where` is synced.
  void BeforeSync(Fault fault, const std::string& where) {
    if (fault == Fault::kLost) LosePower(std::exchange(unsynced_[where], {}));
    if (lost_ && lost_at_ == where) LosePower({std::exchange(lost_, {})});
    if (fault == Fault::kEio && !fs::is_directory(where)) UndoAll(std::exchange(unsynced_[where], {}));
    if (fault == Fault::kNone) unsynced_.erase(where);
  }
  // A name that stands for what `path` is now.
  std::string Spare() { return fmt::format("{}spare-{}-{}", under_, getpid(), ++spares_); }

  [[noreturn]] static void Die() {
    kill(getpid(), SIGKILL);
    for (;;) pause();
  }

 private:
  static void UndoAll(std::vector<Undo> undos) {
    for (; !undos.empty(); undos.pop_back()) undos.back()();
  }
  [[noreturn]] void LosePower(std::vector<Undo> undos) {
    const std::vector<pid_t> processes = Deployment(role_);
    for (const pid_t process : processes) {
      if (process == getpid() || kill(process, SIGSTOP) != 0) continue;
      while (std::string_view("RSD").find(StatOf(process).append("?").front()) != std::string_view::npos)
        usleep(100);
    }
    UndoAll(std::move(undos));
    plan_->struck = 1;
    for (const pid_t process : processes) {
      if (process != getpid()) kill(process, SIGKILL);
    }
    Die();
  }

  Plan* const plan_;
  const Role role_;
  std::string under_;
  runtime::Mutex mutex_;
  std::map<std::string, std::vector<Undo>> unsynced_;
  std::set<std::string> interrupted_;  // calls that were, and were not made again yet
  Undo lost_;
  std::string lost_at_;
  uint64_t patience_ = 0;
  bool full_ = false;
  int spares_ = 0;
};

// Never destroyed: other threads write while the process ends.
Disk& disk() {
  static Disk& made = *std::make_unique<Disk>(MapPlan()).release();
  return made;
}
[[gnu::constructor]] void MakeDisk() { disk(); }

std::string PathOf(int file) {
  std::string path(4096, '\0');
  const ssize_t length = readlink(fmt::format("/proc/self/fd/{}", file).c_str(), path.data(), path.size());
  path.resize(length < 0 ? 0 : static_cast<size_t>(length));
  return path;
}

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }

int ErrorOf(Fault fault) {
  if (fault == Fault::kEintr) return EINTR;
  if (fault == Fault::kErofs) return EROFS;
  return fault == Fault::kEnospc ? ENOSPC : EIO;
}
// Before anything is done.
bool Fails(Fault fault) { return fault != Fault::kNone && fault != Fault::kKill && fault != Fault::kLost; }
int Failed(Fault fault) {
  errno = ErrorOf(fault);
  return -1;
}

// Puts the bytes back that are there now, and the length.
Disk::Undo UndoOfWrite(int file, off_t offset, size_t bytes) {
  const std::string path = PathOf(file);
  struct stat now {};
  fstat(file, &now);
  const int other = real().open(path.c_str(), O_RDWR | O_CLOEXEC);
  std::string old(bytes, '\0');
  const ssize_t got = pread(other, old.data(), old.size(), offset);
  close(other);
  old.resize(got < 0 ? 0 : static_cast<size_t>(got));
  return [path, offset, old, size = now.st_size] {
    const int again = real().open(path.c_str(), O_RDWR | O_CLOEXEC);
    (void)real().pwrite(again, old.data(), old.size(), offset);
    (void)real().ftruncate(again, size);
    close(again);
  };
}

template <typename Write>
ssize_t DoWrite(const char* call, int file, size_t bytes, off_t offset, const Write& write) {
  const std::string path = PathOf(file);
  if (!disk().Has(path)) return write(bytes);
  const runtime::MutexLock lock(disk().mutex());
  const Fault fault = disk().Count(call, path);
  if (fault == Fault::kKill) {
    (void)write(bytes / 2);
    Disk::Die();
  }
  if (Fails(fault) && (fault != Fault::kEnospc || bytes < 2)) return Failed(fault);
  if (disk().Remembers()) disk().Remember(fault, path, UndoOfWrite(file, offset, bytes));
  if (fault != Fault::kEnospc) return write(bytes);
  disk().FillUp();
  return write(bytes / 2);
}

template <typename Sync>
int DoSync(const char* call, int file, const Sync& sync) {
  const std::string path = PathOf(file);
  if (!disk().Has(path + "/")) return sync();
  const runtime::MutexLock lock(disk().mutex());
  const Fault fault = disk().Count(call, path);
  if (fault == Fault::kKill) Disk::Die();
  disk().BeforeSync(fault, path);
  return Fails(fault) ? Failed(fault) : sync();
}

// Of a file's length.
template <typename Change>
int DoChange(const char* call, int file, const Change& change) {
  const std::string path = PathOf(file);
  if (!disk().Has(path)) return change();
  const runtime::MutexLock lock(disk().mutex());
  const Fault fault = disk().Count(call, path);
  if (fault == Fault::kKill) Disk::Die();
  if (Fails(fault)) return Failed(fault);
  if (disk().Remembers()) disk().Remember(fault, path, UndoOfWrite(file, 0, 0));
  return change();
}

// Of a name; `undo` is made before the change.
template <typename MakeUndo, typename Change>
int DoName(const char* call, const std::string& path, const MakeUndo& make_undo, const Change& change) {
  if (!disk().Has(path)) return change();
  const runtime::MutexLock lock(disk().mutex());
  const Fault fault = disk().Count(call, path);
  if (fault == Fault::kKill) Disk::Die();
  if (Fails(fault)) return Failed(fault);
  if (fault == Fault::kLost) disk().Remember(fault, DirectoryOf(path), make_undo());
  return change();
}

// What is called `path` now is called so again.
Disk::Undo UndoOfLoss(const std::string& path) {
  const std::string spare = disk().Spare();
  if (link(path.c_str(), spare.c_str()) != 0) return [path] { real().unlink(path.c_str()); };
  return [path, spare] { real().rename(spare.c_str(), path.c_str()); };
}

}  // namespace
}  // namespace islands::e2e

using islands::e2e::disk;
using islands::e2e::real;

extern "C" {

int io_uring_queue_init(unsigned /*entries*/, void* /*ring*/, unsigned /*flags*/) { return -EPERM; }

int open(const char* path, int flags, ...) {
  va_list more;
  va_start(more, flags);
  const mode_t mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
  va_end(more);
  const auto now = [&] { return real().open(path, flags, mode); };
  if ((flags & O_CREAT) == 0 || access(path, F_OK) == 0) return now();
  const std::string name = path;
  return islands::e2e::DoName(
      "create", name, [&] { return [name] { real().unlink(name.c_str()); }; }, now);
}

ssize_t pwrite(int file, const void* bytes, size_t count, off_t offset) {
  return islands::e2e::DoWrite("pwrite", file, count, offset,
                               [&](size_t some) { return real().pwrite(file, bytes, some, offset); });
}

ssize_t write(int file, const void* bytes, size_t count) {
  return islands::e2e::DoWrite("write", file, count, lseek(file, 0, SEEK_CUR),
                               [&](size_t some) { return real().write(file, bytes, some); });
}

int fdatasync(int file) {
  return islands::e2e::DoSync("fdatasync", file, [&] { return real().fdatasync(file); });
}

int fsync(int file) {
  return islands::e2e::DoSync("fsync", file, [&] { return real().fsync(file); });
}

int fallocate(int file, int mode, off_t offset, off_t bytes) {
  return islands::e2e::DoChange("fallocate", file,
                                [&] { return real().fallocate(file, mode, offset, bytes); });
}

int ftruncate(int file, off_t bytes) noexcept {
  return islands::e2e::DoChange("ftruncate", file, [&] { return real().ftruncate(file, bytes); });
}

int rename(const char* from, const char* to) noexcept {
  const std::string source = from, target = to;
  const auto undo = [&]() -> islands::e2e::Disk::Undo {
    return [source, target, back = islands::e2e::UndoOfLoss(target)] {
      real().rename(target.c_str(), source.c_str());
      back();
    };
  };
  return islands::e2e::DoName("rename", target, undo, [&] { return real().rename(from, to); });
}

int unlink(const char* path) noexcept {
  const std::string name = path;
  return islands::e2e::DoName(
      "unlink", name, [&] { return islands::e2e::UndoOfLoss(name); }, [&] { return real().unlink(path); });
}

}  // extern "C"
