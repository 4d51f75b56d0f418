// What each transaction finds and does, on a real island: rows before and after, compared.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "experiments/tatp/tatp_cluster.h"

namespace islands::experiments {
namespace {

// Hands out one request when told to, and otherwise one that changes nothing.
class Scripted final : public instance::Generator {
 public:
  struct Script {
    std::optional<TatpRequest> next;
    std::optional<coordinator::Outcome> outcome;
    bool successful = false;
  };
  explicit Scripted(Script* script) : script_(*script) {}
  std::unique_ptr<instance::Request> MakeRequest() override { return std::make_unique<TatpRequest>(); }
  void Next(runtime::Random&, instance::Request& request) override {
    running_ = script_.next.has_value();
    TatpRequest idle;
    idle.s_id = 1;
    static_cast<TatpRequest&>(request) = running_ ? *script_.next : idle;
    script_.next.reset();
  }
  void OnEnd(const coordinator::TransactionId&, const instance::Request& request,
             coordinator::Outcome outcome) override {
    if (!running_) return;
    script_.outcome = outcome;
    script_.successful = static_cast<const TatpRequest&>(request).successful;
  }

 private:
  Script& script_;
  bool running_ = false;
};

class TatpProcedures : public testing::Test {
 protected:
  static constexpr uint64_t kSubscribers = 60;

  void SetUp() override {
    TatpClusterOptions options;
    options.subscribers = kSubscribers;
    options.wrap_generator = [this](std::unique_ptr<instance::Generator>) {
      return std::make_unique<Scripted>(&script_);
    };
    cluster_ = std::make_unique<instance::InProcessCluster>(TatpCluster(options));
    ASSERT_TRUE(cluster_->Start().ok());
    before_ = AllTatpRows(*cluster_);
    ASSERT_TRUE(cluster_->StartRun(1).ok());
  }

