#include "instance/gateway/direct.h"

#include <fmt/format.h>
#include <google/protobuf/arena.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <utility>

#include "instance/gateway/calls.h"
#include "runtime/latch_site.h"

namespace islands::gateway {

using client::v1::DirectAnswer;
using client::v1::DirectCall;
using messaging::ConnectionId;
using messaging::FrameType;

namespace {

constexpr size_t kArenaBytes = 8 << 10;  // most calls and answers fit
constexpr uint64_t kLongestUs = uint64_t{1} << 60;

}  // namespace

// Lives as long as it is there or has a call under way.
class DirectServer::Connection final : public std::enable_shared_from_this<Connection>,
                                       public Dialogue::Client {
 public:
  Connection(DirectServer& server, ConnectionId id) : server_(server), id_(id) {
    const runtime::MutexLock lock(server_.mutex_, ISLANDS_LATCH("gateway.direct"));
    ++server_.alive_;
  }
  ~Connection() override {
    const runtime::MutexLock lock(server_.mutex_, ISLANDS_LATCH("gateway.direct"));
    if (--server_.alive_ == 0) server_.gone_.notify_all();
  }

  // Why the client must go; null: it has been heard.
  const char* OnCall(std::span<const std::byte> payload) {
    if (busy_) return "it does not wait for its answer";
    arena_.Reset();
    call_ = google::protobuf::Arena::CreateMessage<DirectCall>(&arena_);
    answer_ = google::protobuf::Arena::CreateMessage<DirectAnswer>(&arena_);
    if (payload.size() > server_.most_message_bytes_) {
      Refuse(Refusal(absl::ResourceExhaustedError(fmt::format("a call of {} bytes; expected at most {}",
                                                              payload.size(), server_.most_message_bytes_)),
                     "invalid"));
      return nullptr;
    }
    if (!call_->ParseFromArray(payload.data(), static_cast<int>(payload.size())))
      return "it sent a broken call";
    if (dialogue_ != nullptr && !call_->continues()) return "it has left its transaction open";
    if (call_->continues() && !call_->has_transact()) return "it goes on with what is no transaction";
    busy_ = true;
    Service& service = server_.service_;
    const auto left_us = static_cast<int64_t>(std::min(call_->timeout_us(), kLongestUs));
    const int64_t deadline_us = left_us == 0 ? service.limits().call_us : DeadlineUs(left_us);
    switch (call_->call_case()) {
      case DirectCall::kExecute:
        Execute(service, call_->execute(), deadline_us, answer_->mutable_execute(), WhenEnded());
        break;
      case DirectCall::kExecuteMany:
        ExecuteMany(service, call_->execute_many(), deadline_us, answer_->mutable_execute_many(),
                    WhenEnded());
        break;
      case DirectCall::kCallProcedure:
        Call(service, call_->call_procedure(), deadline_us, answer_->mutable_call_procedure(), WhenEnded());
        break;
      case DirectCall::kTransact:
        Transact(deadline_us);
        break;
      case DirectCall::CALL_NOT_SET:
        return "it asks for what this gateway does not know";
    }
    return nullptr;
  }

  // Nothing is heard or said any more.
  void OnGone() {
    gone_ = true;
    if (dialogue_ != nullptr && !busy_) dialogue_->Abandon(Answer());
  }

 private:
  End WhenEnded() {
    return [self = shared_from_this()](const Answer& answer) {
      Channels& channels = self->server_.channels_;
      if (channels.IsThisThread()) return self->Say(answer);
      channels.Run([self, answer] { self->Say(answer); });
    };
  }

  void Transact(int64_t deadline_us) {
    if (dialogue_ == nullptr && call_->continues())
      return Say(Refusal(absl::AbortedError("the transaction has ended"), "refused"));
    if (dialogue_ == nullptr) {
      kept_ = shared_from_this();
      dialogue_ = std::make_unique<Dialogue>(server_.service_, *this);
      dialogue_->Start();
      if (dialogue_ == nullptr) return;
    }
    dialogue_->Step(call_->transact(), deadline_us, answer_->mutable_transact());
  }
  void Refuse(const Answer& answer) {
    busy_ = true;
    dialogue_ != nullptr ? dialogue_->Abandon(answer) : Say(answer);
  }
  // Of the dialogue, all of which happens on the channels' thread.
  void OnAnswered(bool last) override {
    Say(Answer());
    if (last) return EndDialogue();
    if (gone_) dialogue_->Abandon(Answer());
  }
  void OnEnd(const Answer& answer) override {
    Say(answer);
    EndDialogue();
  }
  void EndDialogue() {
    const std::shared_ptr<Connection> last = std::exchange(kept_, nullptr);
    dialogue_ = nullptr;
  }

  void Say(const Answer& said) {
    busy_ = false;
    if (gone_) return;
    if (!said.ok()) {
      answer_->Clear();
      answer_->set_code(said.code);
      answer_->set_message(said.message);
      *answer_->mutable_failure() = said.failure;
    } else if (const size_t bytes = answer_->ByteSizeLong(); bytes > kMostAnswerBytes) {
      answer_->Clear();
      answer_->set_code(grpc::StatusCode::RESOURCE_EXHAUSTED);
      answer_->set_message(
          fmt::format("the answer has {} bytes, and no client takes more than {}; ask for less "
                      "at a time",
                      bytes, kMostAnswerBytes));
    }
    answer_->SerializeToString(&server_.buffer_);
    std::span<const std::byte> rest = std::as_bytes(std::span(server_.buffer_));
    for (; rest.size() > messaging::kMaxFrameBytes; rest = rest.subspan(messaging::kMaxFrameBytes))
      server_.channels_.Tell(id_, FrameType::kDirectAnswerPart, rest.first(messaging::kMaxFrameBytes));
    server_.channels_.Tell(id_, FrameType::kDirectAnswer, rest);
  }

  DirectServer& server_;
  const ConnectionId id_;
  bool busy_ = false;  // with a call that has not been answered
  bool gone_ = false;
  alignas(8) std::array<char, kArenaBytes> block_;
  google::protobuf::Arena arena_{block_.data(), block_.size()};
  DirectCall* call_ = nullptr;  // of the arena, like its answer
  DirectAnswer* answer_ = nullptr;
  std::unique_ptr<Dialogue> dialogue_;  // null: no transaction is open
  std::shared_ptr<Connection> kept_;    // this, while there is a dialogue
};

DirectServer::DirectServer(Service& service, Admission& admission, uint64_t most_message_bytes)
    : service_(service),
      admission_(admission),
      channels_(service.channels()),
      most_message_bytes_(most_message_bytes) {}

absl::StatusOr<std::unique_ptr<DirectServer>> DirectServer::Start(Service& service, Admission& admission,
                                                                  uint64_t most_message_bytes) {
  auto server = std::unique_ptr<DirectServer>(new DirectServer(service, admission, most_message_bytes));
  if (absl::Status status = server->channels_.Serve(*server); !status.ok()) return status;
  return server;
}

DirectServer::~DirectServer() {
  channels_.EndServing();
  const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.direct"));
  while (alive_ != 0) gone_.wait(mutex_);
}

void DirectServer::OnAccepted(ConnectionId id, int64_t peer_uid) {
  if (!admission_.Admits(peer_uid)) return channels_.HangUp(id);
  connections_.emplace(id, std::make_shared<Connection>(*this, id));
}

void DirectServer::OnFrame(ConnectionId id, FrameType type, std::span<const std::byte> payload) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (type != FrameType::kDirectCall) return HangUp(id, "it sent a frame that is no call");
  if (const char* why = it->second->OnCall(payload); why != nullptr) HangUp(id, why);
}

void DirectServer::HangUp(ConnectionId id, const char* why) {
  spdlog::warn("a client on the direct socket is hung up on: {}", why);
  channels_.HangUp(id);
  OnClosed(id, absl::InvalidArgumentError(why));
}

void DirectServer::OnClosed(ConnectionId id, const absl::Status&) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  const std::shared_ptr<Connection> connection = std::move(it->second);
  connections_.erase(it);
  connection->OnGone();
}

}  // namespace islands::gateway
