#include "instance/gateway/channels.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <future>
#include <utility>

#include "runtime/check.h"
#include "runtime/latch_site.h"

namespace islands::gateway {

using messaging::ConnectionId;
using messaging::FrameType;

namespace {

constexpr int64_t kLongestSleepNs = 100 * runtime::kNsPerMs;
constexpr size_t kKeptBytes = 1u << 20;  // memory that idle channels hold on to

absl::Status Unreachable(uint32_t island, const absl::Status& why) {
  return absl::UnavailableError(
      fmt::format("island {} cannot be reached: {}", island, std::string(why.message())));
}

}  // namespace

Channels::Channels(ChannelsOptions options, std::unique_ptr<messaging::Transport> transport,
                   const runtime::Clock& clock)
    : options_(std::move(options)),
      transport_(std::move(transport)),
      clock_(clock),
      island_up_(options_.workers.size()),
      traffic_(options_.workers.size()) {
  for (uint32_t island = 0; island < options_.workers.size(); ++island) {
    first_.push_back(links_.size());
    for (uint32_t worker = 0; worker < options_.workers[island]; ++worker) {
      Link& link = links_.emplace_back();
      link.to = {island, worker};
      link.backoff_ns = options_.redial_min_ns;
      link.last_failure = absl::UnavailableError("not dialled yet");
    }
  }
  thread_ = std::thread([this] { Loop(); });
}

Channels::~Channels() {
  {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
    ended_ = true;
  }
  transport_->Wake();
  thread_.join();
}

void Channels::Send(messaging::Address to, const data::v1::ClientRequest& request, Waiting* waiting) {
  bool wake = false;
  waiting->sent_ns_ = waiting->returned_ns_ = 0;
  const std::string bytes = request.SerializeAsString();
  if (bytes.size() > messaging::kMaxFrameBytes) {
    return waiting->OnLost(
        /*sent=*/false,
        absl::OutOfRangeError(fmt::format("a request of more than {} MiB", messaging::kMaxFrameBytes >> 20)));
  }
  {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
    if (!ended_) {
      posted_.requests.emplace_back(to, request.session(), bytes.size(), waiting);
      posted_.bytes += bytes;
      wake = std::exchange(asleep_, false);
      waiting = nullptr;
    }
  }
  if (wake) transport_->Wake();
  if (waiting != nullptr) waiting->OnLost(/*sent=*/false, absl::UnavailableError("the gateway is stopping"));
}

absl::Status Channels::Serve(messaging::TransportHandler& clients) {
  std::promise<absl::Status> listening;
  Run([&] {
    const absl::Status status = transport_->Listen();
    if (status.ok()) clients_ = &clients;
    listening.set_value(status);
  });
  return listening.get_future().get();
}

void Channels::EndServing() {
  std::promise<void> ended;
  Run([&] {
    for (const ConnectionId client : std::exchange(client_connections_, {})) {
      transport_->Close(client);
      clients_->OnClosed(client, absl::UnavailableError("the gateway is stopping"));
    }
    clients_ = nullptr;
    ended.set_value();
  });
  ended.get_future().wait();
}

void Channels::HangUp(ConnectionId client) {
  client_connections_.erase(client);
  transport_->Close(client);
}

void Channels::Run(absl::AnyInvocable<void()> job) {
  bool wake = false;
  if (!IsThisThread()) {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
    if (!ended_) {
      jobs_.push_back(std::move(job));
      wake = std::exchange(asleep_, false);
      job = nullptr;
    }
  }
  if (job) job();
  if (wake) transport_->Wake();
}

void Channels::Loop() {
  while (true) {
    if (options_.pulse != nullptr) options_.pulse->Beat(0, 0);
    bool work = TakePosted();
    polled_ns_ = 0;
    work |= transport_->Poll(*this) != 0;
    if (clock_.NowNs() >= next_deadline_ns_) RunDeadlines();
    transport_->Flush();
    if (work) continue;
    {
      const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
      if (ended_) break;
      if (!posted_.requests.empty() || !jobs_.empty()) continue;
      asleep_ = true;
    }
    transport_->Wait(std::clamp<int64_t>(next_deadline_ns_ - clock_.NowNs(), 0, kLongestSleepNs));
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
    asleep_ = false;
  }
  TakePosted();
  for (Link& link : links_) Lose(link, absl::UnavailableError("the gateway is stopping"));
}

bool Channels::TakePosted() {
  taken_.requests.clear();
  taken_.bytes.clear();
  if (taken_.bytes.capacity() > kKeptBytes) taken_.bytes.shrink_to_fit();
  {
    const runtime::MutexLock lock(mutex_, ISLANDS_LATCH("gateway.channels"));
    std::swap(taken_, posted_);
    std::swap(running_, jobs_);
  }
  if (taken_.requests.empty() && running_.empty()) return false;
  asked_ns_ = clock_.NowNs();
  std::string_view bytes = taken_.bytes;
  for (const Posted& posted : taken_.requests) {
    Ask(posted, bytes.substr(0, posted.bytes));
    bytes.remove_prefix(posted.bytes);
  }
  for (absl::AnyInvocable<void()>& job : running_) job();
  running_.clear();
  return true;
}

void Channels::Ask(const Posted& posted, std::string_view request) {
  Link& link = LinkTo(posted.to);
  if (link.state != State::kUp)
    return posted.waiting->OnLost(/*sent=*/false, Unreachable(link.to.island, link.last_failure));
  const bool fresh = link.asked.emplace(posted.session, posted.waiting).second;
  ISLANDS_CHECK(fresh);
  posted.waiting->sent_ns_ = asked_ns_;
  IslandTraffic& traffic = traffic_[link.to.island];
  traffic.messages_sent.Add(1);
  traffic.bytes_sent.Add(request.size());
  transport_->Send(link.connection, FrameType::kClientRequest, std::as_bytes(std::span(request)));
}

void Channels::Dial(Link& link) {
  link.connection = transport_->Dial(link.to);
  link.state = State::kIntroducing;
  link.deadline_ns = clock_.NowNs() + options_.handshake_timeout_ns;
  dialled_[link.connection] = &link;
  data::v1::Hello hello;
  hello.set_cluster_id(options_.cluster_id);
  hello.set_to_island(link.to.island);
  hello.set_gateway(true);
  hello.SerializeToString(&buffer_);
  transport_->Send(link.connection, FrameType::kHello, std::as_bytes(std::span(buffer_)));
}

void Channels::Lose(Link& link, const absl::Status& why) {
  transport_->Close(link.connection);
  dialled_.erase(link.connection);
  const bool was_up = link.state == State::kUp;
  if (was_up) link.backoff_ns = options_.redial_min_ns;
  link.state = State::kWaiting;
  link.connection = 0;
  link.last_failure = why;
  const int64_t now_ns = clock_.NowNs();
  link.deadline_ns = now_ns + link.backoff_ns;
  link.backoff_ns = std::min(2 * link.backoff_ns, options_.redial_max_ns);
  next_deadline_ns_ = std::min(next_deadline_ns_, link.deadline_ns);
  if (was_up) PublishUp(link.to.island);
  const auto asked = std::exchange(link.asked, {});
  const absl::Status lost = Unreachable(link.to.island, why);
  for (const auto& [session, waiting] : asked) {
    waiting->returned_ns_ = now_ns;
    waiting->OnLost(/*sent=*/true, lost);
  }
}

void Channels::PublishUp(uint32_t island) {
  const auto first = links_.begin() + static_cast<ptrdiff_t>(first_[island]);
  const bool up = std::all_of(first, first + options_.workers[island],
                              [](const Link& link) { return link.state == State::kUp; });
  if (island_up_[island].exchange(up, std::memory_order_acq_rel) != up) options_.on_island(island, up);
}

void Channels::RunDeadlines() {
  const int64_t now_ns = clock_.NowNs();
  next_deadline_ns_ = now_ns + kLongestSleepNs;
  for (Link& link : links_) {
    if (link.state == State::kUp) continue;
    if (now_ns >= link.deadline_ns) {
      link.state == State::kWaiting ? Dial(link)
                                    : Lose(link, absl::DeadlineExceededError("it does not answer hello"));
    }
    next_deadline_ns_ = std::min(next_deadline_ns_, link.deadline_ns);
  }
}

void Channels::OnAccepted(ConnectionId connection, int64_t peer_uid) {
  if (clients_ == nullptr) return transport_->Close(connection);
  client_connections_.insert(connection);
  clients_->OnAccepted(connection, peer_uid);
}

void Channels::OnClosed(ConnectionId connection, const absl::Status& why) {
  if (const auto it = dialled_.find(connection); it != dialled_.end()) return Lose(*it->second, why);
  if (client_connections_.erase(connection) != 0) clients_->OnClosed(connection, why);
}

void Channels::OnFrame(ConnectionId connection, FrameType type, std::span<const std::byte> payload) {
  const auto it = dialled_.find(connection);
  if (it == dialled_.end()) {
    if (client_connections_.contains(connection)) clients_->OnFrame(connection, type, payload);
    return;
  }
  Link& link = *it->second;
  if (link.state == State::kIntroducing && type == FrameType::kHelloReply) {
    OnHelloReply(link, payload);
  } else if (link.state == State::kUp && type == FrameType::kClientReply) {
    OnClientReply(link, payload);
  } else {
    Lose(link, absl::InvalidArgumentError(
                   fmt::format("it sent an unexpected frame of type {}", static_cast<int>(type))));
  }
}

void Channels::OnHelloReply(Link& link, std::span<const std::byte> payload) {
  data::v1::HelloReply reply;
  if (!reply.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return Lose(link, absl::InvalidArgumentError("it sent a broken answer to hello"));
  if (!reply.accepted()) return Lose(link, absl::PermissionDeniedError("it refuses: " + reply.reason()));
  if (messaging::Address{reply.island(), reply.worker()} != link.to)
    return Lose(link, absl::InvalidArgumentError("another worker answered"));
  link.state = State::kUp;
  link.backoff_ns = options_.redial_min_ns;
  PublishUp(link.to.island);
}

void Channels::OnClientReply(Link& link, std::span<const std::byte> payload) {
  if (!reply_.ParseFromArray(payload.data(), static_cast<int>(payload.size())))
    return Lose(link, absl::InvalidArgumentError("it sent a broken reply"));
  IslandTraffic& traffic = traffic_[link.to.island];
  traffic.messages_received.Add(1);
  traffic.bytes_received.Add(payload.size());
  const auto it = link.asked.find(reply_.session());
  if (it == link.asked.end()) return;
  Waiting* waiting = it->second;
  link.asked.erase(it);
  if (polled_ns_ == 0) polled_ns_ = clock_.NowNs();
  waiting->returned_ns_ = polled_ns_;
  waiting->OnReply(reply_);
}

}  // namespace islands::gateway
