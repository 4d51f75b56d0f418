// `gateway_load`: clients of a gateway, or a bare gRPC server to compare it with; what section `gateway` of
// `make bench` runs.
#include <fmt/format.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <CLI/Validators.hpp>
#include <map>
#include <nlohmann/json.hpp>

#include "experiments/gateway_load/echo.h"
#include "experiments/gateway_load/load.h"
#include "experiments/program.h"

namespace islands::experiments {
namespace {

constexpr const char* kName = "gateway_load";
constexpr uint32_t kMostClients = 1024;
constexpr uint32_t kMostPerCall = 1024;
constexpr uint32_t kMostRows = 100;

const std::map<std::string, LoadOp>& Ops() {
  static const std::map<std::string, LoadOp> names = {
      {"get", LoadOp::kGet}, {"put", LoadOp::kPut}, {"add", LoadOp::kAdd}};
  return names;
}

void AddRowBytes(CLI::App& app, uint32_t& row_bytes) {
  app.add_option("--row-bytes", row_bytes, "size of a row")
      ->check(CLI::Range(8u, 65536u))
      ->capture_default_str();
}

CLI::App* AddEcho(CLI::App& app, EchoOptions& options) {
  CLI::App* echo =
      app.add_subcommand("echo", "answer islands.client.v1 without doing anything, until SIGINT");
  echo->add_option("SOCKET", options.socket, "path of the Unix-domain socket to listen on")->required();
  AddRowBytes(*echo, options.row_bytes);
  return echo;
}

CLI::App* AddLoad(CLI::App& app, LoadOptions& options) {
  CLI::App* load = app.add_subcommand("load", "call a server and print what it managed, as JSON");
  load->add_option("ADDRESS", options.address, "as gRPC writes it: unix:PATH")->required();
  load->add_flag("--frames", options.frames, "call a gateway without gRPC, as the C++ client library does");
  load->add_option("--op", options.op, "of each transaction, on its rows of table micro: get, put, add")
      ->transform(CLI::CheckedTransformer(Ops()))
      ->default_str("get");
  load->add_option("--rows", options.rows, "distinct rows of a transaction, in the order of their keys")
      ->check(CLI::Range(1u, kMostRows))
      ->capture_default_str();
  load->add_option("--clients", options.clients, "threads that call and wait, a connection each")
      ->check(CLI::Range(1u, kMostClients))
      ->capture_default_str();
  load->add_option("--per-call", options.per_call, "transactions of a call; more than one: ExecuteMany")
      ->check(CLI::Range(1u, kMostPerCall))
      ->capture_default_str();
  load->add_option("--range", options.range, "rows of the table: keys 0 to RANGE - 1")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 40))
      ->capture_default_str();
  AddRowBytes(*load, options.row_bytes);
  load->add_option("--seconds", options.seconds, "of the measurement")
      ->check(SecondsFrom(0.001))
      ->capture_default_str();
  load->add_option("--warmup", options.warmup_s, "seconds before it")
      ->check(SecondsFrom(0))
      ->capture_default_str();
  load->add_option("--seed", options.seed, "of the keys")->capture_default_str();
  load->add_option("--process", options.process, "the server's process, to read its processor time");
  return load;
}

int PrintLoad(const LoadOptions& options) {
  const absl::StatusOr<LoadResult> result = RunLoad(options);
  if (!result.ok()) return PrintError(kName, result.status());
  const nlohmann::ordered_json document = {
      {"calls", result->calls},     {"transactions", result->transactions},
      {"seconds", result->seconds}, {"p50_us", result->p50_us},
      {"p99_us", result->p99_us},   {"cpu_s", result->cpu_s},
  };
  fmt::print("{}\n", document.dump());
  return 0;
}

int Main(int argc, char** argv) {
  CLI::App app{"Clients of a gateway, and a bare gRPC server to compare it with."};
  EchoOptions echo_options;
  LoadOptions load_options;
  const CLI::App* echo = AddEcho(app, echo_options);
  AddLoad(app, load_options);
  app.require_subcommand(1);
  if (const std::optional<int> code = ParseArguments(app, kName, argc, argv)) return *code;
  if (!echo->parsed()) return PrintLoad(load_options);
  const absl::Status status = RunEcho(echo_options);
  return status.ok() ? 0 : PrintError(kName, status);
}

}  // namespace
}  // namespace islands::experiments

int main(int argc, char** argv) { return islands::experiments::Main(argc, argv); }
