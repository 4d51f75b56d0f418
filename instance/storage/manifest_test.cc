#include "instance/storage/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "runtime/file_system_memory.h"

namespace islands::storage {
namespace {

using testing::HasSubstr;

Manifest Example() {
  Manifest manifest;
  manifest.cluster_id = "0123456789abcdef0123456789abcdef";
  manifest.deployment = "quad-socket";
  manifest.layout_generation = 3;
  manifest.sites = 24;
  manifest.islands = 4;
  manifest.boot_epochs = {3, 3, 4, UINT64_MAX};
  control::v1::TableSpec* table = manifest.tables.Add();
  table->set_name("micro \"quoted\"\n");
  table->add_key("int64");
  table->add_key("string");
  table->set_range_begin(INT64_MIN);
  table->set_range_end(INT64_MAX);
  table->set_row_bytes(250);
  control::v1::IndexSpec* index = table->add_indexes();
  index->set_name("by_name");
  index->add_key("row:16:string:20");
  index->add_key("key:0");
  control::v1::TableSpec* replicated = manifest.tables.Add();
  replicated->set_name("items");
  replicated->add_key("uint32");
  replicated->set_replicated(true);
  return manifest;
}

void ExpectSame(const Manifest& a, const Manifest& b) {
  EXPECT_EQ(ManifestToText(a), ManifestToText(b));
  EXPECT_EQ(a.cluster_id, b.cluster_id);
  EXPECT_EQ(a.boot_epochs, b.boot_epochs);
  EXPECT_EQ(a.layout_generation, b.layout_generation);
  ASSERT_EQ(a.tables.size(), b.tables.size());
  for (int i = 0; i < a.tables.size(); ++i) {
    EXPECT_EQ(a.tables[i].SerializeAsString(), b.tables[i].SerializeAsString());
  }
}

TEST(Manifest, SaveThenLoad) {
  runtime::MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("data").ok());
  EXPECT_EQ(LoadManifest("data", files).status().code(), absl::StatusCode::kNotFound);
  const Manifest manifest = Example();
  ASSERT_TRUE(SaveManifest(manifest, "data", files).ok());
  const auto loaded = LoadManifest("data", files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, manifest);
  EXPECT_TRUE(CheckSameData(*loaded, manifest).ok());
}

TEST(Manifest, WhatOutlivesIslands_IsThereAgain) {
  runtime::MemoryFileSystem files;
  ASSERT_TRUE(files.MakeDirectories("data").ok());
  Manifest manifest = Example();
  manifest.data_generation = 7;
  manifest.load = R"({"workload":"micro","object":"/lib/micro.so"})";
  manifest.workers = {1, 2, 3, 4};
  ASSERT_TRUE(SaveManifest(manifest, "data", files).ok());
  const auto loaded = LoadManifest("data", files);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  ExpectSame(*loaded, manifest);
  EXPECT_EQ(loaded->data_generation, 7u);
  EXPECT_EQ(loaded->load, manifest.load);
  EXPECT_EQ(loaded->workers, manifest.workers);
  manifest.workers.pop_back();
  EXPECT_EQ(ParseManifest(ManifestToText(manifest), "m").status().code(), absl::StatusCode::kDataLoss);
}

// The format is an interface: what this version writes, the next one must read.
TEST(Manifest, ManifestToText_IsTheDocumentedFormat) {
  Manifest manifest = Example();
  manifest.tables.RemoveLast();
  manifest.tables[0].set_name("micro");
  manifest.boot_epochs = {3, 3, 4, 5};
  EXPECT_EQ(ManifestToText(manifest), R"({
  "format": 2,
  "cluster_id": "0123456789abcdef0123456789abcdef",
  "deployment": "quad-socket",
  "layout_generation": 3,
  "sites": 24,
  "islands": 4,
  "tables": [
    {
      "name": "micro",
      "key": [
        "int64",
        "string"
      ],
      "range": [
        -9223372036854775808,
        9223372036854775807
      ],
      "row_bytes": 250,
      "replicated": false,
      "indexes": [
        {
          "name": "by_name",
          "key": [
            "row:16:string:20",
            "key:0"
          ]
        }
      ]
    }
  ],
  "boot_epochs": [
    3,
    3,
    4,
    5
  ]
}
)");
}

