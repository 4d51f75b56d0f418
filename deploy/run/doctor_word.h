// What `islands doctor --brief` says of a deployment's cores before `islands run` uses them: what makes
// figures doubtful is named in the run's results, and on stderr where it is a problem.
//
// Thread safety: main thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "runtime/descriptor.h"

namespace islands::deploy {

class DoctorWord {
 public:
  // Asks; without that program, or if it cannot be started, Take says nothing.
  DoctorWord(const std::string& binary_directory, const std::string& deployment_file);
  ~DoctorWord();
  DoctorWord(const DoctorWord&) = delete;
  DoctorWord& operator=(const DoctorWord&) = delete;

  struct Answer {
    std::string brief;  // empty: it has not said anything
    uint64_t problems = 0;
  };
  // Waits for the answer, a few seconds at most.
  Answer Take();

 private:
  void End();

  pid_t pid_ = 0;
  runtime::UniqueFd output_;
};

}  // namespace islands::deploy
