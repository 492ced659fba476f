// SPDX-License-Identifier: Apache-2.0
// A communicator for the ranks of one machine, over sockets. It only moves bytes: sums are the engine's, so they are
// the same with every communicator. For several machines, let address_of() give addresses of TCP.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <string>
#include <vector>

#include "engine/comm.h"
#include "engine/ops.h"
#include "engine/plugin.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a communicator'

[[provides]]
kind = ')" ENG_COMM_DRAFT R"('
name = 'my_thing'
summary = 'sockets between the ranks of one machine'

[provides.options]
port = { type = 'int', default = 29517, min = 1, max = 65535, help = 'another one for each run on a machine' }

[[provides]]
kind = ')" ENG_KERNELS_DRAFT R"('
name = 'my_thing'
summary = 'the collectives'
)")

namespace {

struct Error {
  eng_status status;
  std::string text;
};

// Runs `body`. Nothing may be thrown to the engine.
template <class F>
eng_status guarded(eng_error* error, F body) noexcept {
  try {
    body();
    return ENG_OK;
  } catch (const Error& e) {
    if (error) error->set(error, e.status, e.text.data(), e.text.size());
    return e.status;
  } catch (...) {
    if (error) error->set(error, ENG_NO_MEMORY, "out of memory", 13);
    return ENG_NO_MEMORY;
  }
}

using Clock = std::chrono::steady_clock;
double since(Clock::time_point t) {
  return std::chrono::duration<double>(Clock::now() - t).count();
}

// ---- the ranks ----

struct Group {
  std::vector<uint32_t> ranks;
  uint32_t self = 0;    // this rank's place among them
  uint64_t number = 0;  // of collectives so far
};

// The bytes to and from one other rank.
struct Flow {
  uint32_t rank;
  int socket;
  const char* out;
  uint64_t out_left;
  char* in;
  uint64_t in_left;
};

struct Comm {
  uint32_t rank = 0, size = 0;
  double deadline = 0;
  std::vector<int> sockets[2];  // by rank: those of exchange, those of collectives, which may be at work meanwhile
  std::map<eng_id, Group> groups;
  std::mutex mutex;  // of the reason
  std::string reason;
  std::atomic<bool> failed{false};

  ~Comm() {
    for (const auto& list : sockets)
      for (const int socket : list)
        if (socket >= 0) ::close(socket);
  }
  // Keeps the first reason, which every later call then has.
  void fail(const std::string& why) {
    const std::lock_guard<std::mutex> lock(mutex);
    if (!failed) reason = why;
    failed = true;
  }
  void check() {
    if (!failed) return;
    const std::lock_guard<std::mutex> lock(mutex);
    throw Error{ENG_UNAVAILABLE, reason};
  }
  [[noreturn]] void raise(const std::string& why) {
    fail(why);
    throw Error{ENG_UNAVAILABLE, why};
  }
  // Both directions of all flows at once: ranks that send to each other never wait for each other's full buffers.
  // `polls` has as many elements. Allocates only the text of an error.
  void move(std::vector<Flow>& flows, std::vector<pollfd>& polls, const char* what, eng_id group, uint64_t number);
};

void Comm::move(std::vector<Flow>& flows, std::vector<pollfd>& polls, const char* what, eng_id group, uint64_t number) {
  const auto begin = Clock::now();
  const auto told = [&](const std::string& why) {
    raise(std::string(what) + " number " + std::to_string(number) + " of group " + std::to_string(group) + ": " + why +
          " after " + std::to_string(since(begin)) + " s");
  };
  for (;;) {
    bool open = false;
    for (size_t k = 0; k < flows.size(); ++k) {
      const int events = (flows[k].out_left ? POLLOUT : 0) | (flows[k].in_left ? POLLIN : 0);
      polls[k] = {events ? flows[k].socket : -1, static_cast<short>(events), 0};
      open = open || events;
    }
    if (!open) return;
    check();
    ::poll(polls.data(), polls.size(), 100);  // milliseconds; then it looks again whether somebody has failed
    for (size_t k = 0; k < flows.size(); ++k) {
      Flow& f = flows[k];
      const int got = polls[k].revents, bad = POLLERR | POLLHUP;
      if (f.out_left && (got & (POLLOUT | bad))) {
        const ssize_t n = ::send(f.socket, f.out, f.out_left, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) f.out += n, f.out_left -= static_cast<uint64_t>(n);
        if (n < 0 && errno != EAGAIN && errno != EINTR) told("rank " + std::to_string(f.rank) + " has gone");
      }
      if (f.in_left && (got & (POLLIN | bad))) {
        const ssize_t n = ::recv(f.socket, f.in, f.in_left, MSG_DONTWAIT);
        if (n > 0) f.in += n, f.in_left -= static_cast<uint64_t>(n);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
          told("rank " + std::to_string(f.rank) + " has gone");
      }
    }
    if (since(begin) < deadline) continue;
    std::string missing;
    for (const Flow& f : flows)
      if (f.in_left || f.out_left) missing += " " + std::to_string(f.rank);
    if (!missing.empty()) told("no answer of rank" + missing);
  }
}

// ---- joining ----

// A name of Linux's own, without a file: it is gone with its socket.
socklen_t address_of(int64_t port, uint32_t rank, sockaddr_un& out) {
  out = {};
  out.sun_family = AF_UNIX;
  const int n =
      std::snprintf(out.sun_path + 1, sizeof out.sun_path - 1, "my_thing.%d.%u", static_cast<int>(port), rank);
  return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + static_cast<size_t>(n));
}

