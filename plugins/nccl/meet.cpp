// SPDX-License-Identifier: Apache-2.0
#include "meet.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <fstream>
#include <map>

namespace nccl {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds between_tries(50), most_between_tries(500), to_answer(2000);

Peer own(const eng_world& announced) {
  Peer out;
  out.rank = announced.rank, out.size = announced.size, out.pid = ::getpid();
  if (announced.announced & ENG_WORLD_LOCAL) out.local_rank = announced.local_rank;
  ::gethostname(out.host, sizeof out.host - 1);
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  id.copy(out.machine, sizeof out.machine - 1);
  return out;
}

// Numbers the ranks of each machine, as announced or in their order. All ranks come to the same result.
void number(std::vector<Peer>& peers) {
  std::map<std::string, std::vector<Peer*>> machines;
  for (Peer& peer : peers) machines[std::string(peer.host) + ' ' + peer.machine].push_back(&peer);
  for (const auto& [name, here] : machines) {
    const auto size = static_cast<uint32_t>(here.size());
    const bool given = std::all_of(here.begin(), here.end(), [](Peer* p) { return p->local_rank != Peer::unknown; });
    std::vector<const Peer*> taken(size);  // by local rank
    for (uint32_t k = 0; k < size; ++k) {
      Peer& peer = *here[k];
      peer.local_rank = given ? peer.local_rank : k, peer.local_size = size;
      const std::string text =
          "rank " + std::to_string(peer.rank) + " has the local rank " + std::to_string(peer.local_rank);
      if (peer.local_rank >= size)
        throw Error{ENG_UNAVAILABLE, text + ", but " + peer.host + " has " + std::to_string(size) +
                                         " ranks of this run: LOCAL_RANK counts the ranks of a machine from 0"};
      if (const Peer* other = std::exchange(taken[peer.local_rank], &peer))
        throw Error{ENG_UNAVAILABLE, text + " on " + peer.host + ", and so has rank " + std::to_string(other->rank) +
                                         ": each needs a GPU of its own"};
    }
  }
}

class Meeting {
 public:
  Meeting(const eng_world& announced, const std::string& address, uint16_t port, double deadline)
      : self_(own(announced)), address_(address), port_(std::to_string(port)), where_(address + ":" + port_) {
    char limit[32];
    std::snprintf(limit, sizeof limit, "%g s", deadline);
    limit_ = limit;
    end_ = Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(deadline));
    peers_.resize(self_.size), wires_.resize(self_.size);
    peers_[self_.rank] = self_;
  }

  Met join() {
    if (self_.rank)
      join_first();
    else if (self_.size > 1)
      gather_others();
    number(peers_);
    return {std::move(peers_), std::move(wires_)};
  }

 private:
  // On rank 0.
  void gather_others() {
    const auto listener = listen();
    Wires strangers;  // that have said nothing yet
    for (uint32_t came = 1; came < self_.size;) {
      wait_for(polled(listener->fd(), strangers));
      if (const int fd = ::accept4(listener->fd(), nullptr, nullptr, SOCK_CLOEXEC); fd >= 0)
        strangers.push_back(std::make_unique<Wire>(fd));
      for (auto& one : strangers) came += greet(one);
      std::erase(strangers, nullptr);
      std::vector<uint32_t> missing;
      for (uint32_t r = 1; r < self_.size; ++r) {
        if (!wires_[r])
          missing.push_back(r);
        else if (!wires_[r]->pump())
          refuse("rank " + std::to_string(r) + " (" + peers_[r].text() + ") ended before all ranks had started");
      }
      if (Clock::now() > end_ && !missing.empty())
        refuse("waited " + limit_ + " for all ranks to start: " + ranks_text(missing) +
               (missing.size() == 1 ? " has" : " have") + " not come to rank 0 at " + where_);
    }
    tell({Kind::welcome}, {reinterpret_cast<const char*>(peers_.data()), peers_.size() * sizeof(Peer)});
  }

  // On another rank.
  void join_first() {
    wires_[0] = connect();
    Wire& wire = *wires_[0];
    wire.trust();
    wire.put({Kind::hello, self_.rank}, bytes_of(self_));
    // Rank 0 names who is missing, if it comes to that.
    end_ += to_answer;
    for (;;) {
      const bool open = wire.pump();
      Frame frame;
      std::string bytes;
      if (wire.next(frame, bytes)) {
        if (frame.kind == Kind::refused) throw Error{ENG_UNAVAILABLE, bytes};
        if (frame.kind != Kind::welcome || bytes.size() != sizeof(Peer) * peers_.size())
          throw Error{ENG_UNAVAILABLE, "what listens at " + where_ + " is not rank 0 of this run"};
        std::memcpy(peers_.data(), bytes.data(), bytes.size());
        return;
      }
      if (!open) throw Error{ENG_UNAVAILABLE, "rank 0 at " + where_ + " ended before all ranks had started"};
      if (Clock::now() > end_)
        throw Error{ENG_UNAVAILABLE,
                    "waited " + limit_ + " for rank 0 at " + where_ + " to say that all ranks have started"};
      wait_for(polled(-1, wires_));
    }
  }

