#include "deploy/processes/registry.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>
#include <tuple>

#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostEntries = 10'000;  // of a user's that are looked at

struct Place {
  uid_t owner;
  std::string directory;
};

// The best first.
std::vector<Place> PlacesOf(uid_t user) {
  const std::string run = user == 0 ? "/run/islands" : fmt::format("/run/user/{}/islands", user);
  return {{user, run}, {user, fmt::format("/tmp/islands-{}", user)}};
}

// Users that may have one, by the names of directories there: `prefix` and a number.
void CollectUsers(const std::string& parent, std::string_view prefix, std::vector<uid_t>* users) {
  std::error_code error;
  for (fs::directory_iterator it(parent, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    uid_t user = 0;
    const char* last = name.data() + name.size();
    if (!name.starts_with(prefix)) continue;
    const auto [rest, failed] = std::from_chars(name.data() + prefix.size(), last, user);
    if (failed == std::errc() && rest == last) users->push_back(user);
  }
}

std::vector<Place> Places() {
  std::vector<uid_t> users = {geteuid()};
  if (geteuid() == 0) {
    CollectUsers("/run/user", "", &users);
    CollectUsers("/tmp", "islands-", &users);
    std::sort(users.begin(), users.end());
    users.erase(std::unique(users.begin(), users.end()), users.end());
  }
  std::vector<Place> places;
  for (const uid_t user : users) {
    for (Place& place : PlacesOf(user)) places.push_back(std::move(place));
  }
  return places;
}

// A pid in a lock file is that of its holder's PID namespace, which need not be ours.
bool IsSupervisor(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  const std::string words{std::istreambuf_iterator<char>(file), {}};
  constexpr std::string_view kWord("\0supervise\0", 11);
  return words.find(kWord) != std::string::npos;
}

void ReadPlace(const Place& place, Registry* registry) {
  const absl::Status usable = runtime::CheckDirectoryOf(place.owner, place.directory);
  if (absl::IsNotFound(usable)) return;
  if (!usable.ok()) {
    if (place.owner == geteuid()) registry->problems.push_back(usable);
    return;
  }
  size_t seen = 0;
  std::error_code error;
  for (fs::directory_iterator it(place.directory, error), end; !error && it != end; it.increment(error)) {
    if (++seen > kMostEntries) break;
    Registered entry{.path = it->path().string(), .owner = place.owner};
    const absl::StatusOr<std::optional<LockState>> lock = ReadLock(entry.path, place.owner);
    if (!lock.ok() || !*lock) continue;
    absl::StatusOr<Claim> claim = ClaimIn((*lock)->note);
    if (!claim.ok()) continue;
    entry.claim = *std::move(claim);
    entry.alive = (*lock)->held;
    if (entry.alive && IsSupervisor((*lock)->pid)) entry.pid = (*lock)->pid;
    registry->entries.push_back(std::move(entry));
  }
}

}  // namespace

Registration::~Registration() {
  if (lock_ && lock_->IsAt(path_)) unlink(path_.c_str());  // before the lock goes: see FileLock::Acquire
}

absl::Status Registration::Keep() {
  if (lock_ && lock_->IsAt(path_)) return absl::OkStatus();
  lock_.reset();
  Registry own;
  for (const Place& place : PlacesOf(geteuid())) ReadPlace(place, &own);
  for (const Registered& entry : own.entries) {
    std::error_code error;
    const std::string& directory = entry.claim.control_directory;
    if (CanonicalPath(directory) == CanonicalPath(claim_.control_directory) || !fs::exists(directory, error))
      Sweep(entry);
  }
  absl::Status made;
  for (const Place& place : PlacesOf(geteuid())) {
    made = runtime::MakePrivateDirectory(place.directory);
    if (!made.ok()) continue;
    path_ = fmt::format("{}/{}.{}", place.directory, claim_.name, getpid());
    absl::StatusOr<FileLock> lock = FileLock::Acquire(path_, NoteOf(claim_));
    made = lock.status();
    if (!made.ok()) continue;
    lock_ = *std::move(lock);
    break;
  }
  return made;
}

Registry ReadRegistry() {
  Registry registry;
  for (const Place& place : Places()) ReadPlace(place, &registry);
  std::sort(registry.entries.begin(), registry.entries.end(), [](const Registered& a, const Registered& b) {
    return std::tie(a.claim.name, a.claim.file, a.path) < std::tie(b.claim.name, b.claim.file, b.path);
  });
  return registry;
}

void Sweep(const Registered& entry) {
  if (entry.alive || entry.owner != geteuid()) return;
  // Who has it meanwhile keeps it.
  const absl::StatusOr<FileLock> lock = FileLock::Acquire(entry.path, NoteOf(entry.claim));
  if (lock.ok()) unlink(entry.path.c_str());
}

}  // namespace islands::deploy
