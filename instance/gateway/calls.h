// What programs ask of a gateway, whichever way it comes: over gRPC (service.h), or as frames (direct.h).
//
// A call is begun once and ends once, by its `End`. What it was given of its request and response must live
// until then, and is not touched afterwards.
//
// Thread safety: calls begin on any thread. Their `End` is called on the channels' thread, inside the
// function that begins them, or, of a procedure that was new, on the one that looks for it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "instance/gateway/answer.h"
#include "instance/gateway/channels.h"
#include "instance/gateway/counters.h"
#include "instance/gateway/tokens.h"
#include "instance/gateway/view.h"
#include "instance/workload/operation.h"
#include "proto/client.pb.h"

namespace islands::gateway {

class Service;

using End = absl::AnyInvocable<void(const Answer&)>;

// An island gives up so much earlier than its client that the client hears how it ended: an island looks for
// who is late a few times a second. `uncertain_us`: by how much `left_us` may be too long.
inline int64_t DeadlineUs(int64_t left_us, int64_t uncertain_us = 0) {
  constexpr int64_t kMostUs = 100'000;
  return left_us - std::min(kMostUs + uncertain_us, left_us / 10);
}

// `deadline_us`: from now on.
void Execute(Service& service, const client::v1::ExecuteRequest& request, int64_t deadline_us,
             client::v1::ExecuteResponse* response, End end);
void ExecuteMany(Service& service, const client::v1::ExecuteManyRequest& request, int64_t deadline_us,
                 client::v1::ExecuteManyResponse* response, End end);
void Call(Service& service, const client::v1::CallRequest& request, int64_t deadline_us,
          client::v1::CallResponse* response, End end);
void AskOutcome(Service& service, const client::v1::AskOutcomeRequest& request, int64_t deadline_us,
                client::v1::AskOutcomeResponse* response, End end);

// A transaction that its client goes through step by step.
//
// Invariants:
//  1. The island is asked one thing at a time, and the dialogue ends only while it is asked nothing.
//  2. When it has ended the transaction has ended, unless its island is lost.
class Dialogue final : private Waiting, private TokenQuestion::Owner {
 public:
  class Client {
   public:
    virtual ~Client() = default;
    // Of a step, in the response that was given for it. `last`: the transaction is committed or rolled back
    // as the client wanted, and nothing more is said; the dialogue may be destroyed.
    virtual void OnAnswered(bool last) = 0;
    // By an error, or because it was abandoned. Likewise.
    virtual void OnEnd(const Answer& answer) = 0;
  };

  Dialogue(Service& service, Client& client);
  ~Dialogue() override;

  // Before anything else; it may be over when this returns.
  void Start();
  // Once the last one has been answered.
  void Step(const client::v1::TransactRequest& request, int64_t deadline_us,
            client::v1::TransactResponse* response);
  // The client wants no more of it. Between steps.
  void Abandon(const Answer& why);

 private:
  void Ask(const std::vector<uint32_t>& may_miss);
  void Refuse(const Answer& answer);
  // Ends what is open, then the dialogue.
  void GiveUp(const Answer& answer);
  void Finish(const Answer& answer);
  void OnReply(const data::v1::ClientReply& reply) override;
  void OnLost(bool sent, const absl::Status& why) override;
  void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) override;

  Service& service_;
  Client& client_;
  const std::shared_ptr<const View> view_;
  const uint64_t session_;
  CallMeter meter_;
  bool entered_ = false;
  const client::v1::TransactRequest* request_ = nullptr;  // of the step that is being taken
  client::v1::TransactResponse* response_ = nullptr;
  int64_t deadline_us_;
  instance::Batch batch_;
  messaging::Address home_;
  data::v1::ClientEnd end_ = data::v1::CLIENT_END_UNSPECIFIED;  // of the request that the island has
  bool open_ = false;                                           // the island has the transaction
  bool giving_up_ = false;
  Answer last_;  // then
  uint32_t token_site_ = 0;
  bool has_first_ = false;   // an operation, by which token_site_ is
  bool with_token_ = false;  // the commit that the island has been asked for
  Answer aborted_;
  std::unique_ptr<TokenQuestion> question_;
};

}  // namespace islands::gateway