TEST(Manifest, NextBootEpoch_NeverRepeatsAcrossCrashes) {
  runtime::MemoryFileSystem files;
  Manifest manifest = Example();
  manifest.boot_epochs = {0, 0, 0, 0};
  ASSERT_TRUE(SaveManifest(manifest, "", files).ok());
  uint64_t last_used = 0;
  for (uint64_t steps = 0; steps < 20; ++steps) {
    Manifest loaded = *LoadManifest("", files);
    const uint64_t epoch = loaded.NextBootEpoch(2);
    EXPECT_GT(epoch, last_used);
    files.FailAfter(steps % 7);  // the machine dies somewhere in the save, or after it
    if (SaveManifest(loaded, "", files).ok()) last_used = epoch;
    files.PowerLoss();
    ASSERT_TRUE(LoadManifest("", files).ok());
    EXPECT_GE(LoadManifest("", files)->boot_epochs[2], last_used);
  }
  EXPECT_GT(last_used, 0u);
}

TEST(Manifest, SaveManifest_FailureLeavesTheOldOne) {
  runtime::MemoryFileSystem files;
  Manifest manifest = Example();
  ASSERT_TRUE(SaveManifest(manifest, "", files).ok());
  manifest.NextBootEpoch(0);
  files.FailAfter(2);
  EXPECT_EQ(SaveManifest(manifest, "", files).code(), absl::StatusCode::kUnavailable);
  files.PowerLoss();
  ExpectSame(*LoadManifest("", files), Example());
}

