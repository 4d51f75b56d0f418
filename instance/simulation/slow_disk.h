// A disk that takes its time, and sometimes fails, for those who go on meanwhile; who stands still for it is
// served at once, since simulated time would stand still, too.
//
// Thread safety: none.
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/clock.h"
#include "runtime/file_system_forwarding.h"
#include "runtime/random.h"

namespace islands::simulation {

class SlowDisk final : public runtime::ForwardingFileSystem {
 public:
  struct Options {
    uint64_t seed = 0;
    int64_t most_delay_ns = 0;     // of a read
    uint32_t fails_per_mille = 0;  // reads that answer UNAVAILABLE
  };
  SlowDisk(runtime::FileSystem& below, const runtime::Clock& clock, const Options& options)
      : ForwardingFileSystem(below), below_(below), clock_(clock), options_(options), random_(options.seed) {}

  std::unique_ptr<Queue> MakeQueue() override { return std::make_unique<SlowQueue>(*this); }
  uint64_t failed() const { return failed_; }

 private:
  class SlowQueue final : public Queue {
   public:
    explicit SlowQueue(SlowDisk& disk) : disk_(disk), queue_(disk.below_.MakeQueue()) {}
    void Submit(const runtime::IoRequest& request) override { queue_->Submit(request); }
    size_t Poll(std::vector<runtime::IoCompletion>* completions) override {
      const int64_t now_ns = disk_.clock_.NowNs();
      scratch_.clear();
      queue_->Poll(&scratch_);
      for (runtime::IoCompletion& completion : scratch_)
        held_.push_back({now_ns + disk_.DrawDelayNs(), std::move(completion)});
      const auto due = std::ranges::stable_partition(
          held_, [&](const Held& held) { return held.at_ns > now_ns && !waited_for_; });
      const size_t count = due.size();
      for (Held& held : due) {
        if (!waited_for_ && disk_.Fails())
          held.completion.status = absl::UnavailableError("the simulated disk does not answer");
        completions->push_back(std::move(held.completion));
      }
      held_.erase(due.begin(), due.end());
      return count;
    }
    void Wait(int64_t timeout_ns) override {
      waited_for_ = true;
      queue_->Wait(timeout_ns);
    }

   private:
    struct Held {
      int64_t at_ns;
      runtime::IoCompletion completion;
    };
    SlowDisk& disk_;
    std::unique_ptr<Queue> queue_;
    std::vector<runtime::IoCompletion> scratch_;
    std::vector<Held> held_;
    bool waited_for_ = false;  // it is of somebody who waits; and he always does
  };

  int64_t DrawDelayNs() {
    return static_cast<int64_t>(random_.Below(static_cast<uint64_t>(options_.most_delay_ns) + 1));
  }
  bool Fails() {
    const bool fails = random_.Below(1000) < options_.fails_per_mille;
    failed_ += fails ? 1 : 0;
    return fails;
  }

  runtime::FileSystem& below_;
  const runtime::Clock& clock_;
  const Options options_;
  runtime::Random random_;
  uint64_t failed_ = 0;
};

}  // namespace islands::simulation
