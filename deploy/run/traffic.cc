#include "deploy/run/traffic.h"

#include <fmt/format.h>
#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "topology/machine.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;
using Carrier = UncoreEvent::Carrier;

constexpr std::string_view kMemoryDevice = "uncore_imc";
constexpr std::string_view kLinkDevice = "uncore_upi";
constexpr std::string_view kLinkEvent = "event=0x02,umask=0x0f";  // TxL_FLITS.ALL_DATA
constexpr double kBytesOfFlit = 64.0 / 9;

// The first line of a file, empty if there is none.
std::string LineOf(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return std::string(absl::StripAsciiWhitespace(line));
}

// What stands before the first `by`, and what behind it; empty if there is none.
std::pair<std::string_view, std::string_view> Cut(std::string_view text, char by) {
  const size_t at = text.find(by);
  if (at == std::string_view::npos) return {text, {}};
  return {text.substr(0, at), text.substr(at + 1)};
}

std::optional<uint64_t> Number(std::string_view text) {
  const int base = text.starts_with("0x") ? 16 : 10;
  if (base == 16) text.remove_prefix(2);
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
  if (error != std::errc() || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return value;
}

// One of a format file, as "config:0-7,21": the bits that a value's own go to, lowest first.
std::optional<std::vector<uint32_t>> BitsOf(std::string_view format) {
  constexpr std::string_view kConfig = "config:";
  if (!format.starts_with(kConfig)) return std::nullopt;
  std::vector<uint32_t> bits;
  for (std::string_view rest = format.substr(kConfig.size()); !rest.empty();) {
    const auto [part, others] = Cut(rest, ',');
    const auto [begin, end] = Cut(part, '-');
    rest = others;
    const auto first = Number(begin);
    const auto last = end.empty() ? first : Number(end);
    if (!first || !last || *first > *last || *last > 63) return std::nullopt;
    for (uint64_t bit = *first; bit <= *last; ++bit) bits.push_back(static_cast<uint32_t>(bit));
    if (bits.size() > 64) return std::nullopt;  // of one number
  }
  return bits;
}

// Bytes of an event whose count `scale` makes one of MiB; 0: it is of another unit.
double BytesEach(const fs::path& event) {
  double scale = 0;
  if (!absl::SimpleAtod(LineOf(event.string() + ".scale"), &scale)) return 0;
  return LineOf(event.string() + ".unit") == "MiB" ? scale * 1024 * 1024 : 0;
}

// What one device adds to `events`.
void AddEvents(const fs::path& device, std::vector<UncoreEvent>* events) {
  const std::string name = device.filename().string();
  const auto type = Number(LineOf(device / "type"));
  absl::StatusOr<std::vector<uint32_t>> cpus = topology::ParseCpuList(LineOf(device / "cpumask"));
  if (!type || !cpus.ok() || cpus->empty()) return;
  const auto add = [&](Carrier carrier, std::string_view event, std::string_view terms, double bytes_each) {
    const absl::StatusOr<uint64_t> config = ConfigOf(terms, device.string());
    if (!config.ok() || bytes_each <= 0) return;
    events->push_back({.carrier = carrier,
                       .name = fmt::format("{}/{}/", name, event),
                       .type = static_cast<uint32_t>(*type),
                       .config = *config,
                       .bytes_each = bytes_each,
                       .cpus = *cpus});
  };
  if (name.starts_with(kMemoryDevice)) {
    for (const char* event : {"cas_count_read", "cas_count_write"}) {
      const fs::path file = device / "events" / event;
      add(Carrier::kMemory, event, LineOf(file), BytesEach(file));
    }
  }
  if (name.starts_with(kLinkDevice)) add(Carrier::kLink, kLinkEvent, kLinkEvent, kBytesOfFlit);
}

// Absent while the kernel has not let the event have a turn.
std::optional<double> CountOf(int descriptor) {
  struct {
    uint64_t count, enabled_ns, running_ns;
  } now{};
  const ssize_t got = runtime::Uninterrupted([&] { return read(descriptor, &now, sizeof(now)); });
  if (got != sizeof(now) || now.running_ns == 0) return std::nullopt;
  return static_cast<double>(now.count) * static_cast<double>(now.enabled_ns) /
         static_cast<double>(now.running_ns);
}

}  // namespace

