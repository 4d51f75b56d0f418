// `islands observe`: what `up --observe` does for one deployment, for any number of them, and beyond their
// end.
//
// Thread safety: main thread only.
#pragma once

#include <cstdint>
#include <string>

#include "deploy/cli/commands.h"

namespace CLI {
class Option;
}

namespace islands::deploy {

void AddObserveCommand(CLI::App& app, CommandContext& context);
// The option of every command that may start a Prometheus.
CLI::Option* AddPrometheusPort(CLI::App* command, uint16_t* port);

// Where the commands' own files for Prometheus and Grafana lie.
std::string DashboardsFolder(const CommandContext& context);
// Where `make test` unpacks a Prometheus.
std::string ToolsFolder(const CommandContext& context);

}  // namespace islands::deploy
