// The gateway before real islands, spoken to in frames: by the client library, and by clients that have no
// manners.
#include "instance/gateway/direct.h"

#include <fcntl.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>

#include "instance/gateway/gateway_testing.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/unix_socket.h"
#include "islands/client.h"

namespace islands::gateway {
namespace {

using client::v1::DirectAnswer;
using client::v1::DirectCall;
using messaging::FrameType;

// A folder for sockets, as long as it is wanted.
class Folder {
 public:
  Folder() {
    std::string path = (std::filesystem::temp_directory_path() / "direct-XXXXXX").string();
    path_ = mkdtemp(path.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// A client that says what it likes.
class Wire {
 public:
  explicit Wire(const std::string& path) : fd_(*messaging::ConnectTo(path + kDirectSuffix)) {
    const int flags = fcntl(fd_.get(), F_GETFL);
    fcntl(fd_.get(), F_SETFL, flags & ~O_NONBLOCK);
    const timeval patience{20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  }
  void Send(std::string_view bytes) const {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t some = send(fd_.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (some <= 0) return;
      sent += static_cast<size_t>(some);
    }
  }
  void Say(const std::string& payload, FrameType type = FrameType::kDirectCall) const {
    std::vector<std::byte> bytes;
    messaging::AppendFrame(&bytes, type, std::as_bytes(std::span(payload)));
    Send({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
  }
  void Say(const DirectCall& call) const { Say(call.SerializeAsString()); }
  // False: the gateway has hung up. `parts`: how many frames came before the last one.
  bool Hear(DirectAnswer* answer, int* parts = nullptr) {
    std::string whole;
    for (;;) {
      messaging::FrameHeader header;
      if (!Read(&header, sizeof(header))) return false;
      std::string payload(header.payload_bytes, '\0');
      if (!Read(payload.data(), payload.size())) return false;
      whole += payload;
      if (static_cast<FrameType>(header.type) == FrameType::kDirectAnswer)
        return answer->ParseFromString(whole);
      if (parts != nullptr) ++*parts;
    }
  }
  bool HungUpOn() {
    DirectAnswer answer;
    return !Hear(&answer);
  }

 private:
  bool Read(void* to, size_t bytes) const {
    return bytes == 0 || recv(fd_.get(), to, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  messaging::UniqueFd fd_;
};

DirectCall Whole(const std::vector<Operation>& operations) {
  DirectCall call;
  for (const Operation& operation : operations) *call.mutable_execute()->add_operations() = operation;
  return call;
}
enum class Step { kFirst, kNext };
DirectCall StepOf(const std::vector<Operation>& operations, TransactRequest::End end = {},
                  Step step = Step::kFirst) {
  DirectCall call;
  call.set_continues(step == Step::kNext);
  for (const Operation& operation : operations) *call.mutable_transact()->add_operations() = operation;
  call.mutable_transact()->set_end(end);
  return call;
}

class DirectTest : public GatewayTest {
 protected:
  explicit DirectTest(ServiceLimits limits = {}) : DirectTest(limits, std::make_unique<Folder>()) {}

  Client Connect() const { return *Client::Connect("unix:" + path_); }
  bool LocksAreReleased() {
    return Becomes([&] { return LocksHeld() == 0; });
  }

 private:
  DirectTest(ServiceLimits limits, std::unique_ptr<Folder> folder)
      : GatewayTest(limits, folder->path()), folder_(std::move(folder)) {}
  std::unique_ptr<Folder> folder_;
};

TEST_F(DirectTest, ClientLibrary_FindsItsWay) {
  Client db = Connect();
  Batch both;
  both.Put("accounts", 1, std::string(8, '\0'));
  both.Put("accounts", 999, std::string(8, '\0'));
  const absl::StatusOr<Committed> done = db.Execute(both);
  ASSERT_TRUE(done.ok()) << done.status();
  EXPECT_NE(done->transaction, "");
  EXPECT_EQ(*db.Add("accounts", 999, 7), 7);
  EXPECT_TRUE(IsConditionFailed(db.Insert("accounts", 1, "x")));
  const auto many = db.ExecuteMany(std::array{both, Batch(), both});
  ASSERT_TRUE(many.ok()) << many.status();
  for (const auto& each : *many) EXPECT_TRUE(each.ok()) << each.status();
  // Of what has come over gRPC nothing was counted.
  EXPECT_EQ(service_->counters().of(Method::kExecute).calls[0].Get(), 2u);
  EXPECT_EQ(service_->counters().of(Method::kExecuteMany).calls[0].Get(), 1u);
  EXPECT_EQ(server_->admitted(), 1u);
  const absl::StatusOr<int64_t> moved = db.Run([](Transaction& t) -> absl::StatusOr<int64_t> {
    const auto from = t.Add("accounts", 1, -5);
    if (!from.ok()) return from.status();
    const auto to = t.Add("accounts", 999, 5);
    if (!to.ok()) return to.status();
    return **from;
  });
  ASSERT_TRUE(moved.ok()) << moved.status();
  EXPECT_EQ(*moved, -5);
  EXPECT_EQ(*db.Add("accounts", 999, 0), 5);
  changes_elsewhere_ = true;
  const absl::Status unknown = db.Call("bank.nothing", {1}).status();
  EXPECT_TRUE(absl::IsNotFound(unknown)) << unknown;  // said by the thread that has looked for new ones
  EXPECT_EQ(*db.Add("accounts", 999, 0), 5);
  EXPECT_EQ(server_->admitted(), 1u) << "one connection, taken again and again";
  EXPECT_TRUE(LocksAreReleased());
}

TEST_F(DirectTest, Token_IsCommittedOnce) {
  Client db = Connect();
  const std::string token = NewToken();
  ASSERT_TRUE(db.Put("accounts", 1, std::string(8, '\0')).ok());
  Batch batch;
  batch.Add("accounts", 1, 5);
  ASSERT_TRUE(
      db.Execute(batch, {.timeout_ms = 20'000, .token = token}).ok());  // the table for it was made first
  const auto again = db.Execute(batch, {.token = token});
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_TRUE(again->earlier);
  EXPECT_EQ(*db.Add("accounts", 1, 0), 5);
  EXPECT_TRUE(*db.AskOutcome(token, "accounts", 1));
}

TEST_F(DirectTest, WhoeverHasNoManners_LosesTheConnection) {
  const std::string junk = "this is no frame at all, whoever reads it";
  Wire bytes(path_), type(path_), broken(path_), nothing(path_), twice(path_), other(path_);
  bytes.Send(junk);
  EXPECT_TRUE(bytes.HungUpOn());
  type.Say(Whole({Get(1)}).SerializeAsString(), FrameType::kHello);
  EXPECT_TRUE(type.HungUpOn());
  broken.Say("\xff\xff\xff");
  EXPECT_TRUE(broken.HungUpOn());
  nothing.Say(DirectCall());
  EXPECT_TRUE(nothing.HungUpOn());
  // A call while another has not been answered: somebody else's lock keeps it.
  Client db = Connect();
  Transaction holder = db.Begin();
  ASSERT_TRUE(holder.Put("accounts", 1, "held").ok());
  twice.Say(Whole({Put(1, "first")}));
  twice.Say(Whole({Put(2, "second")}));
  EXPECT_TRUE(twice.HungUpOn());
  ASSERT_TRUE(holder.Commit().ok());
  ASSERT_TRUE(Becomes([&] { return ValueOf(1) == "first"; })) << "it was under way";
  EXPECT_EQ(ValueOf(2), "none");
  // Another call while a transaction is open.
  DirectAnswer answer;
  other.Say(StepOf({Put(3, "open")}));
  ASSERT_TRUE(other.Hear(&answer));
  EXPECT_EQ(answer.code(), 0u);
  other.Say(Whole({Put(3, "whole")}));
  EXPECT_TRUE(other.HungUpOn());
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_EQ(ValueOf(3), "none");
  Wire again(path_);
  again.Say(StepOf({Put(3, "open")}));
  ASSERT_TRUE(again.Hear(&answer));
  again.Say(StepOf({Put(3, "another")}));  // the first step of another
  EXPECT_TRUE(again.HungUpOn());
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_EQ(service_->open(), 0u);
}

TEST_F(DirectTest, Transaction_OfAClientThatGoesIsRolledBack) {
  DirectAnswer answer;
  {
    Wire gone(path_);
    gone.Say(StepOf({Put(1, "gone")}));
    ASSERT_TRUE(gone.Hear(&answer));
  }
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_EQ(ValueOf(1), "none");
  // While it is asked something, too.
  Client db = Connect();
  Transaction holder = db.Begin();
  ASSERT_TRUE(holder.Put("accounts", 2, "held").ok());
  {
    Wire waits(path_);
    waits.Say(StepOf({Put(3, "gone")}));
    ASSERT_TRUE(waits.Hear(&answer));
    waits.Say(StepOf({Put(2, "gone")}, {}, Step::kNext));
  }
  ASSERT_TRUE(holder.Commit().ok());
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_EQ(ValueOf(2), "held");
  EXPECT_EQ(ValueOf(3), "none");
  EXPECT_TRUE(Becomes([&] { return service_->open() == 0; }));
  EXPECT_EQ(service_->counters().ended(Outcome::kRolledBack), 2u);
}

TEST_F(DirectTest, Transaction_EndsWithTheFirstErrorAndTheConnectionGoesOn) {
  Wire wire(path_);
  DirectAnswer answer;
  wire.Say(StepOf({Put(1, "one")}));
  ASSERT_TRUE(wire.Hear(&answer));
  Operation nonsense = Get(1);
  nonsense.set_table("nowhere");
  wire.Say(StepOf({nonsense}, {}, Step::kNext));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::INVALID_ARGUMENT));
  EXPECT_EQ(answer.failure().outcome(), Failure::ABORTED);
  EXPECT_TRUE(LocksAreReleased());
  // Whoever goes on all the same does not begin another.
  wire.Say(StepOf({Put(1, "half")}, TransactRequest::COMMIT, Step::kNext));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::ABORTED));
  EXPECT_EQ(answer.failure().outcome(), Failure::ABORTED);
  wire.Say(Whole({Get(1)}));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.execute().results(0).code(), Result::NOT_FOUND);
  wire.Say(StepOf({Put(1, "two")}, TransactRequest::COMMIT));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_TRUE(answer.transact().committed());
  wire.Say(StepOf({Put(1, "three")}, TransactRequest::ROLLBACK));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), 0u);
  wire.Say(Whole({Get(1)}));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.execute().results(0).value(), "two");
}

TEST_F(DirectTest, CallThatIsTooLarge_IsRefused) {
  Wire wire(path_);
  DirectAnswer answer;
  const std::string large(9 << 20, 'x');
  wire.Say(Whole({Put(1, large)}));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_EQ(answer.failure().outcome(), Failure::ABORTED);
  wire.Say(StepOf({Put(2, "two")}));
  ASSERT_TRUE(wire.Hear(&answer));
  wire.Say(StepOf({Put(1, large)}, TransactRequest::COMMIT, Step::kNext));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_EQ(ValueOf(2), "none");
}

TEST_F(DirectTest, LargeAnswer_ComesInParts) {
  Client db = Connect();
  constexpr size_t kRowBytes = 1500;
  for (uint64_t from = 0; from < 500; from += 100) {
    Batch batch;
    for (uint64_t key = from; key < from + 100; ++key)
      batch.Put("accounts", key, std::string(kRowBytes, 'r'));
    const absl::Status put = db.Execute(batch).status();
    ASSERT_TRUE(put.ok()) << put;
  }
  const auto scans = [](int count) {
    DirectCall call;
    for (int i = 0; i < count; ++i) {
      Operation* scan = call.mutable_execute_many()->add_transactions()->add_operations();
      scan->set_table("accounts");
      scan->mutable_scan()->mutable_end()->add_parts()->set_unsigned_(500);
    }
    return call;
  };
  Wire wire(path_);
  DirectAnswer answer;
  int parts = 0;
  wire.Say(scans(24));  // each of 0.7 MiB
  ASSERT_TRUE(wire.Hear(&answer, &parts));
  EXPECT_EQ(parts, 1);
  ASSERT_EQ(answer.execute_many().each_size(), 24) << answer.message();
  for (const auto& each : answer.execute_many().each()) {
    ASSERT_EQ(each.response().results_size(), 1) << each.message();
    EXPECT_EQ(each.response().results(0).rows_size(), 500);
    EXPECT_EQ(each.response().results(0).rows(499).value(), std::string(kRowBytes, 'r'));
  }
  wire.Say(scans(48));
  ASSERT_TRUE(wire.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::RESOURCE_EXHAUSTED));
  EXPECT_THAT(answer.message(), HasSubstr("ask for less at a time"));
}

TEST_F(DirectTest, Gateway_StopsWithClientsAtWork) {
  std::atomic<bool> over{false};
  std::atomic<int> committed{0};
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      Wire open(path_);
      open.Say(StepOf({Put(900 + i, "open")}));
      DirectAnswer answer;
      open.Hear(&answer);
      Wire wire(path_);
      while (!over) {
        wire.Say(Whole({Put(i, "x"), Put(999 - i, "y")}));
        if (!wire.Hear(&answer)) return;
        if (answer.code() == 0) ++committed;
      }
    });
  }
  EXPECT_TRUE(Becomes([&] { return committed > 50; }));
  server_.reset();
  over = true;
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(service_->open(), 0u);
  EXPECT_TRUE(LocksAreReleased());
  EXPECT_FALSE(messaging::ConnectTo(path_ + kDirectSuffix).ok() && !Wire(path_).HungUpOn());
}

class LimitedDirectTest : public DirectTest {
 protected:
  LimitedDirectTest() : DirectTest({.call_us = 300'000, .idle_us = 200'000, .most_transactions = 2}) {}
};

TEST_F(LimitedDirectTest, LimitsAreThoseOfGrpc) {
  Wire first(path_), second(path_), third(path_);
  DirectAnswer answer;
  first.Say(StepOf({Put(1, "one")}));
  ASSERT_TRUE(first.Hear(&answer));
  second.Say(StepOf({Put(2, "two")}));
  ASSERT_TRUE(second.Hear(&answer));
  for (const DirectCall& call : {StepOf({Put(3, "three")}), Whole({Get(3)})}) {
    third.Say(call);
    ASSERT_TRUE(third.Hear(&answer));
    EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::RESOURCE_EXHAUSTED));
    EXPECT_EQ(answer.failure().outcome(), Failure::ABORTED);
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(400));  // they have said nothing for too long
  first.Say(StepOf({}, TransactRequest::COMMIT, Step::kNext));
  ASSERT_TRUE(first.Hear(&answer));
  EXPECT_EQ(answer.code(), static_cast<uint32_t>(grpc::StatusCode::ABORTED)) << answer.message();
}

