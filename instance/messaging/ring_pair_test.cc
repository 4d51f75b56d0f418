// Connections with rings: how they are offered, and what a peer may do with memory that both have mapped.
#include "instance/messaging/ring_pair.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "instance/messaging/frame_scan.h"
#include "instance/messaging/transport_test_util.h"
#include "instance/messaging/uds_transport.h"
#include "instance/messaging/unix_socket.h"

namespace islands::messaging {
namespace {

constexpr Address kB{1, 0};

// The words of a message and descriptors.
ssize_t SendWithDescriptors(int socket, std::string words, const std::vector<int>& descriptors) {
  const size_t bytes_of_all = descriptors.size() * sizeof(int);
  iovec bytes{words.data(), words.size()};
  std::vector<std::max_align_t> control(CMSG_SPACE(bytes_of_all) / sizeof(std::max_align_t) + 1);
  msghdr message{};
  message.msg_iov = &bytes;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(bytes_of_all);
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  *header = {CMSG_LEN(bytes_of_all), SOL_SOCKET, SCM_RIGHTS};
  std::memcpy(CMSG_DATA(header), descriptors.data(), bytes_of_all);
  return sendmsg(socket, &message, 0);
}

class Rings : public testing::Test {
 protected:
  void SetUp() override {
    b_.transport = network_.Make(kB);
    ASSERT_TRUE(b_.transport->Listen().ok());
  }

  void Send(Node& node, ConnectionId connection, std::string_view payload) {
    node.transport->Send(connection, FrameType::kVote, AsBytes(payload));
  }

  // A peer that has dialled B and shares rings with it, of which it does what it likes.
  void DialRaw() {
    absl::StatusOr<UniqueFd> socket = ConnectTo(UdsSocketPath(network_.directory(), kB));
    ASSERT_TRUE(socket.ok()) << socket.status();
    socket_ = std::move(*socket);
  }
  void ExpectRefused(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    ASSERT_TRUE(PumpUntil({&b_}, [&] { return !b_.seen.closed.empty(); }));
    EXPECT_EQ(b_.seen.last_closed.code(), code) << b_.seen.last_closed;
    char byte;
    EXPECT_TRUE(recv(socket_.get(), &byte, 1, 0) == 0 || errno == ECONNRESET) << "hung up";
  }
  static ByteRing& ToPeer(RingPair& rings) { return *static_cast<ByteRing*>(rings.mapping.address()); }

  TestNetwork network_{"shm"};
  Node b_;
  UniqueFd socket_;
};

TEST_F(Rings, Frames_GoThroughThemAlone) {
  DialRaw();
  const auto rings = OfferRings(socket_.get());
  ASSERT_TRUE(rings.ok()) << rings.status();
  std::vector<std::byte> frame;
  AppendFrame(&frame, FrameType::kVote, AsBytes("through the ring"));
  ASSERT_EQ((*rings)->out.Write(frame), frame.size());
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.frames.size() == 1; }));
  EXPECT_EQ(b_.seen.frames[0].payload, "through the ring");
  Send(b_, b_.seen.accepted.back(), "and back");
  b_.transport->Flush();
  char byte;
  EXPECT_EQ(recv(socket_.get(), &byte, 1, MSG_DONTWAIT), -1) << "nobody sleeps, so nobody is woken";
  std::byte back[100];
  EXPECT_EQ((*rings)->in.Read(back), kFrameHeaderBytes + 8);
}

TEST_F(Rings, Offer_AnythingElseIsRefused) {
  for (const std::string& bad :
       {std::string(64, '\xff'), std::string("GET / HTTP/1.1\r\n\r\n"), std::string(8, '\0')}) {
    b_.seen.closed.clear();
    DialRaw();
    ASSERT_EQ(send(socket_.get(), bad.data(), bad.size(), 0), static_cast<ssize_t>(bad.size()));
    ExpectRefused();
  }
  b_.seen.closed.clear();
  DialRaw();
  shutdown(socket_.get(), SHUT_WR);
  ExpectRefused(absl::StatusCode::kUnavailable);
}

// The words of a good offer.
std::string OfferWords() {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) std::abort();
  const UniqueFd near(pair[0]), far(pair[1]);
  if (!OfferRings(near.get()).ok()) std::abort();
  std::string words(100, ' ');
  words.resize(static_cast<size_t>(recv(far.get(), words.data(), words.size(), 0)));
  return words;
}

constexpr off_t kRightSize = 2 * sizeof(ByteRing);

