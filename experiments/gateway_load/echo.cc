#include "experiments/gateway_load/echo.h"

#include <fmt/format.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <memory>

#include "proto/client.grpc.pb.h"

namespace islands::experiments {
namespace {

using client::v1::ExecuteRequest;
using client::v1::ExecuteResponse;
using client::v1::Operation;

constexpr const char* kTransaction = "0.0.1.1000000";  // as long as ids are after a second

class EchoService final : public client::v1::Islands::CallbackService {
 public:
  explicit EchoService(uint32_t row_bytes) : row_(row_bytes, 'r') {}

  grpc::ServerUnaryReactor* Execute(grpc::CallbackServerContext* context, const ExecuteRequest* request,
                                    ExecuteResponse* response) override {
    Answer(*request, response);
    return Done(context);
  }
  grpc::ServerUnaryReactor* ExecuteMany(grpc::CallbackServerContext* context,
                                        const client::v1::ExecuteManyRequest* request,
                                        client::v1::ExecuteManyResponse* response) override {
    for (const ExecuteRequest& each : request->transactions())
      Answer(each, response->add_each()->mutable_response());
    return Done(context);
  }

 private:
  static grpc::ServerUnaryReactor* Done(grpc::CallbackServerContext* context) {
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

  void Answer(const ExecuteRequest& request, ExecuteResponse* response) const {
    for (const Operation& operation : request.operations()) {
      client::v1::Result* result = response->add_results();
      result->set_code(client::v1::Result::DONE);
      if (operation.has_get()) result->set_value(row_);
      if (operation.has_add()) result->set_number(1);
    }
    response->set_transaction(kTransaction);
  }

  const std::string row_;
};

}  // namespace

absl::Status RunEcho(const EchoOptions& options) {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // gRPC's threads inherit it
  EchoService service(options.row_bytes);
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  builder.AddListeningPort("unix:" + options.socket, grpc::InsecureServerCredentials());
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) return absl::UnavailableError(fmt::format("cannot listen on '{}'", options.socket));
  fmt::print("ready\n");
  std::fflush(stdout);
  int signal = 0;
  sigwait(&signals, &signal);
  server->Shutdown(std::chrono::system_clock::now() + std::chrono::milliseconds(500));
  unlink(options.socket.c_str());
  return absl::OkStatus();
}

}  // namespace islands::experiments
