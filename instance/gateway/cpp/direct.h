// Calls to a gateway as frames, on the socket beside gRPC's (proto/client.proto, DirectCall).
//
// Thread safety: a Direct is for any thread; a Line belongs to one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "instance/gateway/cpp/convert.h"
#include "instance/gateway/cpp/deadline.h"
#include "proto/client.pb.h"

namespace islands::internal {

// A connection. Whoever has asked and got no answer must not ask again.
class Line {
 public:
  explicit Line(int fd) : fd_(fd) {}
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  // OK: the gateway has answered, whatever it says. Otherwise what became of the call, as errors.h has it.
  // Sets the call's timeout.
  absl::Status Ask(client::v1::DirectCall* call, Effect effect, const Deadline& deadline,
                   client::v1::DirectAnswer* answer);
  // The gateway has not gone away.
  bool IsThere() const;

 private:
  absl::Status Send(const client::v1::DirectCall& call, const Deadline& deadline);
  absl::Status Receive(Effect effect, const Deadline& deadline, client::v1::DirectAnswer* answer);

  const int fd_;
  std::vector<std::byte> buffer_;
};

// What an answer says: OK, or an error of the gateway's.
absl::Status StatusOf(const client::v1::DirectAnswer& answer, Effect effect);

class Direct {
 public:
  // `address`: of the socket for gRPC, as gRPC takes it: unix:PATH, or unix:///PATH.
  explicit Direct(std::string_view address);

  // For one call, or for all of a transaction; null: nobody listens there.
  std::unique_ptr<Line> Take();
  // For others; what it was asked has been answered.
  void Give(std::unique_ptr<Line> line);

 private:
  std::unique_ptr<Line> Dial() const;

  const std::string path_;
  std::mutex mutex_;  // runtime::Mutex is not the programs'
  int64_t process_;   // a child must not speak on its parent's lines
  std::vector<std::unique_ptr<Line>> idle_;
};

}  // namespace islands::internal
