#include "experiments/append/append_history.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <sstream>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace islands::experiments {
namespace {

constexpr std::string_view kMagic = "IslHist1";
constexpr size_t kHeaderBytes = 24;
constexpr size_t kFrameBytes = 8;
constexpr size_t kAttemptBytes = 32;  // without its looks
constexpr size_t kLookBytes = 40;
constexpr size_t kEndBytes = 32;
constexpr uint32_t kAttempt = 1;
constexpr uint32_t kEnd = 2;
constexpr uint64_t kAppends = uint64_t{1} << 63;
constexpr uint64_t kTorn = uint64_t{1} << 62;

template <typename T>
void Put(const T& value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

template <typename T>
T Take(std::string_view* bytes) {  // the caller has seen that there are enough
  T value{};
  std::memcpy(&value, bytes->data(), sizeof(value));
  bytes->remove_prefix(sizeof(value));
  return value;
}

uint32_t HashOf(std::string_view bytes) {
  uint32_t hash = 2166136261u;
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619u;
  return hash;
}

absl::Status Wrong(size_t at, std::string_view what) {
  return absl::DataLossError(fmt::format("at byte {}: {}", at, what));
}

class Parser {
 public:
  explicit Parser(std::string_view bytes) : bytes_(bytes) {}

  absl::StatusOr<RecordedHistory> Parse() {
    if (bytes_.empty()) {  // killed before its first write
      history_.torn = true;
      return std::move(history_);
    }
    if (bytes_.size() < kHeaderBytes || !bytes_.starts_with(kMagic)) {
      return Wrong(0, fmt::format("expected the header of a history, which begins with {}", kMagic));
    }
    std::string_view header = bytes_.substr(kMagic.size(), kHeaderBytes - kMagic.size());
    history_.island = Take<uint32_t>(&header);
    history_.worker = Take<uint32_t>(&header);
    history_.first_site = Take<uint32_t>(&header);
    at_ = kHeaderBytes;
    while (at_ < bytes_.size()) {
      std::string_view rest = bytes_.substr(at_);
      // Less than a frame, or less than the frame promises: a write that was cut short by a kill.
      history_.torn = rest.size() < kFrameBytes;
      if (history_.torn) break;
      const auto body = Take<uint32_t>(&rest);
      const auto hash = Take<uint32_t>(&rest);
      if (body > kAttemptBytes + kMostLooks * kLookBytes) {
        return Wrong(at_, fmt::format("a record of {} bytes; none is that long", body));
      }
      history_.torn = rest.size() < body;
      if (history_.torn) break;
      if (hash != HashOf(rest.substr(0, body))) return Wrong(at_, "a record whose hash is wrong");
      if (absl::Status status = ParseBody(rest.substr(0, body)); !status.ok()) return status;
      at_ += kFrameBytes + body;
    }
    return std::move(history_);
  }

 private:
  static constexpr size_t kMostLooks = 10'000;

  absl::Status ParseBody(std::string_view body) {
    if (body.size() < kEndBytes) return Wrong(at_, "a record that is too short");
    const auto kind = Take<uint32_t>(&body);
    const auto number = Take<uint32_t>(&body);
    const auto id = Take<Element>(&body);
    const auto time_ns = Take<int64_t>(&body);
    if (id.id().island != history_.island || id.id().worker != history_.worker || id.none()) {
      return Wrong(at_, "an attempt of another worker than the header's");
    }
    if (time_ns < 0) return Wrong(at_, "a time before the clock began");
    if (kind == kAttempt) return ParseAttempt(number, id, time_ns, body);
    if (kind == kEnd) return ParseEnd(number, id, time_ns, body);
    return Wrong(at_, fmt::format("a record of kind {}; there are 1 and 2", kind));
  }

  absl::Status ParseAttempt(uint32_t looks, const Element& id, int64_t begun_ns, std::string_view body) {
    if (body.size() != looks * kLookBytes) return Wrong(at_, "an attempt with another number of looks");
    const auto [known, fresh] =
        index_.try_emplace({id.origin, id.sequence}, static_cast<uint32_t>(history_.attempts.size()));
    if (!fresh) return Wrong(at_, "an attempt that was there before");
    RecordedAttempt& attempt = history_.attempts.emplace_back();
    attempt.id = id;
    attempt.begun_ns = begun_ns;
    attempt.looks.reserve(looks);
    keys_.clear();
    for (uint32_t i = 0; i < looks; ++i) {
      RecordedLook& look = attempt.looks.emplace_back();
      look.key = Take<uint64_t>(&body);
      look.before.life = Take<uint64_t>(&body);
      const auto count = Take<uint64_t>(&body);
      look.before.last = Take<Element>(&body);
      look.appends = (count & kAppends) != 0;
      look.torn = (count & kTorn) != 0;
      look.before.count = count & ~(kAppends | kTorn);
      if (look.before.count > kMostElements) return Wrong(at_, "a row with too many elements");
      if (!look.torn && (look.before.count == 0) != look.before.last.none()) {
        return Wrong(at_, "a last element of a row without any, or none of one with some");
      }
      if (!keys_.insert(look.key).second) return Wrong(at_, "an attempt that looks at a key twice");
    }
    return absl::OkStatus();
  }

  absl::Status ParseEnd(uint32_t outcome, const Element& id, int64_t ended_ns, std::string_view body) {
    const auto known = index_.find({id.origin, id.sequence});
    if (known == index_.end()) return Wrong(at_, "the end of an attempt that is not there");
    RecordedAttempt& attempt = history_.attempts[known->second];
    if (attempt.fate != RecordedAttempt::kOpen) return Wrong(at_, "a second end of an attempt");
    if (outcome < RecordedAttempt::kCommitted || outcome > RecordedAttempt::kUnknown || !body.empty()) {
      return Wrong(at_, fmt::format("an end with outcome {}; there are 1, 2 and 3", outcome));
    }
    if (ended_ns < attempt.begun_ns) return Wrong(at_, "an attempt that ended before it began");
    attempt.fate = static_cast<RecordedAttempt::Fate>(outcome);
    attempt.ended_ns = ended_ns;
    return absl::OkStatus();
  }

  struct Hash {
    size_t operator()(const std::pair<uint64_t, uint64_t>& id) const {
      return id.first * 0x9e3779b97f4a7c15ull ^ id.second * 0xc2b2ae3d27d4eb4full;
    }
  };

  const std::string_view bytes_;
  size_t at_ = 0;
  RecordedHistory history_;
  std::unordered_map<std::pair<uint64_t, uint64_t>, uint32_t, Hash> index_;
  std::unordered_set<uint64_t> keys_;
};

}  // namespace

std::string EncodeHeader(uint32_t island, uint32_t worker, uint32_t first_site) {
  std::string bytes(kMagic);
  for (const uint32_t value : {island, worker, first_site, 0u}) Put(value, &bytes);
  return bytes;
}

void EncodeRecord(std::string_view body, std::string* bytes) {
  Put(static_cast<uint32_t>(body.size()), bytes);
  Put(HashOf(body), bytes);
  bytes->append(body);
}

void EncodeAttempt(const RecordedAttempt& attempt, std::string* bytes) {
  std::string body;
  body.reserve(kAttemptBytes + attempt.looks.size() * kLookBytes);
  Put(kAttempt, &body);
  Put(static_cast<uint32_t>(attempt.looks.size()), &body);
  Put(attempt.id, &body);
  Put(attempt.begun_ns, &body);
  for (const RecordedLook& look : attempt.looks) {
    Put(look.key, &body);
    Put(look.before.life, &body);
    Put(look.before.count | (look.appends ? kAppends : 0) | (look.torn ? kTorn : 0), &body);
    Put(look.before.last, &body);
  }
  EncodeRecord(body, bytes);
}

void EncodeEnd(const Element& id, RecordedAttempt::Fate fate, int64_t ended_ns, std::string* bytes) {
  std::string body;
  Put(kEnd, &body);
  Put(static_cast<uint32_t>(fate), &body);
  Put(id, &body);
  Put(ended_ns, &body);
  EncodeRecord(body, bytes);
}

absl::StatusOr<RecordedHistory> ParseHistory(std::string_view bytes) { return Parser(bytes).Parse(); }

absl::StatusOr<RecordedHistory> ReadHistory(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  if (!file || !(file.peek() == EOF || (bytes << file.rdbuf()))) {
    return absl::NotFoundError(fmt::format("cannot read {}", path));
  }
  absl::StatusOr<RecordedHistory> history = ParseHistory(bytes.view());
  if (history.ok()) return history;
  return absl::DataLossError(fmt::format("{}: {}", path, std::string(history.status().message())));
}

absl::StatusOr<std::unique_ptr<HistoryLog>> HistoryLog::Create(const std::string& directory, uint32_t island,
                                                               uint32_t worker, uint32_t first_site,
                                                               int64_t now_ns) {
  std::string path = fmt::format("{}/island-{}.worker-{}.{}.history", directory, island, worker, now_ns);
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) {
    return absl::ErrnoToStatus(errno, fmt::format("append: cannot create {}; history=DIR must be an "
                                                  "existing directory of this user",
                                                  path));
  }
  std::unique_ptr<HistoryLog> log(new HistoryLog(file, std::move(path)));
  log->buffer_ = EncodeHeader(island, worker, first_site);
  if (absl::Status status = log->Flush(); !status.ok()) return status;
  return log;
}

