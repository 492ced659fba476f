// SPDX-License-Identifier: Apache-2.0
// The block that runs: its fibers, and what each of them waits for.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "emulator.hpp"
#include "fiber.hpp"

namespace emu {

enum class State { ready, at_barrier, in_warp, left };  // in_warp: also in a function of a warp group

struct Lane : Thread {
  Fiber fiber;
  State state = State::left;
  Place place{"", 0};                // of the barrier or warp function that it waits in
  std::array<uint32_t, 4> result{};  // of a warp function
  std::vector<AsyncCopy> copies;
  int groups = 0;
  std::vector<size_t> landed;     // chunks of shared memory that copies wrote since the last fence for the async proxy
  size_t started = 0, again = 0;  // products of its warp group: that this lane started, and read once more
  std::vector<size_t> committed;  // `started` at each commit
  bool fenced = false;
  struct Sums {
    size_t open = 0;  // products
    std::array<float, 32> value{};
  };
  std::map<float*, Sums> sums;  // of products that are under way
};

struct StartedProduct {
  GroupProduct what{};
  std::array<Parts, 128> parts{}, again{};
  std::array<float*, 128> d{};
};
struct WarpGroup {
  std::deque<StartedProduct> products;  // that are under way
  size_t done = 0, until = 0;
  unsigned waiting = 0;
};

enum class Warp : int { sync, shuffle, ballot, mma, ldmatrix };
// Lanes of a warp that call one function together.
struct Meeting {
  Warp kind{};
  unsigned mask = 0, here = 0, moment = 0;
  std::array<uint64_t, 32> value{};
  std::array<int, 32> from{};
  std::array<std::array<uint32_t, 4>, 32> row{};
  std::array<const void*, 32> pointers[3];
};

constexpr unsigned most_threads = 1024;

// Blocks take turns in these. ThreadSanitizer sees no order between blocks in different ones, so that each block is
// unordered to its neighbours; blocks in the same one come after each other, which allows them the same memory.
#ifdef EMU_TSAN
constexpr size_t places = 3;
#else
constexpr size_t places = 1;
#endif
constexpr unsigned warp_moments = 64;
struct BlockPlace {
  std::vector<std::unique_ptr<Lane>> lanes;
  std::vector<char> memory;  // shared memory with a guard behind it
  unsigned blocks = 0;       // that were here
  // Names of moments. A block leaves the place free for the next one, and is not in order within itself by that.
  char free[2] = {}, barrier[2] = {}, warp_sync[32][warp_moments] = {};
};

struct Machine {
  Fiber scheduler;
  std::vector<std::unique_ptr<Lane>> lanes;    // of the block that runs
  std::vector<std::vector<Meeting>> meetings;  // by warp
  std::vector<unsigned> left;                  // by warp: lanes that left the kernel
  std::vector<WarpGroup> warp_groups;
  std::vector<unsigned> unseen;  // by 16 bytes of shared memory: 1 + the thread whose copy the async proxy does not see
  std::array<uint64_t, most_threads / 64> ready{};
  unsigned n = 0, alive = 0, waiting = 0;  // threads: of the block, still in the kernel, at the barrier
  const Kernel* kernel = nullptr;
  const void* arguments = nullptr;
  char* shared = nullptr;
  size_t shared_bytes = 0;
  std::string error;
  std::minstd_rand random;
  int phase = 0;
  std::array<unsigned, 32> syncs{};  // by warp: __syncwarps so far
  char launched = 0, ended = 0;      // names of moments, for ThreadSanitizer
  std::array<BlockPlace, places> turns;
  BlockPlace* here = nullptr;  // of the block that runs; its lanes are in `lanes` until it ends

  Lane& me() { return static_cast<Lane&>(*current); }
  void wake(unsigned k) {
    lanes[k]->state = State::ready;
    ready[k / 64] |= uint64_t{1} << k % 64;
  }
  unsigned next();  // most_threads: nobody is ready
  // Gives up the processor until somebody wakes this thread.
  void rest(State state, Place place) {
    me().state = state, me().place = place;
    scheduler.enter(me().fiber);
  }
  // The first failure counts. Does not return.
  [[noreturn]] void failed(const std::string& text);
  std::string who(const Thread& t) const;
};
Machine& machine();

bool is_without(Place place);       // the planted mistake of the settings
void happens_before(char* moment);  // what this thread did, for whoever says happens_after
void happens_after(char* moment);
// Between these, functions of the C library that this thread calls are no accesses of the kernel.
void unseen(bool begins);

}  // namespace emu
