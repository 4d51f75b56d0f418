#include "instance/gateway/server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grpc/support/time.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_posix.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "instance/messaging/unix_socket.h"

namespace islands::gateway {

namespace {

constexpr int64_t kShutdownGraceMs = 500;
constexpr int kAgainMs = 10;
constexpr int kMostStreams = 1000;  // calls at a time on one connection
constexpr int kMostThreads = 64;

absl::StatusOr<std::string> ReadPem(const std::string& path, std::string_view what) {
  const runtime::UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return absl::ErrnoToStatus(errno, fmt::format("gateway: cannot read {} '{}'", what, path));
  return runtime::ReadAll(file.get(), path);
}

// Of both sides: who has no certificate that the authority vouches for does not get in.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MutualTls(const ServerOptions& options) {
  const auto certificate = ReadPem(options.certificate, "the certificate");
  if (!certificate.ok()) return certificate.status();
  const auto key = ReadPem(options.key, "the key");
  if (!key.ok()) return key.status();
  const auto authority = ReadPem(options.client_authority, "the authority of clients");
  if (!authority.ok()) return authority.status();
  grpc::SslServerCredentialsOptions tls(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  tls.pem_root_certs = *authority;
  tls.pem_key_cert_pairs.push_back({*key, *certificate});
  return grpc::SslServerCredentials(tls);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerOptions& options, Service& service) {
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  builder.RegisterService(&service);
  const int most_bytes = static_cast<int>(options.most_message_bytes);
  builder.SetMaxReceiveMessageSize(most_bytes);
  grpc::ResourceQuota quota("islands-gateway");
  quota.Resize(options.most_memory_bytes).SetMaxThreads(kMostThreads);
  builder.SetResourceQuota(quota);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMostStreams);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  int port = 0;
  if (!options.listen.empty()) {
    auto credentials = MutualTls(options);
    if (!credentials.ok()) return credentials.status();
    builder.AddListeningPort(options.listen, *credentials, &port);
  }
  auto server = std::unique_ptr<Server>(new Server);
  server->server_ = builder.BuildAndStart();
  if (server->server_ == nullptr || (!options.listen.empty() && port == 0)) {
    return absl::UnavailableError(fmt::format(
        "gateway: cannot listen on '{}': is it in use, are certificate and key a pair?", options.listen));
  }
  if (options.direct) {  // first, so that whoever finds gRPC's socket finds this one
    auto direct = DirectServer::Start(service, server->admission_, options.most_message_bytes);
    if (!direct.ok()) return direct.status();
    server->direct_ = *std::move(direct);
  }
  if (absl::Status status = server->Listen(options.socket); !status.ok()) return status;
  server->addresses_.push_back("unix:" + options.socket);
  if (!options.listen.empty())
    server->addresses_.push_back(options.listen.substr(0, options.listen.rfind(':') + 1) +
                                 std::to_string(port));
  return server;
}

absl::Status Server::Listen(const std::string& path) {
  absl::StatusOr<runtime::UniqueFd> listener = messaging::ListenOn(path);
  if (!listener.ok()) return listener.status();
  listener_ = *std::move(listener);
  path_ = path;
  acceptor_ = std::thread([this] { Accept(); });
  return absl::OkStatus();
}

void Server::Accept() {
  while (!ended_.load(std::memory_order_acquire)) {
    pollfd ready{listener_.get(), POLLIN, 0};
    if (poll(&ready, 1, -1) <= 0) continue;
    runtime::UniqueFd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!client) {
      // Out of descriptors, say: whoever waits is still there in a moment.
      if (errno != EAGAIN && errno != ECONNABORTED) poll(nullptr, 0, kAgainMs);
      continue;
    }
    if (!admission_.Admits(messaging::PeerUid(client.get()))) continue;
    grpc::AddInsecureChannelFromFd(server_.get(), client.Release());
  }
}

Server::~Server() {
  direct_.reset();
  if (acceptor_.joinable()) {
    ended_.store(true, std::memory_order_release);
    shutdown(listener_.get(), SHUT_RDWR);  // wakes it
    acceptor_.join();
    listener_.Reset();
    messaging::RemoveStaleSocket(path_).IgnoreError();  // the name may be another's by now
  }
  if (server_ == nullptr) return;
  server_->Shutdown(
      gpr_time_add(gpr_now(GPR_CLOCK_REALTIME), gpr_time_from_millis(kShutdownGraceMs, GPR_TIMESPAN)));
}

void Server::SetHealth(const std::string& name, bool serving) {
  server_->GetHealthCheckService()->SetServingStatus(name, serving);
}

}  // namespace islands::gateway