HistoryLog::~HistoryLog() {
  (void)Flush();
  close(file_);
}

absl::Status HistoryLog::Flush() {
  size_t written = 0;
  while (broken_.ok() && written < buffer_.size()) {
    const ssize_t wrote = write(file_, buffer_.data() + written, buffer_.size() - written);
    if (wrote >= 0) {
      written += static_cast<size_t>(wrote);
    } else if (errno != EINTR) {  // half a record may be there: nothing may follow it
      broken_ = absl::ErrnoToStatus(errno, fmt::format("append: cannot write {}", path_));
    }
  }
  buffer_.clear();
  return broken_;
}

absl::Status HistoryLog::Begin(const RecordedAttempt& attempt) {
  if (!broken_.ok()) return broken_;
  EncodeAttempt(attempt, &buffer_);
  open_.push_back(attempt.id.sequence);
  return Flush();
}

void HistoryLog::End(const coordinator::TransactionId& id, coordinator::Outcome outcome, int64_t now_ns) {
  const auto found = std::find(open_.begin(), open_.end(), id.sequence);
  if (found == open_.end()) return;
  open_.erase(found);
  RecordedAttempt::Fate fate = RecordedAttempt::kUnknown;
  if (outcome == coordinator::Outcome::kCommitted) fate = RecordedAttempt::kCommitted;
  if (outcome == coordinator::Outcome::kAborted) fate = RecordedAttempt::kAborted;
  EncodeEnd(Element::Of(id), fate, now_ns, &buffer_);
  if (open_.empty()) (void)Flush();  // the last one of a run, perhaps
}

}  // namespace islands::experiments
