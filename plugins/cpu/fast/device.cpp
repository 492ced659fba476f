// SPDX-License-Identifier: Apache-2.0
#include "device.hpp"

#include <sys/mman.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <limits>
#include <string>

#include "../../common/call.hpp"
#include "threads.hpp"

namespace cpu {

using common::Error;
using common::guarded;

namespace {

constexpr int64_t most_threads = 1024;

// The memory of the process beyond its arenas, staged batches, the model's own code and what the plan itself takes:
// code, libraries, stacks.
// Measured as the peak resident set of `engine run` less those, until its end, for models of 1 to 96 layers. The system
// maps more of the code around a page that is read where it has cached the file in larger pieces: with Linux 6.18 the
// sum differs by up to 0.8 MB, and this is the middle. Pages of mapped training text count into the resident set too,
// but the system takes them back whenever memory is short, so they are not part of it.
constexpr uint64_t overhead = 19'950'000;

std::string device_name() {
  return "device cpu";
}

unsigned thread_count(const eng_options* options) {
  int64_t threads = 0;
  if (options && options->get_int) {
    const eng_status status = options->get_int(options, "threads", &threads, nullptr);
    if (status != ENG_OK && status != ENG_NOT_FOUND) throw Error{status, "option threads is not an integer"};
  }
  if (threads < 0 || threads > most_threads)
    throw Error{ENG_INVALID, "threads = " + std::to_string(threads) + ": give 0 (all physical cores) to " +
                                 std::to_string(most_threads)};
  if (threads) return static_cast<unsigned>(threads);
  // The host knows what a control group allows.
  return host_threads ? std::min(physical_cores(), host_threads->count(host_threads)) : physical_cores();
}

// "auto" takes the best instruction set here.
std::string isa_name(const eng_options* options) {
  const char* name = "auto";
  if (options && options->get_string) {
    const eng_status status = options->get_string(options, "isa", &name, nullptr);
    if (status != ENG_OK && status != ENG_NOT_FOUND) throw Error{status, "option isa is not a string"};
  }
  return std::strcmp(name, "auto") == 0 ? best_isa()->name : name;
}

Device chosen(const eng_options* options) {
  const std::string name = isa_name(options);
  Device device{thread_count(options), find_isa(name.c_str())};
  if (!device.isa)
    throw Error{ENG_UNSUPPORTED, "isa = \"" + name +
                                     "\": this processor has no such instructions, or the build leaves them out (meson "
                                     "configure -Dcpu_isas=all); the best here is \"" +
                                     best_isa()->name + "\""};
  return device;
}

// The first line of /proc/cpuinfo that names the processor.
std::string processor_name() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) != 0 && line.rfind("Model", 0) != 0) continue;
    const size_t colon = line.find(':');
    if (colon == std::string::npos) continue;
    const size_t first = line.find_first_not_of(" \t", colon + 1);
    if (first != std::string::npos) return line.substr(first);
  }
  return "CPU";
}

// The smallest limit of the control groups this process is in and of their parents; "max" is none.
uint64_t group_limit() {
  uint64_t least = std::numeric_limits<uint64_t>::max();
  const auto read = [&](const std::string& path) {
    uint64_t bytes = 0;
    if (std::ifstream(path) >> bytes && bytes > 0) least = std::min(least, bytes);
  };
  std::ifstream groups("/proc/self/cgroup");
  for (std::string line; std::getline(groups, line);) {
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == std::string::npos || two == std::string::npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    std::string path = line.substr(two + 1);
    for (;;) {
      if (controllers.empty()) read("/sys/fs/cgroup" + path + "/memory.max");
      if (controllers == "memory") read("/sys/fs/cgroup/memory" + path + "/memory.limit_in_bytes");
      const size_t slash = path.rfind('/');
      if (slash == std::string::npos || path.empty()) break;
      path.resize(slash);
    }
  }
  return least;
}

uint64_t memory_bytes() {
  struct sysinfo info {};
  const uint64_t machine = sysinfo(&info) == 0 ? uint64_t{info.totalram} * info.mem_unit : 0;
  return machine ? std::min(machine, group_limit()) : 0;
}

eng_status describe_device(const eng_options* options, eng_device_info* out, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    eng_device_info info{};
    info.struct_size = out->struct_size;
    info.flags = ENG_DEVICE_HOST_MEMORY;
    info.parallel = thread_count(options);
    info.parallel_beside = 1;  // the others compute
    info.dl_device_type = kDLCPU;
    info.total_bytes = memory_bytes();
    info.overhead_bytes = overhead;
    // The clock under load cannot be known without measuring, so the peaks stay unknown (0).
    // With the instruction set, which decides how kernels round.
    const std::string isa = ", " + isa_name(options),
                      name = processor_name().substr(0, sizeof info.name - 1 - isa.size()) + isa;
    std::memcpy(info.name, name.data(), std::min(name.size(), sizeof info.name - 1));
    std::memcpy(out, &info, std::min<size_t>(out->struct_size, sizeof info));
  });
}

// Processes share all cores of the machine, whatever their local rank.
eng_status create(const eng_options* options, uint32_t, void** self, eng_error* sink) {
  return guarded(sink, device_name, [&] { *self = new Device(chosen(options)); });
}
void destroy(void* self) {
  delete static_cast<Device*>(self);
}

uint64_t mapped_size(uint64_t bytes) {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  return std::max<uint64_t>((bytes + page - 1) / page, 1) * page;
}

// All kinds of memory are one.
eng_status alloc(void* self, int32_t, uint64_t bytes, void** out, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    const uint64_t size = mapped_size(bytes);
    void* arena = MAP_FAILED;
    if (bytes <= std::numeric_limits<int64_t>::max() - 65536)
      arena = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED)
      throw Error{ENG_NO_MEMORY, "no arena of " + std::to_string(bytes) + " bytes: " + std::strerror(errno)};
    // Large pages where the kernel has them to give: matrix products then miss the address cache less.
    madvise(arena, size, MADV_HUGEPAGE);
    // Every page is written once by one of the threads that will use it, so that no step faults.
    parallel_for(static_cast<Device*>(self)->threads, [&](unsigned thread, unsigned n) {
      const Share share = share_of(static_cast<int64_t>(size), thread, n, 4096);
      std::memset(static_cast<char*>(arena) + share.first, 0, static_cast<size_t>(share.last - share.first));
    });
    *out = arena;
  });
}
void free_arena(void*, int32_t, void* arena, uint64_t bytes) {
  if (arena) munmap(arena, mapped_size(bytes));
}

eng_status copy(void*, void* dst, const void* src, uint64_t bytes, eng_error*) {
  if (bytes) std::memcpy(dst, src, bytes);
  return ENG_OK;
}
// Launches are synchronous: nothing is ever pending.
eng_status sync(void*, void*, eng_error*) {
  return ENG_OK;
}

}  // namespace

const eng_threads* host_threads = nullptr;

// Functions that are not named have their defaults: the device is synchronous.
const eng_device device_table = [] {
  eng_device d{};
  d.struct_size = sizeof(eng_device);
  d.minor = ENG_ABI_MINOR;
  d.describe = describe_device;
  d.create = create;
  d.destroy = destroy;
  d.alloc = alloc;
  d.free = free_arena;
  d.upload = copy;
  d.download = copy;
  d.sync = sync;
  return d;
}();

}  // namespace cpu
