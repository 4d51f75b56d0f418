// A database server of somebody else's as a child of this process: started in a scratch directory, heard of
// over a Unix-domain socket only, gone with its starter.
//
// Thread safety: a ServerProcess belongs to one thread; EndServers may be called from any.
//
// Invariants:
//  1. No server outlives the process that started it, however that ends: the kernel signals it (the thread
//  that started it is to live as long as the process).
//  2. A server is in a session of its own, so that Ctrl-C reaches it only through us.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "experiments/peers/huge_pages.h"

namespace islands::experiments {

struct ServerUser {
  std::string name;
  uid_t user;
  gid_t group;
};

// What to run, and how.
struct ServerCommand {
  std::vector<std::string> words;  // the program's path first
  std::string log;                 // a file for what it prints
  std::string input;               // a file that it reads; none: nothing
  std::optional<ServerUser> user;  // to become, of which we have to be root
  int stop_signal = 0;             // ends a server fast; what it has not written is lost with its directory
};

// The path of a program in one of the folders, or in those of PATH; "" if there is none. A `*` in a folder
// stands for a version; the highest counts.
std::string FindServerProgram(std::string_view program, const std::vector<std::string>& folders);

// For servers that refuse to be root's: that user, when we are root; else nobody. Gives it `directory`.
absl::StatusOr<std::optional<ServerUser>> UserForServer(const std::string& name,
                                                        const std::string& directory);

// Runs a program to its end. An error has what it printed last.
absl::Status RunToEnd(const ServerCommand& command);

class ServerProcess {
 public:
  static absl::StatusOr<std::unique_ptr<ServerProcess>> Start(const ServerCommand& command);
  ~ServerProcess();

  // OK while it runs; else what it printed last.
  absl::Status Runs() const;
  // Waits for its end. OK after exit code 0.
  absl::Status Succeeds() const;
  // Of its processes together; what they share counts once.
  MemoryUse Memory() const;

 private:
  ServerProcess(pid_t pid, const ServerCommand& command)
      : pid_(pid), name_(command.words[0]), log_(command.log) {}
  const pid_t pid_;
  const std::string name_;
  const std::string log_;
};

// Ends all that run; for who is about to end the process while other threads go on.
void EndServers();

}  // namespace islands::experiments
