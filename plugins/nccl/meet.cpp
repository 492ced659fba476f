// SPDX-License-Identifier: Apache-2.0
#include "meet.hpp"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <map>
#include <optional>
#include <set>

namespace nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr uint64_t magic = 0x316c63636e676e65;  // "engnccl1"
constexpr uint32_t unknown = UINT32_MAX;
constexpr milliseconds between_tries(50), most_between_tries(500), to_answer(2000);

// What a rank says of itself.
struct Hello {
  uint64_t sign = magic;
  uint32_t rank = 0, size = 0, local_rank = unknown;
  int32_t pid = 0;
  char host[128] = "";
  char machine[64] = "";  // changes when the machine starts again
};
// What rank 0 tells about each.
struct Seat {
  uint32_t local_rank, local_size;
  int32_t pid;
  char host[128];
};

Hello own(const eng_world& announced) {
  Hello out;
  out.rank = announced.rank, out.size = announced.size, out.pid = ::getpid();
  if (announced.announced & ENG_WORLD_LOCAL) out.local_rank = announced.local_rank;
  ::gethostname(out.host, sizeof out.host - 1);
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  id.copy(out.machine, sizeof out.machine - 1);
  return out;
}

std::string limit_text(double s) {
  char text[32];
  std::snprintf(text, sizeof text, "%g s", s);
  return text;
}

struct Found {
  addrinfo* list = nullptr;
  Found(const std::string& address, uint16_t port, bool listen) {
    addrinfo hint{};
    hint.ai_socktype = SOCK_STREAM;
    hint.ai_flags = AI_NUMERICSERV | (listen ? AI_PASSIVE : 0);
    if (const int error = ::getaddrinfo(address.c_str(), std::to_string(port).c_str(), &hint, &list))
      throw Error{ENG_UNAVAILABLE, "the address of rank 0 is " + address + ", which is not known here: " +
                                       ::gai_strerror(error) + "; set MASTER_ADDR, or [comm] address"};
  }
  ~Found() {
    if (list) ::freeaddrinfo(list);
  }
  Found(const Found&) = delete;
  Found& operator=(const Found&) = delete;
};

