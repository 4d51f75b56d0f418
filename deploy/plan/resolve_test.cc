#include "deploy/plan/resolve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <string>
#include <vector>

#include "deploy/plan/template.h"
#include "instance/messaging/unix_socket.h"

namespace islands::deploy {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr uint64_t kGiB = uint64_t{1} << 30;

// `packages` x `cores` x `threads`, one node of `node_bytes` per package; the first threads of all cores are
// numbered before the second ones, as on most servers.
topology::Machine MakeMachine(uint32_t packages, uint32_t cores, uint32_t threads = 1,
                              uint64_t node_bytes = 16 * kGiB) {
  topology::Machine machine;
  machine.source = "this machine";
  machine.is_this_machine = true;
  for (uint32_t p = 0; p < packages; ++p) {
    machine.packages.push_back({.os_index = p, .cpu_model = "test"});
    machine.nodes.push_back({.os_index = p, .package = static_cast<int32_t>(p), .memory_bytes = node_bytes});
    machine.cache_groups.push_back({.package = p, .bytes = 0});
    for (uint32_t c = 0; c < cores; ++c) {
      topology::Core core;
      core.package = p;
      core.cache_group = p;
      core.nodes = {p};
      for (uint32_t t = 0; t < threads; ++t) core.pus.push_back(t * packages * cores + p * cores + c);
      machine.cores.push_back(core);
    }
  }
  machine.memory_bytes = node_bytes * packages;
  return machine;
}

absl::StatusOr<ResolvedDeployment> ResolveText(const std::string& text, topology::Machine machine) {
  const auto deployment =
      ParseDeployment("version: 1\ncontrol: {directory: /run/islands}\n" + text, "/d/f.yaml");
  if (!deployment.ok()) return deployment.status();
  return ResolveOn(*deployment, std::move(machine));
}

std::string Message(const std::string& text, topology::Machine machine) {
  const auto resolved = ResolveText(text, std::move(machine));
  if (resolved.ok()) return "";
  EXPECT_EQ(resolved.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(resolved.status().message());
}

std::vector<uint64_t> Pools(const ResolvedDeployment& resolved) {
  std::vector<uint64_t> bytes;
  for (const topology::PlannedIsland& island : resolved.plan.islands) bytes.push_back(island.memory_bytes);
  return bytes;
}

TEST(Resolve, FourIslandsOnFourSockets) {
  const auto r = ResolveText("layout: 4ISL\nstorage: {buffer_pool: 12GiB}\n", MakeMachine(4, 6));
  ASSERT_TRUE(r.ok()) << r.status();
  ASSERT_EQ(r->plan.islands.size(), 4u);
  EXPECT_EQ(topology::FormatCpuList(r->plan.islands[1].cpus), "6-11");
  EXPECT_THAT(r->plan.islands[1].numa_nodes, ElementsAre(1));
  EXPECT_THAT(Pools(*r), Each(3 * kGiB));
  EXPECT_EQ(r->plan.islands[3].metrics_port, 9403u);
  EXPECT_EQ(r->plan.sites, 24u);
  EXPECT_EQ(r->plan.islands[1].sites, (partitioner::SiteRun{6, 6}));
  EXPECT_THAT(r->service_cpus, Each(-1));
  EXPECT_TRUE(r->bound);
  EXPECT_FALSE(r->cores_shared);
  EXPECT_EQ(r->data_directory, "/d/data");
  EXPECT_EQ(r->log_directory, "/d/data/log");
  EXPECT_EQ(r->control_directory, "/run/islands");
  EXPECT_EQ(r->SupervisorSocket(), "/run/islands/supervisor.sock");
}

TEST(Resolve, AutoLayoutSitesAndPool) {
  const auto r = ResolveText("", MakeMachine(8, 10));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->plan.layout, "8ISL");
  EXPECT_EQ(r->plan.sites, 80u);
  EXPECT_THAT(Pools(*r), Each(4 * kGiB));  // a quarter of the machine
}

TEST(Resolve, AutoPoolFollowsTheCoresUsed) {
  const auto r = ResolveText("layout: 2ISL\ncores: 6\n", MakeMachine(4, 6));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(Pools(*r), Each(2 * kGiB));  // half of a quarter of the one node that is used
}

TEST(Resolve, PoolIsDividedBySites) {
  const auto r = ResolveText("layout: 5ISL\nstorage: {buffer_pool: 2400MiB}\n", MakeMachine(1, 10));
  ASSERT_TRUE(r.ok()) << r.status();
  std::vector<uint64_t> expected;
  for (uint32_t i = 0; i < 5; ++i) expected.push_back(r->plan.islands[i].sites.count * (uint64_t{100} << 20));
  EXPECT_EQ(Pools(*r), expected);
  EXPECT_EQ(std::accumulate(expected.begin(), expected.end(), uint64_t{0}), uint64_t{2400} << 20);
}

// 24 sites on 18 islands: six have two of them, and twice the memory.
constexpr const char* k18Islands = "layout: 18ISL\ndata: {sites: 24}\n";

TEST(Resolve, PoolThatFitsInEqualPartsOnly_IsRefused) {
  const std::string text = std::string(k18Islands) + "storage: {buffer_pool: 288GiB}\n";  // 18 x 16
  const std::string message = Message(text, MakeMachine(18, 1));
  EXPECT_THAT(message, HasSubstr("288GiB of buffer pool, expected what fits the machine: NUMA node "));
  EXPECT_THAT(message, HasSubstr(" has 16 GiB, but island "));
  EXPECT_THAT(message, HasSubstr(" needs 24 GiB of it"));
  EXPECT_EQ(Message(text, MakeMachine(18, 1, 1, 24 * kGiB)), "");
}

TEST(Resolve, PoolThatFitsBySitesOnly_IsAccepted) {
  topology::Machine machine = MakeMachine(18, 1);
  const auto sites = partitioner::SiteMap::Create(24, 18);
  ASSERT_TRUE(sites.ok());
  std::vector<uint64_t> expected;
  for (uint32_t i = 0; i < 18; ++i) {
    expected.push_back(sites->SitesOf(i).count * 12 * kGiB);
    machine.nodes[i].memory_bytes = expected.back();
  }
  machine.memory_bytes = 288 * kGiB;
  const auto r = ResolveText(std::string(k18Islands) + "storage: {buffer_pool: 288GiB}\n", machine);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(Pools(*r), expected);
}

TEST(Resolve, IslandsByHand_DivideThePoolBySites) {
  const auto r = ResolveText(
      "islands:\n  - {cpus: '0-4'}\n  - {cpus: '5'}\n  - {cpus: '6'}\n"
      "data: {sites: 4}\nstorage: {buffer_pool: 4GiB}\n",
      MakeMachine(1, 7));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->plan.islands[2].sites.count, 2u);
  EXPECT_THAT(Pools(*r), ElementsAre(kGiB, kGiB, 2 * kGiB));
}

