// SPDX-License-Identifier: Apache-2.0
// CUDA's device language on the host. Every CUDA thread of a block is a fiber; blocks run one after another. Barriers,
// warp functions, asynchronous copies and tensor-core products are checked while they are emulated: what goes wrong is
// told with kernel, block and thread. plugins/common/cuda/device.cuh includes this where the compiler is not nvcc.
// Nothing of the CUDA toolkit is needed.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define threadIdx (::emu::self().thread)
#define blockIdx (::emu::self().block)
#define blockDim (::emu::self().block_dim)
#define gridDim (::emu::self().grid_dim)

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct CUstream_st;
using cudaStream_t = CUstream_st*;

namespace emu {

// The running CUDA thread's own indices.
struct Thread {
  dim3 thread, block, block_dim, grid_dim;
  unsigned index = 0, lane = 0, warp = 0;
};
extern thread_local Thread* current;
inline Thread& self() {
  return *current;
}

// A place in the source, for messages.
struct Place {
  const char* file;
  int line;
  bool operator==(const Place& o) const { return line == o.line && std::string_view(file) == o.file; }
};

enum class Order { forward, backward, random };
// The order in which kernels of this process run. In forward order, the first thread that can run does, until it waits.
struct Settings {
  Order order = Order::forward;
  uint64_t seed = 1;
  uint64_t block = UINT64_MAX;  // the only one that runs, modulo the blocks of the grid; UINT64_MAX: all
  Place without{"", 0};  // a planted mistake: this barrier of a block or a warp is none; the end of the file's name
};
extern Settings settings;

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// ---- a kernel by name -----------------------------------------------------------------------------------
struct Kernel {
  std::string_view name;                // as the source has it
  const void* address;                  // of the host's function
  void (*call)(const void* arguments);  // a std::tuple
  void* (*copy)(void** arguments);      // from addresses of the arguments, as cudaLaunchKernel has them
  void (*drop)(void* arguments);
};
void enroll(const Kernel* kernel);
// By mangled name. The file that holds the kernel must export it.
const Kernel* find(const char* mangled);
// Runs a whole grid. Throws Error.
void run(const Kernel& kernel, const void* arguments, dim3 grid, dim3 block, size_t shared_bytes);

// ---- what kernels call ----------------------------------------------------------------------------------
// Stops the grid with this text.
[[noreturn]] void fail(const char* text);
void sync_block(Place place);
void sync_warp(unsigned mask, Place place);
enum class Shuffle { up, down, across, from };
uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int by, int width, Place place);
unsigned ballot(unsigned mask, bool value, Place place);
// 16x8 += 16x16 * 16x8, registers as in PTX m16n8k16; what 16 bits mean is up to `half`.
void mma_16816(float* d, const uint32_t* a, const uint32_t* b, float (*half)(uint16_t), Place place);
// Four 8x8 matrices of 16 bits; `row`: the 16 bytes to which this lane points.
void exchange_rows(uint32_t* out, const uint32_t* row, bool transposed, Place place);
inline void ldmatrix(uint32_t* out, const uint32_t* row, bool transposed, Place place) {
  const uint32_t mine[4] = {row[0], row[1], row[2], row[3]};  // here a sanitizer sees it as an access of the kernel
  exchange_rows(out, mine, transposed, place);
}
void* shared(size_t bytes);

// Products of a warp group, 64x64 (+)= 64x16 * 16x64: wgmma of sm_90a. A part is what one lane has of an operand: its
// registers, or a chunk of 16 bytes that a descriptor leads to.
struct GroupProduct {
  float* d;              // 32 sums; NaN until they are waited for
  uint64_t a, b;         // descriptors; of a, 0: it is in registers
  bool transposed, add;  // b is MN-major; to what d has
  float (*half)(uint16_t);
};
struct Parts {
  uint32_t left[4], right[4];
};
uint64_t shared_offset(const void* at);  // the number that a GPU would have for this address
const void* group_chunk(uint64_t descriptor, bool transposed, Place place);
void push_product(const GroupProduct& product, const Parts& parts, Place place);
void fence_products();
void commit_products();
// The next product that must be done with at most `open` groups under way, and what it is read from, once more.
bool next_product(int open, GroupProduct* out);
void put_again(const Parts& parts);
// Until all lanes of the warp group are here; false: nothing is to wait for. `last`: the last lane computes.
bool wait_products(int open, bool last, Place place);
void fence_proxy();

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes;  // 4, 8 or 16
  bool valid;
  int group;
};
void push_copy(const AsyncCopy& copy);
void commit_copies();
bool next_copy(int open, AsyncCopy* out);  // one that must have landed with at most `open` groups under way

// An access of all of T at once, which a GPU refuses at another address.
template <class T>
void at_once(const void* address) {
  if (reinterpret_cast<uintptr_t>(address) % alignof(T))
    fail("accesses a vector at an address that is no multiple of its size");
}

