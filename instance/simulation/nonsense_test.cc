// A peer that talks nonsense: an island whose messages are of known types, with fields that are plausible one
// by one and mean nothing together. Whatever it says, the others go on, and when its process has died nothing
// of it is left with them.
//
// What is not promised is what such a peer does to the rows: whoever has the links may write to them.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "google/protobuf/message.h"
#include "instance/messaging/links.h"
#include "instance/simulation/bank.h"
#include "instance/simulation/sim_cluster.h"
#include "proto/data.pb.h"
#include "runtime/seeds_testing.h"

namespace islands::simulation {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using messaging::FrameType;
using runtime::kNsPerSecond;

constexpr uint32_t kLiar = 1;

std::map<FrameType, std::unique_ptr<Message>> AllMessages() {
  std::map<FrameType, std::unique_ptr<Message>> all;
  all[FrameType::kExecuteRequest] = std::make_unique<data::v1::ExecuteRequest>();
  all[FrameType::kExecuteReply] = std::make_unique<data::v1::ExecuteReply>();
  all[FrameType::kPrepareRequest] = std::make_unique<data::v1::PrepareRequest>();
  all[FrameType::kVote] = std::make_unique<data::v1::Vote>();
  all[FrameType::kDecision] = std::make_unique<data::v1::Decision>();
  all[FrameType::kAcknowledge] = std::make_unique<data::v1::Acknowledge>();
  all[FrameType::kCommitOnePhase] = std::make_unique<data::v1::CommitOnePhase>();
  all[FrameType::kOnePhaseReply] = std::make_unique<data::v1::OnePhaseReply>();
  all[FrameType::kOnePhaseConfirm] = std::make_unique<data::v1::OnePhaseConfirm>();
  all[FrameType::kInquiry] = std::make_unique<data::v1::Inquiry>();
  all[FrameType::kInquiryReply] = std::make_unique<data::v1::InquiryReply>();
  all[FrameType::kProbe] = std::make_unique<data::v1::Probe>();
  all[FrameType::kDecisionRequest] = std::make_unique<data::v1::DecisionRequest>();
  all[FrameType::kDecisionReply] = std::make_unique<data::v1::DecisionReply>();
  all[FrameType::kClients] = std::make_unique<data::v1::Clients>();
  return all;
}

class Liar final : private messaging::LinksHandler {
 public:
  Liar(SimCluster& cluster, uint64_t boot_epoch, uint64_t seed)
      : cluster_(cluster),
        random_(seed),
        boot_epoch_(boot_epoch),
        transport_(cluster.hub().MakeTransport({kLiar, 0})),
        links_({.cluster_id = cluster.island(0).config().cluster_id(),
                .self = {kLiar, 0},
                .boot_epoch = boot_epoch,
                .workers_per_island = {1, 1, 1}},
               *transport_, cluster.clock(), *this) {
    EXPECT_TRUE(links_.Start().ok());
  }
  void Turn() {
    cluster_.pulses().Beat(kLiar, 0);
    links_.Poll();
    if (links_.PeersUp() == 2) Say();
    links_.Flush();
  }
  uint64_t said(FrameType type) const { return said_.contains(type) ? said_.at(type) : 0; }

 private:
  void OnPeerUp(uint32_t, uint64_t) override {}
  void OnPeerLost(uint32_t, uint64_t, const absl::Status&) override {}
  // What others say gives it ids, keys and results to play with.
  void OnMessage(const messaging::Origin&, FrameType type, std::span<const std::byte> payload) override {
    Message& heard = *messages_.at(type);
    ASSERT_TRUE(heard.ParseFromArray(payload.data(), static_cast<int>(payload.size())));
    const google::protobuf::Reflection& of = *heard.GetReflection();
    for (int i = 0; i < heard.GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor& field = *heard.GetDescriptor()->field(i);
      if (field.is_repeated()) continue;
      if (field.type() == FieldDescriptor::TYPE_BYTES) Keep(of.GetString(heard, &field), &bytes_);
      if (field.name() == "sequence") Keep(of.GetUInt64(heard, &field), &sequences_);
    }
  }
  template <typename Value>
  void Keep(Value value, std::vector<Value>* kept) {
    if (kept->size() < 64) kept->emplace_back();
    kept->at(random_.Below(kept->size())) = std::move(value);
  }
  template <typename Value>
  Value OneOf(const std::vector<Value>& values) {
    return values.empty() ? Value() : values[random_.Below(values.size())];
  }

