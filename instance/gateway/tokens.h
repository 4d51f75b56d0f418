// Tokens: by them a client that does not know how a commit ended hears it.
//
// A transaction with a token inserts a row for it, on the site of its first operation's key. So it is
// committed once at most: another with the same token does not find what it needs, and the row says why.
// Whoever asks for the outcome inserts a row that says "never" first: what was under way with this token
// cannot be committed any more.
//
//   table    islands.tokens, made when the first token comes; clients do not see it
//   key      uint32 site, string token
//   row      offset 0: 1 byte, 1 = committed, 2 = never; offset 1: 8 bytes, seconds since 1970, little-endian
//
// Rows are removed when they are a day old, by the gateway's clock. They last as long as other rows do: with
// durability `none` an island that dies takes its tokens with it, and what they say is not known any more.
//
// Thread safety: plain functions; a TokenQuestion is its owner's, a TokenSweeper one thread's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "instance/gateway/answer.h"
#include "instance/gateway/channels.h"
#include "instance/gateway/view.h"
#include "instance/workload/operation.h"

namespace islands::gateway {

inline constexpr const char* kSystemPrefix = "islands.";  // of names that clients have no use of
inline constexpr const char* kTokensTable = "islands.tokens";
inline constexpr size_t kMostTokenBytes = 64;
inline constexpr int64_t kTokensKeptS = 24 * 3600;

enum class TokenOutcome : uint8_t { kCommitted = 1, kNever = 2 };

// What the deployment makes of it when the first token comes.
control::v1::TableSpec TokensTable(const View& view);
// Null: it has not been made yet.
const storage::TableDefinition* FindTokensTable(const View& view);
// INVALID_ARGUMENT: no token that one can have.
absl::Status CheckToken(const std::string& token);

// Where a transaction with this first operation keeps its token.
uint32_t TokenSiteOf(const View& view, const instance::Batch& batch);
// The view has the table.
void InsertToken(const View& view, uint32_t site, const std::string& token, TokenOutcome outcome,
                 instance::Batch* batch);

// Asks what became of a token: once for each Ask, the owner is told once.
class TokenQuestion final : private Waiting {
 public:
  class Owner {
   public:
    virtual ~Owner() = default;
    // Nothing: there is no such row. `answer` is not OK: nobody can say.
    virtual void OnToken(std::optional<TokenOutcome> outcome, const Answer& answer) = 0;
  };
  TokenQuestion(Channels& channels, Owner& owner) : channels_(channels), owner_(owner) {}

  // `settle`: if there is no row, one that says "never" is there afterwards.
  void Ask(std::shared_ptr<const View> view, uint32_t site, std::string token, bool settle,
           int64_t deadline_us);

 private:
  void Read();
  void Send();
  void OnReply(const data::v1::ClientReply& reply) override;
  void OnLost(bool sent, const absl::Status& why) override;

  Channels& channels_;
  Owner& owner_;
  std::shared_ptr<const View> view_;
  uint32_t site_ = 0;
  std::string token_;
  bool settling_ = false;  // or it reads
  int64_t deadline_us_ = 0;
  instance::Batch batch_;
};

// Removes what is old, some of it each time. Waits for islands.
class TokenSweeper {
 public:
  explicit TokenSweeper(Channels& channels) : channels_(channels) {}
  // False: everything was looked at, and it begins anew with the next call; or an island did not answer,
  // and it goes on there.
  bool Step(const View& view, int64_t now_s);

 private:
  Channels& channels_;
  uint32_t site_ = 0;
  std::string from_;  // encoded key; empty: from the site's first on
};

}  // namespace islands::gateway
