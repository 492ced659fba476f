// SPDX-License-Identifier: Apache-2.0
// Mistakes of authors of kernels, and right twins of some. `mistakes list` prints, of each, its name, the build that
// must name it (plain: the emulator itself, or a value that is not a number; asan; tsan; none: it is right) and a piece
// of what that says. `mistakes NAME` runs one. tests/cuda/ladder/mistakes.py compares.
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "plugins/common/cuda/device.cuh"
#include "plugins/common/cuda/wgmma.cuh"

namespace mistakes {

using cuda::shared;
constexpr unsigned all = 0xffffffffu;
struct Row {
  float at[64];
};

// ---- warp functions and barriers ----
__global__ void exited_lane(float* o) {
  if (threadIdx.x % 32 == 3) return;
  o[threadIdx.x] = cuda::sum_of_warp(1.0f);
}
__global__ void mask_without_me(float* o) {
  o[threadIdx.x] = __shfl_xor_sync(0x0000ffffu, 1.0f, 1);
}
__global__ void lanes_that_are_not(float* o) {
  o[threadIdx.x] = __shfl_xor_sync(all, 1.0f, 1);
}
__global__ void two_functions(float* o) {
  o[threadIdx.x] = threadIdx.x % 32 < 16 ? __shfl_xor_sync(all, 1.0f, 1) : __shfl_down_sync(all, 1.0f, 1);
  if (threadIdx.x % 32 < 16)
    o[threadIdx.x] += static_cast<float>(__ballot_sync(all, true));
  else
    __syncwarp();
}
__global__ void two_masks(float* o) {
  o[threadIdx.x] = __shfl_xor_sync(threadIdx.x % 32 < 16 ? all : 0xffff0000u, 1.0f, 1);
}
__global__ void lane_outside(float* o) {
  if (threadIdx.x % 32 < 16) o[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 20);
}
__global__ void warp_apart(float* o) {
  if (threadIdx.x % 32 < 16)
    __syncthreads();
  else
    o[threadIdx.x] = __shfl_xor_sync(all, 1.0f, 1);
}
__global__ void two_barriers(float* o) {
  if (threadIdx.x < 32) {
    o[threadIdx.x] = 1;
    __syncthreads();
  } else {
    __syncthreads();
  }
}
__global__ void barrier_of_some(float* o) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  o[threadIdx.x] = 1;
}
__global__ void leaves_for_good(float* o) {
  if (threadIdx.x < 32) __syncthreads();
  if (threadIdx.x < 32) o[threadIdx.x] = 1;
}

// ---- shared memory ----
__global__ void too_little_shared(float* o) {
  o[threadIdx.x] = shared<float[1024]>()[threadIdx.x] = 1;
}
__global__ void nothing(float*) {}
__global__ void shared_write_behind(float* o) {
  Row& s = shared<Row>();
  reinterpret_cast<volatile float*>(&s)[threadIdx.x + 1] = 1;
  __syncthreads();
  o[threadIdx.x] = s.at[threadIdx.x];
}
__global__ void shared_read_behind(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  __syncthreads();
  o[threadIdx.x] = reinterpret_cast<volatile float*>(&s)[threadIdx.x + 1];
}
__global__ void shared_unset(float* o) {
  Row& s = shared<Row>();
  if (threadIdx.x) s.at[threadIdx.x] = 1;
  __syncthreads();
  o[threadIdx.x] = s.at[0];
}

// ---- asynchronous copies ----
__global__ void copy_read_early(float* o) {
  Row& s = shared<Row>();
  if (threadIdx.x < 16) emu::copy_async(&s.at[threadIdx.x * 4], o + threadIdx.x * 4, true);
  emu::commit_copies();
  __syncthreads();
  const float x = s.at[threadIdx.x];
  emu::wait_async(0);
  o[64 + threadIdx.x] = x;
}
__global__ void copy_of_others(float* o) {  // waits for its own copies only
  Row& s = shared<Row>();
  if (threadIdx.x < 16) emu::copy_async(&s.at[threadIdx.x * 4], o + threadIdx.x * 4, true);
  emu::commit_copies(), emu::wait_async(0);
  o[64 + threadIdx.x] = s.at[threadIdx.x];
}
__global__ void copy_misaligned(float* o) {
  emu::copy_async(&shared<Row>().at[threadIdx.x + 1], o, true);
}
__global__ void copy_left_behind(float* o) {
  if (threadIdx.x < 16) emu::copy_async(&shared<Row>().at[threadIdx.x * 4], o, true);
  emu::commit_copies();
}
__global__ void copy_right(float* o) {
  Row& s = shared<Row>();
  if (threadIdx.x < 16) emu::copy_async(&s.at[threadIdx.x * 4], o + threadIdx.x * 4, true);
  emu::commit_copies(), emu::wait_async(0);
  __syncthreads();
  o[64 + threadIdx.x] = s.at[threadIdx.x];
}

