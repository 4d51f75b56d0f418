#include "deploy/run/doctor_word.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <vector>

#include "deploy/processes/interrupts.h"

namespace islands::deploy {
namespace {

constexpr int64_t kPatienceMs = 5'000;  // on a machine that is very busy, which is what it would say

}  // namespace

DoctorWord::DoctorWord(const std::string& binary_directory, const std::string& deployment_file) {
  std::array<int, 2> ends;
  if (pipe2(ends.data(), O_CLOEXEC) != 0) return;
  output_.Reset(ends[0]);
  const runtime::UniqueFd input(ends[1]);
  const std::string program = binary_directory + "/islands";
  std::vector<std::string> words = {program, "doctor", deployment_file, "--brief", "--format", "json"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  if (posix_spawn(&pid_, program.c_str(), &actions, nullptr, arguments.data(), environ) != 0) pid_ = 0;
  posix_spawn_file_actions_destroy(&actions);
}

DoctorWord::~DoctorWord() { End(); }

void DoctorWord::End() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

DoctorWord::Answer DoctorWord::Take() {
  Answer answer;
  if (pid_ <= 0) return answer;
  std::string text;
  std::array<char, 4096> bytes;
  const int64_t until_ms = MonotonicMs() + kPatienceMs;
  for (;;) {
    pollfd ready{.fd = output_.get(), .events = POLLIN, .revents = 0};
    const int64_t left_ms = std::max<int64_t>(0, until_ms - MonotonicMs());
    if (poll(&ready, 1, static_cast<int>(left_ms)) <= 0) break;
    const ssize_t got = read(output_.get(), bytes.data(), bytes.size());
    if (got <= 0) break;
    text.append(bytes.data(), static_cast<size_t>(got));
  }
  End();
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || !json.contains("brief") || !json["brief"].is_string()) return answer;
  answer.brief = json["brief"].get<std::string>();
  if (json.contains("problems") && json["problems"].is_number_unsigned())
    answer.problems = json["problems"].get<uint64_t>();
  return answer;
}

}  // namespace islands::deploy