TEST(Resolve, PoolsAreWholePages) {
  const auto r = ResolveText("layout: 3ISL\nstorage: {buffer_pool: 1000000001}\n", MakeMachine(1, 3));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(Pools(*r), Each(1000000001 / 3 / 4096 * 4096));
}

TEST(Resolve, MoreIslandsThanCoresShareThem) {
  const auto r = ResolveText("layout: 24ISL\n", MakeMachine(1, 2));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_TRUE(r->cores_shared);
  EXPECT_FALSE(r->notes.empty());
}

TEST(Resolve, CommandsOfSeveralWorkers_AreNoted) {
  const std::string durability = "storage: {log: {durability: command}}\n";
  const auto one = ResolveText("layout: 2ISL\n" + durability, MakeMachine(1, 2));
  ASSERT_TRUE(one.ok()) << one.status();
  EXPECT_THAT(one->notes, ::testing::Not(::testing::Contains(HasSubstr("commands"))));
  const auto two = ResolveText("layout: 1ISL\n" + durability, MakeMachine(1, 2));
  ASSERT_TRUE(two.ok()) << two.status();
  EXPECT_THAT(two->notes, ::testing::Contains(HasSubstr("islands of several workers log what")));
}

TEST(Resolve, AnotherMachineIsUnbound) {
  topology::Machine machine = MakeMachine(4, 64);
  machine.is_this_machine = false;
  machine.source = "pack:4 [numa] core:64 pu:1";
  const auto r = ResolveText("layout: 4ISL\n", std::move(machine));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_FALSE(r->bound);
  EXPECT_THAT(r->unbound_reason, HasSubstr("not this one"));
  EXPECT_THAT(r->notes, ::testing::Contains(HasSubstr("unbound")));
  EXPECT_TRUE(r->cores_shared);  // no machine that runs this test has 256 CPUs
  const auto configs = MakeIslandConfigs(*r);
  ASSERT_EQ(configs[3].workers_size(), 64);
  EXPECT_EQ(configs[3].workers(0).cpu(), -1);
  EXPECT_EQ(configs[3].numa_nodes_size(), 0);
  EXPECT_EQ(configs[3].memory_policy(), control::v1::MEMORY_DEFAULT);
}

