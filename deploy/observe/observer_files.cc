// The files of an Observer that others read: Prometheus its targets, Grafana its data source and dashboards.
#include <fcntl.h>
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "deploy/observe/observer.h"
#include "deploy/processes/control_files.h"
#include "deploy/processes/file_lock.h"
#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

constexpr const char* kGrafanaPackageFolder = "/etc/grafana/provisioning";  // of Grafana's Debian package

// Prometheus drops labels that begin like this. Ours says whose targets these are.
constexpr const char* kOwnerLabel = "__islands_control_directory";

// Where a control directory remembers its targets.
std::string ReminderOf(const std::string& control_directory) { return control_directory + "/targets"; }

absl::StatusOr<std::string> ReadFile(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::NotFoundError(fmt::format("cannot read {}", path.string()));
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// Whoever reads sees the old text or the new one. `*changed`: it was not this text before.
absl::Status Replace(const fs::path& path, const std::string& text, bool* changed) {
  const absl::StatusOr<std::string> before = ReadFile(path);
  if (before.ok() && *before == text) return absl::OkStatus();
  const fs::path fresh = path.string() + ".tmp";
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  fs::remove(fresh, error);
  // Not private: Prometheus and Grafana may run as users of their own.
  const runtime::UniqueFd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!file) return absl::PermissionDeniedError(fmt::format("cannot write {}", path.string()));
  if (absl::Status written = runtime::WriteAll(file.get(), text, fresh.string()); !written.ok()) {
    fs::remove(fresh, error);
    return written;
  }
  fs::rename(fresh, path, error);
  if (error) return absl::InternalError(fmt::format("cannot write {}: {}", path.string(), error.message()));
  *changed = true;
  return absl::OkStatus();
}

// Control directory of the deployment whose targets these are; empty if they are nobody's.
std::string OwnerOf(const std::string& targets_file) {
  const absl::StatusOr<std::string> text = ReadFile(targets_file);
  if (!text.ok()) return "";
  const nlohmann::json groups = nlohmann::json::parse(*text, nullptr, /*allow_exceptions=*/false);
  const nlohmann::json::json_pointer label(fmt::format("/0/labels/{}", kOwnerLabel));
  if (groups.is_discarded() || !groups.contains(label) || !groups[label].is_string()) return "";
  return groups[label].get<std::string>();
}

std::string Substitute(std::string text, const std::string& what, const std::string& with) {
  for (size_t at; (at = text.find(what)) != std::string::npos;) text.replace(at, what.size(), with);
  return text;
}

// The dashboards ask for whatever Prometheus a Grafana has as its default. Here they shall ask for ours,
// which is not.
constexpr const char* kDefaultSource = R"("text": "default", "value": "default")";
constexpr const char* kOurSource = R"("text": "Islands", "value": "islands-prometheus")";

// dashboards/provisioning holds what Grafana takes; only the values of its variables are ours to know. The
// dashboards are copied: Grafana runs as a user of its own, who may not be able to read ours.
absl::Status WriteProvisioning(const fs::path& to, const fs::path& dashboards, const std::string& url,
                               bool* changed) {
  const fs::path copies = to / "dashboards" / "islands";
  for (const char* kind : {"datasources", "dashboards"}) {
    absl::StatusOr<std::string> text = ReadFile(dashboards / "provisioning" / kind / "islands.yaml");
    if (!text.ok()) return text.status();
    *text = Substitute(*std::move(text), "${ISLANDS_PROMETHEUS_URL}", url);
    *text = Substitute(*std::move(text), "${ISLANDS_DASHBOARDS}", copies.string());
    absl::Status written = Replace(to / kind / "islands.yaml", *text, changed);
    if (!written.ok()) return written;
  }
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(dashboards, error)) {
    if (entry.path().extension() != ".json") continue;
    absl::StatusOr<std::string> text = ReadFile(entry.path());
    if (!text.ok()) return text.status();
    *text = Substitute(*std::move(text), kDefaultSource, kOurSource);
    // Existing dashboards change at once; only a new data source needs a restart.
    bool ignored = false;
    absl::Status written = Replace(copies / entry.path().filename(), *text, &ignored);
    if (!written.ok()) return written;
  }
  return error ? absl::InternalError(fmt::format("cannot read {}", dashboards.string())) : absl::OkStatus();
}

}  // namespace

absl::Status WriteTargets(const std::string& folder, const std::string& deployment,
                          const std::string& control_directory,
                          const std::vector<control::v1::IslandConfig>& configs,
                          uint32_t gateway_metrics_port) {
  const std::string path = fmt::format("{}/{}.json", folder, deployment);
  const std::string owner = OwnerOf(path);
  absl::StatusOr<std::optional<pid_t>> holder = std::nullopt;
  if (!owner.empty() && owner != control_directory)
    holder = LockHolder(ControlFiles{.directory = owner}.SupervisorLock());
  // Of another user's we cannot know.
  if (!holder.ok() || *holder) {
    return absl::AlreadyExistsError(fmt::format(
        "{} is of another deployment named '{}', which is {} in {}; give one of them another name", path,
        deployment, holder.ok() ? "up" : "another user's", owner));
  }
  nlohmann::ordered_json groups = nlohmann::ordered_json::array();
  const auto add = [&](uint32_t port, const char* role, uint32_t number) {
    if (port == 0) return;
    groups.push_back({{"targets", {fmt::format("127.0.0.1:{}", port)}},
                      {"labels",
                       {{"job", "islands-" + deployment},
                        {role, std::to_string(number)},
                        {kOwnerLabel, control_directory}}}});
  };
  for (const control::v1::IslandConfig& config : configs)
    add(config.metrics_port(), "island", config.island());
  add(gateway_metrics_port, "gateway", 0);
  absl::Status written = runtime::WritePrivateFile(ReminderOf(control_directory), path + "\n");
  if (!written.ok()) return written;
  bool changed = false;
  return Replace(path, groups.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n", &changed);
}

void RemoveTargets(const std::string& control_directory) {
  const absl::StatusOr<std::string> reminder = runtime::ReadPrivateFile(ReminderOf(control_directory));
  if (!reminder.ok()) return;
  const std::string path = reminder->substr(0, reminder->find('\n'));
  std::error_code error;
  if (OwnerOf(path) == control_directory) fs::remove(path, error);
  fs::remove(ReminderOf(control_directory), error);
}

std::string FindGrafanaProvisioning() {
  const char* chosen = std::getenv("GF_PATHS_PROVISIONING");  // Grafana's own variable
  const std::string folder = chosen != nullptr && *chosen != '\0' ? chosen : kGrafanaPackageFolder;
  std::error_code error;
  return fs::is_directory(folder, error) ? fs::absolute(folder, error).lexically_normal().string() : "";
}

std::string ProvisionGrafana(const std::string& provisioning, const std::string& dashboards,
                             const std::string& prometheus_url) {
  if (provisioning.empty()) {
    return fmt::format(
        "Grafana: none found (neither $GF_PATHS_PROVISIONING nor {} is a folder); {} has the dashboards, its "
        "README how to "
        "import them",
        kGrafanaPackageFolder, dashboards);
  }
  bool changed = false;
  const absl::Status written = WriteProvisioning(provisioning, dashboards, prometheus_url, &changed);
  if (!written.ok()) {
    return fmt::format("Grafana: {}; let {} be writable, or import the dashboards of {} by hand",
                       std::string(written.message()), provisioning, dashboards);
  }
  return fmt::format("Grafana: data source and dashboards are in {}{}", provisioning,
                     changed ? "; restart Grafana to load them" : "");
}

}  // namespace islands::deploy
