// SPDX-License-Identifier: Apache-2.0
// The ranks of a run: groups, waits with a deadline, and notes about where each rank is.
//
// Collectives consist of our own messages, so that it is known whose bytes are missing. Every call of MPI is made under
// one lock: the step's queue, the host's exchange and the thread that reads notes take turns.
#pragma once

#include <mpi.h>

#include <condition_variable>
#include <list>
#include <thread>

#include "../common/comm/failure.hpp"
#include "../common/comm/groups.hpp"
#include "join.hpp"
#include "standstill.hpp"
#include "turns.hpp"

namespace mpi {

using common::Answer;
using common::Clock;
using common::What;

constexpr uint32_t ops_per_group = 8;  // a message's tag names its group and its op

struct Group : common::Group {
  MPI_Comm library = MPI_COMM_NULL;  // for MPI's own reductions; NULL on ranks that are not members
};

// Messages in flight, started again and again.
class Messages {
 public:
  Messages() = default;
  Messages(const Messages&) = delete;
  Messages& operator=(const Messages&) = delete;
  std::vector<MPI_Request> requests;
  std::vector<uint32_t> from;  // of each: the rank whose bytes are awaited, or nobody
  std::vector<MPI_Status> statuses;
  Standstill standstill;
  static constexpr uint32_t nobody = UINT32_MAX;
  bool started = false;  // and not complete
};

class Comm {
 public:
  Comm(double deadline, uint64_t message_bytes, eng_world& out);
  // Says goodbye to the other ranks. After a failure it leaves everything as it is.
  ~Comm();
  Comm(const Comm&) = delete;
  Comm& operator=(const Comm&) = delete;

  void make_group(eng_id id, const uint32_t* ranks, uint32_t n);
  Group& group(eng_id id);
  void exchange_bytes(const void* mine, uint64_t bytes, void* all);
  void poll();
  void abort(const std::string& reason) noexcept;
  // After this, no thread of this object runs.
  void silence();

  // Adds messages of up to message_bytes each, to be started by `run`.
  void add_send(Messages& m, const void* data, uint64_t bytes, uint32_t to, int tag, MPI_Comm comm);
  void add_receive(Messages& m, void* data, uint64_t bytes, uint32_t from, int tag, MPI_Comm comm);
  void drop(Messages& m);
  // Starts them and waits until all are complete.
  void run(Messages& m, const Group& group);
  // One operation of the MPI library: `start` is called under the lock. If it fails, the request stays as it is.
  template <class Start>
  void run_library(const Group& group, MPI_Request& request, Start start) {
    {
      const std::lock_guard lock(mpi_);
      failed_.check();
      start();
    }
    wait(
        group, [&] { return complete(request); }, nullptr);
  }
  // Something was started that uses memory which is about to be freed: the other ranks are notified, and MPI is not
  // called any more.
  void fall_silent();
  MPI_Comm step() const { return all_.step; }
  uint64_t message_bytes() const { return message_bytes_; }

  // While this object lives, this rank waits for the group's next collective.
  class Round {
   public:
    Round(Comm& comm, Group& group, What what);
    ~Round();
    Round(const Round&) = delete;
    Round& operator=(const Round&) = delete;

   private:
    Comm& comm_;
    Group& group_;
  };

 private:
  // A note to another rank. All notes have one size, so that one receive fits them all.
  struct Note {
    enum Kind : uint32_t { ask, answer, gone };
    uint32_t kind = ask;
    uint32_t from = 0;
    uint32_t question = 0;  // which one is asked or answered
    uint32_t group = 0;     // asked for
    Answer where;
    char text[968] = "";  // why it gave up
  };
  struct Posted {
    Note note;
    MPI_Request request = MPI_REQUEST_NULL;
  };

  template <class Done>
  void wait(const Group& group, Done done, Messages* messages) {
    Wait now(messages);
    while (!now.over(*this, done))
      if (now.idle(*this)) give_up(group, messages);
  }
  // One wait: looks again and again, and gives up the core for longer and longer times.
  class Wait {
   public:
    explicit Wait(Messages* messages) : messages_(messages) {}
    template <class Done>
    bool over(Comm& comm, Done& done) {
      const std::lock_guard lock(comm.mpi_);
      // A wait that looks without a pause leaves the listener little time with the lock, so it reads the notes itself.
      if (last_ > look_) {
        comm.read_notes();
        if (messages_ && !comm.silent_) look(*messages_);
        look_ = last_ + std::chrono::milliseconds(50);
      }
      if (!comm.silent_ && done()) return true;  // bytes that have arrived count, whatever else failed
      comm.failed_.check();
      return false;
    }
    // True if some rank's bytes have not moved for as long as the deadline.
    bool idle(Comm& comm);

   private:
    void look(Messages& messages);  // under the lock: which messages are complete

    Messages* const messages_;  // NULL: an operation of the library, which reports no progress
    Clock::time_point last_ = Clock::now(), moved_ = last_;
    Clock::time_point look_ = last_ + std::chrono::milliseconds(50);
    Clock::duration waited_{};
  };
  // init(at, bytes, request) makes one of the messages that `bytes` need.
  template <class Init>
  void add(Messages& m, uint64_t bytes, uint32_t other, uint32_t from, Init init);
  MPI_Comm library_of(const std::vector<uint32_t>& ranks);  // all ranks call it
  bool complete(MPI_Request& request);
  bool complete(Messages& m);
  [[noreturn]] void give_up(const Group& group, const Messages* messages);

  void start_listening();
  bool look();         // at the notes that came; true if nothing is left to send
  void look_around();  // for a rank of this machine that ended without a note
  // Under the lock:
  bool read_notes();
  void take(const Note& note);
  void post(const Note& note, uint32_t to);
  std::vector<std::string> missing(const Messages* messages);  // whose bytes, if all ranks have entered

  Joined all_;
  std::chrono::duration<double> deadline_;
  uint64_t message_bytes_;
  int most_tag_ = 0;
  Turns mpi_;  // every call of MPI, places, notes
  common::Groups<Group> groups_;

  std::list<Posted> posted_;
  Note incoming_;
  MPI_Request listening_ = MPI_REQUEST_NULL;
  bool told_ = false;
  bool silent_ = false;  // MPI is not called any more: it might write into freed memory

  std::mutex asking_;       // one question at a time
  common::Failure failed_;  // then every wait of this rank ends
  std::mutex state_;
  std::condition_variable wake_;
  bool leave_ = false;
  std::thread listener_;
  Clock::time_point ended_{};  // when the listener first saw that a neighbour had
};

}  // namespace mpi
