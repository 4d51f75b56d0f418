#include "deploy/file/deployment.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace islands::deploy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string Message(std::string_view text) {
  const auto deployment = ParseDeployment(text, "f.yaml");
  if (deployment.ok()) return "";
  EXPECT_EQ(deployment.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(deployment.status().message());
}

TEST(ParseDeployment, MinimalFileHasDefaults) {
  const auto d = ParseDeployment("version: 1\nlayout: 2ISL\n", "dir/f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->layout, 2u);
  EXPECT_EQ(d->machine, "auto");
  EXPECT_EQ(d->name, "islands");
  EXPECT_EQ(d->core_count, std::nullopt);
  EXPECT_EQ(d->cpus, std::nullopt);
  EXPECT_EQ(d->sites, std::nullopt);
  EXPECT_EQ(d->durability, Durability::kLazy);
  EXPECT_EQ(d->transport, TransportKind::kShm);
  EXPECT_EQ(d->metrics_base_port, 9400u);
  EXPECT_EQ(d->memory_policy, control::v1::MEMORY_PREFERRED);
  EXPECT_FALSE(d->always_latched);
  ASSERT_EQ(d->tables.size(), 1u);
  EXPECT_EQ(d->tables[0].name(), "micro");
  EXPECT_EQ(d->tables[0].range_end(), 240000);
  EXPECT_THAT(d->folder, ::testing::EndsWith("/dir"));
  EXPECT_THAT(d->folder, StartsWith("/"));
}

TEST(ParseDeployment, VersionAloneIsEnough) {
  const auto d = ParseDeployment("version: 1", "f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->layout, std::nullopt);
}

constexpr std::string_view kFull = R"(version: 1
name: quad-socket            # [a-z0-9-]{1,32}
machine: 'pack:4 [numa] core:6 pu:1'
cores: '0-5,12'
hardware_threads: all
layout: 4ISL
placement: spread
workers: mix
without: lock_inheritance
data:
  directory: /var/islands
  sites: 48
  tables:
    - {name: micro, key: [uint64], range: [0, 240000], row_bytes: 250}
    - name: order_line
      key: [int32, string]
      range: [-5, 100]
      row_bytes: 64
      indexes:
        - {name: by_name, key: ['row:16:string:20', 'key:0']}
    - {name: item, key: [string], replicated: true}
storage:
  buffer_pool: 12GiB
  memory_policy: bind
  latching: always
  log: {directory: data/log, durability: sync, votes: forced, ring_directory: /rings, ring_bytes: 1MiB}
messaging: {transport: zmq}
control: {directory: run}
metrics: {base_port: 0}
timeouts: {transaction_ms: 150}
)";

TEST(ParseDeployment, EveryFieldIsTaken) {
  const auto d = ParseDeployment(kFull, "f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->name, "quad-socket");
  EXPECT_EQ(d->machine, "pack:4 [numa] core:6 pu:1");
  EXPECT_THAT(*d->cpus, ElementsAre(0, 1, 2, 3, 4, 5, 12));
  EXPECT_TRUE(d->use_all_pus);
  EXPECT_EQ(d->layout, 4u);
  EXPECT_EQ(d->placement, topology::Placement::kSpread);
  EXPECT_EQ(d->workers, topology::WorkerOrder::kMix);
  EXPECT_EQ(d->data_directory, "/var/islands");
  EXPECT_EQ(d->sites, 48u);
  ASSERT_EQ(d->tables.size(), 3u);
  EXPECT_EQ(d->tables[1].range_begin(), -5);
  EXPECT_THAT(d->tables[1].key(), ElementsAre("int32", "string"));
  EXPECT_EQ(d->tables[1].indexes(0).name(), "by_name");
  EXPECT_THAT(d->tables[1].indexes(0).key(), ElementsAre("row:16:string:20", "key:0"));
  EXPECT_TRUE(d->tables[2].replicated());
  EXPECT_EQ(d->tables[2].row_bytes(), 0u);
  EXPECT_EQ(d->buffer_pool_bytes, uint64_t{12} << 30);
  EXPECT_EQ(d->memory_policy, control::v1::MEMORY_BIND);
  EXPECT_TRUE(d->always_latched);
  EXPECT_EQ(d->without, "lock_inheritance");
  EXPECT_EQ(d->log_directory, "data/log");
  EXPECT_EQ(d->durability, Durability::kSync);
  EXPECT_TRUE(d->forced_votes);
  EXPECT_EQ(d->ring_directory, "/rings");
  EXPECT_EQ(d->ring_bytes, uint64_t{1} << 20);
  EXPECT_EQ(d->transport, TransportKind::kZmq);
  EXPECT_EQ(d->metrics_base_port, 0u);
  EXPECT_EQ(d->transaction_timeout_ms, 150u);
}

TEST(ParseDeployment, TablesWithNames) {
  const auto parse = [](const std::string& table) {
    return ParseDeployment("version: 1\ndata: {tables: [{name: t, range: [0, 9], " + table + "}]}\n",
                           "f.yaml");
  };
  const auto d = parse("key: {id: uint64, part: string}, fields: {balance: int64, owner: 'string:20'}");
  ASSERT_TRUE(d.ok()) << d.status();
  const control::v1::TableSpec& table = d->tables[0];
  EXPECT_THAT(table.key(), ElementsAre("uint64", "string"));
  EXPECT_THAT(table.key_names(), ElementsAre("id", "part"));
  ASSERT_EQ(table.fields_size(), 2);
  EXPECT_EQ(table.fields(1).name(), "owner");
  EXPECT_EQ(table.fields(1).type(), "string:20");
  EXPECT_EQ(table.row_bytes(), 28u);
  EXPECT_EQ(parse("key: [uint64], fields: {a: uint8, b: bytes}")->tables[0].row_bytes(), 0u);
  const auto what = [&](const std::string& text) { return std::string(parse(text).status().message()); };
  EXPECT_THAT(what("key: [uint64], fields: [a, b]"),
              HasSubstr("2:65: found a list, expected names and types"));
  EXPECT_THAT(what("key: [uint64], fields: {a: float}"), HasSubstr("'a': 'float' is no type"));
  EXPECT_THAT(what("key: {id: float}"), HasSubstr("found 'float', expected a key type"));
  EXPECT_THAT(what("key: [uint64], fields: {a: int8}, row_bytes: 2"), HasSubstr("its fields take 1"));
}

TEST(ParseDeployment, CoresNumberOrList) {
  EXPECT_EQ(ParseDeployment("version: 1\ncores: 6", "f.yaml")->core_count, 6u);
  EXPECT_THAT(*ParseDeployment("version: 1\ncores: '6'", "f.yaml")->cpus, ElementsAre(6));
  EXPECT_THAT(*ParseDeployment("version: 1\ncores: 0-2", "f.yaml")->cpus, ElementsAre(0, 1, 2));
  EXPECT_EQ(ParseDeployment("version: 1\ncores: all", "f.yaml")->cpus, std::nullopt);
}

TEST(ParseDeployment, IslandsByHand) {
  const auto d = ParseDeployment(
      "version: 1\nislands:\n  - {cpus: '0-2', numa_nodes: 0, memory: 1GiB}\n  - {cpus: 3, memory: 2GiB}\n",
      "f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  ASSERT_EQ(d->islands_by_hand.size(), 2u);
  EXPECT_THAT(d->islands_by_hand[0].cpus, ElementsAre(0, 1, 2));
  EXPECT_THAT(*d->islands_by_hand[0].numa_nodes, ElementsAre(0));
  EXPECT_EQ(d->islands_by_hand[1].memory_bytes, uint64_t{2} << 30);
  EXPECT_EQ(d->islands_by_hand[1].numa_nodes, std::nullopt);
}

TEST(ParseDeployment, AutoWords) {
  const auto d = ParseDeployment(
      "version: 1\nlayout: auto\ndata: {sites: auto}\nstorage: {buffer_pool: auto, latching: auto}",
      "f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->layout, std::nullopt);
  EXPECT_EQ(d->sites, std::nullopt);
  EXPECT_EQ(d->buffer_pool_bytes, std::nullopt);
  EXPECT_FALSE(d->always_latched);
}

TEST(ParseDeployment, AllComplaintsInFileOrder) {
  EXPECT_EQ(Message("name: Bad\nversion: 2\nplacment: os\nmetrics: {base_port: 80}\n"),
            "f.yaml:1:7: found 'Bad', expected a name of 1 to 32 characters from a-z, 0-9 and '-'\n"
            "f.yaml:2:10: found '2', expected version 1, the one this program knows\n"
            "f.yaml:3:1: found unknown key 'placment', expected 'placement'?\n"
            "f.yaml:4:22: found '80', expected a port from 1024 to 65535, or 0 for no metrics");
}

TEST(ParseDeployment, ManyComplaintsAreCut) {
  std::string text = "version: 1\n";
  for (int i = 0; i < 150; ++i) text += fmt::format("zebra{}: 1\n", i);
  const std::string message = Message(text);
  EXPECT_EQ(std::count(message.begin(), message.end(), '\n'), 100);
  EXPECT_THAT(message, ::testing::EndsWith("\nf.yaml:102:1: found 50 more, expected none"));
}

TEST(Deployment, AtFindsNearestKey) {
  const auto d = ParseDeployment(kFull, "f.yaml");
  ASSERT_TRUE(d.ok()) << d.status();
  EXPECT_EQ(d->At("layout"), (Position{6, 9}));
  EXPECT_EQ(d->At("data.tables[1].range"), (Position{17, 14}));
  EXPECT_EQ(d->At("data.tables[2].range"), (Position{21, 7}));
  EXPECT_EQ(d->At("storage.nothing"), (Position{23, 3}));
  EXPECT_EQ(d->At("nothing"), (Position{1, 1}));
  EXPECT_EQ(d->Complain("layout", "found X"), "f.yaml:6:9: found X");
}

// One bad file each: what follows `version: 1\n`, and where and what the one complaint is.
struct BadFile {
  const char* name;
  std::string text;
  const char* at;
  const char* says;
};

void PrintTo(const BadFile& file, std::ostream* out) { *out << file.name; }

class BadDeployment : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadDeployment, ComplainsOnceAtItsPlace) {
  const std::string message = Message("version: 1\n" + GetParam().text);
  EXPECT_THAT(message, StartsWith(fmt::format("f.yaml:{}: found ", GetParam().at)));
  EXPECT_THAT(message, HasSubstr(GetParam().says));
  EXPECT_THAT(message, HasSubstr("expected"));
  EXPECT_EQ(message.find('\n'), std::string::npos) << message;
}

std::string Table(const std::string& body) { return "data:\n  tables:\n    - {" + body + "}\n"; }

INSTANTIATE_TEST_SUITE_P(
    Keys, BadDeployment,
    ::testing::Values(
        BadFile{"unknown_key", "layuot: 2ISL", "2:1", "unknown key 'layuot', expected 'layout'?"},
        BadFile{"far_key", "zebra: 1", "2:1", "unknown key 'zebra', expected one of: version, name"},
        BadFile{"unknown_nested", "storage:\n  log: {durabilty: none}", "3:9", "expected 'durability'?"},
        BadFile{"duplicate_key", "name: a\nname: b", "3:1",
                "'name' a second time, expected it once (first on line 2)"},
        BadFile{"duplicate_nested", "data: {sites: 24, sites: 25}", "2:19", "'sites' a second time"},
        BadFile{"duplicate_version", "version: 1", "2:1", "'version' a second time"},
        BadFile{"list_as_key", "? [a, b]\n: 1", "2:3", "a list as a key"},
        BadFile{"anchor", "name: &x abc", "2:7", "an anchor (&)"},
        BadFile{"merge_key", "<<: 1", "2:1", "unknown key '<<'"},
        BadFile{"tag", "name: !!str abc", "2:7", "the tag"},
        BadFile{"second_document", "---\nversion: 1\n", "3:1", "a second document"},
        BadFile{"flow_not_closed", "data: {sites: 24", "2:1", "YAML error"},
        BadFile{"tab_indentation", "data:\n\tsites: 24", "3:1", "a tab, expected spaces"},
        BadFile{"tab_after_spaces", "data:\n  sites: 24\n  \tdirectory: d", "4:3", "a tab, expected spaces"},
        BadFile{"tab_of_item", "islands:\n\t- {cpus: '0'}", "3:1", "a tab, expected spaces"},
        BadFile{"tab_of_no_indentation", "data: {\n\tsites: 24\n\tdirectory: [}", "4:11", "YAML error"},
        BadFile{"not_a_map_line", "just words\n", "2:1", "unknown key 'just words'"}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Values, BadDeployment,
    ::testing::Values(
        BadFile{"name_case", "name: Quad", "2:7", "'Quad', expected a name"},
        BadFile{"name_long", "name: abcdefghijklmnopqrstuvwxyz-012345", "2:7", "expected a name"},
        BadFile{"name_empty", "name: ''", "2:7", "'', expected a name"},
        BadFile{"name_missing_value", "name:\nlayout: 2ISL", "2:1", "nothing, expected a name"},
        BadFile{"name_list", "name: [a]", "2:7", "a list, expected a name"},
        BadFile{"machine_map", "machine: {a: b}", "2:10", "a map, expected auto, an hwloc XML file"},
        BadFile{"layout_zero", "layout: 0ISL", "2:9", "'0ISL', expected 1ISL, 2ISL"},
        BadFile{"layout_number", "layout: 4", "2:9", "'4', expected 1ISL, 2ISL"},
        BadFile{"layout_negative", "layout: -4ISL", "2:9", "'-4ISL'"},
        BadFile{"layout_huge", "layout: 1000ISL", "2:9", "at most 999 islands"},
        BadFile{"layout_list", "layout: [4ISL]", "2:9", "a list, expected 1ISL"},
        BadFile{"cores_zero", "cores: 0", "2:8", "'0', expected all, a number of cores"},
        BadFile{"cores_negative", "cores: -3", "2:8", "'-3', expected all"},
        BadFile{"cores_word", "cores: some", "2:8", "'some', expected all"},
        BadFile{"cores_reversed", "cores: '5-2'", "2:8", "'5-2', expected all"},
        BadFile{"hardware_threads", "hardware_threads: 2", "2:19", "expected one | all"},
        BadFile{"placement", "placement: scatter", "2:12", "'scatter', expected islands | spread | os"},
        BadFile{"workers", "workers: group", "2:10", "'group', expected grouped | spread | mix | os"},
        BadFile{"data_scalar", "data: here", "2:7", "'here', expected a map"},
        BadFile{"data_nothing", "data:\n", "2:1", "nothing, expected a map"},
        BadFile{"data_directory", "data: {directory: [a]}", "2:19", "a list, expected a directory"},
        BadFile{"directory_control_character", "data: {directory: \"a\\nb\"}", "2:19",
                "'a\\x0ab', expected a directory"},
        BadFile{"sites_zero", "data: {sites: 0}", "2:15", "'0', expected auto or a whole number from 1 to"},
        BadFile{"sites_quoted", "data: {sites: '24'}", "2:15", "'24', expected auto or a whole number"},
        BadFile{"sites_huge", "data: {sites: 70000}", "2:15", "from 1 to 65534"},
        BadFile{"sites_fraction", "data: {sites: 2.5}", "2:15", "'2.5', expected auto"},
        BadFile{"pool_unit", "storage: {buffer_pool: 12GB}", "2:24", "'12GB', expected a size such as 12GiB"},
        BadFile{"pool_zero", "storage: {buffer_pool: 0}", "2:24", "'0', expected a size"},
        BadFile{"pool_overflow", "storage: {buffer_pool: 99999999999TiB}", "2:24", "expected a size"},
        BadFile{"memory_policy", "storage: {memory_policy: strict}", "2:26",
                "expected preferred | bind | default"},
        BadFile{"storage_mode", "storage: {mode: disk}", "2:17", "'disk', expected auto | resident | paged"},
        BadFile{"without", "without: locks", "2:10",
                "'locks', expected none | huge_pages | key_hints | look_ahead | lock_inheritance | spinning"},
        BadFile{"latching", "storage: {latching: never}", "2:21", "'never', expected auto | always"},
        BadFile{"durability", "storage: {log: {durability: fsync}}", "2:29",
                "'fsync', expected none | lazy | sync"},
        BadFile{"votes_without_log", "storage: {log: {durability: none, votes: forced}}", "2:42",
                "'forced' with durability none, expected lazy, sync or command"},
        BadFile{"log_scalar", "storage: {log: data/log}", "2:16", "'data/log', expected a map"},
        BadFile{"transport", "messaging: {transport: tcp}", "2:24", "'tcp', expected shm | uds | zmq"},
        BadFile{"control_empty", "control: {directory: ''}", "2:22", "'', expected a directory"},
        BadFile{"port_low", "metrics: {base_port: 80}", "2:22", "'80', expected a port from 1024"},
        BadFile{"port_high", "metrics: {base_port: 65536}", "2:22", "'65536', expected a port"},
        BadFile{"port_negative", "metrics: {base_port: -1}", "2:22", "'-1', expected a port"},
        BadFile{"timeout_zero", "timeouts: {transaction_ms: 0}", "2:28",
                "'0', expected a whole number from 1 to"},
        BadFile{"timeout_unit", "timeouts: {transaction_ms: 2s}", "2:28", "'2s', expected a whole number"}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Islands, BadDeployment,
    ::testing::Values(
        BadFile{"overlap", "islands:\n  - {cpus: '0-2'}\n  - {cpus: '2-3'}", "4:12",
                "CPU 2 of island 0 again"},
        BadFile{"with_layout", "layout: 2ISL\nislands:\n  - {cpus: '0'}", "4:3",
                "both 'islands' and 'layout'"},
        BadFile{"with_cores", "cores: 2\nislands:\n  - {cpus: '0'}", "4:3", "both 'islands' and 'cores'"},
        BadFile{"empty", "islands: []", "2:10", "an empty list, expected a list of islands"},
        BadFile{"not_a_list", "islands: 4", "2:10", "'4', expected a list of islands"},
        BadFile{"not_a_map", "islands: [a]", "2:11", "'a', expected an island such as"},
        BadFile{"no_cpus", "islands:\n  - {memory: 1GiB}", "3:5", "an island without 'cpus'"},
        BadFile{"bad_cpus", "islands:\n  - {cpus: 0-x}", "3:12", "'0-x', expected a CPU list"},
        BadFile{"bad_nodes", "islands:\n  - {cpus: '0', numa_nodes: first}", "3:29",
                "'first', expected a list of NUMA"},
        BadFile{"bad_memory", "islands:\n  - {cpus: '0', memory: much}", "3:25", "'much', expected a size"},
        BadFile{"memory_on_some", "islands:\n  - {cpus: '0', memory: 1GiB}\n  - {cpus: '1'}", "4:5",
                "an island without 'memory', expected it on every island or on none"},
        BadFile{"memory_twice", "storage: {buffer_pool: 1GiB}\nislands:\n  - {cpus: '0', memory: 1GiB}",
                "4:3", "both 'memory' of islands and 'storage.buffer_pool'"}),
    ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(
    Tables, BadDeployment,
    ::testing::Values(
        BadFile{"not_a_list", "data: {tables: micro}", "2:16", "'micro', expected a list of tables"},
        BadFile{"empty", "data: {tables: []}", "2:16", "an empty list, expected a list of tables"},
        BadFile{"not_a_map", "data: {tables: [micro]}", "2:17", "'micro', expected a table such as"},
        BadFile{"no_name", Table("key: [uint64], range: [0, 9]"), "4:7", "a table without 'name'"},
        BadFile{"bad_name", Table("name: 9t, key: [uint64], range: [0, 9]"), "4:14",
                "'9t', expected a table name"},
        BadFile{"same_name",
                "data:\n  tables:\n    - {name: t, key: [int8], range: [0, 9]}\n    - {name: t, key: [int8], "
                "range: [0, 9]}",
                "5:14", "table 't' twice"},
        BadFile{"no_key", Table("name: t, range: [0, 9]"), "4:7", "a table without 'key'"},
        BadFile{"key_scalar", Table("name: t, key: uint64, range: [0, 9]"), "4:22",
                "expected a list of key types"},
        BadFile{"key_type", Table("name: t, key: [uint63], range: [0, 9]"), "4:23",
                "'uint63', expected a key type: uint8"},
        BadFile{"key_string_first", Table("name: t, key: [string], range: [0, 9]"), "4:23",
                "'string' as the first key component"},
        BadFile{"no_range", Table("name: t, key: [uint64]"), "4:7", "a table without 'range'"},
        BadFile{"range_reversed", Table("name: t, key: [uint64], range: [9, 9]"), "4:39",
                "the empty range [9, 9]"},
        BadFile{"range_three", Table("name: t, key: [uint64], range: [0, 1, 2]"), "4:39",
                "two whole numbers"},
        BadFile{"range_words", Table("name: t, key: [uint64], range: [a, b]"), "4:39", "two whole numbers"},
        BadFile{"range_scalar", Table("name: t, key: [uint64], range: 240000"), "4:39",
                "'240000', expected two whole"},
        BadFile{"range_negative", Table("name: t, key: [uint64], range: [-1, 9]"), "4:39",
                "expected values of uint64"},
        BadFile{"range_wide", Table("name: t, key: [uint8], range: [0, 257]"), "4:38", "within [0, 256]"},
        BadFile{"range_wide_signed", Table("name: t, key: [int8], range: [-129, 5]"), "4:37",
                "within [-128, 128]"},
        BadFile{"range_replicated", Table("name: t, key: [uint64], replicated: true, range: [0, 9]"), "4:57",
                "a range on a replicated table"},
        BadFile{"replicated_word", Table("name: t, key: [uint64], range: [0, 9], replicated: maybe"), "4:59",
                "'maybe', expected true or false"},
        BadFile{"row_too_long", Table("name: t, key: [uint64], range: [0, 9], row_bytes: 1537"), "4:58",
                "'1537', expected a whole number from 0 to 1536"},
        BadFile{"index_no_key", Table("name: t, key: [uint64], range: [0, 9], indexes: [{name: i}]"), "4:57",
                "an index without 'key'"},
        BadFile{"index_scalar", Table("name: t, key: [uint64], range: [0, 9], indexes: [i]"), "4:57",
                "'i', expected {name: ..., key: [...]}"},
        BadFile{"index_component",
                Table("name: t, key: [uint64], range: [0, 9], indexes: [{name: i, key: ['row:1']}]"), "4:73",
                "'row:1', expected row:OFFSET:INTEGER_TYPE"},
        BadFile{"index_key_component",
                Table("name: t, key: [uint64], range: [0, 9], indexes: [{name: i, key: ['key:1']}]"), "4:73",
                "'key:1', expected key:0"},
        BadFile{"index_beyond_row",
                Table("name: t, key: [uint64], range: [0, 9], row_bytes: 20, indexes: [{name: i, key: "
                      "['row:16:uint64']}]"),
                "4:88", "expected bytes within the row's 20"},
        BadFile{
            "index_twice",
            Table(
                "name: t, key: [uint64], range: [0, 9], indexes: [{name: i, key: ['key:0']}, {name: i, key: "
                "['key:0']}]"),
            "4:91", "index 'i' twice"}),
    ::testing::PrintToStringParamName());

TEST(ParseDeployment, AnchorAndAlias) {
  EXPECT_EQ(Message("version: 1\ndata: {directory: &x abc}\ncontrol: {directory: *x}"),
            "f.yaml:2:19: found an anchor (&), expected the value alone\n"
            "f.yaml:3:22: found an alias (*), expected the value itself");
}

TEST(ParseDeployment, NotADeployment) {
  EXPECT_THAT(Message(""), StartsWith("f.yaml:1:1: found an empty file"));
  EXPECT_THAT(Message("# only a comment\n"), StartsWith("f.yaml:1:1: found an empty file"));
  EXPECT_THAT(Message("hello"), StartsWith("f.yaml:1:1: found 'hello', expected a map"));
  EXPECT_THAT(Message("[1, 2]"), StartsWith("f.yaml:1:1: found a list, expected a map"));
  EXPECT_THAT(Message("name: x"), StartsWith("f.yaml:1:1: found no 'version', expected 'version: 1'"));
  EXPECT_THAT(Message("version: '1'"), StartsWith("f.yaml:1:10: found '1', expected version 1"));
}

TEST(ParseDeployment, DeepAndHugeInputsAreRefused) {
  EXPECT_THAT(Message("version: 1\nname: " + std::string(100000, '[')), StartsWith("f.yaml:2:"));
  EXPECT_THAT(Message("version: 1\nname: " + std::string(100000, '{')), StartsWith("f.yaml:"));
  std::string nested = "version: 1\n";
  for (int i = 0; i < 1000; ++i) nested += std::string(i, ' ') + "a:\n";
  EXPECT_THAT(Message(nested), HasSubstr("levels of nesting"));
  EXPECT_THAT(Message(std::string(kMaxDeploymentFileBytes + 1, 'a')),
              HasSubstr("expected a deployment file of at most 1MiB"));
  EXPECT_THAT(Message("version: 1\ncores: '0-4294967295'"), StartsWith("f.yaml:2:8: found '0-4294967295'"));
}

TEST(LoadDeployment, UnreadableFiles) {
  const auto missing = LoadDeployment("no/such/file.yaml");
  EXPECT_EQ(missing.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(missing.status().message()),
              HasSubstr("no/such/file.yaml: cannot be read (No such file"));
  EXPECT_THAT(std::string(LoadDeployment("/").status().message()), HasSubstr("found a directory"));
}

}  // namespace
}  // namespace islands::deploy