UniqueFd Memory(off_t bytes, bool sealed) {
  UniqueFd memory(memfd_create("offered", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (ftruncate(memory.get(), bytes) != 0) std::abort();
  if (sealed && fcntl(memory.get(), F_ADD_SEALS, F_SEAL_SHRINK) != 0) std::abort();
  return memory;
}

TEST_F(Rings, Offer_MemoryThatMayShrinkOrHasAnotherSizeIsRefused) {
  const std::pair<off_t, bool> kMemories[] = {
      {kRightSize, false}, {kRightSize - 4096, true}, {kRightSize + 4096, true}, {0, true}};
  for (const auto& [bytes, sealed] : kMemories) {
    b_.seen.closed.clear();
    DialRaw();
    const UniqueFd memory = Memory(bytes, sealed);
    ASSERT_EQ(SendWithDescriptors(socket_.get(), OfferWords(), {memory.get()}), 16);
    ExpectRefused();
  }
}

TEST_F(Rings, Offer_WithOtherWordsIsRefused) {
  const UniqueFd memory = Memory(kRightSize, true);
  std::string other_magic = OfferWords(), other_size = OfferWords();
  ++other_magic[3];
  ++other_size[13];
  for (const std::string& words : {other_magic, other_size, OfferWords().substr(0, 15), OfferWords() + "x"}) {
    b_.seen.closed.clear();
    DialRaw();
    ASSERT_GT(SendWithDescriptors(socket_.get(), words, {memory.get()}), 0);
    if (words.size() <= 16) {
      ExpectRefused();
      continue;
    }
    ASSERT_TRUE(PumpUntil({&b_}, [&] { return !b_.seen.closed.empty(); })) << "what follows is no doorbell";
  }
  b_.seen.closed.clear();
  DialRaw();
  ASSERT_EQ(SendWithDescriptors(socket_.get(), OfferWords(), {memory.get()}), 16);
  PumpFor({&b_});
  EXPECT_TRUE(b_.seen.closed.empty()) << "this one is good";
}

TEST_F(Rings, Offer_WithSeveralDescriptorsIsRefusedAndKeepsNone) {
  const auto open = [] {
    const std::filesystem::directory_iterator files("/proc/self/fd");
    return std::distance(begin(files), end(files));
  };
  const UniqueFd memory = Memory(kRightSize, true);
  DialRaw();
  socket_.Reset();
  PumpFor({&b_});
  const auto before = open();
  for (const size_t count : {2, 3, 10}) {
    b_.seen.closed.clear();
    DialRaw();
    ASSERT_EQ(SendWithDescriptors(socket_.get(), OfferWords(), std::vector<int>(count, memory.get())), 16);
    ExpectRefused();
  }
  socket_.Reset();
  EXPECT_EQ(open(), before);
}

TEST_F(Rings, Counts_ThatCannotBeCloseThatConnectionOnly) {
  Node a{network_.Make({0, 0}), {}};
  const ConnectionId good = a.transport->Dial(kB);
  ASSERT_TRUE(PumpUntil({&a, &b_}, [&] { return b_.seen.accepted.size() == 1; }));
  for (const uint64_t nonsense : {uint64_t{ByteRing::kBytes + 1}, ~uint64_t{0}, uint64_t{1} << 63}) {
    b_.seen.closed.clear();
    DialRaw();
    const auto rings = OfferRings(socket_.get());
    ASSERT_TRUE(rings.ok());
    ToPeer(**rings).written = nonsense;
    ExpectRefused();
    b_.seen.closed.clear();
    DialRaw();
    const auto others = OfferRings(socket_.get());
    ASSERT_TRUE(others.ok());
    const size_t before = b_.seen.accepted.size();
    ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.accepted.size() > before; }));
    (&ToPeer(**others))[1].read = nonsense;
    Send(b_, b_.seen.accepted.back(), std::string(2 * ByteRing::kBytes, 'x'));
    ExpectRefused();
  }
  EXPECT_FALSE(b_.seen.closed.contains(b_.seen.accepted[0]));
  Send(a, good, "unharmed");
  EXPECT_TRUE(PumpUntil(
      {&a, &b_}, [&] { return !b_.seen.frames.empty() && b_.seen.frames.back().payload == "unharmed"; }));
}

// More peers than one round reads, each of whom always has something.
TEST_F(Rings, Poll_LeavesNobodyUnheard) {
  constexpr size_t kPeers = 100;
  std::vector<UniqueFd> sockets;
  std::vector<std::unique_ptr<RingPair>> all;
  for (size_t i = 0; i < kPeers; ++i) {
    DialRaw();
    all.push_back(*OfferRings(socket_.get()));
    sockets.push_back(std::move(socket_));
  }
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.accepted.size() == kPeers; }));
  std::vector<std::byte> frame;
  AppendFrame(&frame, FrameType::kVote, AsBytes("word"));
  for (int round = 0; round < 8; ++round) {
    for (const auto& rings : all) ASSERT_EQ(rings->out.Write(frame), frame.size());
    b_.transport->Poll(b_.seen);
  }
  std::set<ConnectionId> heard;
  for (const Recorder::Frame& each : b_.seen.frames) heard.insert(each.connection);
  EXPECT_EQ(heard.size(), kPeers);
}

