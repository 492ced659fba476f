// SPDX-License-Identifier: Apache-2.0
#include "comm.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include "../common/comm/thread.hpp"

namespace nccl {
namespace {

void select_gpu(int device) {
  check(cudaSetDevice(device), "selecting the GPU of this rank");
}

}  // namespace

std::string text_of(ncclResult_t result, ncclComm_t comm) {
  const char* last = ncclGetLastError(comm);
  return ncclGetErrorString(result) + (last && *last ? std::string(" (") + last + ")" : "");
}

void check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  throw Error{ENG_UNAVAILABLE, std::string(call) + ": " + text_of(result, comm)};
}

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const bool capture = error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
  throw Error{capture ? ENG_UNSUPPORTED : ENG_INTERNAL,
              std::string(doing) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")"};
}

Comm::Comm(const eng_world& announced, const std::string& address, uint16_t port, double deadline, eng_world& out)
    : met_(meet(announced, address, port, deadline)), deadline_(deadline), groups_(announced.rank, announced.size) {
  const Peer& self = met_.peers[groups_.rank];
  out.rank = groups_.rank, out.size = groups_.size;
  out.local_rank = self.local_rank, out.local_size = self.local_size;
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error{ENG_INTERNAL, std::string("eventfd: ") + std::strerror(errno)};
  start_watching();
}

void Comm::take_gpu(bool share) {
  const Gpu own = gpu_of(met_.peers[groups_.rank].local_rank);
  int version = 0;
  if (share) check(ncclGetVersion(&version), "ncclGetVersion");
  check_gpus(met_.peers, exchange_values(own), version);
  device_ = own.number;
}

Comm::~Comm() {
  try {
    if (!failed_) {
      exchange_bytes(nullptr, 0, nullptr);
      {
        const std::lock_guard lock(state_);  // nobody looks at them any more
        for (auto& [id, group] : groups_.all)
          if (group.library) group.library->ended = true;
      }
      for (auto& [id, group] : groups_.all) {
        if (!group.library) continue;
        const auto destroyed = common::on_own_thread([library = group.library, device = device_] {
          cudaSetDevice(device);
          ncclCommDestroy(library->comm);
        });
        if (destroyed.wait_for(deadline_) != std::future_status::ready) break;
      }
      const std::lock_guard lock(state_);
      leaving_ = true;
      send(Kind::bye, everyone, 0, {});
    }
  } catch (...) {  // a rank is gone, and the process ends anyway
  }
  silence();
  ::close(wake_);
}

void Comm::make_group(eng_id id, const uint32_t* ranks, uint32_t n) {
  const std::string name = "group " + std::to_string(id);
  if (id == 0) throw Error{ENG_INVALID, name + " is the host's own"};
  Group group = groups_.checked(id, ranks, n);
  if (!n) throw Error{ENG_INVALID, name + " has no members"};
  if (!groups_.all[1].library) connect(groups_.all[1]);
  connect(group);
  const std::lock_guard lock(state_);
  groups_.all[id] = std::move(group);
}

Group& Comm::group(eng_id id) {
  Group& found = groups_.own(id);
  if (!found.library) connect(found);  // group 1
  return found;
}

// Each group has an id of its own from its first member, so that no group depends on another one, and each can be
// aborted by itself.
void Comm::connect(Group& group) {
  struct First {
    ncclUniqueId id;
    char error[256];  // why there is none; "" if there is
  } first{};
  if (group.ranks[0] == groups_.rank) try {
      check(ncclGetUniqueId(&first.id), "ncclGetUniqueId");
    } catch (const Error& e) {
      e.text.copy(first.error, sizeof first.error - 1);
    }
  first = exchange_values(first)[group.ranks[0]];
  if (*first.error) throw Error{ENG_UNAVAILABLE, "rank " + std::to_string(group.ranks[0]) + ": " + first.error};
  if (!group.member) return;
  const auto library = std::make_shared<Library>();
  auto connected =
      common::on_own_thread([=, id = first.id, device = device_, n = group.ranks.size(), self = group.self] {
        select_gpu(device);
        ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
        config.blocking = 1;
        check(ncclCommInitRankConfig(&library->comm, static_cast<int>(n), id, static_cast<int>(self), &config),
              "ncclCommInitRankConfig");
      });
  const auto start = Clock::now();
  while (connected.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    failed_.check();
    if (Clock::now() - start <= deadline_) continue;
    const std::lock_guard lock(state_);
    fail("NCCL has not connected the GPUs of group " + std::to_string(group.id) + " (" + ranks_text(group.ranks) +
         ") within the deadline: NCCL_DEBUG=INFO shows why, NCCL_SOCKET_IFNAME names the network to use");
    failed_.raise();
  }
  const std::lock_guard lock(state_);
  try {
    connected.get();
  } catch (const Error& e) {
    fail(e.text);
    throw;
  }
  group.library = library;
}

void Comm::exchange_bytes(const void* mine, uint64_t bytes, void* all) {
  const std::string_view part(static_cast<const char*>(bytes ? mine : ""), bytes);
  std::unique_lock lock(state_);
  failed_.check();
  groups_.host.place.enter(What::exchange);
  result_.reset();
  if (groups_.rank == 0)
    take_part(0, part);
  else
    send(Kind::part, 0, 0, part);
  changed_.wait(lock, [&] { return failed_ || result_; });
  groups_.host.place.waiting = false;
  if (!result_) failed_.raise();
  if (bytes) std::memcpy(all, result_->data(), result_->size());
}

void Comm::enqueue(Group& group, const std::function<void(ncclComm_t)>& body) {
  failed_.check();
  select_gpu(device_);
  Library& library = *group.library;
  const std::lock_guard lock(library.busy);
  failed_.check();
  if (library.ended) throw Error{ENG_UNAVAILABLE, "NCCL was aborted"};
  body(library.comm);
}

void Comm::poll() {
  // A collective that has just ended on a queue may have failed in a way that the watching thread has not seen yet.
  if (!failed_) {
    const std::lock_guard lock(state_);
    look_at_library();
  }
  failed_.check();
}

void Comm::abort(const std::string& reason) noexcept {
  try {
    std::unique_lock lock(state_);
    fail(reason);
    // The others are told before this process may end.
    changed_.wait_for(lock, std::chrono::seconds(1), [&] { return idle(met_.wires); });
  } catch (...) {  // no memory: they see the end of this process
  }
}

void Comm::entered(Group& group, What what) {
  const std::lock_guard lock(state_);
  group.place.enter(what);
}
// After a failure the place stays as it was, for the text.
void Comm::left(Group& group) {
  const std::lock_guard lock(state_);
  group.place.waiting = false;
}

}  // namespace nccl