TEST(Resolve, PlacementOsIsUnbound) {
  const auto r = ResolveText("layout: 2ISL\nplacement: os\n", MakeMachine(1, 1));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_FALSE(r->bound);
  EXPECT_THAT(r->unbound_reason, HasSubstr("'os'"));
  EXPECT_THAT(r->service_cpus, Each(-1));
}

TEST(Resolve, ServiceCpuIsAnIdleCoreNearby) {
  const auto r = ResolveText("islands:\n  - {cpus: '0-4'}\n  - {cpus: '6-11'}\n", MakeMachine(3, 6, 2));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->service_cpus[0], 5);  // its own package has an idle core
  EXPECT_EQ(r->service_cpus[1], 5);  // its own has none: any idle core before a sibling thread
}

TEST(Resolve, ServiceCpuIsASiblingThreadOfItsOwn) {
  const auto r = ResolveText("layout: 2ISL\n", MakeMachine(2, 4, 2));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_THAT(r->service_cpus, ElementsAre(8, 12));
}

TEST(Resolve, IslandsByHand) {
  const auto r = ResolveText(
      "islands:\n  - {cpus: '0-3', numa_nodes: '1', memory: 1GiB}\n  - {cpus: '6', memory: 2GiB}\n",
      MakeMachine(2, 6));
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->plan.layout, "2ISL");
  EXPECT_THAT(Pools(*r), ElementsAre(kGiB, 2 * kGiB));
  EXPECT_THAT(r->plan.islands[0].numa_nodes, ElementsAre(1));
  EXPECT_EQ(r->plan.islands[0].workers, 4u);
  EXPECT_EQ(r->plan.islands[1].workers, 1u);
}

