// SPDX-License-Identifier: Apache-2.0
// One process among many ranks: what its launcher announces, its share of processors and batch, and its connection to
// its parent, `engine run --ranks N`.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "session/shell.hpp"

namespace eng {

class Config;
class Json;
struct Ranks;
struct World;

// getenv, or a table in tests; nullptr for an unset variable.
using Variable = std::function<const char*(const char*)>;

// The environment's statement about this process.
struct Announced {
  uint32_t rank = 0, size = 1;
  std::string by;                        // "mpirun", "srun", ...; "" if nothing announces ranks
  bool joined = false;                   // its ranks can find each other through Open MPI
  std::optional<uint32_t> local_rank{};  // among those of this machine, if that is announced, too
  // Throws Error(Exit::environment) if two launchers contradict each other.
  static Announced read(const Variable& variable);
};

// Throws Error(Exit::environment), with the line to type, if the communicator sees another number of ranks than
// announced. `arguments`: the words after `engine`.
void check_announced(const Announced& announced, uint32_t seen, const std::string& arguments);
// Throws the same error if Slurm gave this job several tasks but nothing started them.
void check_alone(const Variable& variable, const std::string& arguments);

// This machine, the physical cores that this process may run on, and the processors that its control group allows, if
// it sets a limit: "host 0:0 0:1 0:2/2".
std::string processors();
// The share of a rank that may run on `mine`; `all` has the entries of all ranks. Ranks bound to separate cores do not
// share.
int64_t threads_of(const std::string& mine, const std::vector<std::string>& all);

// Sets [device] threads, if it is 0, to that share.
void share_threads(Config& config, const std::string& mine, const std::vector<std::string>& all);

// The ranks that read the same samples: [parallel] tensor x context x pipeline.
uint32_t ranks_per_sample(const Config& config);
// The number of such sets of ranks. Throws CommonError(Exit::usage) if they do not divide the ranks.
uint32_t data_ranks(const Config& config, uint32_t ranks);
// All ranks, as [parallel] groups them. Throws as data_ranks does.
Ranks divided_ranks(const Config& config, const World& world);
// Divides [train] global_batch, if given, among this many ranks by deriving accumulate again. Throws
// CommonError(Exit::usage) if it cannot be divided, and as data_ranks does.
void share_batch(Config& config, uint32_t ranks);

// The data that `engine run --ranks N` passes to the ranks that it starts, in an environment variable.
struct Parent {
  std::string socket;    // in the abstract namespace, to talk back
  std::string command;   // the user's command line
  std::string terminal;  // of its stderr; "" if it is not a terminal
  pid_t mpirun = 0;
  uint32_t ranks = 0;
  std::string text() const;
  static constexpr const char* variable = "ENGINE_LAUNCHED";
};

// A rank's connection to its parent.
class Link {
 public:
  Link() = default;
  ~Link();
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  // Returns false if no parent started this process. Otherwise the process is killed when mpirun dies, and its stderr
  // goes to the parent, on rank 0 directly to the terminal. Install signal handlers before: the parent may now send a
  // signal.
  bool open(const Announced& announced, const Variable& variable);
  bool is_open() const { return fd_ >= 0; }
  const Parent& parent() const { return parent_; }
  // Sends one JSON object. It is not an error if the parent has ended.
  void tell(const Json& message) const noexcept;

 private:
  Parent parent_;
  int fd_ = -1;
};

// A new socket connected to, or (listen) waiting at, a name in the abstract namespace. Throws Error(environment).
int local_socket(const std::string& name, bool listen);

}  // namespace eng