  // The first socket at an address of rank 0 for which attempt(fd, address) returns 0; what it returned last is left in
  // `error`. NULL if there is none.
  template <class Attempt>
  std::unique_ptr<Wire> open(int flags, int& error, Attempt attempt) const {
    addrinfo hint{}, *list = nullptr;
    hint.ai_socktype = SOCK_STREAM, hint.ai_flags = AI_NUMERICSERV | flags;
    if (const int failed = ::getaddrinfo(address_.c_str(), port_.c_str(), &hint, &list))
      throw Error{ENG_UNAVAILABLE, "the address of rank 0 is " + address_ + ", which is not known here: " +
                                       ::gai_strerror(failed) + "; set MASTER_ADDR, or [comm] address"};
    const std::shared_ptr<addrinfo> all(list, ::freeaddrinfo);
    for (const addrinfo* a = list; a; a = a->ai_next) {
      const int fd = ::socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd < 0) continue;
      auto socket = std::make_unique<Wire>(fd);
      error = attempt(fd, *a);
      if (!error) return socket;
    }
    return nullptr;
  }

  // Nothing is ever put on it.
  std::unique_ptr<Wire> listen() const {
    int error = 0;
    auto socket = open(AI_PASSIVE, error, [](int fd, const addrinfo& a) {
      const int on = 1;
      ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
      return ::bind(fd, a.ai_addr, a.ai_addrlen) == 0 && ::listen(fd, 1024) == 0 ? 0 : errno;
    });
    if (socket) return socket;
    std::string text = "rank 0 cannot listen at " + where_ + ": " + std::strerror(error);
    if (error == EADDRINUSE)
      text += "; another run or program has this port: set MASTER_PORT, or [comm] port, to a free one";
    if (error == EADDRNOTAVAIL)
      text += "; rank 0 runs on " + std::string(self_.host) +
              ", which does not have this address: set MASTER_ADDR, or [comm] address, to one that it has";
    throw Error{ENG_UNAVAILABLE, text};
  }

  std::unique_ptr<Wire> connect() const {
    for (milliseconds pause = between_tries;; pause = std::min(pause * 2, most_between_tries)) {
      int error = 0;
      auto socket = open(0, error, [&](int fd, const addrinfo& a) {
        const int failed = ::connect(fd, a.ai_addr, a.ai_addrlen) == 0 ? 0 : errno;
        return failed == EINPROGRESS ? connected(fd) : failed;
      });
      if (socket) return socket;
      if (Clock::now() + pause > end_)
        throw Error{ENG_UNAVAILABLE,
                    "rank " + std::to_string(self_.rank) + " on " + self_.host + " tried for " + limit_ +
                        " to reach rank 0 at " + where_ + ": " + std::strerror(error) +
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

  // Somebody who has connected. Becomes a rank, which returns true; stays; or is gone.
  bool greet(std::unique_ptr<Wire>& one) {
    Frame frame;
    std::string bytes;
    try {
      const bool open = one->pump();
      if (!one->next(frame, bytes) && open) return false;
    } catch (const Error&) {  // more than a rank says of itself
    }
    auto peer = value_of<Peer>(bytes);
    if (frame.kind != Kind::hello || !peer || peer->sign != Peer::magic || peer->rank >= peer->size)
      return one.reset(), false;
    peer->host[sizeof peer->host - 1] = peer->machine[sizeof peer->machine - 1] = 0;
    std::string wrong = peer->text() + " was started as rank " + std::to_string(peer->rank);
    if (peer->size != self_.size) {
      wrong =
          "a " + wrong + " of " + std::to_string(peer->size) + ", but rank 0 as one of " + std::to_string(self_.size);
    } else if (const Peer& there = peers_[peer->rank]; there.size) {
      wrong += ", but that is " + there.text() + ": every rank needs its own number, and every run its own port";
    } else {
      one->trust();
      peers_[peer->rank] = *peer, wires_[peer->rank] = std::move(one);
      return true;
    }
    wires_.push_back(std::move(one));
    refuse(wrong);
  }

  // All who have come.
  void tell(Frame frame, std::string_view bytes) {
    for (auto& wire : wires_)
      if (wire) wire->put(frame, bytes);
    for (const auto end = Clock::now() + to_answer; Clock::now() < end && !idle(wires_); ::usleep(1000))
      for (auto& wire : wires_)
        if (wire) wire->pump();
  }
  [[noreturn]] void refuse(const std::string& text) {
    tell({Kind::refused}, text);
    throw Error{ENG_UNAVAILABLE, text};
  }

  const Peer self_;
  const std::string address_, port_, where_;
  std::string limit_;  // "600 s"
  Clock::time_point end_;
  std::vector<Peer> peers_;  // by rank; size 0: has not come
  Wires wires_;
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
  return Meeting(announced, address, port, deadline).join();
}

}  // namespace nccl
