#include "deploy/run/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "deploy/run/counters.h"

namespace islands::deploy {
namespace {

using testing::HasSubstr;

control::v1::Snapshot SnapshotWith(double executing_s, double locking_s, uint64_t hot_waits) {
  control::v1::Snapshot snapshot;
  snapshot.set_boot_epoch(1);
  control::v1::WorkerCounters* worker = snapshot.add_workers();
  (*worker->mutable_work_seconds())["executing"] = executing_s;
  (*worker->mutable_work_seconds())["locking"] = locking_s;
  control::v1::LatchWaits* latch = worker->add_latch_waits();
  latch->set_site("lock.acquire");
  latch->set_holder("lock.release");
  latch->set_waits(hot_waits);
  latch->set_seconds(static_cast<double>(hot_waits) * 1e-6);
  latch = worker->add_latch_waits();
  latch->set_site("btree.leaf");
  latch->set_waits(3);
  latch->set_seconds(3e-6);
  control::v1::RowWaits* row = worker->add_row_waits();
  row->set_table("micro");
  row->set_key("7");
  row->set_waits(hot_waits);
  row->set_seconds(static_cast<double>(hot_waits) * 1e-3);
  (*row->mutable_holder_seconds())["remote"] = static_cast<double>(hot_waits) * 0.8e-3;
  (*row->mutable_holder_seconds())["running"] = static_cast<double>(hot_waits) * 0.2e-3;
  control::v1::QueueWaits* queue = worker->add_queue_waits();
  queue->set_queue("log ring of island 0, worker 0");
  queue->set_waits(hot_waits);
  queue->set_seconds(static_cast<double>(hot_waits) * 1e-2);
  return snapshot;
}

// Two lives of an island: what the first has counted is not taken off the second.
TEST(Profile, Observe_TakesDifferencesWithinALife) {
  IslandMeter meter;
  meter.Observe(SnapshotWith(1, 1, 10));
  const Profile grown = meter.Observe(SnapshotWith(4, 2, 15)).sums.profile;
  EXPECT_DOUBLE_EQ(grown.work_seconds.at("executing"), 3);
  EXPECT_DOUBLE_EQ(grown.work_seconds.at("locking"), 1);
  EXPECT_EQ(grown.latches.at({"lock.acquire", "lock.release", "lock table part"}).waits, 5);
  EXPECT_FALSE(grown.latches.contains({"btree.leaf", ""}));  // nobody has waited for it meanwhile
  EXPECT_EQ(grown.rows.at({"micro", "7"}).waits, 5);
  EXPECT_DOUBLE_EQ(grown.rows.at({"micro", "7"}).holders.at("remote"), 4e-3);
  EXPECT_DOUBLE_EQ(grown.queues.at({"log ring of island 0, worker 0"}).seconds, 5e-2);
  control::v1::Snapshot again = SnapshotWith(2, 2, 4);
  again.set_boot_epoch(2);
  EXPECT_DOUBLE_EQ(meter.Observe(again).sums.profile.work_seconds.at("executing"), 2);
}

Sums SomeSums() {
  Sums sums;
  sums.scopes[0].committed = 1'000'000;
  sums.busy_seconds = 8;  // of ten, by two workers in five seconds
  sums.idle_seconds = 2;
  sums.waiting_seconds = 1.5;
  sums.profile = ProfileOf(SnapshotWith(0.09, 0.03, 5).workers(0));
  sums.profile.stays[0] = {100, {{"running", 300e-6}, {"lock", 100e-6}}};
  return sums;
}

// However little is measured, the kinds of work together are the busy time, and all parts the whole.
TEST(Profile, ProfileJson_AddsUpToTheCoresTime) {
  const nlohmann::ordered_json cores = ProfileJson(SomeSums())["core_us_per_transaction"];
  EXPECT_NEAR(cores["executing"], 6, 0.001);
  EXPECT_NEAR(cores["locking"], 2, 0.001);
  EXPECT_DOUBLE_EQ(cores["waiting"], 1.5);
  EXPECT_DOUBLE_EQ(cores["idle"], 0.5);
  EXPECT_DOUBLE_EQ(cores["together"], 10);
  double sum = 0;
  for (const auto& [name, us] : cores.items()) sum += name == "together" ? 0 : us.get<double>();
  EXPECT_NEAR(sum, 10, 0.02 * 10);
}

// Of latches every wait is counted: what the measured rounds say of them is not needed, and not believed.
TEST(Profile, ProfileJson_HasLatchingFromItsCounters) {
  Sums sums = SomeSums();
  sums.profile.work_seconds["latching"] = 0.5;
  sums.profile.latches = {{{"lock.acquire", "lock.release"}, {100, 2}}};
  const nlohmann::ordered_json cores = ProfileJson(sums)["core_us_per_transaction"];
  EXPECT_NEAR(cores["latching"], 2, 0.001);
  EXPECT_NEAR(cores["executing"], 4.5, 0.001);
  EXPECT_NEAR(cores["locking"], 1.5, 0.001);
}

TEST(Profile, ProfileJson_TellsWhereTransactionsAre) {
  const nlohmann::ordered_json stays = ProfileJson(SomeSums())["transaction_us"];
  EXPECT_EQ(stays["local"]["watched"], 100);
  EXPECT_DOUBLE_EQ(stays["local"]["running"], 3);
  EXPECT_DOUBLE_EQ(stays["local"]["lock"], 1);
  EXPECT_DOUBLE_EQ(stays["local"]["together"], 4);
  EXPECT_FALSE(stays.contains("distributed"));
}

// 100 transactions run for 3 us each; 4 of them wait for a lock, for 25 us.
TEST(Profile, Stays_HaveAStandardError) {
  Sums sums = SomeSums();
  sums.profile.stays[0].seconds_squared = {
      {"running", 100 * 9e-12}, {"lock", 4 * 625e-12}, {"together", 96 * 9e-12 + 4 * 784e-12}};
  const nlohmann::ordered_json errors =
      ProfileJson(sums)["transaction_us"]["local"]["relative_standard_error"];
  EXPECT_EQ(errors["running"], 0);
  EXPECT_NEAR(errors["lock"], 0.492, 0.001);  // sqrt((2500 - 100) / 99 / 100) / 1
  EXPECT_NEAR(errors["together"], 0.123, 0.001);
  EXPECT_FALSE(errors.contains("disk")) << "nobody has waited for it";
  EXPECT_THAT(ProfileText(sums), HasSubstr("lock              1.0 ± 49 %  "));
  EXPECT_THAT(ProfileText(sums), HasSubstr("running                  3.0  "));
  sums.profile.stays[0].transactions = 1;
  EXPECT_TRUE(ProfileJson(sums)["transaction_us"]["local"]["relative_standard_error"].empty());
}

// Of what was watched before nothing is left, squares included.
TEST(Profile, Stays_OfTwoIslandsAndWithoutWhatWasBefore) {
  Profile before, later;
  before.stays[2] = {2, {{"votes", 4}}, {{"votes", 10}}};
  later.stays[2] = {5, {{"votes", 11}}, {{"votes", 30}}};
  Profile both = Difference(later, before);
  both.Add(Difference(later, before));
  EXPECT_EQ(both.stays[2].transactions, 6);
  EXPECT_DOUBLE_EQ(both.stays[2].seconds.at("votes"), 14);
  EXPECT_DOUBLE_EQ(both.stays[2].seconds_squared.at("votes"), 40);
}

TEST(Profile, ProfileJson_RanksWaitsByTheirTime) {
  Sums sums = SomeSums();
  sums.profile.latches[{"log.order", ""}] = {1, 1};  // seldom, and long
  const nlohmann::ordered_json latches = ProfileJson(sums)["latches"];
  ASSERT_EQ(latches.size(), 3);
  EXPECT_EQ(latches[0]["wanted_at"], "log.order");
  EXPECT_DOUBLE_EQ(latches[0]["us_per_transaction"], 1);
  EXPECT_EQ(latches[1]["wanted_at"], "lock.acquire");
  EXPECT_EQ(latches[1]["taken_at"], "lock.release");
}

// A page's latch has the name that its island gives it, whatever the site; others have one of their own.
TEST(Profile, ProfileJson_NamesLatches) {
  control::v1::Snapshot snapshot = SnapshotWith(0.09, 0.03, 5);
  control::v1::LatchWaits* page = snapshot.mutable_workers(0)->add_latch_waits();
  page->set_site("btree.descend");
  page->set_holder("btree.leaf");
  page->set_waits(100);
  page->set_seconds(2);
  page->set_what("page latch: micro site 3, leaf level");
  Sums sums = SomeSums();
  sums.profile = ProfileOf(snapshot.workers(0));
  const nlohmann::ordered_json latches = ProfileJson(sums)["latches"];
  EXPECT_EQ(latches[0]["latch"], "page latch: micro site 3, leaf level");
  EXPECT_EQ(latches[0]["taken_at"], "btree.leaf");
  EXPECT_DOUBLE_EQ(latches[0]["us_per_transaction"], 2);
  EXPECT_EQ(latches[1]["latch"], "lock table part");
  EXPECT_THAT(ProfileText(sums), HasSubstr("page latch: micro site 3, leaf level"));
}

TEST(Profile, ProfileJson_SaysWhatHoldersDo) {
  const nlohmann::ordered_json row = ProfileJson(SomeSums())["rows"][0];
  EXPECT_DOUBLE_EQ(row["us_per_transaction"], 0.005);
  EXPECT_DOUBLE_EQ(row["holder_us_per_transaction"]["remote"], 0.004);
  EXPECT_THAT(ProfileText(SomeSums()), HasSubstr("remote 80 %, running 20 %"));
}

// What is counted and what is known of those that were watched, in one ranking.
TEST(Profile, ProfileJson_RanksQueues) {
  Sums sums = SomeSums();
  sums.profile.stays[0].seconds["turn"] = 1e-6;  // of 100 of them
  nlohmann::ordered_json queues = ProfileJson(sums)["queues"];
  ASSERT_EQ(queues.size(), 2);
  EXPECT_EQ(queues[0]["queue"], "log ring of island 0, worker 0");
  EXPECT_DOUBLE_EQ(queues[0]["us_per_transaction"], 0.05);
  EXPECT_EQ(queues[0]["waits"], 5);
  EXPECT_EQ(queues[1]["queue"], "run queue of a worker");
  EXPECT_DOUBLE_EQ(queues[1]["us_per_transaction"], 0.01);
  EXPECT_TRUE(queues[1]["waits"].is_null());
  sums.profile.stays[0].seconds["turn"] = 100e-6;
  EXPECT_EQ(ProfileJson(sums)["queues"][0]["queue"], "run queue of a worker");
}

// What the processor does not count is not there, and not 0.
TEST(Profile, ProfileJson_SaysNothingOfEventsThatAreNotCounted) {
  Sums sums = SomeSums();
  sums.profile.hardware_problem = "no counters";
  EXPECT_EQ(ProfileJson(sums)["hardware"].dump(), R"({"problem":"no counters"})");
  sums.profile.hardware = {{"cycles", 2e9}, {"instructions", 3e9}, {"cache_misses", 4e6}};
  const nlohmann::ordered_json hardware = ProfileJson(sums)["hardware"];
  EXPECT_DOUBLE_EQ(hardware["instructions_per_cycle"], 1.5);
  EXPECT_DOUBLE_EQ(hardware["cache_misses_per_transaction"], 4);
  EXPECT_FALSE(hardware.contains("stalled_backend_share"));
  EXPECT_FALSE(hardware.contains("problem"));
}

// A short time without load: no division by nothing, and the busy time is there all the same.
TEST(Profile, ProfileText_OfNothing) {
  Sums sums;
  EXPECT_THAT(ProfileText(sums), HasSubstr("none was waited for"));
  sums.busy_seconds = 1;
  sums.idle_seconds = 3;
  EXPECT_DOUBLE_EQ(ProfileJson(sums)["core_shares"]["busy"], 0.25);
}

}  // namespace
}  // namespace islands::deploy
