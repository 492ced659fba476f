// SPDX-License-Identifier: Apache-2.0
#include "comm.hpp"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <numeric>

namespace nccl {
namespace {

// Something of NCCL that may wait for other ranks without a limit. Runs on a thread of its own, which can be left
// behind.
struct Task {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::optional<Error> error;

  static std::shared_ptr<Task> start(std::function<void()> body) {
    auto task = std::make_shared<Task>();
    std::thread([task, body = std::move(body)] {
      common::leave_signals_to_host();  // by NCCL's threads, too
      std::optional<Error> error;
      try {
        body();
      } catch (const Error& e) {
        error = e;
      } catch (const std::exception& e) {
        error = Error{ENG_INTERNAL, e.what()};
      }
      const std::lock_guard lock(task->mutex);
      task->error = error, task->done = true;
      task->changed.notify_all();
    }).detach();
    return task;
  }
  bool wait(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, time, [&] { return done; });
  }
};

}  // namespace

void check(ncclResult_t result, const char* call, ncclComm_t comm) {
  if (result == ncclSuccess || result == ncclInProgress) return;
  const char* last = ncclGetLastError(comm);
  throw Error{ENG_UNAVAILABLE, std::string(call) + ": " + ncclGetErrorString(result) +
                                   (last && *last ? std::string(" (") + last + ")" : "")};
}

void check(cudaError_t error, const char* doing) {
  if (error == cudaSuccess) return;
  cudaGetLastError();
  const bool capture = error >= cudaErrorStreamCaptureUnsupported && error <= cudaErrorCapturedEvent;
  throw Error{capture ? ENG_UNSUPPORTED : ENG_INTERNAL,
              std::string(doing) + ": " + cudaGetErrorName(error) + " (" + cudaGetErrorString(error) + ")"};
}

Comm::Comm(const eng_world& announced, const std::string& address, uint16_t port, double deadline, eng_world& out)
    : met_(meet(announced, address, port, deadline)), deadline_(deadline) {
  const Peer& self = met_.peers[met_.rank];
  gone_.resize(met_.size), answers_.resize(met_.size);
  host_.ranks.resize(met_.size);
  std::iota(host_.ranks.begin(), host_.ranks.end(), 0u);
  host_.self = met_.rank, host_.member = true;
  Group& whole = groups_[1];
  whole.id = 1, whole.ranks = host_.ranks, whole.self = met_.rank, whole.member = true;
  out.rank = met_.rank, out.size = met_.size, out.local_rank = self.local_rank, out.local_size = self.local_size;
  wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wake_ < 0) throw Error{ENG_INTERNAL, std::string("eventfd: ") + std::strerror(errno)};
  start_watching();
}

void Comm::take_gpu() {
  const Gpu own = gpu_of(met_.peers[met_.rank].local_rank);
  const std::vector<std::string> texts = exchange_texts(std::string(bytes_of(own)));
  std::vector<Gpu> all(texts.size());
  for (size_t r = 0; r < all.size(); ++r) std::memcpy(&all[r], texts[r].data(), sizeof all[r]);
  check_gpus(met_.peers, all);
  device_ = own.number;
}

