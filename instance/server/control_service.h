// Answers the control plane's requests for one island.
//
// Thread safety: Handle may be called from several threads at a time.
#pragma once

#include <functional>
#include <string>
#include <utility>

#include "instance/island/island.h"
#include "proto/control.pb.h"

namespace islands::server {

class ControlService {
 public:
  // `shut_down` is called at most once per ShutdownRequest, before its reply is sent; it must return at once.
  // `metrics_problem`: why there are no metrics; empty if there are, or should be none.
  ControlService(instance::Island& island, std::string metrics_problem, std::function<void()> shut_down)
      : island_(island), metrics_problem_(std::move(metrics_problem)), shut_down_(std::move(shut_down)) {}

  control::v1::Reply Handle(const control::v1::Request& request);

 private:
  instance::Island& island_;
  const std::string metrics_problem_;
  const std::function<void()> shut_down_;
};

}  // namespace islands::server
