#include "deploy/observe/observer.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;

class ObserverTest : public testing::Test {
 protected:
  ObserverTest() {
    fs::create_directories(folder_ / "dashboards" / "provisioning" / "datasources");
    fs::create_directories(folder_ / "dashboards" / "provisioning" / "dashboards");
    Write("dashboards/provisioning/datasources/islands.yaml", "url: ${ISLANDS_PROMETHEUS_URL}\n");
    Write("dashboards/provisioning/dashboards/islands.yaml", "options: {path: '${ISLANDS_DASHBOARDS}'}\n");
    Write("dashboards/cluster.json", "{}\n");
    Write("dashboards/rules.yml", "groups: []\n");
    Write("dashboards/prometheus.yml", "global: {}\n");
    fs::create_directories(folder_ / "grafana");
  }
  ~ObserverTest() override { fs::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
  }
  std::string Read(const std::string& name) const {
    std::ifstream file(folder_ / name);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string Path(const std::string& name) const { return (folder_ / name).string(); }
  // A control directory of its own.
  std::string Control(const std::string& name) const {
    fs::create_directories(folder_ / "control" / name);
    return Path("control/" + name);
  }
  std::string Provision(const std::string& url = "http://127.0.0.1:9090") const {
    return ProvisionGrafana(Path("grafana"), Path("dashboards"), url);
  }

  const fs::path folder_ = [] {
    char name[] = "/tmp/islands-observer-XXXXXX";
    return fs::path(mkdtemp(name));
  }();
};

uint16_t FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{
      .sin_family = AF_INET, .sin_port = 0, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_zero = {}};
  socklen_t size = sizeof(address);
  bind(file, reinterpret_cast<sockaddr*>(&address), size);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &size);
  close(file);
  return ntohs(address.sin_port);
}

std::vector<control::v1::IslandConfig> Configs(const std::vector<uint32_t>& ports) {
  std::vector<control::v1::IslandConfig> configs;
  for (uint32_t port : ports) {
    control::v1::IslandConfig& config = configs.emplace_back();
    config.set_island(static_cast<uint32_t>(configs.size() - 1));
    config.set_metrics_port(port);
  }
  return configs;
}

TEST_F(ObserverTest, Targets_AnIslandEach) {
  ASSERT_TRUE(WriteTargets(Path("targets"), "quad", Control("quad"), Configs({9400, 9401})).ok());
  const auto groups = nlohmann::json::parse(Read("targets/quad.json"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1]["targets"], nlohmann::json({"127.0.0.1:9401"}));
  EXPECT_EQ(groups[1]["labels"], nlohmann::json({{"island", "1"},
                                                 {"job", "islands-quad"},
                                                 {"__islands_control_directory", Control("quad")}}));
  EXPECT_FALSE(fs::exists(folder_ / "targets/quad.json.tmp"));
}

TEST_F(ObserverTest, Targets_TheGatewayIsOneToo) {
  ASSERT_TRUE(WriteTargets(Path("targets"), "quad", Control("quad"), Configs({9400}), 9401).ok());
  const auto groups = nlohmann::json::parse(Read("targets/quad.json"));
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[1]["targets"], nlohmann::json({"127.0.0.1:9401"}));
  EXPECT_EQ(groups[1]["labels"], nlohmann::json({{"gateway", "0"},
                                                 {"job", "islands-quad"},
                                                 {"__islands_control_directory", Control("quad")}}));
}

TEST_F(ObserverTest, Targets_IslandsWithoutMetricsAreNone) {
  ASSERT_TRUE(WriteTargets(Path("targets"), "quad", Control("quad"), Configs({0, 0})).ok());
  EXPECT_EQ(nlohmann::json::parse(Read("targets/quad.json")).size(), 0u);
}

TEST_F(ObserverTest, Targets_RemovedOnlyTheirOwn) {
  ASSERT_TRUE(WriteTargets(Path("targets"), "a", Control("a"), Configs({9400})).ok());
  ASSERT_TRUE(WriteTargets(Path("targets"), "b", Control("b"), Configs({9500})).ok());
  RemoveTargets(Control("a"));
  RemoveTargets(Control("a"));  // twice does no harm
  EXPECT_FALSE(fs::exists(folder_ / "targets/a.json"));
  EXPECT_TRUE(fs::exists(folder_ / "targets/b.json"));
}

