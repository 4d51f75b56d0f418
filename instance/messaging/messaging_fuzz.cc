// Arbitrary bytes against everything that reads bytes from a peer: the frame scanner with its input buffer,
// Links, which is shown arbitrary frames on arbitrary connections, and both ends of byte rings whose other
// ends publish arbitrary counts.
#include <algorithm>
#include <cassert>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "instance/messaging/byte_ring.h"
#include "instance/messaging/frame_scan.h"
#include "instance/messaging/links.h"
#include "proto/data.pb.h"

namespace islands::messaging {
namespace {

constexpr uint32_t kIslands = 3;

class Input {
 public:
  Input(const uint8_t* data, size_t size) : rest_(data, size) {}
  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    if (rest_.empty()) return 0;
    const uint8_t byte = rest_.front();
    rest_ = rest_.subspan(1);
    return byte;
  }
  std::span<const std::byte> Bytes(size_t size) {
    const auto bytes = rest_.first(std::min(size, rest_.size()));
    rest_ = rest_.subspan(bytes.size());
    return std::as_bytes(bytes);
  }

 private:
  std::span<const uint8_t> rest_;
};

using Frames = std::vector<std::pair<FrameType, std::vector<std::byte>>>;

// The frames of `bytes` received in pieces of `piece` bytes; `*bad`: it ended with what is no frame.
Frames ScanInPieces(std::span<const std::byte> bytes, size_t piece, bool* bad) {
  Frames frames;
  InputBuffer in;
  *bad = false;
  while (!bytes.empty() && !*bad) {
    const std::span<std::byte> room = in.Room();
    assert(!room.empty());
    const size_t received = std::min({piece, bytes.size(), room.size()});
    std::copy_n(bytes.begin(), received, room.begin());
    bytes = bytes.subspan(received);
    in.Received(received);
    const ScanResult scan = ScanFrames(in.Unread(), [&](FrameType type, std::span<const std::byte> payload) {
      frames.emplace_back(type, std::vector(payload.begin(), payload.end()));
      return true;
    });
    *bad = scan.end == FrameCheck::kBad;
    if (!*bad) in.Consumed(scan.consumed, scan.next_bytes);
  }
  return frames;
}

// However the bytes are cut on their way, the same frames come out; written again, they are the same bytes.
void FuzzScanner(std::span<const std::byte> bytes) {
  bool bad_whole;
  bool bad_pieces;
  const Frames whole = ScanInPieces(bytes, bytes.size() + 1, &bad_whole);
  const Frames pieces = ScanInPieces(bytes, 3, &bad_pieces);
  assert(whole == pieces && bad_whole == bad_pieces);
  std::vector<std::byte> again;
  for (const auto& [type, payload] : whole) AppendFrame(&again, type, payload);
  assert(again.size() <= bytes.size() && std::equal(again.begin(), again.end(), bytes.begin()));
}

// However a peer counts, the ends of a ring keep within it, and give up at a count that cannot be.
void FuzzRing(Input input) {
  static ByteRing ring;
  ring.written = ring.read = 0;
  ByteRingWriter writer(ring);
  ByteRingReader reader(ring);
  uint64_t in = 0, out = 0;  // that have really been read and written
  uint64_t looked_at = 0;    // the reader's count, by the writer
  std::vector<std::byte> bytes(ByteRing::kBytes + 1);
  while (!input.empty()) {
    const uint8_t what = input.Byte();
    uint64_t count = 0;
    const auto told = input.Bytes(1 + what % 8);
    std::copy(told.begin(), told.end(), reinterpret_cast<std::byte*>(&count));
    const size_t size = count % bytes.size();
    if (what % 2 == 0) {
      ring.written = count;
      const bool sound = count >= in && count - in <= ByteRing::kBytes;
      const auto read = reader.Read(std::span(bytes).first(size));
      assert(read.has_value() == sound);
      if (!sound) return;
      assert(*read == std::min<uint64_t>(size, count - in));
      in += *read;
    } else {
      ring.read = count;
      const bool must_look = out + size > looked_at + ByteRing::kBytes;
      const auto written = writer.Write(std::span(bytes).first(size));
      assert(written.has_value() == (!must_look || (count >= looked_at && count <= out)));
      if (!written) return;
      if (must_look) looked_at = count;
      assert(*written == std::min<uint64_t>(size, looked_at + ByteRing::kBytes - out));
      out += *written;
    }
  }
}

// Plays the network from the fuzzer's input.
class FuzzTransport : public Transport {
 public:
  explicit FuzzTransport(Input* input) : input_(input) {}