class Meeting {
 public:
  Meeting(const eng_world& announced, const std::string& address, uint16_t port, double deadline)
      : hello_(own(announced)),
        address_(address),
        port_(port),
        where_(address + ":" + std::to_string(port)),
        deadline_(deadline),
        end_(Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline))) {}

  Met as_first() {
    if (hello_.size > 1) listen();
    std::map<uint32_t, Hello> all = {{0, hello_}};
    std::vector<std::unique_ptr<Wire>> wires(hello_.size);
    std::vector<std::unique_ptr<Wire>> strangers;  // that have said nothing yet
    while (all.size() < hello_.size) {
      std::vector<pollfd> fds = {{listener_->fd(), POLLIN, 0}};
      for (const auto& one : strangers) fds.push_back({one->fd(), POLLIN, 0});
      ::poll(fds.data(), fds.size(), 50);
      if (const int fd = ::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC); fd >= 0)
        strangers.push_back(std::make_unique<Wire>(fd));
      for (auto& one : strangers) greet(one, all, wires);
      std::erase(strangers, nullptr);
      for (uint32_t r = 1; r < hello_.size; ++r)
        if (wires[r] && !wires[r]->pump()) {
          refuse_all(wires, "rank " + std::to_string(r) + " (process " + std::to_string(all[r].pid) + " on " +
                                all[r].host + ") ended before all ranks had started");
        }
      if (Clock::now() > end_) {
        std::vector<uint32_t> missing;
        for (uint32_t r = 0; r < hello_.size; ++r)
          if (!all.count(r)) missing.push_back(r);
        refuse_all(wires, "waited " + limit_text(deadline_) + " for all ranks to start: " + ranks_text(missing) +
                              (missing.size() == 1 ? " has" : " have") + " not come to rank 0 at " + where_);
      }
    }
    const std::vector<Seat> seats = number(all, wires);
    for (auto& wire : wires)
      if (wire) wire->put({Kind::welcome}, {reinterpret_cast<const char*>(seats.data()), seats.size() * sizeof(Seat)});
    flush(wires);
    return met(seats, std::move(wires));
  }

  Met as_other() {
    auto wire = std::make_unique<Wire>(connect());
    wire->trust();
    wire->put({Kind::hello, hello_.rank}, bytes_of(hello_));
    // Rank 0 names who is missing, if it comes to that.
    end_ += to_answer;
    for (Frame frame;;) {
      const bool open = wire->pump();
      std::string bytes;
      if (wire->next(frame, bytes)) {
        if (frame.kind == Kind::refused) throw Error{ENG_UNAVAILABLE, bytes};
        if (frame.kind != Kind::welcome || bytes.size() != sizeof(Seat) * hello_.size)
          throw Error{ENG_UNAVAILABLE, "what listens at " + where_ + " is not rank 0 of this run"};
        std::vector<Seat> seats(hello_.size);
        std::memcpy(seats.data(), bytes.data(), bytes.size());
        std::vector<std::unique_ptr<Wire>> wires;
        wires.push_back(std::move(wire));
        return met(seats, std::move(wires));
      }
      if (!open) throw Error{ENG_UNAVAILABLE, "rank 0 at " + where_ + " ended before all ranks had started"};
      if (Clock::now() > end_)
        throw Error{ENG_UNAVAILABLE, "waited " + limit_text(deadline_) + " for rank 0 at " + where_ +
                                         " to say that all ranks have started"};
      pollfd one = {wire->fd(), static_cast<short>(POLLIN | (wire->idle() ? 0 : POLLOUT)), 0};
      ::poll(&one, 1, 50);
    }
  }

 private:
  void listen() {
    const Found found(address_, port_, true);
    int error = 0;
    for (const addrinfo* a = found.list; a && !listener_; a = a->ai_next) {
      const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0), on = 1;
      if (fd < 0) continue;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      if (::bind(fd, a->ai_addr, a->ai_addrlen) == 0 && ::listen(fd, 1024) == 0)
        listener_ = std::make_unique<Wire>(fd);
      else
        error = errno, ::close(fd);
    }
    if (listener_) return;
    std::string text = "rank 0 cannot listen at " + where_ + ": " + std::strerror(error);
    if (error == EADDRINUSE)
      text += "; another run or program has this port: set MASTER_PORT, or [comm] port, to a free one";
    if (error == EADDRNOTAVAIL)
      text += "; rank 0 runs on " + std::string(hello_.host) +
              ", which does not have this address: set MASTER_ADDR, or [comm] address, to one that it has";
    throw Error{ENG_UNAVAILABLE, text};
  }

  int connect() {
    for (milliseconds pause = between_tries;; pause = std::min(pause * 2, most_between_tries)) {
      int error = 0;
      const Found found(address_, port_, false);
      for (const addrinfo* a = found.list; a; a = a->ai_next) {
        const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0) continue;
        error = ::connect(fd, a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
        if (error == EINPROGRESS) error = connected(fd);
        if (error == 0) return fd;
        ::close(fd);
      }
      if (Clock::now() + pause > end_)
        throw Error{ENG_UNAVAILABLE,
                    "rank " + std::to_string(hello_.rank) + " on " + hello_.host + " tried for " +
                        limit_text(deadline_) + " to reach rank 0 at " + where_ + ": " + std::strerror(error) +
                        "; rank 0 has not started, or it is elsewhere: MASTER_ADDR and MASTER_PORT, or [comm] address "
                        "and port, must be the same on all ranks"};
      ::usleep(static_cast<useconds_t>(std::chrono::microseconds(pause).count()));
    }
  }
  int connected(int fd) const {
    pollfd one = {fd, POLLOUT, 0};
    const auto left = std::chrono::duration_cast<milliseconds>(end_ - Clock::now()).count();
    if (::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left, 0, 2000))) <= 0) return ETIMEDOUT;
    int error = 0;
    socklen_t size = sizeof error;
    ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
    return error;
  }

  // Somebody who has connected. Becomes a rank, stays, or is gone.
  void greet(std::unique_ptr<Wire>& one, std::map<uint32_t, Hello>& all, std::vector<std::unique_ptr<Wire>>& wires) {
    const bool open = one->pump();
    Frame frame;
    std::string bytes;
    Hello hello;
    try {
      if (!one->next(frame, bytes)) return open ? void() : one.reset();
    } catch (const Error&) {
      return one.reset();
    }
    if (frame.kind != Kind::hello || bytes.size() != sizeof hello) return one.reset();
    std::memcpy(&hello, bytes.data(), sizeof hello);
    if (hello.sign != magic) return one.reset();
    hello.host[sizeof hello.host - 1] = hello.machine[sizeof hello.machine - 1] = 0;
    const std::string who = "process " + std::to_string(hello.pid) + " on " + hello.host;
    if (hello.size != hello_.size) {
      const std::string text = "a " + who + " was started as rank " + std::to_string(hello.rank) + " of " +
                               std::to_string(hello.size) + ", but rank 0 as one of " + std::to_string(hello_.size);
      refuse(*one, text);
      refuse_all(wires, text);
    }
    if (hello.rank >= hello_.size) return one.reset();
    if (all.count(hello.rank)) {
      const Hello& there = all[hello.rank];
      const std::string text = who + " was started as rank " + std::to_string(hello.rank) + ", but that is process " +
                               std::to_string(there.pid) + " on " + there.host +
                               ": every rank needs its own number, and every run its own port";
      refuse(*one, text);
      refuse_all(wires, text);
    }
    all[hello.rank] = hello;
    one->trust();
    wires[hello.rank] = std::move(one);
  }

  static void flush(std::vector<std::unique_ptr<Wire>>& wires) {
    for (const auto end = Clock::now() + to_answer; Clock::now() < end; ::usleep(1000)) {
      bool idle = true;
      for (auto& wire : wires)
        if (wire) wire->pump(), idle = idle && wire->idle();
      if (idle) return;
    }
  }
  static void refuse(Wire& wire, const std::string& text) {
    wire.put({Kind::refused}, text);
    for (const auto end = Clock::now() + to_answer; Clock::now() < end && wire.pump() && !wire.idle();) ::usleep(1000);
  }
  [[noreturn]] static void refuse_all(std::vector<std::unique_ptr<Wire>>& wires, const std::string& text) {
    for (auto& wire : wires)
      if (wire) wire->put({Kind::refused}, text);
    flush(wires);
    throw Error{ENG_UNAVAILABLE, text};
  }

  // Numbers the ranks of each machine.
  static std::vector<Seat> number(const std::map<uint32_t, Hello>& all, std::vector<std::unique_ptr<Wire>>& wires) {
    std::vector<Seat> out(all.size());
    std::map<std::string, std::vector<uint32_t>> machines;
    for (const auto& [rank, hello] : all) machines[std::string(hello.host) + ' ' + hello.machine].push_back(rank);
    for (const auto& [name, ranks] : machines) {
      const auto size = static_cast<uint32_t>(ranks.size());
      const bool given =
          std::all_of(ranks.begin(), ranks.end(), [&](uint32_t r) { return all.at(r).local_rank != unknown; });
      std::map<uint32_t, uint32_t> taken;  // by whom
      for (uint32_t k = 0; k < size; ++k) {
        const Hello& hello = all.at(ranks[k]);
        const uint32_t local = given ? hello.local_rank : k;
        const std::string text = "rank " + std::to_string(ranks[k]) + " has the local rank " + std::to_string(local);
        if (local >= size)
          refuse_all(wires, text + ", but " + hello.host + " has " + std::to_string(size) +
                                " ranks of this run: LOCAL_RANK counts the ranks of a machine from 0");
        if (const auto [it, fresh] = taken.emplace(local, ranks[k]); !fresh)
          refuse_all(wires, text + " on " + hello.host + ", and so has rank " + std::to_string(it->second) +
                                ": each needs a GPU of its own");
        Seat& seat = out[ranks[k]];
        seat = {local, size, hello.pid, ""};
        std::memcpy(seat.host, hello.host, sizeof seat.host);
      }
    }
    return out;
  }

  Met met(const std::vector<Seat>& seats, std::vector<std::unique_ptr<Wire>> wires) const {
    Met out{hello_.rank, hello_.size, {}, std::move(wires)};
    for (const Seat& p : seats) out.peers.push_back({p.host, p.pid, p.local_rank, p.local_size});
    return out;
  }

  Hello hello_;
  std::string address_;
  uint16_t port_;
  std::string where_;
  double deadline_;
  Clock::time_point end_;
  std::unique_ptr<Wire> listener_;  // nothing is ever put on it
};

}  // namespace

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  constexpr size_t most = 8;
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t k = 0; k < ranks.size() && k < most; ++k) text += (k ? ", " : "") + std::to_string(ranks[k]);
  if (ranks.size() > most) text += " and " + std::to_string(ranks.size() - most) + " more";
  return text;
}

Met meet(const eng_world& announced, const std::string& address, uint16_t port, double deadline) {
  if (!(announced.announced & ENG_WORLD_RANKS) || announced.size == 0 || announced.rank >= announced.size)
    throw Error{ENG_PRECONDITION,
                "no launcher announced which rank this is: start the ranks with mpirun or srun, or set "
                "RANK, WORLD_SIZE and LOCAL_RANK for each"};
  Meeting meeting(announced, address, port, deadline);
  return announced.rank == 0 ? meeting.as_first() : meeting.as_other();
}

}  // namespace nccl