TEST_F(ObserverTest, Targets_OfAnotherDeploymentOfThatName) {
  ASSERT_TRUE(WriteTargets(Path("targets"), "same", Control("a"), Configs({9400})).ok());
  {
    const auto up = FileLock::Acquire(Control("a") + "/supervisor.lock");
    ASSERT_TRUE(up.ok());
    const absl::Status status = WriteTargets(Path("targets"), "same", Control("b"), Configs({9500}));
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("another deployment named 'same', which is up in " + Control("a")));
    RemoveTargets(Control("b"));
    EXPECT_THAT(Read("targets/same.json"), HasSubstr("127.0.0.1:9400"));
  }
  // Its supervisor has died: the name is free, and what it left is no longer its to remove.
  ASSERT_TRUE(WriteTargets(Path("targets"), "same", Control("b"), Configs({9500})).ok());
  RemoveTargets(Control("a"));
  EXPECT_THAT(Read("targets/same.json"), HasSubstr("127.0.0.1:9500"));
}

TEST_F(ObserverTest, Targets_AFileThatIsNotOursIsReplaced) {
  fs::create_directories(folder_ / "targets");
  for (const char* text : {"", "no json", "{}", "[]", "[{\"labels\": 3}]", "[{\"labels\": {}}]"}) {
    Write("targets/a.json", text);
    ASSERT_TRUE(WriteTargets(Path("targets"), "a", Control("a"), Configs({9400})).ok()) << text;
    EXPECT_EQ(nlohmann::json::parse(Read("targets/a.json")).size(), 1u);
  }
}

TEST_F(ObserverTest, Targets_FolderThatCannotBe) {
  Write("file", "");
  EXPECT_THAT(std::string(WriteTargets(Path("file"), "a", Control("a"), Configs({9400})).message()),
              HasSubstr("cannot write " + Path("file/a.json")));
}

TEST_F(ObserverTest, Grafana_GetsDataSourceAndDashboards) {
  EXPECT_THAT(Provision(), HasSubstr("restart Grafana"));
  EXPECT_EQ(Read("grafana/datasources/islands.yaml"), "url: http://127.0.0.1:9090\n");
  EXPECT_EQ(Read("grafana/dashboards/islands.yaml"),
            fmt::format("options: {{path: '{}'}}\n", Path("grafana/dashboards/islands")));
  EXPECT_EQ(Read("grafana/dashboards/islands/cluster.json"), "{}\n");
}

TEST_F(ObserverTest, Grafana_DashboardsAskForOurDataSource) {
  Write("dashboards/cluster.json", R"({"current": {"text": "default", "value": "default"}})");
  Provision();
  EXPECT_EQ(Read("grafana/dashboards/islands/cluster.json"),
            R"({"current": {"text": "Islands", "value": "islands-prometheus"}})");
}

TEST_F(ObserverTest, Grafana_NeedsNoRestartWhenItKnows) {
  Provision();
  Write("dashboards/cluster.json", "{\"new\": 1}\n");
  EXPECT_THAT(Provision(), Not(HasSubstr("restart")));
  EXPECT_EQ(Read("grafana/dashboards/islands/cluster.json"), "{\"new\": 1}\n");
  EXPECT_THAT(Provision("http://127.0.0.1:9091"), HasSubstr("restart Grafana"));
}

TEST_F(ObserverTest, Grafana_NoneFound) {
  EXPECT_THAT(ProvisionGrafana("", Path("dashboards"), "http://127.0.0.1:9090"), HasSubstr("none found"));
}

TEST_F(ObserverTest, Grafana_FolderThatCannotBeWritten) {
  Write("grafana/datasources", "a file where a folder should be");
  EXPECT_THAT(Provision(), HasSubstr("cannot write " + Path("grafana/datasources/islands.yaml")));
}

TEST_F(ObserverTest, Grafana_FoundByItsOwnVariable) {
  setenv("GF_PATHS_PROVISIONING", Path("grafana").c_str(), 1);
  EXPECT_EQ(FindGrafanaProvisioning(), Path("grafana"));
  setenv("GF_PATHS_PROVISIONING", Path("nowhere").c_str(), 1);
  EXPECT_THAT(FindGrafanaProvisioning(), IsEmpty());
  unsetenv("GF_PATHS_PROVISIONING");
}