  absl::Status Listen() override { return absl::OkStatus(); }
  ConnectionId Dial(Address) override { return *open_.insert(++last_id_).first; }
  void Send(ConnectionId, FrameType, std::span<const std::byte>) override {}
  size_t QueuedBytes(ConnectionId) const override { return 0; }
  void Flush() override {}
  void Close(ConnectionId id) override { open_.erase(id); }
  void Wait(int64_t) override {}
  void Wake() override {}

  size_t Poll(TransportHandler& handler) override {
    const uint8_t what = input_->Byte();
    if (what % 8 == 0 || open_.empty()) {
      handler.OnAccepted(*open_.insert(++last_id_).first, what < 128 ? 1000 : 1001);
      return 1;
    }
    const ConnectionId id = *std::next(open_.begin(), input_->Byte() % open_.size());
    if (what % 8 == 1) {
      open_.erase(id);
      handler.OnClosed(id, absl::UnavailableError("gone"));
      return 1;
    }
    SendFrame(handler, id, what % 8);
    return 1;
  }

 private:
  // Plain bytes seldom make a good hello, so some are made from the input.
  void SendFrame(TransportHandler& handler, ConnectionId id, int what) {
    std::string payload;
    if (what == 2) {
      data::v1::Hello hello;
      hello.set_cluster_id(input_->Byte() % 8 == 0 ? "other" : "cluster");
      hello.set_island(input_->Byte() % 4);
      hello.set_worker(input_->Byte() % 4);
      hello.set_boot_epoch(input_->Byte() % 4);
      hello.set_to_island(input_->Byte() % 8 == 0);
      payload = hello.SerializeAsString();
      handler.OnFrame(id, FrameType::kHello, std::as_bytes(std::span(payload)));
    } else if (what == 3) {
      data::v1::HelloReply reply;
      reply.set_accepted(input_->Byte() % 8 != 0);
      reply.set_island(input_->Byte() % 4);
      reply.set_boot_epoch(input_->Byte() % 4);
      payload = reply.SerializeAsString();
      handler.OnFrame(id, FrameType::kHelloReply, std::as_bytes(std::span(payload)));
    } else {
      const auto type = static_cast<FrameType>(input_->Byte() % 40);
      handler.OnFrame(id, type, input_->Bytes(input_->Byte()));
    }
  }

  Input* const input_;
  ConnectionId last_id_ = 0;
  std::set<ConnectionId> open_;
};

// Checks the invariants of links.h.
class CheckingHandler : public LinksHandler {
 public:
  void OnPeerUp(uint32_t island, uint64_t boot_epoch) override {
    assert(island != 0 && island < kIslands && !up_.contains(island));
    up_[island] = boot_epoch;
    Saw(island, boot_epoch);
  }
  void OnPeerLost(uint32_t island, uint64_t boot_epoch, const absl::Status& why) override {
    assert(up_.contains(island) && up_[island] == boot_epoch && !why.ok());
    up_.erase(island);
  }
  void OnMessage(const Origin& origin, FrameType type, std::span<const std::byte>) override {
    assert(origin.peer.island != 0 && origin.peer.island < kIslands);
    assert(IsData(type));
    Saw(origin.peer.island, origin.boot_epoch);
  }
  const std::map<uint32_t, uint64_t>& up() const { return up_; }

 private:
  void Saw(uint32_t island, uint64_t epoch) {
    assert(epoch >= newest_[island]);
    newest_[island] = epoch;
  }
  std::map<uint32_t, uint64_t> up_;
  std::map<uint32_t, uint64_t> newest_;
};

void FuzzLinks(Input input) {
  runtime::ManualClock clock;
  FuzzTransport transport(&input);
  CheckingHandler handler;
  LinksOptions options;
  options.cluster_id = "cluster";
  options.uid = 1000;
  options.workers_per_island = {1, 2, 1};
  Links links(options, transport, clock, handler);
  assert(links.Start().ok());
  const data::v1::Probe probe;
  while (!input.empty()) {
    clock.AdvanceNs(int64_t{input.Byte()} * 10 * runtime::kNsPerMs);
    links.Poll();
    links.CheckInvariants();
    assert(links.PeersUp() == handler.up().size());
    for (uint32_t island = 1; island < kIslands; ++island) {
      assert(links.IsUp(island) == handler.up().contains(island));
      assert(links.Send(island, FrameType::kProbe, probe) == links.IsUp(island));
      links.SendBack(Address{island, 0}, FrameType::kProbe, probe);
    }
  }
}

}  // namespace
}  // namespace islands::messaging

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  islands::messaging::FuzzScanner(std::as_bytes(std::span(data, size)));
  islands::messaging::FuzzLinks({data, size});
  islands::messaging::FuzzRing({data, size});
  return 0;
}
