// SPDX-License-Identifier: Apache-2.0
#include "shared.hpp"

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

namespace softnccl {

static double most_seconds() {
  const char* text = std::getenv("SOFTNCCL_SECONDS");
  return text ? std::atof(text) : 120;
}

bool Patience::wait() {
  if (tries_++ == 0) since_ = std::chrono::steady_clock::now();
  if (tries_ < 50) return sched_yield(), true;
  ::usleep(tries_ < 500 ? 20 : 500);
  return tries_ % 64 ||
         std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count() < most_seconds();
}

Soft::~Soft() {
  if (shared) munmap(shared, bytes);
}

void Soft::complain(const std::string& what) {
  uint32_t none = 0;
  if (!shared->wrong.compare_exchange_strong(none, 1)) {
    while (shared->wrong == 1) std::this_thread::yield();  // the text of the one who was first
    return;
  }
  std::snprintf(shared->text, sizeof shared->text, "%s", what.c_str());
  shared->wrong = 2;
}

void Soft::fail(ncclResult_t with, const std::string& what) {
  const std::lock_guard lock(mutex);
  if (error != ncclSuccess) return;
  text = what;
  error = with;
}

bool Soft::goes_on() {
  if (shared->wrong == 2) fail(ncclInvalidUsage, shared->text);
  return !ended && error == ncclSuccess;
}

// Files of communicators that never came to be are removed when the process that named them ends.
struct Names {
  int count = 0;
  std::mutex mutex;
  static std::string of(int number) { return "/softnccl-" + std::to_string(::getpid()) + "-" + std::to_string(number); }
  ~Names() {
    for (; count > 0; --count) shm_unlink(of(count).c_str());
  }
};

ncclUniqueId new_id() {
  static Names names;
  const std::lock_guard lock(names.mutex);
  ncclUniqueId id{};
  std::snprintf(id.internal, sizeof id.internal, "%s", Names::of(++names.count).c_str());
  return id;
}

int version() {
  const char* const given = std::getenv("SOFTNCCL_VERSION");
  return given ? std::atoi(given) : NCCL_VERSION_CODE;
}

// "" if ranks may have the same GPU, or what a real NCCL of this version says of it.
static std::string no_sharing() {
  const char* const given = std::getenv("NCCL_MULTI_RANK_GPU_ENABLE");
  if (version() < 23000) return "Duplicate GPU detected";
  return given && std::atoi(given) == 1
             ? ""
             : "Multiple Ranks are using the same GPU/Partition. Set NCCL_MULTI_RANK_GPU_ENABLE=1 to enable this";
}

ncclResult_t join(Soft& soft, const ncclUniqueId& id) {
  const auto n = static_cast<size_t>(soft.size);
  soft.bytes = sizeof(Shared) + n * n * sizeof(Mailbox);
  const int fd = shm_open(id.internal, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0 || ftruncate(fd, static_cast<off_t>(soft.bytes)) != 0) return ncclSystemError;
  void* at = mmap(nullptr, soft.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  if (at == MAP_FAILED) return ncclSystemError;
  soft.shared = static_cast<Shared*>(at);  // zeros are what all of it begins with
  Shared& s = *soft.shared;
  if (s.taken[soft.rank].exchange(1)) {
    soft.complain("two processes are rank " + std::to_string(soft.rank));
    shm_unlink(id.internal);
    return ncclInvalidUsage;
  }
  if (cudaDeviceGetPCIBusId(s.gpu[soft.rank], sizeof s.gpu[soft.rank], soft.device) != cudaSuccess)
    return ncclUnhandledCudaError;
  ++s.joined;
  for (Patience patience; s.joined < n;)
    if (!soft.goes_on() || !patience.wait()) return shm_unlink(id.internal), ncclSystemError;
  shm_unlink(id.internal);
  for (int a = 0; a < soft.size; ++a)
    for (int b = 0; b < a; ++b)
      if (const std::string why = no_sharing(); !why.empty() && std::strcmp(s.gpu[a], s.gpu[b]) == 0) {
        soft.fail(ncclInvalidUsage,
                  why + ": ranks " + std::to_string(b) + " and " + std::to_string(a) + " use device " + s.gpu[a]);
        return ncclInvalidUsage;
      }
  return ncclSuccess;
}

}  // namespace softnccl