template <class T>
uint64_t to_bits(T v) {
  static_assert(sizeof(T) <= 8);
  uint64_t b = 0;
  std::memcpy(&b, &v, sizeof(T));
  return b;
}
template <class T>
T from_bits(uint64_t b) {
  T v;
  std::memcpy(&v, &b, sizeof(T));
  return v;
}

template <auto K>
constexpr std::string_view name_of() {
  std::string_view text = __PRETTY_FUNCTION__;
  const size_t from = text.find("K = ") + 4, to = text.find(';', from);
  return text.substr(from, (to == std::string_view::npos ? text.rfind(']') : to) - from);
}

template <auto K>
struct Twin;
template <class... P, void (*K)(P...)>
struct Twin<K> {
  using Arguments = std::tuple<P...>;
  template <size_t... I>
  static void* make(void** a, std::index_sequence<I...>) {
    return new Arguments(*static_cast<P*>(a[I])...);
  }
  static const Kernel& kernel() {
    static const Kernel one = {name_of<K>(), reinterpret_cast<const void*>(K),
                               [](const void* a) { std::apply(K, *static_cast<const Arguments*>(a)); },
                               [](void** a) { return make(a, std::index_sequence_for<P...>()); },
                               [](void* a) { delete static_cast<Arguments*>(a); }};
    return one;
  }
  inline static const bool enrolled = (enroll(&kernel()), true);  // when the file is loaded
  static void launch(dim3 grid, dim3 block, size_t shared_bytes, P... p) {
    (void)enrolled;
    const Arguments arguments(p...);
    run(kernel(), &arguments, grid, block, shared_bytes);
  }
};

}  // namespace emu

#define EMU_PLACE const char *file = __builtin_FILE(), int line = __builtin_LINE()

inline void __syncthreads(EMU_PLACE) {
  emu::sync_block({file, line});
}
inline void __syncwarp(unsigned mask = 0xffffffffu, EMU_PLACE) {
  emu::sync_warp(mask, {file, line});
}
template <class T>
T __shfl_xor_sync(unsigned mask, T v, int by, int width = 32, EMU_PLACE) {
  return emu::from_bits<T>(emu::shuffle(emu::Shuffle::across, mask, emu::to_bits(v), by, width, {file, line}));
}
template <class T>
T __shfl_down_sync(unsigned mask, T v, int by, int width = 32, EMU_PLACE) {
  return emu::from_bits<T>(emu::shuffle(emu::Shuffle::down, mask, emu::to_bits(v), by, width, {file, line}));
}
template <class T>
T __shfl_up_sync(unsigned mask, T v, int by, int width = 32, EMU_PLACE) {
  return emu::from_bits<T>(emu::shuffle(emu::Shuffle::up, mask, emu::to_bits(v), by, width, {file, line}));
}
template <class T>
T __shfl_sync(unsigned mask, T v, int from, int width = 32, EMU_PLACE) {
  return emu::from_bits<T>(emu::shuffle(emu::Shuffle::from, mask, emu::to_bits(v), from, width, {file, line}));
}
inline unsigned __ballot_sync(unsigned mask, bool v, EMU_PLACE) {
  return emu::ballot(mask, v, {file, line});
}
inline int __ffs(int x) {
  return __builtin_ffs(x);
}
inline int __popc(unsigned x) {
  return __builtin_popcount(x);
}

namespace emu {

// These copy where a sanitizer sees them as accesses of the thread that waits.
inline void copy_async(void* to, const void* from, bool valid, size_t bytes = 16) {
  push_copy({to, from, bytes, valid, 0});
  std::memset(to, 0xff, bytes);  // NaN until it has landed
}
inline void wait_async(int open) {
  for (AsyncCopy c; next_copy(open, &c);)
    if (c.valid)
      std::memcpy(c.to, c.from, c.bytes);
    else
      std::memset(c.to, 0, c.bytes);
}

// The operands are read when a product starts and when it is waited for, by the lane that a sanitizer sees.
inline Parts parts_of(const GroupProduct& p, Place place) {
  Parts parts{};
  if (p.a) std::memcpy(parts.left, group_chunk(p.a, false, place), 16);
  std::memcpy(parts.right, group_chunk(p.b, p.transposed, place), 16);
  return parts;
}
inline void wgmma(float* d, const uint32_t* a, uint64_t desc_a, uint64_t desc_b, bool transposed, bool add,
                  float (*half)(uint16_t), Place place) {
  const GroupProduct p = {d, desc_a, desc_b, transposed, add, half};
  Parts parts = parts_of(p, place);
  if (a) std::memcpy(parts.left, a, 16);
  push_product(p, parts, place);
}
inline void wgmma_wait(int open, Place place) {
  if (!wait_products(open, false, place)) return;
  for (GroupProduct p; next_product(open, &p);) put_again(parts_of(p, place));
  wait_products(open, true, place);
}

}  // namespace emu