int new_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) throw Error{ENG_UNAVAILABLE, std::string("no socket: ") + std::strerror(errno)};
  return socket;
}

// Any user of the machine can use such a name.
bool is_ours(int socket) {
  ucred who{};
  socklen_t size = sizeof who;
  return ::getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &who, &size) == 0 && who.uid == ::geteuid();
}

constexpr ssize_t hello_bytes = 2 * sizeof(uint32_t);

// Each rank connects to all lower ones, twice, and says who it is and for what.
void join(Comm& comm, int64_t port) {
  const auto begin = Clock::now();
  for (auto& list : comm.sockets) list.assign(comm.size, -1);
  sockaddr_un address;
  socklen_t length = address_of(port, comm.rank, address);
  const int own = new_socket();
  const struct Closer {
    int socket;
    ~Closer() { ::close(socket); }
  } closer{own};
  if (::bind(own, reinterpret_cast<sockaddr*>(&address), length) || ::listen(own, SOMAXCONN))
    throw Error{ENG_UNAVAILABLE, "comm.port = " + std::to_string(port) + " is in use: choose another one"};
  const auto late = [&](const std::string& whom) {
    if (since(begin) > comm.deadline)
      throw Error{ENG_UNAVAILABLE, whom + " did not come within " + std::to_string(comm.deadline) + " s"};
    ::poll(nullptr, 0, 10);  // a pause
  };
  for (uint32_t other = 0; other < comm.rank; ++other)
    for (uint32_t use = 0; use < 2; ++use) {
      int& socket = comm.sockets[use][other];
      socket = new_socket();
      length = address_of(port, other, address);
      while (::connect(socket, reinterpret_cast<sockaddr*>(&address), length)) late("rank " + std::to_string(other));
      const uint32_t hello[] = {comm.rank, use};
      if (!is_ours(socket) || ::send(socket, hello, sizeof hello, MSG_NOSIGNAL) != hello_bytes)
        throw Error{ENG_UNAVAILABLE, "rank " + std::to_string(other) + " is not one of this run"};
    }
  for (uint32_t left = 2 * (comm.size - 1 - comm.rank); left > 0;) {
    pollfd ready = {own, POLLIN, 0};
    const int socket = ::poll(&ready, 1, 100) > 0 ? ::accept4(own, nullptr, nullptr, SOCK_CLOEXEC) : -1;
    uint32_t hello[2] = {0, 2};
    if (socket >= 0 && is_ours(socket) && ::recv(socket, hello, sizeof hello, MSG_WAITALL) == hello_bytes &&
        hello[0] > comm.rank && hello[0] < comm.size && hello[1] < 2 && comm.sockets[hello[1]][hello[0]] < 0) {
      comm.sockets[hello[1]][hello[0]] = socket;
      --left;
      continue;
    }
    if (socket >= 0) ::close(socket);
    late("a rank above " + std::to_string(comm.rank));
  }
}