TEST(Manifest, LoadManifest_MalformedIsDataLossWithPathAndReason) {
  struct Case {
    std::string replace, with;
    std::vector<std::string> complaint;
  };
  const std::string good = ManifestToText(Example());
  const std::vector<Case> cases = {
      {"\"sites\"", "sites\"", {"offset 1", "not JSON"}},
      {"\"format\": 2", "\"format\": 1", {"format 1", "reads 2"}},
      {"\"format\": 2,", "", {"field \"format\""}},
      {"\"format\": 2", "\"format\": \"2\"", {"manifest.format"}},
      {"\"sites\": 24", "\"sites\": -24", {"manifest.sites", "whole number"}},
      {"\"sites\": 24", "\"sites\": 24.5", {"manifest.sites", "whole number"}},
      {"\"sites\": 24", "\"sites\": 4294967296", {"manifest.sites", "4294967295"}},
      {"\"islands\": 4", "\"islands\": 5", {"manifest.boot_epochs", "5 islands"}},
      {"\"deployment\": \"quad-socket\"", "\"deployment\": null", {"manifest.deployment", "string"}},
      {"\"replicated\": false", "\"replicated\": 0", {"manifest.tables[0].replicated", "true or false"}},
      {"-9223372036854775808,", "", {"manifest.tables[0].range", "begin and end"}},
      {"9223372036854775807\n", "9223372036854775808\n", {"manifest.tables[0].range[1]", "64 bits"}},
      {"\"row:16:string:20\"", "16", {"manifest.tables[0].indexes[0].key[0]", "string"}},
      {"\"boot_epochs\": [", "\"boot_epochs\": [{},", {"manifest.boot_epochs[0]"}},
  };
  for (const Case& bad : cases) {
    std::string text = good;
    const size_t at = text.find(bad.replace);
    ASSERT_NE(at, std::string::npos) << bad.replace;
    text.replace(at, bad.replace.size(), bad.with);
    runtime::MemoryFileSystem files;
    ASSERT_TRUE(files.ReplaceFile("/MANIFEST.json", text).ok());
    const absl::Status status = LoadManifest("", files).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << bad.with;
    EXPECT_THAT(std::string(status.message()), HasSubstr("/MANIFEST.json"));
    for (const std::string& part : bad.complaint) EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
}

TEST(Manifest, Relaid_IsThereWhileItIsDue) {
  Manifest manifest = Example();
  manifest.workers.assign(manifest.islands, 1);
  EXPECT_THAT(ManifestToText(manifest), testing::Not(HasSubstr("relaid")));
  manifest.relaid = 4711;
  const std::string text = ManifestToText(manifest);
  EXPECT_EQ(ParseManifest(text, "m")->relaid, 4711u);
  std::string wrong = text;
  wrong.replace(wrong.find("4711"), 4, "\"so\"");
  EXPECT_THAT(std::string(ParseManifest(wrong, "m").status().message()), HasSubstr("manifest.data.relaid"));
}

TEST(Manifest, ParseManifest_EveryTruncationIsAnError) {
  const std::string good = ManifestToText(Example());
  for (size_t bytes = 0; bytes + 2 < good.size(); ++bytes) {
    EXPECT_EQ(ParseManifest(good.substr(0, bytes), "m").status().code(), absl::StatusCode::kDataLoss)
        << bytes;
  }
  for (const char* text : {"", "null", "[]", "{}", "7", "{\"format\": 2}", "\xff\xfe"}) {
    EXPECT_EQ(ParseManifest(text, "m").status().code(), absl::StatusCode::kDataLoss) << text;
  }
  // Deep nesting overflows no stack.
  EXPECT_FALSE(ParseManifest(std::string(100'000, '['), "m").ok());
  EXPECT_FALSE(ParseManifest(std::string(100'000, '[') + std::string(100'000, ']'), "m").ok());
}

TEST(Manifest, CheckSameData_NamesTheFirstDifference) {
  struct Case {
    std::function<void(Manifest*)> change;
    std::vector<std::string> complaint;
  };
  const std::vector<Case> cases = {
      {[](Manifest* m) { m->deployment = "other"; },
       {"of the deployment", "'other'", "a data.directory of its own"}},
      {[](Manifest* m) { m->sites = 25; }, {"24 sites", "25", "islands relayout"}},
      {[](Manifest* m) { m->islands = 2; },
       {"4 islands", "says 2", "change the deployment file back, have", "`islands relayout FILE`",
        "`islands destroy FILE`"}},
      {[](Manifest* m) { m->tables.RemoveLast(); },
       {"the data has table 'items'", "the deployment has none"}},
      {[](Manifest* m) { m->tables.Add()->set_name("late"); },
       {"the deployment has table 'late'", "the data has none", "`islands table FILE create`", "destroy"}},
      {[](Manifest* m) { m->tables[1].set_name("other"); }, {"the data has table 'items'"}},
      {[](Manifest* m) { m->tables.SwapElements(0, 1); }, {"table 1", "says 'items'"}},
      {[](Manifest* m) { m->tables[1].set_key(0, "uint64"); }, {"'items'", "[uint32]", "[uint64]"}},
      {[](Manifest* m) { m->tables[0].set_range_end(7); }, {"range", "7)"}},
      {[](Manifest* m) { m->tables[0].set_row_bytes(0); }, {"250", "says 0"}},
      {[](Manifest* m) { m->tables[1].set_replicated(false); }, {"'items'", "is replicated"}},
      {[](Manifest* m) { m->tables[0].mutable_indexes(0)->set_name("x"); }, {"indexes"}},
  };
  for (const Case& differing : cases) {
    Manifest want = Example();
    differing.change(&want);
    const absl::Status status = CheckSameData(Example(), want);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    for (const std::string& part : differing.complaint)
      EXPECT_THAT(std::string(status.message()), HasSubstr(part));
  }
  Manifest same = Example();
  same.boot_epochs = {9, 9, 9, 9};
  same.tables[1].set_range_end(5);  // means nothing for a replicated table
  EXPECT_TRUE(CheckSameData(Example(), same).ok());
}

}  // namespace
}  // namespace islands::storage