struct BadFile {
  const char* name;
  std::string text;
  topology::Machine machine;
  const char* at;
  const char* says;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

topology::Machine WithDisallowed(uint32_t cpu) {
  topology::Machine machine = MakeMachine(1, 4);
  machine.disallowed_pus = 1;
  machine.disallowed_cpus = {cpu};
  return machine;
}

class BadResolve : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadResolve, ComplainsOnceAtItsPlace) {
  const std::string message = Message(GetParam().text, GetParam().machine);
  EXPECT_THAT(message, StartsWith(std::string("/d/f.yaml:") + GetParam().at + ": found "));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
  EXPECT_THAT(message, HasSubstr(", expected "));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

// The text begins on line 3.
INSTANTIATE_TEST_SUITE_P(
    All, BadResolve,
    ::testing::Values(
        BadFile{"too_many_cores", "cores: 5", MakeMachine(1, 4), "3:8",
                "5 cores, expected at most the 4 of this machine"},
        BadFile{"missing_cpu", "cores: '2-6'", MakeMachine(1, 4), "3:8",
                "CPU 4-6, which this machine does not have, expected CPUs from 0-3"},
        BadFile{"disallowed_cpu", "cores: '0,4'", WithDisallowed(4), "3:8",
                "CPU 4, which is offline or not allowed here"},
        BadFile{"gateway_missing_cpu", "gateway: {cpus: '3-4'}", MakeMachine(1, 4), "3:17",
                "CPU 4, which this machine does not have, expected CPUs from 0-3"},
        BadFile{"by_hand_missing_cpu", "islands:\n  - {cpus: '0'}\n  - {cpus: '9'}", MakeMachine(1, 4),
                "5:12", "CPU 9"},
        BadFile{"by_hand_missing_node", "islands:\n  - {cpus: '0', numa_nodes: '7'}", MakeMachine(1, 4),
                "4:29",
                "NUMA node 7, which does not exist or has no memory on this machine, expected nodes from 0"},
        BadFile{"sites_few", "layout: 4ISL\ndata: {sites: 3}", MakeMachine(1, 4), "4:15",
                "3 sites for 4 islands, expected at least one site per island"},
        BadFile{"sites_auto_few", "layout: 30ISL", MakeMachine(1, 4), "3:9",
                "24 sites (auto) for 30 islands"},
        BadFile{"sites_few_auto_layout", "data: {sites: 3}", MakeMachine(4, 6), "3:15",
                "3 sites for 4 islands"},
        BadFile{"pool_too_large", "layout: 2ISL\nstorage: {buffer_pool: 40GiB}", MakeMachine(2, 4), "4:24",
                "40GiB of buffer pool, expected what fits the machine: NUMA node 0 has"},
        BadFile{"pool_too_large_by_hand", "islands:\n  - {cpus: '0', memory: 40GiB}", MakeMachine(2, 4),
                "4:3", "40GiB of buffer pool"},
        BadFile{"pool_too_small", "layout: 4ISL\nstorage: {buffer_pool: 8MiB}", MakeMachine(1, 4), "4:24",
                "2MiB of buffer pool for island 0, expected at least 4MiB"},
        BadFile{"pool_too_small_by_hand", "islands:\n  - {cpus: '0', memory: 1KiB}", MakeMachine(1, 4),
                "4:25", "1KiB of buffer pool for island 0"},
        BadFile{"ports_end", "layout: 4ISL\nmetrics: {base_port: 65533}", MakeMachine(1, 4), "4:22",
                "port 65533, which makes 65536 the last of 4 islands' ports, expected at most 65532"},
        BadFile{"ports_end_gateway", "layout: 4ISL\ngateway: {enabled: true}\nmetrics: {base_port: 65532}",
                MakeMachine(1, 4), "5:22",
                "port 65532, which makes 65536 the gateway's, after the islands', expected at most 65531"},
        BadFile{"ports_end_auto_layout", "metrics: {base_port: 65535}", MakeMachine(4, 1), "3:22",
                "which makes 65538 the last of 4 islands' ports, expected at most 65532"}),
    ::testing::PrintToStringParamName());

TEST(Resolve, AllComplaintsTogether) {
  EXPECT_EQ(Message("cores: 9\nlayout: 30ISL\n", MakeMachine(1, 4)),
            "/d/f.yaml:3:8: found 9 cores, expected at most the 4 of this machine\n"
            "/d/f.yaml:4:9: found 24 sites (auto) for 30 islands, expected at least one site per island: "
            "set data.sites to 30 or more");
}

TEST(Resolve, ComplaintsOfPlanAndFileTogether) {
  EXPECT_EQ(
      Message("islands:\n  - {cpus: '0', memory: 1KiB}\n  - {cpus: '1', memory: 40GiB}\n"
              "  - {cpus: '2', memory: 1KiB}\n",
              MakeMachine(1, 4)),
      "/d/f.yaml:4:3: found 40.0GiB of buffer pool, expected what fits the machine: NUMA node 0 has 16 GiB, "
      "but islands 0-2 need 40 GiB of it; make the buffer pool smaller or use more nodes\n"
      "/d/f.yaml:4:25: found 1KiB of buffer pool for island 0, expected at least 4MiB for every island\n"
      "/d/f.yaml:6:25: found 1KiB of buffer pool for island 2, expected at least 4MiB for every island");
}

TEST(Resolve, SocketPathsFitExactly) {
  const auto with_length = [](size_t length) {
    const std::string directory = "/" + std::string(length - 1, 'x');
    return ResolveOn(*ParseDeployment("version: 1\ncontrol: {directory: " + directory + "}", "f.yaml"),
                     MakeMachine(1, 4));
  };
  const size_t longest = messaging::kMaxSocketPathBytes - std::string("/island-999.w999.sock").size();
  EXPECT_TRUE(with_length(longest).ok());
  const auto refused = with_length(longest + 1);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()),
              ::testing::AllOf(StartsWith("f.yaml:2:22: found"), HasSubstr("up to 108 bytes"),
                               HasSubstr("expected at most 107")));
}