void add_group(Comm& comm, eng_id id, std::vector<uint32_t> ranks) {
  Group group;
  group.ranks = std::move(ranks);
  group.self =
      static_cast<uint32_t>(std::find(group.ranks.begin(), group.ranks.end(), comm.rank) - group.ranks.begin());
  comm.groups[id] = std::move(group);
}

Comm& of(void* self) {
  return *static_cast<Comm*>(self);
}

eng_status create(const eng_options* options, double deadline, eng_world* world, void** self, eng_error* error) {
  int64_t port = 0;
  if (eng_status s = options->get_int(options, "port", &port, error)) return s;
  return guarded(error, [&] {
    if (!(world->announced & ENG_WORLD_RANKS))
      throw Error{ENG_UNAVAILABLE, "no launcher has said which rank this is: use engine run --ranks, or mpirun"};
    auto comm = std::make_unique<Comm>();
    comm->rank = world->rank, comm->size = world->size, comm->deadline = deadline;
    join(*comm, port);
    std::vector<uint32_t> all(comm->size);
    std::iota(all.begin(), all.end(), 0u);
    add_group(*comm, 1, std::move(all));
    world->local_rank = world->rank, world->local_size = world->size;  // one machine
    *self = comm.release();
  });
}

void destroy(void* self) {
  delete static_cast<Comm*>(self);
}

eng_status make_group(void* self, eng_id id, const uint32_t* ranks, uint32_t n, eng_error* error) {
  return guarded(error, [&] { add_group(of(self), id, {ranks, ranks + n}); });
}

// The engine's own few bytes, between steps. It may allocate.
eng_status exchange(void* self, const void* mine, uint64_t bytes, void* all, eng_error* error) {
  return guarded(error, [&] {
    Comm& comm = of(self);
    static const char nothing = 0;
    const uint64_t size = bytes ? bytes : 1;  // a barrier: a byte that nobody reads
    std::vector<char> spare(bytes ? 0 : comm.size);
    const char* from = bytes ? static_cast<const char*>(mine) : &nothing;
    char* to = bytes ? static_cast<char*>(all) : spare.data();
    std::vector<Flow> flows;
    for (uint32_t r = 0; r < comm.size; ++r)
      if (r != comm.rank) flows.push_back({r, comm.sockets[0][r], from, size, to + r * size, size});
    std::memmove(to + comm.rank * size, from, size);
    std::vector<pollfd> polls(flows.size());
    comm.move(flows, polls, "exchange", 1, 0);
  });
}

eng_status poll_failure(void* self, eng_error* error) {
  return guarded(error, [&] { of(self).check(); });
}

// Closed sockets end the waits of the others, too.
void abort_all(void* self, const char* reason) {
  guarded(nullptr, [&] {
    of(self).fail(reason ? reason : "aborted");
    for (const auto& list : of(self).sockets)
      for (const int socket : list)
        if (socket >= 0) ::shutdown(socket, SHUT_RDWR);
  });
}

constexpr eng_comm make_comm() {
  eng_comm table{};
  table.struct_size = sizeof table;
  table.flags = ENG_COMM_ANY_LAUNCHER;
  table.create = create;
  table.destroy = destroy;
  table.group = make_group;
  table.exchange = exchange;
  table.poll = poll_failure;
  table.abort = abort_all;
  return table;  // overhead_bytes is 0: sockets take next to no memory of the process
}
constexpr eng_comm comm_table = make_comm();

// ---- the collectives: kernels in memory of the host ----

enum What { all_gather, all_to_all, broadcast };
constexpr const char* names[] = {ENG_OP_ALL_GATHER, ENG_OP_ALL_TO_ALL, ENG_OP_BROADCAST};

struct Collective {
  Comm* comm;
  Group* group;
  eng_id id;
  uint32_t root;
  uint64_t bytes;    // of the input
  const char* from;  // this rank's own bytes, which no socket carries
  char* to;
  uint64_t own;
  std::vector<Flow> flows, now;
  std::vector<pollfd> polls;
};

