// Answers the control plane's requests for one island.
//
// Thread safety: Handle may be called from several threads at a time.
#pragma once

#include <functional>

#include "instance/island.h"
#include "proto/control.pb.h"

namespace islands::server {

class ControlService {
 public:
  // `shut_down` is called at most once per ShutdownRequest, before its reply is sent; it must return at once.
  ControlService(instance::Island& island, std::function<void()> shut_down)
      : island_(island), shut_down_(std::move(shut_down)) {}

  control::v1::Reply Handle(const control::v1::Request& request);

 private:
  instance::Island& island_;
  const std::function<void()> shut_down_;
};

}  // namespace islands::server