// ---- memory of the device ----
__global__ void write_behind(float* o) {
  o[blockIdx.x * 64 + threadIdx.x + 65] = 1;
}
__global__ void read_behind(float* o) {
  o[threadIdx.x] = o[threadIdx.x + 65 + blockIdx.x * 64];
}
__global__ void read_before(float* o) {
  o[threadIdx.x] = o[static_cast<int>(threadIdx.x) - 1];
}
__global__ void own_array(float* o) {
  float own[4] = {1, 2, 3, 4};
  volatile unsigned k = threadIdx.x;
  o[threadIdx.x] = own[k];
}
__global__ void wraps(float* o) {
  const int n = 1 << 26;
  o[threadIdx.x] = static_cast<float>((n + static_cast<int>(threadIdx.x)) * static_cast<int>(blockDim.x));
}
__global__ void shifts(float* o) {
  o[threadIdx.x] = static_cast<float>(1u << (threadIdx.x + 1));
}
__global__ void vector_misaligned(float* o) {
  float x[4];
  cuda::load<4>(o + 1 + 0 * threadIdx.x, x);
  o[threadIdx.x] = x[0];
}

// ---- order ----
__global__ void no_barrier(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  o[threadIdx.x] = s.at[63 - threadIdx.x];
}
__global__ void barrier(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  __syncthreads();
  o[threadIdx.x] = s.at[63 - threadIdx.x];
}
__global__ void overtaken(float* o) {  // the next round writes what this one may still be reading
  Row& s = shared<Row>();
  float sum = 0;
  for (int round = 0; round < 2; ++round) {
    s.at[threadIdx.x] = 1;
    __syncthreads();
    sum += s.at[63 - threadIdx.x];
  }
  o[threadIdx.x] = sum;
}
__global__ void shuffle_is_no_fence(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = __shfl_sync(all, 1.0f, 0);
  __shfl_sync(all, 1.0f, 0);
  o[threadIdx.x] = s.at[threadIdx.x ^ 1];
}
__global__ void warp_barrier(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  __syncwarp();
  o[threadIdx.x] = s.at[threadIdx.x ^ 1];
}
__global__ void other_warp(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  __syncwarp();
  o[threadIdx.x] = s.at[threadIdx.x ^ 32];
}
__global__ void other_half(float* o) {
  Row& s = shared<Row>();
  s.at[threadIdx.x] = 1;
  __syncwarp(threadIdx.x % 32 < 16 ? 0x0000ffffu : 0xffff0000u);
  o[threadIdx.x] = s.at[threadIdx.x ^ 16];
}
__global__ void blocks_write(float* o) {
  if (threadIdx.x == 0) o[0] += 1;
}
__global__ void block_reads(float* o) {
  if (threadIdx.x == 0) o[blockIdx.x + 1] = o[blockIdx.x] + 1;
}
__global__ void same_value(float* o) {
  o[threadIdx.x / 2] = 1;
}
__global__ void blocks_apart(float* o) {
  for (int k = 0; k < 2; ++k) o[blockIdx.x * 32 + threadIdx.x % 32] = cuda::sum_of_warp(1.0f);
}

