// SPDX-License-Identifier: Apache-2.0
#include "join.hpp"

#include <signal.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <atomic>

#include "../common/comm/thread.hpp"

namespace mpi {
namespace {

// Signal handlers that a library installs when it starts, and signals that its threads would take from the host's
// threads.
class SignalGuard {
 public:
  SignalGuard() {
    for (int s = 1; s < count; ++s) known_[s] = sigaction(s, nullptr, &before_[s]) == 0;
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask_);
  }
  ~SignalGuard() {
    for (int s = 1; s < count; ++s) {
      struct sigaction now;
      if (known_[s] && sigaction(s, nullptr, &now) == 0 && now.sa_handler != before_[s].sa_handler)
        sigaction(s, &before_[s], nullptr);
    }
    pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }
  SignalGuard(const SignalGuard&) = delete;
  SignalGuard& operator=(const SignalGuard&) = delete;

 private:
  static constexpr int count = 32;
  std::array<struct sigaction, count> before_{};
  std::array<bool, count> known_{};
  sigset_t mask_{};
};

MPI_Comm copy_of_world() {
  MPI_Comm copy = MPI_COMM_NULL;
  check(MPI_Comm_dup(MPI_COMM_WORLD, &copy), "MPI_Comm_dup");
  check(MPI_Comm_set_errhandler(copy, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  return copy;
}

void rank_in(MPI_Comm comm, uint32_t& rank, uint32_t& size) {
  int r = 0, n = 0;
  check(MPI_Comm_rank(comm, &r), "MPI_Comm_rank");
  check(MPI_Comm_size(comm, &n), "MPI_Comm_size");
  rank = static_cast<uint32_t>(r), size = static_cast<uint32_t>(n);
}

// All ranks of `machine` call this. Process numbers mean nothing across containers, and some kernels cannot or may not
// tell when a process ends. There the launcher and the deadline must suffice.
std::vector<Neighbour> neighbours_in(MPI_Comm machine, uint32_t rank, uint32_t size) {
  struct Who {
    uint64_t names[2];  // of the table that the process's number is in
    uint32_t rank;
    int32_t pid;
  };
  struct stat table {};
  const bool known = stat("/proc/self/ns/pid", &table) == 0;
  const Who mine = {{table.st_dev, table.st_ino}, rank, known ? getpid() : 0};
  std::vector<Who> all(size);
  check(MPI_Allgather(&mine, sizeof(Who), MPI_BYTE, all.data(), sizeof(Who), MPI_BYTE, machine), "MPI_Allgather");
  std::vector<Neighbour> out;
  for (const Who& who : all) {
    if (!known || who.rank == rank || who.pid == 0) continue;
    if (who.names[0] != mine.names[0] || who.names[1] != mine.names[1]) continue;
    // Not through <sys/pidfd.h>: glibc 2.36 declares it for C only.
    if (const long fd = syscall(SYS_pidfd_open, who.pid, 0); fd >= 0)
      out.push_back({who.rank, who.pid, static_cast<int>(fd)});
  }
  return out;
}

Joined enter() {
  int began = 0, ended = 0, level = MPI_THREAD_SINGLE;
  MPI_Initialized(&began), MPI_Finalized(&ended);
  if (ended) throw Error{ENG_PRECONDITION, "MPI was already finalized; a process can start it only once"};
  if (began)
    check(MPI_Query_thread(&level), "MPI_Query_thread");
  else
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
  if (level < MPI_THREAD_SERIALIZED)
    throw Error{ENG_UNSUPPORTED, "this MPI library cannot be called by more than one thread"};
  check(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  Joined all;
  rank_in(MPI_COMM_WORLD, all.rank, all.size);
  all.step = copy_of_world(), all.host = copy_of_world(), all.control = copy_of_world();
  MPI_Comm machine = MPI_COMM_NULL;
  check(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &machine), "MPI_Comm_split_type");
  rank_in(machine, all.local_rank, all.local_size);
  all.neighbours = neighbours_in(machine, all.rank, all.local_size);
  MPI_Comm_free(&machine);
  return all;
}

}  // namespace

std::string text_of(int code) {
  char text[MPI_MAX_ERROR_STRING] = "";
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) return "error " + std::to_string(code);
  return std::string(text, static_cast<size_t>(length));
}

void check(int code, const char* call) {
  if (code != MPI_SUCCESS) throw Error{ENG_UNAVAILABLE, std::string(call) + ": " + text_of(code)};
}

Joined join(double deadline) {
  static std::atomic<bool> entered{false};
  if (entered.exchange(true))
    throw Error{ENG_PRECONDITION, "this process has already joined the other ranks; it can do so only once"};
  const SignalGuard signals;
  // MPI waits for every rank to start, without a limit.
  auto entering = common::on_own_thread(enter);
  if (entering.wait_for(std::chrono::duration<double>(deadline)) != std::future_status::ready)
    throw Error{ENG_UNAVAILABLE, "waited " + std::to_string(static_cast<int64_t>(deadline)) +
                                     " s for all ranks to start: one is missing"};
  return entering.get();
}

}  // namespace mpi
