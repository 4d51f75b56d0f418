// Answers the control plane's requests for one island; until there is one, with how far it is.
//
// Thread safety: any thread.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <utility>

#include "instance/island/island.h"
#include "proto/control.pb.h"
#include "runtime/mutex.h"

namespace islands::server {

class ControlService {
 public:
  // `shut_down` is called at most once per ShutdownRequest, before its reply is sent; it must return at once.
  ControlService(const control::v1::IslandConfig& config, std::function<void()> shut_down);

  // How far the island is that is not there yet: a few words.
  void Say(std::string progress);
  // It is there, and has to be for as long as Handle is called. `metrics_problem`: why there are no metrics;
  // empty if there are, or should be none. Once.
  void Serve(instance::Island& island, std::string metrics_problem);

  control::v1::Reply Handle(const control::v1::Request& request);

 private:
  control::v1::Reply HandleWithoutIsland(const control::v1::Request& request) const;

  const std::function<void()> shut_down_;
  mutable runtime::Mutex mutex_;
  control::v1::IslandStatus beginning_ ABSL_GUARDED_BY(mutex_);
  std::string metrics_problem_;  // does not change once there is an island
  std::atomic<instance::Island*> island_ = nullptr;
};

}  // namespace islands::server