TEST(Resolve, ShortControlDirectory_IsOneThatOthersCannotTake) {
  EXPECT_EQ(ShortControlDirectory("quad", 0, "/run/user/0"), "/run/islands/quad");
  EXPECT_EQ(ShortControlDirectory("quad", 1000, "/run/user/1000"), "/run/user/1000/islands/quad");
  for (const char* none : {static_cast<const char*>(nullptr), "", "relative"}) {
    EXPECT_EQ(ShortControlDirectory("quad", 4711, none), "/run/user/4711/islands/quad");
  }
}

TEST(Resolve, DefaultControlDirectoryTooDeep) {
  const auto deployment = ParseDeployment("version: 1", "/" + std::string(120, 'd') + "/f.yaml");
  ASSERT_TRUE(deployment.ok());
  const auto refused = ResolveOn(*deployment, MakeMachine(1, 4));
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("f.yaml:1:1: found"));
}

TEST(Resolve, MachineOfTheFile) {
  const auto deployment = ParseDeployment(
      "version: 1\nmachine: 'pack:4 [numa] core:6 pu:1'\ncontrol: {directory: /run}", "f.yaml");
  ASSERT_TRUE(deployment.ok());
  const auto r = Resolve(*deployment);
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ(r->plan.layout, "4ISL");
  EXPECT_FALSE(r->bound);
}

TEST(Resolve, MachineThatIsNone) {
  for (const char* spec : {"nowhere.xml", "pack:x"}) {
    const auto deployment = ParseDeployment(
        std::string("version: 1\nmachine: '") + spec + "'\ncontrol: {directory: /run}", "f.yaml");
    ASSERT_TRUE(deployment.ok());
    const auto refused = Resolve(*deployment);
    EXPECT_EQ(refused.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(refused.status().message()),
                StartsWith(std::string("f.yaml:2:10: found '") + spec + "'"));
  }
}

TEST(MakeIslandConfigs, WorkersOsBindTheIslandAsAWhole) {
  const auto r = ResolveText("layout: 2ISL\nworkers: os\n", MakeMachine(2, 4));
  ASSERT_TRUE(r.ok()) << r.status();
  const std::vector<control::v1::IslandConfig> configs = MakeIslandConfigs(*r);
  for (const auto& worker : configs[1].workers()) EXPECT_EQ(worker.cpu(), -1);
  EXPECT_THAT(configs[1].cpus(), ElementsAre(4, 5, 6, 7));
  EXPECT_THAT(configs[1].numa_nodes(), ElementsAre(1));
}