uint64_t bytes_of(const eng_desc& d) {
  uint64_t n = d.dtype == ENG_F64 || d.dtype == ENG_I64 ? 8 : d.dtype == ENG_U8 ? 1 : 2;
  if (d.dtype == ENG_F32 || d.dtype == ENG_I32) n = 4;
  for (uint32_t k = 0; k < d.ndim; ++k) n *= static_cast<uint64_t>(d.dims[k]);
  return n;
}

int64_t attribute(const eng_call* call, const char* key) {
  for (uint32_t k = 0; k < call->n_attrs; ++k)
    if (!std::strcmp(call->attrs[k].key, key)) return call->attrs[k].i;
  return 0;
}

eng_status workspace(const eng_call*, uint64_t* bytes, eng_error*) {
  *bytes = 0;
  return ENG_OK;
}

// `self` is the Comm. Its groups have been made.
eng_status prepare(void* self, const eng_call* call, void** state, eng_error* error) {
  return guarded(error, [&] {
    auto made = std::make_unique<Collective>();
    made->comm = static_cast<Comm*>(self);
    made->id = static_cast<eng_id>(attribute(call, "group"));
    const auto found = made->comm->groups.find(made->id);
    if (found == made->comm->groups.end() || found->second.self == found->second.ranks.size())
      throw Error{ENG_INVALID, "this rank is in no group " + std::to_string(made->id)};
    made->group = &found->second;
    made->root = static_cast<uint32_t>(attribute(call, "root"));
    made->bytes = bytes_of(call->in[0]);
    *state = made.release();
  });
}

// Everything that a launch needs, so that it allocates nothing.
template <What what>
eng_status bind_collective(void* state, const DLTensor* const* args, uint32_t, void*, void** record, eng_error* error) {
  return guarded(error, [&] {
    auto made = std::make_unique<Collective>(*static_cast<const Collective*>(state));
    const char* in = static_cast<const char*>(args[0]->data) + args[0]->byte_offset;
    char* out = static_cast<char*>(args[1]->data) + args[1]->byte_offset;
    const std::vector<uint32_t>& ranks = made->group->ranks;
    const uint32_t self = made->group->self;
    const uint64_t part = what == all_to_all ? made->bytes / ranks.size() : made->bytes;
    for (uint32_t k = 0; k < ranks.size(); ++k) {
      const bool gives = what != broadcast || self == made->root, takes = what != broadcast || k == made->root;
      const char* from = what == all_to_all ? in + k * part : in;
      char* to = what == broadcast ? out : out + k * part;
      if (k != self)
        made->flows.push_back(
            {ranks[k], made->comm->sockets[1][ranks[k]], from, gives ? part : 0, to, takes ? part : 0});
      else if (takes)
        made->from = from, made->to = to, made->own = part;
    }
    made->now = made->flows;
    made->polls.resize(made->flows.size());
    *record = made.release();
  });
}

template <What what>
eng_status launch_collective(void* record, const eng_exec*, eng_error* error) {
  return guarded(error, [&] {
    Collective& c = *static_cast<Collective*>(record);
    if (c.from != c.to && c.own) std::memmove(c.to, c.from, c.own);
    c.now = c.flows;  // of the same size: no allocation
    c.comm->move(c.now, c.polls, names[what], c.id, ++c.group->number);
  });
}

void drop(void* collective) {
  delete static_cast<Collective*>(collective);
}

template <What what>
constexpr eng_kernel make_kernel() {
  return {sizeof(eng_kernel),    ENG_KERNEL_EXACT,        names[what], workspace, prepare,
          bind_collective<what>, launch_collective<what>, drop,        drop};
}
constexpr eng_kernel gathers = make_kernel<all_gather>(), swaps = make_kernel<all_to_all>(),
                     sends = make_kernel<broadcast>();
const eng_kernel* const kernel_list[] = {&gathers, &swaps, &sends};
constexpr eng_kernels kernels = {sizeof(eng_kernels), 3, kernel_list};

// ---- the plugin ----

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  if (std::strcmp(name, "my_thing") != 0) return nullptr;
  if (!std::strcmp(kind, ENG_COMM_KIND)) return &comm_table;
  return !std::strcmp(kind, ENG_KERNELS_KIND) ? &kernels : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
