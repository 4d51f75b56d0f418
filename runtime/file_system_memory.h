// The simulated disk: files in memory that lose power as files on a disk do, fail where they are told to, and
// take time where a clock is given. For tests and simulation; all chance comes from seeds.
//
// Thread safety: all functions may be called from any thread; each Queue belongs to one. What happens is
// determined by the seeds as long as the order of the calls is.
//
// A *step* is what changes the disk: a write, sync, allocation, truncation, creation, renaming, removal, a
// directory's sync or making. The steps of ReplaceFile: create path.tmp, write it, sync it, rename it, sync
// the directory.
//
// Invariants:
//  1. PowerLoss() leaves exactly the synced bytes of the durably named files in durable directories.
//     PowerLoss(seed) leaves them too, unless they were written over since, and any part of what was not
//     synced: writes in any order, whole, in sectors, or not at all, those still in flight among them;
//     changes of names (file_system_memory_names.h). A sector is old or new, never a mixture.
//  2. A sync makes durable what completed before the sync was submitted, and nothing else.
//  3. After FailAfter(n), n more steps succeed and every later one answers UNAVAILABLE until power is lost.
//  4. A failed sync drops what it was to make durable, as Linux does: reading still shows it until power is
//     lost, later syncs succeed without it.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/file_system.h"
#include "runtime/file_system_memory_file.h"
#include "runtime/file_system_memory_names.h"
#include "runtime/file_system_memory_steps.h"
#include "runtime/mutex.h"
#include "runtime/random.h"

namespace islands::runtime {

struct SimulatedDisk {
  // With a clock a request completes when it shows a time between these after its submission, drawn from the
  // seed, so that requests overtake one another. Without: at the next Poll, in their order.
  const Clock* clock = nullptr;
  int64_t min_delay_ns = 0;
  int64_t max_delay_ns = 0;
  uint64_t seed = 0;
  // All files together; one takes as much as it is long. Beyond it RESOURCE_EXHAUSTED. See SetRoom.
  uint64_t disk_bytes = UINT64_MAX;
  uint32_t sector_bytes = 512;  // what the disk writes whole or not at all; 4096 on many
};

class MemoryFileSystem : public FileSystem {
 public:
  explicit MemoryFileSystem(const SimulatedDisk& disk = {});

  absl::StatusOr<FileHandle> Open(const std::string& path, bool create, bool direct) override;
  absl::Status Close(FileHandle file) override;
  std::unique_ptr<Queue> MakeQueue() override;
  absl::Status Allocate(FileHandle file, uint64_t bytes) override;
  absl::Status Truncate(FileHandle file, uint64_t bytes) override;
  absl::StatusOr<uint64_t> Size(FileHandle file) override;
  absl::Status Lock(FileHandle file) override;
  absl::StatusOr<std::string> ReadFile(const std::string& path) override;
  absl::Status ReplaceFile(const std::string& path, std::string_view content) override;
  absl::Status MakeDirectories(const std::string& path) override;
  bool Exists(const std::string& path) override;
  absl::Status Remove(const std::string& path) override;
  absl::Status Rename(const std::string& from, const std::string& to) override;
  absl::Status SyncDirectory(const std::string& path) override;
  absl::StatusOr<std::vector<std::string>> List(const std::string& directory) override;

  // What a process leaves that dies within MakeDirectories: it is there, and not durable.
  void LeaveDirectory(const std::string& path);

  void FailAfter(uint64_t steps);
  // The step after `steps` more has this fault; several may be planned.
  void Inject(uint64_t steps, DiskFault fault);
  // Neither those nor FailAfter are planned any more.
  void ForgetFaults();
  // Files may become so many bytes longer from now on, all together; UINT64_MAX: there is room for ever.
  void SetRoom(uint64_t bytes);
  // Whether what a queue has in flight when it is destroyed, but for reads, stays in flight, as it may when a
  // process is killed: the disk has it already. Files keep their locks meanwhile.
  void LeaveInFlight(bool leave);
  // What was left happens, unless power was lost meanwhile.
  void FinishLeft();
  // How many steps there have been, those that failed among them.
  uint64_t steps() const;

