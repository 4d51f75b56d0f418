// Two islands that keep what they do, with files and a logger in this process, for tests of what they tell.
//
// Thread safety: none; the logger has a thread of its own, and each island's workers have theirs.
#pragma once

#include <errno.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "instance/island/keeper.h"
#include "instance/log/logger.h"
#include "instance/testing/in_process_cluster.h"
#include "runtime/file_system_memory.h"
#include "runtime/mutex.h"

namespace islands::server {

// Of which the data files can be made to fail, and the log goes on.
class FilesThatFail final : public runtime::MemoryFileSystem {
 public:
  absl::StatusOr<runtime::FileHandle> Open(const std::string& path, bool create, bool direct) override {
    auto file = MemoryFileSystem::Open(path, create, direct);
    const runtime::MutexLock lock(mutex_);
    if (file.ok() && path.starts_with("/data")) data_.insert(*file);
    return file;
  }
  std::unique_ptr<Queue> MakeQueue() override {
    return std::make_unique<FailingQueue>(*this, MemoryFileSystem::MakeQueue());
  }
  void FailDataFiles() { fail_ = true; }

 private:
  class FailingQueue final : public Queue {
   public:
    FailingQueue(FilesThatFail& files, std::unique_ptr<Queue> queue)
        : files_(files), queue_(std::move(queue)) {}
    void Submit(const runtime::IoRequest& request) override {
      if (files_.Fails(request)) return failed_.push_back({request.token, Broken(), 0});
      queue_->Submit(request);
    }
    size_t Poll(std::vector<runtime::IoCompletion>* completions) override {
      const size_t failed = failed_.size();
      for (runtime::IoCompletion& completion : failed_) completions->push_back(std::move(completion));
      failed_.clear();
      return failed + queue_->Poll(completions);
    }
    void Wait(int64_t timeout_ns) override { queue_->Wait(timeout_ns); }

   private:
    static absl::Status Broken() { return absl::ErrnoToStatus(EIO, "cannot write /data/rows"); }
    FilesThatFail& files_;
    const std::unique_ptr<Queue> queue_;
    std::vector<runtime::IoCompletion> failed_;
  };

  bool Fails(const runtime::IoRequest& request) {
    if (!fail_ || request.kind != runtime::IoKind::kWrite) return false;
    const runtime::MutexLock lock(mutex_);
    return data_.contains(request.file);
  }

  std::atomic<bool> fail_{false};
  runtime::Mutex mutex_;
  std::set<runtime::FileHandle> data_ ABSL_GUARDED_BY(mutex_);
};

class KeptCluster final : public instance::InProcessCluster {
 public:
  explicit KeptCluster(instance::ClusterOptions options)
      : InProcessCluster(std::move(options)), board_(workers_per_island()), seams_(islands()) {
    auto logger = log::Logger::Open(files_, clock(), board_, {.directory = "/log", .cluster = 1});
    EXPECT_TRUE(logger.ok()) << logger.status();
    logger_ = *std::move(logger);
    EXPECT_TRUE(logger_->Start().ok());
    thread_ = std::thread([this] { Log(); });
  }
  ~KeptCluster() override {
    EndIslands();
    stop_ = true;
    thread_.join();
  }

  // The rows become data files, as the supervisor has it done.
  absl::Status LoadAll() {
    for (uint32_t i = 0; i < islands(); ++i) {
      control::v1::LoadSpec load;
      load.set_workload("test");
      absl::Status status = island(i).Load(load, /*generation=*/1);
      if (status.ok()) status = island(i).Switch(/*generation=*/1);
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }
  // A disk that does not answer: nothing becomes durable until it is let go on.
  void HoldLogger(bool hold) { held_ = hold; }
  void FailDataFiles() { files_.FailDataFiles(); }

 protected:
  instance::Seams SeamsOf(uint32_t island) override {
    instance::LogSeam& log = seams_[island];
    log.board = &board_;
    log.make_ring = [this](const log::StreamId& stream) { return MakeRing(stream); };
    log.read = [](uint32_t, const log::LogPosition&, instance::LogSeam::TakeRecord) {
      return absl::OkStatus();  // these are first lives
    };
    log.cluster = 1;
    log.log_directory = "/log";
    log.data_directory = "/data-" + std::to_string(island);
    log.answers_wait = true;
    instance::Seams seams = InProcessCluster::SeamsOf(island);
    seams.files = &files_;
    seams.log = &log;
    return seams;
  }

 private:
  absl::StatusOr<std::shared_ptr<log::Ring>> MakeRing(const log::StreamId& stream) {
    std::shared_ptr<log::Ring> ring = log::Ring::InMemory(stream, log::Ring::kLeastCapacity);
    const runtime::MutexLock lock(mutex_);
    if (absl::Status added = logger_->Add(ring); !added.ok()) return added;
    return ring;
  }
  void Log() {
    while (!stop_) {
      {
        const runtime::MutexLock lock(mutex_);
        while (!held_ && logger_->RunOnce()) {
        }
        EXPECT_TRUE(logger_->failure().ok()) << logger_->failure();
      }
      poll(nullptr, 0, /*timeout=*/1);
    }
  }

  FilesThatFail files_;
  log::Board board_;
  runtime::Mutex mutex_;
  std::unique_ptr<log::Logger> logger_;   // by its thread, or under mutex_
  std::vector<instance::LogSeam> seams_;  // by island
  std::atomic<bool> held_{false};
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace islands::server