// A `prometheus` of our own, first in PATH. The real one is in deploy/e2e/test_observe.py.
class FakePrometheusTest : public ObserverTest {
 protected:
  FakePrometheusTest() {
    setenv("GF_PATHS_PROVISIONING", Path("nowhere").c_str(), 1);
    setenv("PATH", (Path("bin") + ":" + path_).c_str(), 1);
  }
  ~FakePrometheusTest() override {
    unsetenv("GF_PATHS_PROVISIONING");
    setenv("PATH", path_.c_str(), 1);
  }
  void Install(const std::string& script) const {
    fs::create_directories(folder_ / "bin");
    Write("bin/prometheus", "#!/bin/sh\n" + script);
    fs::permissions(folder_ / "bin/prometheus", fs::perms::owner_all);
  }
  ObserverOptions Options() const {
    return {.directory = Path("observe"), .dashboards = Path("dashboards"), .port = FreePort()};
  }
  static std::string Notes(const Observer& observer) {
    std::string all;
    const control::v1::Observation described = observer.Describe();
    for (const std::string& note : described.notes()) all += note + "\n";
    return all;
  }
  static void StepUntilSettled(Observer& observer) {
    for (int i = 0; i < 1000 && !observer.settled(); ++i) {
      observer.Step();
      usleep(5'000);
    }
  }
  const std::string path_ = getenv("PATH");
};

TEST_F(FakePrometheusTest, Start_ProgramThatFailsIsANoteWithItsLastWords) {
  Install("echo 'level=error no such thing'; exit 3\n");
  Observer observer(Options());
  observer.Start();
  StepUntilSettled(observer);
  EXPECT_TRUE(observer.gone());
  EXPECT_THAT(Notes(observer),
              HasSubstr("Prometheus ended, exit code 3; last words: level=error no such thing"));
  EXPECT_EQ(observer.Describe().prometheus_pid(), 0);
}

TEST_F(FakePrometheusTest, Start_WhatItSaysNeedNotBeText) {
  Install("printf 'bad \\377\\376\\n'; exit 3\n");
  Observer observer(Options());
  observer.Start();
  StepUntilSettled(observer);
  EXPECT_THAT(Notes(observer), HasSubstr("last words: bad \xEF\xBF\xBD\xEF\xBF\xBD"));
}

TEST_F(FakePrometheusTest, Start_PortTakenMeanwhileIsSaidInOurWords) {
  Install("echo 'listen tcp: bind: address already in use'; sleep 0.2; exit 1\n");
  const ObserverOptions options = Options();
  Observer observer(options);
  observer.Start();
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address{.sin_family = AF_INET,
                            .sin_port = htons(options.port),
                            .sin_addr = {htonl(INADDR_LOOPBACK)},
                            .sin_zero = {}};
  ASSERT_EQ(bind(file, reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  StepUntilSettled(observer);
  EXPECT_THAT(Notes(observer), HasSubstr("choose another with --prometheus-port"));
  EXPECT_THAT(Notes(observer), Not(HasSubstr("listen tcp")));
  close(file);
}

TEST_F(FakePrometheusTest, Start_OnePerDirectory) {
  Install("exec sleep 60\n");
  Observer first(Options()), second(Options());
  first.Start();
  second.Start();
  EXPECT_TRUE(second.gone());
  EXPECT_THAT(Notes(second), HasSubstr(Path("observe/LOCK") + " is held by process"));
  first.Stop();
  Observer third(Options());
  third.Start();
  EXPECT_FALSE(third.gone());
}

TEST_F(FakePrometheusTest, Start_DirectoryThatPrometheusTakesForAPattern) {
  ObserverOptions options = Options();
  options.directory += "[1]";
  Observer observer(options);
  observer.Start();
  EXPECT_TRUE(observer.gone());
  EXPECT_THAT(Notes(observer), HasSubstr("would take " + options.directory + " for a pattern"));
}

TEST_F(FakePrometheusTest, Start_FromTheToolsFolder) {
  Install("exec sleep 60\n");
  setenv("PATH", path_.c_str(), 1);
  ObserverOptions options = Options();
  options.tools = Path("bin");
  Observer observer(options);
  observer.Start();
  EXPECT_GT(observer.Describe().prometheus_pid(), 0);
  EXPECT_TRUE(observer.Describe().starting());
}

TEST_F(FakePrometheusTest, Start_WithoutTheProgram) {
  setenv("PATH", Path("nowhere").c_str(), 1);
  Observer observer(Options());
  observer.Start();
  EXPECT_TRUE(observer.settled());
  EXPECT_THAT(Notes(observer), HasSubstr("there is no program `prometheus` in PATH"));
  EXPECT_TRUE(fs::exists(folder_ / "observe/targets"));  // another Prometheus may read them
}

TEST_F(FakePrometheusTest, Start_WithoutRules) {
  Install("sleep 60\n");
  fs::remove(folder_ / "dashboards/rules.yml");
  Observer observer(Options());
  observer.Start();
  EXPECT_TRUE(observer.gone());
  EXPECT_THAT(Notes(observer), HasSubstr("cannot copy " + Path("dashboards/rules.yml")));
}

TEST_F(FakePrometheusTest, Stop_LeavesNoProcess) {
  Install("exec sleep 60\n");
  Observer observer(Options());
  observer.Start();
  const pid_t pid = observer.Describe().prometheus_pid();
  ASSERT_GT(pid, 0);
  observer.Step();
  EXPECT_FALSE(observer.settled());  // it never answers
  observer.Stop();
  EXPECT_FALSE(fs::exists(fmt::format("/proc/{}", pid)));
  EXPECT_EQ(observer.Describe().prometheus_url(), "");
}

}  // namespace
}  // namespace islands::deploy