// Money moves in steps and in whole transactions, by clients that now and then go in the middle of it.
TEST_F(DirectTest, Stress_ClientsComeAndGo) {
  constexpr uint64_t kAccounts = 8, kThreads = 4;
  constexpr int kRounds = 150;
  Client db = Connect();
  const auto account = [](uint64_t i) { return i % 2 == 0 ? i : 999 - i; };
  for (uint64_t i = 0; i < kAccounts; ++i)
    ASSERT_TRUE(db.Put("accounts", account(i), std::string(8, '\0')).ok());
  std::atomic<int> committed{0}, left{0};
  std::vector<std::thread> threads;
  for (uint64_t number = 0; number < kThreads; ++number) {
    threads.emplace_back([&, number] {
      runtime::Random random(number + 1);
      auto wire = std::make_unique<Wire>(path_);
      for (int round = 0; round < kRounds; ++round) {
        const uint64_t from = account(random.Below(kAccounts)), to = account(random.Below(kAccounts));
        const auto amount = static_cast<int64_t>(random.Below(100));
        const bool whole = random.Below(2) == 0;
        const uint64_t leaves = random.Below(8);  // 0: before the answer, 1: in the middle
        DirectAnswer answer;
        if (whole) {
          wire->Say(Whole({Add(from, -amount), Add(to, amount)}));
        } else {
          wire->Say(StepOf({Add(from, -amount)}));
          if (leaves != 0 && wire->Hear(&answer) && answer.code() == 0 && leaves != 1)
            wire->Say(StepOf({Add(to, amount)}, TransactRequest::COMMIT, Step::kNext));
        }
        if (leaves <= (whole ? 0u : 1u)) {
          ++left;
          wire = std::make_unique<Wire>(path_);
          continue;
        }
        if (answer.code() != 0) continue;  // a deadlock's victim, in its first step
        ASSERT_TRUE(wire->Hear(&answer));
        if (answer.code() == 0) ++committed;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(committed, 100);
  EXPECT_GT(left, 10);
  EXPECT_TRUE(Becomes([&] { return service_->open() == 0; }));
  EXPECT_TRUE(LocksAreReleased());
  int64_t sum = 0;
  for (uint64_t i = 0; i < kAccounts; ++i) sum += *db.Add("accounts", account(i), 0);
  EXPECT_EQ(sum, 0);
}

}  // namespace
}  // namespace islands::gateway
