#include "experiments/peers/server_process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <system_error>
#include <thread>

namespace islands::experiments {
namespace {

namespace fs = std::filesystem;

constexpr auto kPatience = std::chrono::seconds(5);  // then it is killed
constexpr auto kLookEvery = std::chrono::milliseconds(2);
constexpr size_t kLastBytes = 600;  // of a log, in an error
constexpr int kExitNotStarted = 127;

// Of those that run: the signal that ends each. The thread that is told of Ctrl-C has no other way to them.
std::mutex g_mutex;
std::map<pid_t, int> g_running;  // guarded by g_mutex

std::string LastWords(const std::string& log) {
  std::ifstream file(log);
  std::ostringstream all;
  all << file.rdbuf();
  const std::string text = all.str();
  return text.size() > kLastBytes ? "..." + text.substr(text.size() - kLastBytes) : text;
}

absl::StatusOr<pid_t> Fork(const ServerCommand& command) {
  std::vector<char*> words;
  for (const std::string& word : command.words) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  const int log = open(command.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  const std::string in = command.input.empty() ? "/dev/null" : command.input;
  const int input = open(in.c_str(), O_RDONLY | O_CLOEXEC);
  const pid_t pid = log < 0 || input < 0 ? -1 : fork();
  if (pid != 0) {
    const int error = errno;
    if (log >= 0) close(log);
    if (input >= 0) close(input);
    if (pid > 0) return pid;
    return absl::ErrnoToStatus(error, fmt::format("cannot start {}", command.words[0]));
  }
  // In the child, which other threads may have left with locked locks: system calls only.
  setsid();
  if (command.user) {
    if (setgroups(0, nullptr) != 0 || setgid(command.user->group) != 0 || setuid(command.user->user) != 0)
      _exit(kExitNotStarted);
  }
  // After the change of user, which forgets it.
  prctl(PR_SET_PDEATHSIG, command.stop_signal != 0 ? command.stop_signal : SIGKILL);
  if (getppid() != parent) _exit(kExitNotStarted);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  dup2(input, STDIN_FILENO);
  dup2(log, STDOUT_FILENO);
  dup2(log, STDERR_FILENO);
  if (chdir("/") == 0) execv(words[0], words.data());
  _exit(kExitNotStarted);
}

// Whoever waits for it first has its end.
void End(pid_t pid, int stop_signal) {
  kill(pid, stop_signal);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (waitpid(pid, nullptr, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= deadline) kill(pid, SIGKILL);
    std::this_thread::sleep_for(kLookEvery);
  }
}

// By its /proc/PID/stat.
pid_t ParentOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return 0;
  char state = 0;
  pid_t parent = 0;
  std::istringstream(line.substr(name_end + 1)) >> state >> parent;
  return parent;
}

}  // namespace

std::string FindServerProgram(std::string_view program, const std::vector<std::string>& folders) {
  std::vector<std::pair<double, std::string>> found;  // by version
  for (const std::string& folder : folders) {
    const size_t star = folder.find('*');
    if (star == std::string::npos) {
      found.emplace_back(0, fmt::format("{}/{}", folder, program));
      continue;
    }
    std::error_code error;
    for (const auto& entry : fs::directory_iterator(folder.substr(0, star), error)) {
      const std::string version = entry.path().filename().string();
      found.emplace_back(std::atof(version.c_str()),
                         fmt::format("{}{}/{}", entry.path().string(), folder.substr(star + 1), program));
    }
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  const char* const set = std::getenv("PATH");
  std::istringstream path(set == nullptr ? "" : set);
  for (std::string folder; std::getline(path, folder, ':');)
    found.emplace_back(0, fmt::format("{}/{}", folder, program));
  for (const auto& [version, file] : found) {
    if (access(file.c_str(), X_OK) == 0) return file;
  }
  return "";
}

absl::StatusOr<std::optional<ServerUser>> UserForServer(const std::string& name,
                                                        const std::string& directory) {
  if (geteuid() != 0) return std::nullopt;
  const passwd* const entry = getpwnam(name.c_str());
  if (entry == nullptr) {
    return absl::FailedPreconditionError(
        fmt::format("the server refuses to be root's, and there is no user '{}'", name));
  }
  ServerUser user{name, entry->pw_uid, entry->pw_gid};
  if (chown(directory.c_str(), user.user, user.group) != 0)
    return absl::ErrnoToStatus(errno, fmt::format("cannot give '{}' to user '{}'", directory, name));
  return user;
}

absl::Status RunToEnd(const ServerCommand& command) {
  const auto process = ServerProcess::Start(command);
  if (!process.ok()) return process.status();
  return (*process)->Succeeds();
}

absl::StatusOr<std::unique_ptr<ServerProcess>> ServerProcess::Start(const ServerCommand& command) {
  const std::lock_guard lock(g_mutex);
  const auto pid = Fork(command);
  if (!pid.ok()) return pid.status();
  g_running[*pid] = command.stop_signal;
  return std::unique_ptr<ServerProcess>(new ServerProcess(*pid, command));
}

ServerProcess::~ServerProcess() {
  const std::lock_guard lock(g_mutex);
  const auto found = g_running.find(pid_);
  if (found == g_running.end()) return;
  End(pid_, found->second);
  g_running.erase(found);
}

absl::Status ServerProcess::Runs() const {
  siginfo_t ended{};
  if (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOHANG | WNOWAIT) == 0 && ended.si_pid == 0)
    return absl::OkStatus();
  return absl::UnavailableError(fmt::format("{} has ended: {}", name_, LastWords(log_)));
}

// It is not waited for: until then its number is not another's.
absl::Status ServerProcess::Succeeds() const {
  siginfo_t ended{};
  while (waitid(P_PID, static_cast<id_t>(pid_), &ended, WEXITED | WNOWAIT) != 0 && errno == EINTR) {
  }
  if (ended.si_code == CLD_EXITED && ended.si_status == 0) return absl::OkStatus();
  return absl::InternalError(fmt::format("{} failed: {}", name_, LastWords(log_)));
}

MemoryUse ServerProcess::Memory() const {
  std::vector<int> processes = {pid_};
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/proc", error)) {
    const int pid = std::atoi(entry.path().filename().c_str());
    if (pid != 0 && ParentOf(pid) == pid_) processes.push_back(pid);
  }
  return MemoryOfProcesses(processes);
}

void EndServers() {
  const std::lock_guard lock(g_mutex);
  for (const auto& [pid, stop_signal] : g_running) End(pid, stop_signal);
  g_running.clear();
}

}  // namespace islands::experiments
