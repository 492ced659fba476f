// SPDX-License-Identifier: Apache-2.0
// Ranks that go wrong: the others find out in time, and say who it is.
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "rank.hpp"

namespace rank {
namespace {

using Clock = std::chrono::steady_clock;

struct Gather {
  Moved<float> mine, all;
  Bound bound;
  explicit Gather(eng::Communicator& comm)
      : mine(1000), all(1000 * comm.world().size), bound(comm, ENG_OP_ALL_GATHER, 1, comm.world().size, ENG_F32, 1000) {
    bound.bind(mine.data(), all.data());
  }
};

bool has(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return true;
  fmt::print(stderr, "`{}` does not say `{}`\n", text, part);
  return false;
}

double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

std::string told(eng::Communicator& comm) {
  for (const auto start = Clock::now(); since(start) < far_away;
       std::this_thread::sleep_for(std::chrono::milliseconds(20))) {
    try {
      comm.check();
    } catch (const eng::Error& e) {
      EXPECT(e.exit() == eng::Exit::communication);
      return e.what();
    }
  }
  throw std::runtime_error("nobody told this rank");
}

// Rank 1 computes for too long. It is asked, and answers by its own thread.
void late(eng::Communicator& comm) {
  Gather gather(comm);
  gather.bound();
  if (comm.world().rank == 1) {
    EXPECT(has(told(comm), "eng.all_gather number 2 of group 1"));
    return;
  }
  const auto start = Clock::now();
  const std::string text = gather.bound.launch();
  const double waited = since(start);
  EXPECT(has(text, fmt::format("eng.all_gather number 2 of group 1 (all {} ranks): waited 1", comm.world().size)));
  EXPECT(has(text, "; rank 1 is not waiting; it was last in eng.all_gather number 1 of group 1"));
  EXPECT(text.find("rank 2 waits") == std::string::npos);
  EXPECT(text.find("rank 2 has") == std::string::npos);
  // If another rank's deadline came first, it told this one.
  EXPECT(waited >= deadline || has(text, "rank 2: ") || has(text, "rank 0: "));
  EXPECT(waited < deadline + 30);
  EXPECT(!gather.bound.launch().empty());  // and it stays so
}  // by leaving its memory behind it tells rank 1

// Rank 1 is one collective ahead, in another op: nothing is mixed up, and it is told.
void elsewhere(eng::Communicator& comm) {
  Gather gather(comm);
  Moved<float> whole(3);
  Bound other(comm, ENG_OP_BROADCAST, 1, comm.world().size, ENG_F32, 3, 0);
  other.bind(whole.data(), whole.data());
  const std::string text = comm.world().rank == 1 ? other.launch() : gather.bound.launch();
  // NCCL would hang, or mix the bytes up; its software says so.
  if (subject.enqueues) {
    EXPECT(has(text, "collectives do not match: rank "));
    return;
  }
  // The rank that gives up first tells the other.
  const bool told = text.find("rank 0: ") == 0 || text.find("rank 1: ") == 0;
  if ((comm.world().rank == 1) != told)
    EXPECT(has(text, "; rank 0 has been waiting in eng.all_gather number 1 of group 1 for "));
  else
    EXPECT(has(text, "; rank 1 has been waiting in eng.broadcast number 1 of group 1 for "));
}

// Rank 1 gives up; the others wait in a collective and in an exchange, and end at once.
void aborts(eng::Communicator& comm) {
  Gather gather(comm);
  comm.exchange("");
  const auto start = Clock::now();
  if (comm.world().rank == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));  // until all are beyond the barrier
    comm.abort("step 7: the disk is full");
    return;
  }
  std::string text;
  if (comm.world().rank == 0) {
    text = gather.bound.launch();
  } else {
    try {
      comm.exchange("word");
    } catch (const eng::Error& e) {
      EXPECT(e.exit() == eng::Exit::communication);
      text = e.what();
    }
  }
  EXPECT(has(text, "rank 1: step 7: the disk is full"));
  EXPECT(since(start) < far_away / 2);  // before any deadline
}

// Rank 1 leaves by an exception; nobody told anybody anything.
void leaves(eng::Communicator& comm) {
  Gather gather(comm);
  comm.exchange("");
  if (comm.world().rank == 1) {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    throw eng::Error(eng::Exit::communication, "rank 1 is right");
  }
  const auto start = Clock::now();
  EXPECT(has(gather.bound.launch(), "rank 1: it left because of an error"));
  EXPECT(since(start) < far_away / 2);
}

// Rank 1 ends without an error message, and the launcher does not end the others.
void vanishes(eng::Communicator& comm) {
  Gather gather(comm);
  gather.bound();
  comm.exchange("");
  if (comm.world().rank == 1) {
    fmt::print("rank 1 is right\n");
    std::fflush(stdout);
    raise(SIGKILL);
  }
  const auto start = Clock::now();
  const std::string text = gather.bound.launch();
  EXPECT(has(text, "rank 1 (process "));
  EXPECT(has(text, ") ended without an error message"));
  EXPECT(since(start) < far_away / 2);  // it takes one second where the machine has time
}

void killed(eng::Communicator& comm) {
  Gather gather(comm);
  gather.bound();
  if (comm.world().rank == 1) raise(SIGKILL);
  for (int k = 0; k < 100; ++k) gather.bound.launch();
  std::this_thread::sleep_for(std::chrono::minutes(10));
}

}  // namespace rank
