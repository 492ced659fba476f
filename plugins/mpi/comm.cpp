// SPDX-License-Identifier: Apache-2.0
#include "comm.hpp"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

namespace mpi {
namespace {

void sleep_for(std::chrono::nanoseconds time) {
  const timespec length = {0, time.count()};
  nanosleep(&length, nullptr);
}

}  // namespace

Comm::Comm(double deadline, uint64_t message_bytes, eng_world& out)
    : all_(join(deadline)), deadline_(deadline), message_bytes_(message_bytes), groups_(all_.rank, all_.size) {
  int* most = nullptr;
  int found = 0;
  check(MPI_Comm_get_attr(all_.step, MPI_TAG_UB, &most, &found), "MPI_Comm_get_attr");
  most_tag_ = found ? *most : 32767;
  groups_.all[1].library = all_.step;
  check(MPI_Recv_init(&incoming_, sizeof(Note), MPI_BYTE, MPI_ANY_SOURCE, 0, all_.control, &listening_),
        "MPI_Recv_init");
  check(MPI_Start(&listening_), "MPI_Start");
  out.rank = all_.rank, out.size = all_.size;
  out.local_rank = all_.local_rank, out.local_size = all_.local_size;
  start_listening();
}

Comm::~Comm() {
  try {
    if (!failed_) exchange_bytes(nullptr, 0, nullptr);
  } catch (...) {  // a rank is gone: the process ends without leaving MPI, which the launcher sees
  }
  silence();
  for (const Neighbour& one : all_.neighbours) ::close(one.fd);
  const std::lock_guard lock(mpi_);
  if (failed_ || silent_) return;
  MPI_Cancel(&listening_);
  MPI_Wait(&listening_, MPI_STATUS_IGNORE);
  MPI_Request_free(&listening_);
  for (auto& [id, group] : groups_.all)
    if (id != 1 && group.library != MPI_COMM_NULL) MPI_Comm_free(&group.library);
  for (MPI_Comm* comm : {&all_.step, &all_.host, &all_.control}) MPI_Comm_free(comm);
  MPI_Finalize();
}

void Comm::make_group(eng_id id, const uint32_t* ranks, uint32_t n) {
  if (id == 0 || id > static_cast<uint32_t>(most_tag_) / ops_per_group - 1)
    throw Error{ENG_OUT_OF_RANGE, "group " + std::to_string(id) + " is above the largest number that MPI allows"};
  Group group = groups_.checked(id, ranks, n);
  group.library = library_of(group.ranks);
  const std::lock_guard lock(mpi_);
  groups_.all[id] = std::move(group);
}

Group& Comm::group(eng_id id) {
  return groups_.own(id);
}

// MPI would wait for the others without a limit, so the ranks meet here first.
MPI_Comm Comm::library_of(const std::vector<uint32_t>& ranks) {
  exchange_bytes(nullptr, 0, nullptr);
  const std::lock_guard lock(mpi_);
  MPI_Group everybody = MPI_GROUP_NULL, members = MPI_GROUP_NULL;
  MPI_Comm made = MPI_COMM_NULL;
  const std::vector<int> list(ranks.begin(), ranks.end());
  check(MPI_Comm_group(all_.step, &everybody), "MPI_Comm_group");
  check(MPI_Group_incl(everybody, static_cast<int>(list.size()), list.data(), &members), "MPI_Group_incl");
  check(MPI_Comm_create(all_.step, members, &made), "MPI_Comm_create");
  if (made != MPI_COMM_NULL) check(MPI_Comm_set_errhandler(made, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  MPI_Group_free(&members);
  MPI_Group_free(&everybody);
  return made;
}

void Comm::exchange_bytes(const void* mine, uint64_t bytes, void* all) {
  const Round round(*this, groups_.host, What::exchange);
  struct Words {
    std::vector<char> mine, all;
    Messages messages;
  };
  auto words = std::make_unique<Words>();
  words->mine.assign(static_cast<const char*>(mine), static_cast<const char*>(mine) + bytes);
  words->all.resize(bytes * all_.size);
  for (uint32_t k = 1; k < all_.size; ++k) {
    const uint32_t from = (all_.rank + all_.size - k) % all_.size, to = (all_.rank + k) % all_.size;
    add_receive(words->messages, words->all.data() + from * bytes, bytes, from, 0, all_.host);
    add_send(words->messages, words->mine.data(), bytes, to, 0, all_.host);
  }
  try {
    run(words->messages, groups_.host);
  } catch (...) {
    static_cast<void>(words.release());  // MPI may still write there
    throw;
  }
  drop(words->messages);
  if (!bytes) return;
  std::memcpy(words->all.data() + all_.rank * bytes, mine, bytes);
  std::memcpy(all, words->all.data(), words->all.size());
}

template <class Init>
void Comm::add(Messages& m, uint64_t bytes, uint32_t other, uint32_t from, Init init) {
  const std::lock_guard lock(mpi_);
  uint64_t at = 0;
  do {
    const uint64_t n = std::min(bytes - at, message_bytes_);
    m.requests.push_back(MPI_REQUEST_NULL);
    m.from.push_back(from);
    m.standstill.add(other);
    init(at, static_cast<int>(n), &m.requests.back());
    at += n;
  } while (at < bytes);
}

void Comm::add_send(Messages& m, const void* data, uint64_t bytes, uint32_t to, int tag, MPI_Comm comm) {
  add(m, bytes, to, Messages::nobody, [&](uint64_t at, int n, MPI_Request* request) {
    const char* part = static_cast<const char*>(data) + at;
    check(MPI_Send_init(part, n, MPI_BYTE, static_cast<int>(to), tag, comm, request), "MPI_Send_init");
  });
}

void Comm::add_receive(Messages& m, void* data, uint64_t bytes, uint32_t from, int tag, MPI_Comm comm) {
  add(m, bytes, from, from, [&](uint64_t at, int n, MPI_Request* request) {
    char* part = static_cast<char*>(data) + at;
    check(MPI_Recv_init(part, n, MPI_BYTE, static_cast<int>(from), tag, comm, request), "MPI_Recv_init");
  });
}

void Comm::drop(Messages& m) {
  if (m.started) return fall_silent();
  const std::lock_guard lock(mpi_);
  if (silent_) return;
  for (MPI_Request& request : m.requests)
    if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
}

void Comm::fall_silent() {
  abort(failed_ ? failed_.reason() : "it ended during a collective");
  const std::lock_guard lock(mpi_);
  silent_ = true;
}

void Comm::run(Messages& m, const Group& group) {
  if (m.requests.empty()) return;
  m.statuses.resize(m.requests.size());
  {
    const std::lock_guard lock(mpi_);
    failed_.check();
    m.started = true;
    m.standstill.begin();
    check(MPI_Startall(static_cast<int>(m.requests.size()), m.requests.data()), "MPI_Startall");
  }
  wait(
      group, [&] { return complete(m); }, &m);
}

bool Comm::complete(Messages& m) {
  int done = 0;
  const int code = MPI_Testall(static_cast<int>(m.requests.size()), m.requests.data(), &done, m.statuses.data());
  if (code == MPI_ERR_IN_STATUS)
    for (size_t k = 0; k < m.requests.size(); ++k)
      if (const int error = m.statuses[k].MPI_ERROR; error != MPI_SUCCESS && error != MPI_ERR_PENDING) {
        const std::string whose = m.from[k] == Messages::nobody ? "" : " from rank " + std::to_string(m.from[k]);
        throw Error{ENG_UNAVAILABLE, "a message" + whose + ": " + text_of(error)};
      }
  check(code, "MPI_Testall");
  if (done) m.started = false;
  return done != 0;
}

bool Comm::complete(MPI_Request& request) {
  int done = 0;
  check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
  return done != 0;
}

// Bytes move only while MPI tests the messages. A test that took long has moved some, so the next one follows at once.
// With nothing to move, the wait first keeps looking, because it may be short. Then it sleeps for an eighth of the time
// it has waited: ranks on the same cores can compute meanwhile, and a message is noticed only a little late. (The
// system wakes a sleeper before it runs a thread that yields.)
bool Comm::Wait::idle(Comm& comm) {
  using std::chrono::microseconds;
  const auto now = Clock::now();
  if (now - last_ > microseconds(20)) moved_ = now;
  const auto quiet = now - moved_;
  if (quiet > microseconds(20))
    sleep_for(std::clamp<std::chrono::nanoseconds>(quiet / 8, microseconds(20), microseconds(500)));
  const auto before = std::exchange(last_, Clock::now());
  // For a time in which this rank could not look, because it was stopped or got no core, no other rank is to blame.
  waited_ += std::min<Clock::duration>(last_ - before, std::chrono::seconds(1));
  if (waited_ <= comm.deadline_) return false;
  if (!messages_ || comm.failed_) return true;
  const std::lock_guard lock(comm.mpi_);
  if (comm.silent_) return true;
  look(*messages_);
  return messages_->standstill.longest(waited_) > comm.deadline_;
}

void Comm::Wait::look(Messages& messages) {
  messages.standstill.look(waited_, [&](size_t k) {
    int through = 0;
    return MPI_Request_get_status(messages.requests[k], &through, MPI_STATUS_IGNORE) == MPI_SUCCESS && through;
  });
}

Comm::Round::Round(Comm& comm, Group& group, What what) : comm_(comm), group_(group) {
  const std::lock_guard lock(comm_.mpi_);
  group_.place.enter(what);
}

Comm::Round::~Round() {
  const std::lock_guard lock(comm_.mpi_);
  group_.place.waiting = false;
}

}  // namespace mpi