// ---- products of a warp group ----
struct Operands {
  alignas(1024) char a[8192], b[8192];
};
enum class Mistake { none, half, unseen, unfenced, early, left, outside, layout, stride, changed, alone, no_barrier };
template <Mistake mistake>
__global__ void product(float* o) {
  namespace wgmma = cuda::wgmma;
  Operands& s = shared<Operands>();
  for (unsigned k = threadIdx.x; k < 512; k += blockDim.x)
    emu::copy_async(s.a + 16 * k, nullptr, false), emu::copy_async(s.b + 16 * k, nullptr, false);
  emu::commit_copies(), emu::wait_async(0);
  if (mistake != Mistake::unseen) wgmma::show();
  if (mistake != Mistake::no_barrier) __syncthreads();
  wgmma::Sums d;
  uint64_t a = wgmma::describe(s.a, 0), b = wgmma::describe(s.b, mistake == Mistake::outside ? 8192 : 0);
  if (mistake == Mistake::layout) b ^= uint64_t{3} << 62;
  if (mistake == Mistake::stride) b += uint64_t{1024 / 16} << 32;
  if (mistake == Mistake::alone) b += threadIdx.x / 32;
  if (mistake != Mistake::unfenced) wgmma::begin();
  wgmma::multiply_rows<cuda::bf16>(d, a, b, false);
  wgmma::commit();
  const float early = d[0][0][0];
  if (mistake == Mistake::changed) s.b[threadIdx.x * 64] = 1;
  if (mistake != Mistake::left) wgmma::wait<0>(d);
  o[threadIdx.x] = mistake == Mistake::early ? early : d[0][0][0];
}
struct Case {
  const char *name, *build, *says;
  void (*go)(float*);
};
template <auto K, unsigned grid = 1, unsigned block = 64, size_t bytes = sizeof(Row)>
void go(float* o) {
  cuda::launch<K>(dim3(grid), dim3(block), bytes, nullptr, o);
}
#define ONE(name, build, says, ...) \
  { #name, build, says, go < name __VA_OPT__(, ) __VA_ARGS__> }
#define PRODUCT(mistake, build, says, threads) \
  { "product_" #mistake, build, says, go<product<Mistake::mistake>, 1, threads, sizeof(Operands)> }
const Case cases[] = {
    ONE(exited_lane, "plain", "which have left the kernel|while other lanes of its warp wait"),
    ONE(mask_without_me, "plain", "leaves it out"),
    ONE(lanes_that_are_not, "plain", "its warp has only lanes", 1, 48),
    ONE(two_functions, "plain", "in another function"),
    ONE(two_masks, "plain", "whose mask 0xffff0000 leaves it out|with another mask"),
    ONE(lane_outside, "plain", "which is not in the mask"),
    ONE(warp_apart, "plain", "of its warp wait for it in a warp function|deadlock"),
    ONE(two_barriers, "plain", "others wait at"),
    ONE(barrier_of_some, "plain", "other threads have left the kernel|while others wait at the barrier"),
    ONE(leaves_for_good, "plain", "while others wait at the barrier"),
    ONE(too_little_shared, "plain", "uses 4096 bytes of shared memory, the launch gave 256"),
    ONE(nothing, "plain", "300000 bytes of shared memory", 1, 64, 300000),
    ONE(shared_write_behind, "plain", "something was written behind the 256 bytes"),
    ONE(shared_write_behind, "asan", "use-after-poison"),
    ONE(shared_read_behind, "asan", "use-after-poison"),
    ONE(shared_unset, "plain", "not a number"),
    ONE(copy_read_early, "plain", "not a number"),
    ONE(copy_of_others, "tsan", "data race"),
    ONE(copy_misaligned, "plain", "no multiple of that"),
    ONE(copy_left_behind, "plain", "asynchronous copies under way"),
    ONE(copy_right, "none", ""),
    ONE(write_behind, "asan", "heap-buffer-overflow"),
    ONE(read_behind, "asan", "heap-buffer-overflow"),
    ONE(read_before, "asan", "heap-buffer-overflow"),
    ONE(own_array, "asan", "out of bounds|stack-buffer-overflow"),
    ONE(wraps, "asan", "signed integer overflow"),
    ONE(shifts, "asan", "shift exponent 32 is too large"),
    ONE(vector_misaligned, "plain", "no multiple of its size"),
    ONE(no_barrier, "tsan", "data race"),
    ONE(barrier, "none", ""),
    ONE(overtaken, "tsan", "data race"),
    ONE(shuffle_is_no_fence, "tsan", "data race"),
    ONE(warp_barrier, "none", ""),
    ONE(other_warp, "tsan", "data race"),
    ONE(other_half, "tsan", "data race"),
    ONE(blocks_write, "tsan", "data race", 2),
    ONE(block_reads, "tsan", "data race", 3),
    ONE(same_value, "tsan", "data race"),
    ONE(blocks_apart, "none", "", 4, 32),
    PRODUCT(none, "none", "", 128),
    PRODUCT(half, "plain", "its block has no whole ones", 64),
    PRODUCT(unseen, "plain", "has not shown to the async proxy", 128),
    PRODUCT(unfenced, "plain", "without a fence for its registers", 128),
    PRODUCT(early, "plain", "not a number", 128),
    PRODUCT(left, "plain", "with products of its warp group under way", 128),
    PRODUCT(outside, "plain", "leads outside of the block's shared memory", 128),
    PRODUCT(layout, "plain", "a descriptor for another layout", 128),
    PRODUCT(stride, "plain", "leads outside of the block's shared memory", 128),
    PRODUCT(changed, "plain", "has changed since it started", 128),
    PRODUCT(alone, "plain", "another product than its warp group does", 128),
    PRODUCT(no_barrier, "tsan", "data race", 128),
};

}  // namespace mistakes

int main(int n, char** words) {
  const std::string name = n > 1 ? words[1] : "";
  if (name == "list") {
    for (const mistakes::Case& c : mistakes::cases) std::printf("%s\t%s\t%s\n", c.name, c.build, c.says);
    return 0;
  }
  // Exactly so long, so that AddressSanitizer sees each step behind it. The second half is for results.
  const std::unique_ptr<float[]> o(new float[128]);
  for (int k = 0; k < 128; ++k) o[static_cast<size_t>(k)] = 1;
  for (const mistakes::Case& c : mistakes::cases) {
    if (c.name != name) continue;
    try {
      c.go(o.get());
    } catch (const emu::Error& e) {
      std::printf("emulator: %s\n", e.what());
      return 3;
    }
    for (int k = 0; k < 128; ++k)
      if (std::isnan(o[static_cast<size_t>(k)])) {
        std::printf("element %d is not a number\n", k);
        return 4;
      }
    return 0;
  }
  return 2;
}
