// SPDX-License-Identifier: Apache-2.0
// Open MPI's mpirun as a child process: where it is, how it is called, and what it says.
#pragma once

#include <signal.h>
#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "session/file.hpp"
#include "session/ranks/folder.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {

// Open MPI's mpirun on PATH, under any of its names. Throws an Error(Exit::environment) that names the package.
std::filesystem::path find_mpirun();

// One mpirun and its ranks. It does not outlive this process: the system kills it, even where it is stopped, and then
// the ranks, which ask the system for the same (Link::open). Threads: one.
class Mpirun {
 public:
  // Makes the folders for temporary files. Throws Error(Exit::environment).
  Mpirun();
  // Starts it. `arguments`: of every rank, after `engine`. `parent` is completed and passed to the ranks. `mask`: the
  // signal mask of mpirun; `variables` are set in its environment. Throws Error(Exit::environment).
  void start(const std::filesystem::path& program, const std::vector<std::string>& arguments, Parent parent,
             const std::vector<std::pair<std::string, std::string>>& variables, const sigset_t& mask);
  // The output of mpirun; end of file when it and the processes that it started have ended.
  int out() const { return *out_; }
  int err() const { return *err_; }
  pid_t pid() const { return pid_; }
  // The exit status as in a shell, if it has ended. Does not wait.
  std::optional<int> ended();
  // Kills the ranks and asks mpirun to tidy up; `hard`: kills mpirun too.
  void end(bool hard);

 private:
  std::vector<std::string> words(const std::filesystem::path& program, uint32_t ranks) const;
  std::unique_ptr<LaunchFolder> temporary_, shared_;
  std::optional<Fd> out_, err_;
  pid_t pid_ = -1;
  std::optional<int> status_;
};

// The living processes that this one started, or took over from one that has ended. Collects those that have ended.
std::vector<pid_t> own_children();

// The number of processes that the system has killed for memory in this process's control group (version 2).
int64_t memory_kills();

}  // namespace eng
