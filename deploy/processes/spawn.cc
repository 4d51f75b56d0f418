#include "deploy/processes/spawn.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <deque>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>

#include "runtime/private_files.h"

namespace islands::deploy {
namespace {

constexpr int kExecFailed = 127;
constexpr uint64_t kMostLogBytes = 64 << 10;  // of a log's end that LastLines looks at

// From here on async-signal-safe calls only: other threads of the parent may have held any lock at the fork.
[[noreturn]] void FailInChild(const char* what, const char* program) {
  const char* reason = strerrordesc_np(errno);
  const char* parts[] = {"cannot ", what, " ", program, ": ", reason != nullptr ? reason : "unknown error",
                         "\n"};
  for (const char* part : parts) {
    if (write(STDERR_FILENO, part, strlen(part)) < 0) break;
  }
  _exit(kExecFailed);
}

void ResetSignals() {
  struct sigaction action {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < 32; ++signal)
    sigaction(signal, &action, nullptr);  // SIGKILL, SIGSTOP just fail
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Makes from[i] descriptor i of this process. All move out of the way first, so that none is overwritten
// before it has moved, whatever numbers they have.
void PlaceDescriptors(std::vector<int>& from, const char* program) {
  const int count = static_cast<int>(from.size());
  for (int& fd : from) {
    fd = fcntl(fd, F_DUPFD_CLOEXEC, count);
    if (fd < 0) FailInChild("hand descriptors to", program);
  }
  for (int i = 0; i < count; ++i) {
    if (dup2(from[i], i) < 0) FailInChild("hand descriptors to", program);
  }
}

[[noreturn]] void RunChild(const SpawnRequest& request, char* const* argv, std::vector<int>& descriptors,
                           const cpu_set_t& cpus, pid_t parent) {
  ResetSignals();
  PlaceDescriptors(descriptors, argv[0]);
  if (request.own_session) setsid();
  if (CPU_COUNT(&cpus) > 0) (void)sched_setaffinity(0, sizeof(cpus), &cpus);  // refused: runs anywhere
  if (request.die_with_parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) FailInChild("tie to its parent", argv[0]);
    // The parent may have died before the prctl; then nobody will ever send that signal.
    if (getppid() != parent) _exit(kExecFailed);
  }
  execv(argv[0], argv);
  FailInChild("run", argv[0]);
}

}  // namespace

absl::StatusOr<pid_t> Spawn(const SpawnRequest& request) {
  absl::StatusOr<runtime::UniqueFd> log = runtime::UniqueFd();
  if (!request.log_path.empty()) {
    log = runtime::OpenPrivateFile(request.log_path, O_WRONLY | O_CREAT | O_APPEND);
  }
  if (!log.ok()) return log.status();
  const runtime::UniqueFd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  static_assert(kInheritedFd == STDERR_FILENO + 1);
  std::vector<int> descriptors = {null.get(), *log ? log->get() : request.stdout_fd,
                                  *log ? log->get() : request.stderr_fd};
  descriptors.insert(descriptors.end(), request.inherit_fds.begin(), request.inherit_fds.end());
  std::vector<char*> argv;
  for (const std::string& argument : request.arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (uint32_t cpu : request.cpus) CPU_SET(cpu, &cpus);
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid == 0) RunChild(request, argv.data(), descriptors, cpus, parent);
  if (pid < 0) return absl::ErrnoToStatus(errno, fmt::format("cannot start {}", request.arguments[0]));
  return pid;
}

std::string DescribeExit(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("killed by signal {} ({})", signal, strsignal(signal));
  }
  return fmt::format("exit code {}", WEXITSTATUS(wait_status));
}

std::string LastLines(const std::string& path, int lines, const std::string& indent, uint64_t offset) {
  const absl::StatusOr<runtime::UniqueFd> file = runtime::OpenPrivateFile(path, O_RDONLY);
  if (!file.ok()) return "";
  const off_t end = lseek(file->get(), 0, SEEK_END);
  const uint64_t size = end < 0 ? 0 : static_cast<uint64_t>(end);
  const uint64_t begin = std::max(offset, size > kMostLogBytes ? size - kMostLogBytes : 0);
  if (begin >= size || lseek(file->get(), static_cast<off_t>(begin), SEEK_SET) < 0) return "";
  std::istringstream tail(runtime::ReadAll(file->get(), path).value_or(""));
  std::deque<std::string> last;
  for (std::string line; std::getline(tail, line);) {
    last.push_back(std::move(line));
    if (last.size() > static_cast<size_t>(lines)) last.pop_front();
  }
  std::string text;
  for (const std::string& line : last) text += indent + line + "\n";
  using Json = nlohmann::json;
  return Json::parse(Json(text).dump(-1, ' ', false, Json::error_handler_t::replace)).get<std::string>();
}

bool ProcessAlive(pid_t pid) {
  if (pid <= 0) return false;
  std::ifstream stat(fmt::format("/proc/{}/stat", pid));
  std::string text;
  if (!std::getline(stat, text)) return false;
  const size_t after_name = text.rfind(')');  // the name may itself contain blanks and brackets
  const char state =
      after_name != std::string::npos && after_name + 2 < text.size() ? text[after_name + 2] : '?';
  return state != 'Z' && state != 'X';
}

std::vector<pid_t> ChildrenOf(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{0}/task/{0}/children", pid));
  return {std::istream_iterator<pid_t>(file), {}};
}

}  // namespace islands::deploy
