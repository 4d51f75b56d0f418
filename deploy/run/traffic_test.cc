#include "deploy/run/traffic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <utility>

namespace islands::deploy {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
namespace fs = std::filesystem;

// What /sys/bus/event_source/devices holds on a two-socket Skylake-SP, as far as we read it.
class UncoreDevices : public testing::Test {
 protected:
  UncoreDevices() : root_(fs::path(testing::TempDir()) / "uncore") { fs::remove_all(root_); }
  ~UncoreDevices() override { fs::remove_all(root_); }

  void Write(const std::string& path, const std::string& text) const {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text << "\n";
  }
  void AddMemory(const std::string& name, int type) const {
    AddDevice(name, type);
    for (const auto& [event, mask] :
         {std::pair("cas_count_read", "0x03"), std::pair("cas_count_write", "0x0c")}) {
      Write(name + "/events/" + event, std::string("event=0x04,umask=") + mask);
      Write(name + "/events/" + event + ".scale", "6.103515625e-5");  // 64 bytes
      Write(name + "/events/" + event + ".unit", "MiB");
    }
  }
  void AddDevice(const std::string& name, int type) const {
    Write(name + "/type", std::to_string(type));
    Write(name + "/cpumask", "0,18");
    Write(name + "/format/event", "config:0-7");
    Write(name + "/format/umask", "config:8-15");
  }
  // Counts what was recorded, by type and config; the same on every CPU.
  Traffic::Open Recorded() {
    return [this](perf_event_attr* event, uint32_t) {
      const auto found = counts_.find({event->type, event->config});
      if (found == counts_.end()) return -error_;
      const int fd = memfd_create("recorded", MFD_CLOEXEC);
      EXPECT_EQ(write(fd, found->second.data(), 24), 24);
      EXPECT_EQ(lseek(fd, 0, SEEK_SET), 0);
      return fd;
    };
  }

  const fs::path root_;
  std::map<std::pair<uint32_t, uint64_t>, std::array<uint64_t, 3>> counts_;  // count, ns enabled, ns running
  int error_ = ENOENT;
};

TEST_F(UncoreDevices, AreFound_WithTheirEventsAsTheyDescribeThem) {
  AddMemory("uncore_imc_0", 14);
  AddDevice("uncore_upi_1", 20);
  AddDevice("uncore_cha_0", 30);
  AddMemory("uncore_imc_1", 15);
  Write("uncore_imc_1/events/cas_count_read.unit", "Joules");
  Write("uncore_imc_1/events/cas_count_write", "event=0x04,umask=0x1ff");  // more than its format takes
  Write("cpu/type", "4");
  const std::vector<UncoreEvent> events = FindUncoreEvents(root_);
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].name, "uncore_imc_0/cas_count_read/");
  EXPECT_EQ(events[0].type, 14u);
  EXPECT_EQ(events[0].config, 0x0304u);
  EXPECT_DOUBLE_EQ(events[0].bytes_each, 64);
  EXPECT_THAT(events[0].cpus, ElementsAre(0u, 18u));
  EXPECT_EQ(events[1].config, 0x0c04u);
  EXPECT_EQ(events[2].carrier, UncoreEvent::Carrier::kLink);
  EXPECT_EQ(events[2].config, 0x0f02u);
}

TEST_F(UncoreDevices, Config_FollowsTheFormat_BitForBit) {
  Write("device/format/umask", "config:8-11,32-33");
  Write("device/format/event", "config:0-7");
  Write("device/format/edge", "config:18");
  Write("device/format/other", "config1:0-7");
  const std::string device = root_ / "device";
  EXPECT_EQ(*ConfigOf("event=0x2,umask=0x3f", device), 0x3'0000'0f02u);
  EXPECT_EQ(*ConfigOf("event=0x2,edge", device), 0x4'0002u);
  Write("device/format/wide", "config:0-63,0-63");  // more than a number has
  for (const char* terms : {"wide=1", "event=0x100", "event=two", "other=1", "nothing=1"})
    EXPECT_THAT(std::string(ConfigOf(terms, device).status().message()), HasSubstr("found '")) << terms;
}

TEST_F(UncoreDevices, Traffic_IsTheSumOfAllSockets_ScaledToTheWholeTime) {
  AddMemory("uncore_imc_0", 14);
  AddDevice("uncore_upi_0", 20);
  counts_ = {{{14, 0x0304}, {1000, 10, 10}}, {{14, 0x0c04}, {100, 10, 5}}, {{20, 0x0f02}, {900, 10, 10}}};
  const Traffic traffic(root_, Recorded());
  const Traffic::Bytes bytes = traffic.Read();
  EXPECT_EQ(traffic.problem(), "");
  EXPECT_DOUBLE_EQ(bytes.memory.value_or(0), 2 * 64 * (1000 + 200));  // the second had half the time
  EXPECT_NEAR(bytes.links.value_or(0), 2 * 900 * 64 / 9, 1e-6);
  const Traffic::Bytes passed = bytes.Since({.memory = 2 * 64 * 200.0});
  EXPECT_DOUBLE_EQ(passed.memory.value_or(0), 2 * 64 * 1000);
  EXPECT_FALSE(passed.links);
}

TEST_F(UncoreDevices, WhatCannotBeCounted_IsAbsentWithTheReason) {
  EXPECT_THAT(Traffic(root_, Recorded()).problem(), HasSubstr("no counters of its memory controllers"));
  EXPECT_FALSE(Traffic(root_, Recorded()).Read().memory);
  AddMemory("uncore_imc_0", 14);
  counts_ = {{{14, 0x0304}, {1000, 10, 10}}, {{14, 0x0c04}, {100, 10, 10}}};
  const Traffic one_socket(root_, Recorded());
  EXPECT_THAT(one_socket.problem(), HasSubstr("no counters of links"));
  EXPECT_TRUE(one_socket.Read().memory);
  EXPECT_FALSE(one_socket.Read().links);
  AddMemory("uncore_imc_1", 15);  // of which the kernel lets nothing be seen
  error_ = EACCES;
  const Traffic refused(root_, Recorded());
  EXPECT_THAT(refused.problem(),
              HasSubstr("uncore_imc_1/cas_count_read/ cannot be counted: Permission denied; "));
  EXPECT_FALSE(refused.Read().memory) << "a sum without one of its parts";
  counts_[{15, 0x0304}] = {7, 10, 0};  // has had no turn
  counts_[{15, 0x0c04}] = {7, 10, 10};
  EXPECT_FALSE(Traffic(root_, Recorded()).Read().memory);
}

}  // namespace
}  // namespace islands::deploy