  // Ends FailAfter and forgets planned faults. Handles are invalid afterwards, and what was in flight fails
  // with UNAVAILABLE at the next Poll; its buffers are read here.
  void PowerLoss();
  void PowerLoss(uint64_t seed);

  // Other disks, which whoever comes back would find if everything died at this moment; this one goes on. So
  // one moment can be looked at several times. After PowerLoss(seed); and when only the processes are gone:
  // what was in flight has happened, and nothing is open.
  std::unique_ptr<MemoryFileSystem> AfterPowerLoss(uint64_t seed) const;
  std::unique_ptr<MemoryFileSystem> AfterKill() const;

  // When Poll of some queue finds something: the time of the first completion, INT64_MAX if nothing is in
  // flight.
  int64_t NextCompletionNs() const;

 private:
  class MemoryQueue;
  struct OpenFile {
    SimulatedFilePtr file;
    std::string path;
  };
  // Requests keep it alive, and with it the lock.
  using OpenFilePtr = std::shared_ptr<OpenFile>;
  struct InFlight {
    uint64_t number = 0;  // in order of submission
    IoRequest request;
    OpenFilePtr file;              // null: was not open
    uint64_t covered_changes = 0;  // of a sync
    bool power_lost = false;       // it happens no more
    // Of what it writes, once its queue is gone.
    std::shared_ptr<std::vector<std::byte>> copy;
  };
  using Due = std::pair<int64_t, uint64_t>;  // when, and the number

  absl::StatusOr<OpenFilePtr> Find(std::string_view action, FileHandle file) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t UsedBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckRoom(const SimulatedFile& file, uint64_t end, std::string_view path) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Resize(const OpenFile& file, uint64_t bytes, std::string_view action)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status ChangeNames(std::string_view action, const std::string& path, SimulatedNames::Change change)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status SyncNames(const std::string& directory) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status RequireDirectory(std::string_view action, const std::string& path,
                                const std::string& directory) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // The queues' share; each knows its number.
  void Submit(uint64_t queue, const IoRequest& request);
  size_t Poll(uint64_t queue, std::vector<IoCompletion>* completions);
  void DestroyQueue(uint64_t queue);
  void Leave(InFlight transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  IoCompletion CarryOut(const InFlight& transfer) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Write(const OpenFile& file, uint64_t offset, std::span<const std::byte> bytes, size_t* moved)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status Sync(const OpenFile& file, uint64_t changes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  // With files of its own; what is in flight there has the buffers of this one.
  void CopyTo(MemoryFileSystem* copy) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_, copy->mutex_);
  void LosePower(Random* random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InterruptInFlight(Random* random) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  static constexpr uint64_t kLeft = UINT64_MAX;  // number of the queue of what was left in flight

  const SimulatedDisk disk_;

  mutable Mutex mutex_;
  uint64_t disk_bytes_ ABSL_GUARDED_BY(mutex_);
  Random random_ ABSL_GUARDED_BY(mutex_);
  SimulatedNames names_ ABSL_GUARDED_BY(mutex_);
  std::vector<OpenFilePtr> open_ ABSL_GUARDED_BY(mutex_);  // by handle; null = closed
  // Who holds a file's lock: it falls when nobody has that handle any more.
  std::map<const SimulatedFile*, std::weak_ptr<OpenFile>> locks_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::map<Due, InFlight>> queues_ ABSL_GUARDED_BY(mutex_);
  uint64_t queues_made_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t submitted_ ABSL_GUARDED_BY(mutex_) = 0;
  bool leaves_ ABSL_GUARDED_BY(mutex_) = false;
  DiskSteps steps_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace islands::runtime