Comm::~Comm() {
  try {
    if (!failed_) {
      exchange_texts("");
      {
        const std::lock_guard lock(state_);  // nobody looks at them any more
        for (auto& [id, group] : groups_)
          if (group.library) group.library->ended = true;
      }
      for (auto& [id, group] : groups_)
        if (group.library && group.library->comm) {
          const auto task = Task::start([library = group.library, device = device_] {
            cudaSetDevice(device);
            ncclCommDestroy(library->comm);
          });
          if (!task->wait(std::chrono::duration_cast<std::chrono::milliseconds>(deadline_))) break;
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

void Comm::enter() const {
  check(cudaSetDevice(device_), "selecting the GPU of this rank");
}

void Comm::make_group(eng_id id, const uint32_t* ranks, uint32_t n) {
  const std::string name = "group " + std::to_string(id);
  if (id == 0) throw Error{ENG_INVALID, name + " is the host's own"};
  Group group = common::new_group(groups_, id, ranks, n, met_.rank, met_.size);
  if (!n) throw Error{ENG_INVALID, name + " has no members"};
  if (!groups_[1].library) connect(groups_[1]);
  connect(group);
  const std::lock_guard lock(state_);
  groups_[id] = std::move(group);
}

Group& Comm::group(eng_id id) {
  Group& found = common::own_group(groups_, id);
  if (!groups_[1].library) connect(groups_[1]);
  return found;
}

// Each group has an id of its own from its first member, so that no group depends on another one, and each can be
// aborted by itself.
void Comm::connect(Group& group) {
  ncclUniqueId id{};
  std::string failed;
  if (group.ranks[0] == met_.rank) try {
      check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    } catch (const Error& e) {
      failed = e.text;
    }
  std::string mine(1 + sizeof id, failed.empty() ? '\0' : '\1');
  std::memcpy(mine.data() + 1, failed.empty() ? id.internal : failed.c_str(),
              failed.empty() ? sizeof id : std::min(failed.size() + 1, sizeof id));
  const std::string all = exchange_texts(mine)[group.ranks[0]];
  if (all[0]) throw Error{ENG_UNAVAILABLE, "rank " + std::to_string(group.ranks[0]) + ": " + (all.c_str() + 1)};
  if (!group.member) return;
  std::memcpy(&id, all.data() + 1, sizeof id);
  const auto library = std::make_shared<Library>();
  const auto task = Task::start([=, device = device_, n = group.ranks.size(), self = group.self] {
    check(cudaSetDevice(device), "selecting the GPU of this rank");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    check(ncclCommInitRankConfig(&library->comm, static_cast<int>(n), id, static_cast<int>(self), &config),
          "ncclCommInitRankConfig");
  });
  const auto start = Clock::now();
  while (!task->wait(std::chrono::milliseconds(20))) {
    ready();
    if (Clock::now() - start > deadline_) {
      const std::lock_guard lock(state_);
      fail("NCCL has not connected the GPUs of group " + std::to_string(group.id) + " (" + ranks_text(group.ranks) +
           ") within the deadline: NCCL_DEBUG=INFO shows why, NCCL_SOCKET_IFNAME names the network to use");
      throw Error{ENG_UNAVAILABLE, reason_};
    }
  }
  if (task->error) {
    const std::lock_guard lock(state_);
    fail(task->error->text);
    throw *task->error;
  }
  const std::lock_guard lock(state_);
  group.library = library;
}

void Comm::exchange_bytes(const void* mine, uint64_t bytes, void* all) {
  const auto texts = exchange_texts(std::string(static_cast<const char*>(bytes ? mine : ""), bytes));
  for (size_t r = 0; r < texts.size() && bytes; ++r)
    std::memcpy(static_cast<char*>(all) + r * bytes, texts[r].data(), bytes);
}

std::vector<std::string> Comm::exchange_texts(const std::string& mine) {
  std::unique_lock lock(state_);
  if (failed_) refuse(lock);
  common::Place& place = host_.place;
  place = {What::exchange, true, place.number + 1, Clock::now()};
  result_.reset();
  const auto number = static_cast<uint32_t>(place.number);
  if (met_.rank == 0)
    take_part(0, number, mine);
  else
    send(Kind::part, 0, number, mine);
  wake();
  changed_.wait(lock, [&] { return failed_ || result_; });
  place.waiting = false;
  if (!result_) refuse(lock);
  std::vector<std::string> out;
  for (uint32_t r = 0; r < met_.size; ++r) out.push_back(result_->substr(r * mine.size(), mine.size()));
  return out;
}

void Comm::enqueue(Group& group, const std::function<void(ncclComm_t)>& body) {
  ready();
  enter();
  Library& library = *group.library;
  const std::lock_guard lock(library.busy);
  ready();
  if (library.ended) throw Error{ENG_UNAVAILABLE, "NCCL was aborted"};
  body(library.comm);
}

void Comm::ready() const {
  if (!failed_) return;
  std::unique_lock lock(state_);
  refuse(lock);
}

void Comm::refuse(std::unique_lock<std::mutex>&) const {
  throw Error{ENG_UNAVAILABLE, reason_};
}

void Comm::poll() {
  // What has just ended on a queue may have failed in a way that the watching thread has not seen yet.
  if (!failed_) {
    const std::lock_guard lock(state_);
    look_at_library();
  }
  ready();
}

void Comm::abort(const std::string& reason) noexcept {
  try {
    std::unique_lock lock(state_);
    fail(reason);
    wake();
    // The others are told before this process may end.
    changed_.wait_for(lock, std::chrono::seconds(1), [&] {
      return std::all_of(met_.wires.begin(), met_.wires.end(), [](const auto& one) { return !one || one->idle(); });
    });
  } catch (...) {  // no memory: they see the end of this process
  }
}

void Mark::before(cudaStream_t stream) {
  check(cudaLaunchHostFunc(stream, enter, this), "enqueuing a mark");
}
void Mark::after(cudaStream_t stream) {
  check(cudaLaunchHostFunc(stream, leave, this), "enqueuing a mark");
}
void Mark::enter(void* mark) {
  const Mark& m = *static_cast<Mark*>(mark);
  m.comm_.entered(m.group_, m.what_);
}
void Mark::leave(void* mark) {
  const Mark& m = *static_cast<Mark*>(mark);
  m.comm_.left(m.group_);
}

void Comm::entered(Group& group, What what) {
  const std::lock_guard lock(state_);
  group.place = {what, true, group.place.number + 1, Clock::now()};
}
// After a failure the place stays as it was, for the text.
void Comm::left(Group& group) {
  const std::lock_guard lock(state_);
  group.place.waiting = false;
}

}  // namespace nccl
