// SPDX-License-Identifier: Apache-2.0
// One process among many ranks: what its launcher says of it, its share of processors and batch, and its tie to the
// `engine run --ranks N` above it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "session/shell.hpp"

namespace eng {

class Config;

// getenv, or a table in tests; nullptr for what is not there.
using Variable = std::function<const char*(const char*)>;

// What the environment says of this process before anybody was asked.
struct Announced {
  uint32_t rank = 0, size = 1;
  std::string by;       // "mpirun", "srun", ...; "" where nothing speaks of ranks
  bool joined = false;  // its ranks can find each other through Open MPI
  // Throws Error(Exit::environment) where two of them contradict each other.
  static Announced read(const Variable& variable);
};

// Throws Error(Exit::environment), with the line to type, where the communicator sees another number of ranks than was
// announced. `arguments`: the words behind `engine`.
void check_announced(const Announced& announced, uint32_t seen, const std::string& arguments);
// The same where Slurm gave this job many tasks and nobody started them.
void check_alone(const Variable& variable, const std::string& arguments);

// This machine and the physical cores that this process may run on.
std::string processors();
// The share of a rank with `mine` where `all` ranks have theirs: ranks bound to cores of their own do not share.
int64_t threads_of(const std::string& mine, const std::vector<std::string>& all);

// Of so many ranks each takes its share of [train] global_batch, if that is given: derives accumulate once more. Throws
// CommonError(Exit::usage) if it cannot be shared.
void share_batch(Config& config, uint32_t ranks);

// What `engine run --ranks N` tells the ranks it starts: an environment variable.
struct Parent {
  std::string socket;    // in the abstract namespace, to talk back
  std::string command;   // the user's command line
  std::string terminal;  // that its stderr is, "" if it is none
  pid_t mpirun = 0;
  uint32_t ranks = 0;
  std::string text() const;
  static constexpr const char* variable = "ENGINE_LAUNCHED";
};

// A rank's line to its parent.
class Link {
 public:
  Link() = default;
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // False where no parent started this process. Else: the process dies with mpirun, and what it writes to stderr goes
  // to the parent, on rank 0 straight to its terminal. Call it when signals are handled: the parent may send one now.
  bool open(const Announced& announced, const Variable& variable);
  bool is_open() const { return fd_ >= 0; }
  const Parent& parent() const { return parent_; }
  // One JSON object; a parent that is gone is no error.
  void tell(const nlohmann::ordered_json& message) const noexcept;

 private:
  Parent parent_;
  int fd_ = -1;
};

// A new socket connected to, or (listen) waiting at, a name in the abstract namespace. Throws Error(environment).
int local_socket(const std::string& name, bool listen);

}  // namespace eng