TEST(MakeIslandConfigs, CarriesThePlan) {
  const auto r = ResolveText(
      "name: two\nlayout: 2ISL\nwithout: spinning\nmessaging: {transport: zmq}\nmetrics: {base_port: 9500}\n"
      "timeouts: {transaction_ms: 700}\nstorage: {buffer_pool: 2GiB, memory_policy: bind, latching: "
      "always}\ndata: {sites: 25}\n",
      MakeMachine(2, 4, 2));
  ASSERT_TRUE(r.ok()) << r.status();
  const std::vector<control::v1::IslandConfig> configs = MakeIslandConfigs(*r);
  ASSERT_EQ(configs.size(), 2u);
  for (uint32_t i = 0; i < 2; ++i) {
    const control::v1::IslandConfig& c = configs[i];
    EXPECT_EQ(c.island(), i);
    EXPECT_EQ(c.deployment(), "two");
    EXPECT_EQ(c.layout(), "2ISL");
    EXPECT_EQ(c.layout_islands(), 2u);
    EXPECT_EQ(c.placement(), "islands");
    EXPECT_EQ(c.site_count(), 25u);
    EXPECT_EQ(c.transport(), "zmq");
    EXPECT_EQ(c.durability(), "lazy");
    EXPECT_EQ(c.transaction_timeout_ms(), 700u);
    EXPECT_EQ(c.memory_policy(), control::v1::MEMORY_BIND);
    EXPECT_TRUE(c.always_latched());
    EXPECT_EQ(c.without(), "spinning");
    EXPECT_EQ(c.metrics_port(), 9500 + i);
    EXPECT_EQ(c.pool_bytes(), r->plan.islands[i].memory_bytes);
    EXPECT_EQ(c.service_cpu(), r->service_cpus[i]);
    EXPECT_THAT(c.numa_nodes(), ElementsAre(i));
    ASSERT_EQ(c.workers_size(), 4);
    EXPECT_EQ(c.workers(0).cpu(), static_cast<int32_t>(4 * i));
    ASSERT_EQ(c.peers_size(), 2);
    EXPECT_EQ(c.peers(1).island(), 1u);
    EXPECT_EQ(c.peers(1).workers(), 4u);
    EXPECT_EQ(c.peers(0).sites().first(), 0u);
    EXPECT_EQ(c.peers(0).sites().count() + c.peers(1).sites().count(), 25u);
    ASSERT_EQ(c.tables_size(), 1);
    EXPECT_EQ(c.tables(0).name(), "micro");
    EXPECT_EQ(c.data_directory(), "/d/data");
    EXPECT_EQ(c.log_directory(), "/d/data/log");
    EXPECT_EQ(c.control_directory(), "/run/islands");
    EXPECT_THAT(c.cluster_id(), IsEmpty());  // the supervisor's
    EXPECT_EQ(c.boot_epoch(), 0u);
  }
}

TEST(MakeTemplate, RoundTrip) {
  for (const char* layout : {"1ISL", "4ISL", "24ISL", "30ISL", "auto"}) {
    TemplateOptions options;
    options.layout = layout;
    options.rows_total = 1000;
    options.transport = TransportKind::kZmq;
    const auto text = MakeTemplate(options, MakeMachine(4, 6));
    ASSERT_TRUE(text.ok()) << layout << ": " << text.status();
    const auto d = ParseDeployment(*text, "/d/f.yaml");
    ASSERT_TRUE(d.ok()) << d.status();
    EXPECT_EQ(d->layout, *topology::ParseLayout(layout));
    EXPECT_EQ(d->transport, TransportKind::kZmq);
    EXPECT_EQ(d->tables[0].range_end(), 1000);
    EXPECT_EQ(d->sites, std::string(layout) == "30ISL" ? 30u : 24u);
    EXPECT_TRUE(ResolveOn(*d, MakeMachine(4, 6)).ok());
    for (const auto& line : {"version", "name", "machine", "cores", "hardware_threads", "layout", "placement",
                             "workers", "data", "storage", "messaging", "control", "metrics", "timeouts"}) {
      EXPECT_TRUE(d->positions.contains(line)) << line;
    }
  }
}

TEST(MakeTemplate, NameAndRefusals) {
  EXPECT_THAT(*MakeTemplate({.layout = "2ISL"}, MakeMachine(1, 2)), HasSubstr("\nname: 2isl "));
  EXPECT_THAT(*MakeTemplate({.layout = "2ISL", .name = "mine"}, MakeMachine(1, 2)),
              HasSubstr("\nname: mine "));
  EXPECT_FALSE(MakeTemplate({.layout = "2isl"}, MakeMachine(1, 2)).ok());
  EXPECT_FALSE(MakeTemplate({.layout = "1000ISL"}, MakeMachine(1, 2)).ok());
  EXPECT_FALSE(MakeTemplate({.layout = "2ISL", .name = "No Name"}, MakeMachine(1, 2)).ok());
  EXPECT_FALSE(MakeTemplate({.layout = "2ISL", .rows_total = 0}, MakeMachine(1, 2)).ok());
}

