// The gateway's gRPC server: where it listens, and whom it lets in.
//
// A Unix-domain socket always; it lies in the control directory, which is its user's alone, and whoever
// connects has to be that user all the same, or root. Beside it one for frames instead of gRPC (direct.h).
// TCP only when asked for, and then only with certificates on both sides: there is no option for less.
//
// Thread safety: Start and the destructor on one thread; SetHealth from any.
#pragma once

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "instance/gateway/admission.h"
#include "instance/gateway/direct.h"
#include "instance/gateway/service.h"
#include "runtime/descriptor.h"

namespace islands::gateway {

struct ServerOptions {
  std::string socket;                              // path
  bool direct = false;                             // the channels' transport can listen on the one beside it
  std::string listen;                              // HOST:PORT, or empty
  std::string certificate, key, client_authority;  // PEM files, for `listen`
  uint64_t most_message_bytes = 8u << 20;
  uint64_t most_memory_bytes = 512u << 20;  // that gRPC may have for buffers and calls
};

class Server {
 public:
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerOptions& options, Service& service);
  // Calls under way are cancelled.
  ~Server();

  // As the gRPC health service says it: of "island-N", and, of all together, of "".
  void SetHealth(const std::string& name, bool serving);
  // How clients write them: unix:PATH, HOST:PORT.
  const std::vector<std::string>& addresses() const { return addresses_; }
  // Of the Unix-domain sockets, so far. From any thread.
  uint64_t admitted() const { return admission_.admitted(); }
  uint64_t refused() const { return admission_.refused(); }

 private:
  Server() = default;
  absl::Status Listen(const std::string& path);
  void Accept();

  Admission admission_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<DirectServer> direct_;  // null: there is none
  std::vector<std::string> addresses_;
  std::string path_;
  runtime::UniqueFd listener_;
  std::atomic<bool> ended_{false};
  std::thread acceptor_;
};

}  // namespace islands::gateway