TEST_F(Rings, Socket_SaysNothingButDoorbells) {
  DialRaw();
  const auto rings = OfferRings(socket_.get());
  ASSERT_TRUE(rings.ok());
  ASSERT_EQ(send(socket_.get(), &kDoorbell, 1, 0), 1);
  PumpFor({&b_});
  EXPECT_TRUE(b_.seen.closed.empty());
  ASSERT_EQ(send(socket_.get(), "x", 1, 0), 1);
  ExpectRefused();
}

TEST_F(Rings, Peer_WordsBeforeItsDeathAreHandedOut) {
  DialRaw();
  auto rings = OfferRings(socket_.get());
  ASSERT_TRUE(rings.ok());
  std::vector<std::byte> frames;
  for (int i = 0; i < 100; ++i) AppendFrame(&frames, FrameType::kVote, AsBytes("last words"));
  frames.resize(frames.size() + 5);  // and half a frame
  ASSERT_EQ((*rings)->out.Write(frames), frames.size());
  rings->reset();
  socket_.Reset();
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.closed.size() == 1; }));
  EXPECT_EQ(b_.seen.frames.size(), 100u);
}

// The end is seen while more lies in the ring than one look takes: most of the buffer is full of a frame that
// is not whole.
TEST_F(Rings, Peer_WordsBeforeItsDeathAreHandedOutThoughTheEndIsSeenFirst) {
  DialRaw();
  auto rings = OfferRings(socket_.get());
  ASSERT_TRUE(rings.ok());
  std::vector<std::byte> frames;
  const std::string payload(60 << 10, 'x');
  for (int i = 0; i < 2; ++i) AppendFrame(&frames, FrameType::kVote, AsBytes(payload));
  const std::span<const std::byte> bytes(frames);
  constexpr size_t kAtFirst = 59 << 10;
  ASSERT_EQ((*rings)->out.Write(bytes.first(kAtFirst)), kAtFirst);
  PumpFor({&b_});
  b_.transport->Wait(0);  // the next Poll asks epoll
  ASSERT_EQ((*rings)->out.Write(bytes.subspan(kAtFirst)), bytes.size() - kAtFirst);
  rings->reset();
  socket_.Reset();
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.closed.size() == 1; }));
  EXPECT_EQ(b_.seen.frames.size(), 2u);
}

TEST_F(Rings, Offer_ThatComesLateIsWaitedFor) {
  DialRaw();
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return b_.seen.accepted.size() == 1; }));
  Send(b_, b_.seen.accepted[0], "early");
  b_.transport->Flush();
  PumpFor({&b_});
  char byte;
  EXPECT_EQ(recv(socket_.get(), &byte, 1, MSG_DONTWAIT), -1) << "frames do not go through the socket";
  EXPECT_EQ(b_.transport->QueuedBytes(b_.seen.accepted[0]), kFrameHeaderBytes + 5);
  const auto rings = OfferRings(socket_.get());
  ASSERT_TRUE(rings.ok());
  PumpFor({&b_});
  EXPECT_EQ(b_.transport->QueuedBytes(b_.seen.accepted[0]), 0u);
  std::byte room[100];
  EXPECT_EQ((*rings)->in.Read(room), kFrameHeaderBytes + 5);
}

// As gateways are: programs that dial them share no memory with them.
TEST_F(Rings, Sockets_MayBeAcceptedByWhoDialsWithRings) {
  Node gateway{*MakeUdsTransport(network_.directory(), {7, 0}, {}, {.dialled = true}), {}};
  ASSERT_TRUE(gateway.transport->Listen().ok());
  const ConnectionId island = gateway.transport->Dial(kB);
  Send(gateway, island, "for the island");
  Node program{*MakeUdsTransport(network_.directory(), {8, 0}), {}};
  Send(program, program.transport->Dial({7, 0}), "for the gateway");
  ASSERT_TRUE(PumpUntil({&b_, &gateway, &program},
                        [&] { return !b_.seen.frames.empty() && !gateway.seen.frames.empty(); }));
  EXPECT_EQ(b_.seen.frames[0].payload, "for the island");
  EXPECT_EQ(gateway.seen.frames[0].payload, "for the gateway");
}

TEST_F(Rings, Offer_OfAnotherUserIsRefused) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can become another user";
  ASSERT_EQ(chmod(network_.directory().c_str(), 0777), 0);
  ASSERT_EQ(chmod(UdsSocketPath(network_.directory(), kB).c_str(), 0777), 0);
  const pid_t other = fork();
  if (other == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(1);
    const UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM, 0));
    const auto address = UnixAddress(UdsSocketPath(network_.directory(), kB));
    if (connect(socket.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0) _exit(2);
    char byte;
    _exit(OfferRings(socket.get()).ok() && recv(socket.get(), &byte, 1, 0) == 0 ? 0 : 3);
  }
  ASSERT_TRUE(PumpUntil({&b_}, [&] { return !b_.seen.closed.empty(); }));
  EXPECT_EQ(b_.seen.last_closed.code(), absl::StatusCode::kPermissionDenied) << b_.seen.last_closed;
  int status = -1;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace islands::messaging