  // Whether it was successful; the rows from before in before_, those after it in after_.
  bool Run(const TatpRequest& request) {
    before_ = AllTatpRows(*cluster_);
    script_ = {.next = request};
    for (int round = 0; round < 10'000 && !script_.outcome; ++round) cluster_->Step();
    EXPECT_EQ(script_.outcome, coordinator::Outcome::kCommitted);
    after_ = AllTatpRows(*cluster_);
    return script_.successful;
  }

  // What is different now; where a row is gone, or was not there, it is empty.
  struct Change {
    std::vector<std::byte> before;
    std::vector<std::byte> after;
  };
  std::map<TatpRowKey, Change> Changes() const {
    std::map<TatpRowKey, Change> changes;
    for (const auto& [key, row] : before_) changes[key].before = row;
    for (const auto& [key, row] : after_) changes[key].after = row;
    std::erase_if(changes, [](const auto& change) { return change.second.before == change.second.after; });
    return changes;
  }

  static TatpRowKey KeyOf(instance::TableId table, const TatpKey& key) { return {table, TextOfKey(key)}; }
  bool Exists(const TatpRowKey& key) const { return before_.contains(key); }

  static TatpRequest Make(TatpTransaction transaction, uint64_t s_id, uint8_t type = 1,
                          uint8_t start_time = 0) {
    TatpRequest request;
    request.transaction = transaction;
    const bool by_number = transaction >= TatpTransaction::kUpdateLocation;
    if (by_number) request.sub_nbr = NumberOf(s_id);
    if (!by_number) request.s_id = s_id;
    request.type = type;
    request.start_time = start_time;
    return request;
  }

  // Every subscriber with every type.
  template <typename Check>
  void ForAll(Check check) {
    for (uint64_t s_id = 1; s_id <= kSubscribers; ++s_id) {
      for (uint8_t type = 1; type <= 4; ++type) ASSERT_NO_FATAL_FAILURE(check(s_id, type)) << s_id;
    }
  }

  Scripted::Script script_;
  std::unique_ptr<instance::InProcessCluster> cluster_;
  TatpRows before_;
  TatpRows after_;
};

TEST_F(TatpProcedures, GetSubscriberData_AlwaysFinds) {
  for (uint64_t s_id = 1; s_id <= kSubscribers; ++s_id) {
    ASSERT_TRUE(Run(Make(TatpTransaction::kGetSubscriberData, s_id)));
    ASSERT_TRUE(Changes().empty());
  }
}

TEST_F(TatpProcedures, GetAccessData_FindsWhatIsThere) {
  ForAll([&](uint64_t s_id, uint8_t type) {
    ASSERT_EQ(Run(Make(TatpTransaction::kGetAccessData, s_id, type)), Exists(KeyOf(1, TatpKey(s_id, type))));
    ASSERT_TRUE(Changes().empty());
  });
}

TEST_F(TatpProcedures, GetNewDestination_FindsActiveForwardingsOfThatTime) {
  int found = 0;
  ForAll([&](uint64_t s_id, uint8_t type) {
    for (int start = 0; start <= 16; start += 8) {
      const int end = 1 + static_cast<int>((s_id * 7 + type * 5 + static_cast<uint64_t>(start)) % 24);
      const auto facility = before_.find(KeyOf(2, TatpKey(s_id, type)));
      bool expected = false;
      for (uint8_t s = 0; s <= start; s += 8) {
        const auto forwarding = before_.find(KeyOf(3, TatpKey(s_id, type, s)));
        if (forwarding == before_.end()) continue;
        expected |= RowOf<CallForwardingRow>(forwarding->second).end_time > end;
      }
      expected &= facility != before_.end() && RowOf<SpecialFacilityRow>(facility->second).is_active == 1;
      TatpRequest request =
          Make(TatpTransaction::kGetNewDestination, s_id, type, static_cast<uint8_t>(start));
      request.end_time = static_cast<uint8_t>(end);
      ASSERT_EQ(Run(request), expected);
      found += expected;
    }
  });
  EXPECT_GT(found, 100);
}

TEST_F(TatpProcedures, UpdateSubscriberData_ChangesBothRowsOrNone) {
  ForAll([&](uint64_t s_id, uint8_t type) {
    const TatpRowKey subscriber = KeyOf(0, TatpKey(s_id));
    const TatpRowKey facility = KeyOf(2, TatpKey(s_id, type));
    TatpRequest request = Make(TatpTransaction::kUpdateSubscriberData, s_id, type);
    request.bit_1 = static_cast<uint8_t>(type % 2);
    request.data_a = static_cast<uint8_t>(200 + type);
    const bool successful = Run(request);
    auto changes = Changes();
    ASSERT_EQ(successful, Exists(facility));
    ASSERT_EQ(changes.size(), successful ? 2u : 0u);
    if (!successful) return;
    auto row = RowOf<SubscriberRow>(changes[subscriber].before);
    row.bit[0] = request.bit_1;
    row.changes -= 1;
    ASSERT_TRUE(std::ranges::equal(BytesOf(row), changes[subscriber].after));
    auto other = RowOf<SpecialFacilityRow>(changes[facility].before);
    other.data_a = request.data_a;
    other.changes += 1;
    ASSERT_TRUE(std::ranges::equal(BytesOf(other), changes[facility].after));
  });
}

TEST_F(TatpProcedures, UpdateLocation_ChangesTheSubscriberOfThatNumber) {
  for (uint64_t s_id = 1; s_id <= kSubscribers; ++s_id) {
    TatpRequest request = Make(TatpTransaction::kUpdateLocation, s_id);
    request.vlr_location = static_cast<uint32_t>(0xabcd'0000 + s_id);
    ASSERT_TRUE(Run(request));
    auto changes = Changes();
    ASSERT_EQ(changes.size(), 1u);
    const Change& change = changes[KeyOf(0, TatpKey(s_id))];
    auto row = RowOf<SubscriberRow>(change.before);
    row.vlr_location = request.vlr_location;
    row.changes += 1;
    ASSERT_TRUE(std::ranges::equal(BytesOf(row), change.after));
  }
}

TEST_F(TatpProcedures, InsertCallForwarding_OnlyIntoFreeSlotsOfFacilities) {
  int inserted = 0, without_facility = 0, taken = 0;
  ForAll([&](uint64_t s_id, uint8_t type) {
    const TatpRowKey facility = KeyOf(2, TatpKey(s_id, type));
    const TatpRowKey slot = KeyOf(3, TatpKey(s_id, type, 8));
    TatpRequest request = Make(TatpTransaction::kInsertCallForwarding, s_id, type, 8);
    request.end_time = 13;
    request.numberx = NumberOf(4711 + s_id);
    const bool successful = Run(request);
    auto changes = Changes();
    (Exists(facility) ? (Exists(slot) ? taken : inserted) : without_facility) += 1;
    ASSERT_EQ(successful, Exists(facility) && !Exists(slot));
    ASSERT_EQ(changes.size(), successful ? 2u : 0u);
    if (!successful) return;
    ASSERT_TRUE(changes[slot].before.empty());
    const CallForwardingRow row = {.end_time = 13, .numberx = request.numberx};
    ASSERT_TRUE(std::ranges::equal(BytesOf(row), changes[slot].after));
    auto other = RowOf<SpecialFacilityRow>(changes[facility].before);
    other.changes -= 1;
    ASSERT_TRUE(std::ranges::equal(BytesOf(other), changes[facility].after));
    ASSERT_FALSE(Run(request)) << "inserted twice";
    ASSERT_TRUE(Changes().empty());
  });
  EXPECT_GT(std::min({inserted, without_facility, taken}), 30);
}

TEST_F(TatpProcedures, DeleteCallForwarding_TakesTheRowAwayOnce) {
  int deleted = 0;
  ForAll([&](uint64_t s_id, uint8_t type) {
    const TatpRowKey facility = KeyOf(2, TatpKey(s_id, type));
    const TatpRowKey slot = KeyOf(3, TatpKey(s_id, type, 16));
    const TatpRequest request = Make(TatpTransaction::kDeleteCallForwarding, s_id, type, 16);
    const bool successful = Run(request);
    auto changes = Changes();
    ASSERT_EQ(successful, Exists(slot));
    ASSERT_EQ(changes.size(), successful ? 2u : 0u);
    if (!successful) return;
    ++deleted;
    ASSERT_TRUE(changes[slot].after.empty());
    auto other = RowOf<SpecialFacilityRow>(changes[facility].before);
    other.changes += 1;
    ASSERT_TRUE(std::ranges::equal(BytesOf(other), changes[facility].after));
    ASSERT_FALSE(Run(request)) << "deleted twice";
    ASSERT_TRUE(Changes().empty());
  });
  EXPECT_GT(deleted, 30);
}

}  // namespace
}  // namespace islands::experiments