  uint64_t Number(const std::string& name) {
    static const std::vector<uint64_t> kOdd = {0,         5,          1000, UINT32_MAX, uint64_t{1} << 32,
                                               INT64_MAX, UINT64_MAX, 64,   65,         1u << 20};
    if (random_.Below(20) == 0) return OneOf(kOdd);
    if (name == "sequence") return random_.Below(4) == 0 ? 1 + random_.Below(20) : OneOf(sequences_);
    if (name == "worker") return 0;
    if (name == "boot_epoch") return random_.Below(2) == 0 ? boot_epoch_ : 1;
    if (name == "participant_epoch" || name == "layout_generation") return 1;
    if (name == "deadline_us") return 1000 * random_.Below(1000);
    return random_.Below(3);
  }
  std::string Bytes() {
    std::string bytes = OneOf(bytes_);
    for (uint64_t n = random_.Below(3); n > 0 && !bytes.empty(); --n) {
      bytes[random_.Below(bytes.size())] = static_cast<char>(random_());
      if (random_.Below(4) == 0) bytes.resize(random_.Below(bytes.size() + 1));
    }
    return bytes;
  }
  void Fill(Message* message) {
    message->Clear();
    const google::protobuf::Reflection& of = *message->GetReflection();
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const FieldDescriptor* field = message->GetDescriptor()->field(i);
      for (uint64_t n = field->is_repeated() ? random_.Below(4) : 1; n > 0; --n)
        FillField(of, field, message);
    }
    // Half of what it says it says of itself: the rest is refused for the name alone.
    const FieldDescriptor* island = message->GetDescriptor()->FindFieldByName("island");
    if (island == nullptr || random_.Below(2) == 0) return;
    of.SetUInt32(message, island, kLiar);
    of.SetUInt64(message, message->GetDescriptor()->FindFieldByName("boot_epoch"), boot_epoch_);
  }
  void FillField(const google::protobuf::Reflection& of, const FieldDescriptor* field, Message* message) {
    const bool repeated = field->is_repeated();
    const uint64_t number = Number(field->name());
    switch (field->cpp_type()) {
      case FieldDescriptor::CPPTYPE_UINT32: {
        const auto value = static_cast<uint32_t>(number);
        repeated ? of.AddUInt32(message, field, value) : of.SetUInt32(message, field, value);
        break;
      }
      case FieldDescriptor::CPPTYPE_UINT64:
        repeated ? of.AddUInt64(message, field, number) : of.SetUInt64(message, field, number);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        of.SetInt64(message, field, static_cast<int64_t>(number));
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        of.SetBool(message, field, random_.Below(2) == 0);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        of.SetEnumValue(message, field, static_cast<int>(random_.Below(7)));
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        of.SetString(message, field, field->type() == FieldDescriptor::TYPE_BYTES ? Bytes() : "nonsense");
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        Fill(of.MutableMessage(message, field));
        break;
      default:
        FAIL() << "fields of this type are new: " << field->full_name();
    }
  }
  void Say() {
    auto chosen = messages_.begin();
    std::advance(chosen, random_.Below(messages_.size()));
    Fill(chosen->second.get());
    const uint32_t to = random_.Below(2) == 0 ? 0 : 2;
    const bool sent = random_.Below(2) == 0
                          ? links_.Send(to, chosen->first, *chosen->second)
                          : links_.SendBack(messaging::Address{to, 0}, chosen->first, *chosen->second);
    if (sent) ++said_[chosen->first];
  }

  SimCluster& cluster_;
  runtime::Random random_;
  const uint64_t boot_epoch_;
  std::map<FrameType, std::unique_ptr<Message>> messages_ = AllMessages();
  std::map<FrameType, uint64_t> said_;
  std::vector<uint64_t> sequences_;
  std::vector<std::string> bytes_;
  std::unique_ptr<messaging::Transport> transport_;
  messaging::Links links_;
};

class NonsenseTest : public testing::TestWithParam<uint64_t> {};

INSTANTIATE_TEST_SUITE_P(Seeds, NonsenseTest, testing::Range<uint64_t>(1, 1 + 12 / runtime::kSanitizedShare));

TEST_P(NonsenseTest, OthersGoOn) {
  SimOptions options;
  options.seed = GetParam();
  *options.config.add_tables() = BankTable();
  options.open = OpenBank;
  SimCluster cluster(options);
  ASSERT_TRUE(cluster.Start().ok());
  ASSERT_TRUE(cluster.StartRun(8).ok());
  cluster.Crash(kLiar);
  std::optional<Liar> liar(std::in_place, cluster, cluster.boot_epoch(kLiar) + 1, GetParam());
  const int64_t until_ns = cluster.NowNs() + kNsPerSecond;
  while (cluster.NowNs() < until_ns) {
    cluster.Step();
    liar->Turn();
  }
  for (const auto& [type, message] : AllMessages())
    EXPECT_GT(liar->said(type), 100u) << message->GetTypeName();
  cluster.hub().Drop(kLiar);
  liar.reset();
  // Twice: the first of its lives had the liar's number.
  ASSERT_TRUE(cluster.Restart(kLiar).ok());
  cluster.Crash(kLiar);
  ASSERT_TRUE(cluster.Restart(kLiar).ok());
  const uint64_t before = cluster.Sum().distributed;
  cluster.RunFor(3 * kNsPerSecond);
  EXPECT_GT(cluster.Sum().distributed, before);
  EXPECT_TRUE(cluster.Drain(20 * kNsPerSecond));
  const SimCluster::Totals totals = cluster.Sum();
  EXPECT_EQ(totals.locks_held, 0u);
  EXPECT_EQ(totals.branches_open, 0u);
}

}  // namespace
}  // namespace islands::simulation