absl::StatusOr<uint64_t> ConfigOf(std::string_view terms, const std::string& device) {
  uint64_t config = 0;
  while (!terms.empty()) {
    const auto [term, others] = Cut(terms, ',');
    const auto [name, number] = Cut(term, '=');
    terms = others;
    const auto value = number.empty() ? std::optional<uint64_t>(1) : Number(number);
    const auto bits = BitsOf(LineOf(fs::path(device) / "format" / name));
    if (!value || !bits || (bits->size() < 64 && *value >> bits->size() != 0)) {
      return absl::InvalidArgumentError(
          fmt::format("{}: found '{}', expected what its format describes", device, term));
    }
    for (size_t i = 0; i < bits->size(); ++i) config |= (*value >> i & 1) << (*bits)[i];
  }
  return config;
}

std::vector<UncoreEvent> FindUncoreEvents(const std::string& sysfs) {
  std::vector<UncoreEvent> events;
  std::error_code error;
  for (fs::directory_iterator it(sysfs, error), end; !error && it != end; it.increment(error))
    AddEvents(it->path(), &events);
  std::sort(events.begin(), events.end(), [](const auto& a, const auto& b) { return a.name < b.name; });
  return events;
}

int Traffic::OpenOnCpu(perf_event_attr* event, uint32_t cpu) {
  const long opened = syscall(SYS_perf_event_open, event, /*pid=*/-1, static_cast<int>(cpu),
                              /*group_fd=*/-1, PERF_FLAG_FD_CLOEXEC);
  return opened < 0 ? -errno : static_cast<int>(opened);
}

Traffic::Traffic(const std::string& sysfs, const Open& open) {
  const std::vector<UncoreEvent> events = FindUncoreEvents(sysfs);
  const auto has = [&](Carrier carrier) {
    return std::any_of(events.begin(), events.end(),
                       [&](const UncoreEvent& event) { return event.carrier == carrier; });
  };
  memory_ = has(Carrier::kMemory);
  links_ = has(Carrier::kLink);
  if (!memory_) {
    problem_ = "this machine has no counters of its memory controllers that we know";
  } else if (!links_) {
    problem_ = "this machine has no counters of links between sockets that we know";
  }
  bool refused = false;  // one of them: the first says why
  for (const UncoreEvent& event : events) {
    for (const uint32_t cpu : event.cpus) {
      perf_event_attr attributes{};
      attributes.size = sizeof(attributes);
      attributes.type = event.type;
      attributes.config = event.config;
      attributes.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
      const int opened = open(&attributes, cpu);
      if (opened < 0) {  // a sum without one of its parts is none
        (event.carrier == Carrier::kMemory ? memory_ : links_) = false;
        if (refused) continue;
        refused = true;
        problem_ = fmt::format("{} cannot be counted: {}{}", event.name, strerror(-opened),
                               opened == -EACCES || opened == -EPERM
                                   ? "; kernel.perf_event_paranoid 0 or less, or CAP_PERFMON, lets it"
                                   : "");
        continue;
      }
      counters_.push_back({event.carrier, event.bytes_each, runtime::UniqueFd(opened)});
    }
  }
}

Traffic::Bytes Traffic::Bytes::Since(const Bytes& before) const {
  const auto since = [](const std::optional<double>& now, const std::optional<double>& then) {
    return now && then ? std::optional(*now - *then) : std::nullopt;
  };
  return {.memory = since(memory, before.memory), .links = since(links, before.links)};
}

Traffic::Bytes Traffic::Read() const {
  Bytes sum;
  if (memory_) sum.memory = 0;
  if (links_) sum.links = 0;
  for (const Counter& counter : counters_) {
    std::optional<double>& of = counter.carrier == Carrier::kMemory ? sum.memory : sum.links;
    const std::optional<double> count = CountOf(counter.descriptor.get());
    if (!count) of.reset();
    if (of) *of += *count * counter.bytes_each;
  }
  return sum;
}

}  // namespace islands::deploy