Deployment TemplateFor(const char* yaml, std::optional<uint64_t> scale, const char* layout = "2ISL") {
  const auto text =
      MakeTemplate({.layout = layout, .tables = WorkloadTables{"mine", yaml, scale}}, MakeMachine(4, 8));
  EXPECT_TRUE(text.ok()) << text.status();
  return ParseDeployment(*text, "/d/f.yaml").value();
}

TEST(MakeTemplate, TablesOfAWorkload_HaveKeysForAllSitesOrAsManyAsAreAskedFor) {
  constexpr const char* kTwo =
      "        - name: a\n          key: [uint32]\n          range: [1, 25]\n"
      "        - {name: b, key: [uint32, uint8], range: [1, 25], indexes: [{name: i, key: ['key:0']}]}\n"
      "        - {name: c, key: [uint8], replicated: true}";
  const auto ranges = [](const Deployment& d) {
    std::vector<int64_t> numbers;
    for (const auto& table : d.tables) {
      numbers.push_back(table.range_begin());
      numbers.push_back(table.range_end());
    }
    return numbers;
  };
  const Deployment preset = TemplateFor(kTwo, std::nullopt);  // which has 32 sites
  EXPECT_EQ(preset.sites, 32u);
  EXPECT_THAT(ranges(preset), testing::ElementsAre(1, 33, 1, 33, 0, 0));
  EXPECT_EQ(preset.tables[1].indexes_size(), 1);
  EXPECT_THAT(ranges(TemplateFor(kTwo, 100)), testing::ElementsAre(1, 101, 1, 101, 0, 0));
  const Deployment few = TemplateFor(kTwo, 8);
  EXPECT_EQ(few.sites, 8u);
  EXPECT_THAT(ranges(few), testing::ElementsAre(1, 9, 1, 9, 0, 0));
  EXPECT_EQ(TemplateFor(kTwo, 1, "4ISL").sites, 4u) << "one for each island";
  EXPECT_THAT(ranges(TemplateFor("- {name: a, key: [uint32], range: [0, 4000]}", std::nullopt)),
              testing::ElementsAre(0, 4000));
}

TEST(MakeTemplate, TablesOfAWorkload_Refusals) {
  const auto refused = [](const char* yaml, std::optional<uint64_t> scale) {
    return std::string(
        MakeTemplate({.layout = "2ISL", .tables = WorkloadTables{"mine", yaml, scale}}, MakeMachine(1, 2))
            .status()
            .message());
  };
  constexpr const char* kOne = "- {name: a, key: [uint8], range: [0, 24]}";
  constexpr const char* kDiffer =
      "- {name: a, key: [uint8], range: [0, 24]}\n- {name: b, key: [uint8], range: [0, 48]}";
  EXPECT_THAT(refused("", std::nullopt), HasSubstr("'mine': it does not say which tables"));
  EXPECT_THAT(refused("- {nam: a}", std::nullopt),
              HasSubstr("tables of 'mine':4:8: found unknown key 'nam'"));
  EXPECT_THAT(refused(kOne, 0), HasSubstr("found --scale 0, expected 1 to"));
  EXPECT_THAT(refused(kOne, uint64_t{1} << 63), HasSubstr("expected 1 to 9223372036854775807"));
  EXPECT_THAT(refused(kOne, 257), HasSubstr("within [0, 256]"));
  EXPECT_EQ(refused(kDiffer, std::nullopt), "");
  EXPECT_THAT(refused(kDiffer, 24), HasSubstr("different ranges"));
}

}  // namespace
}  // namespace islands::deploy
