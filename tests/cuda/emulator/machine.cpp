// SPDX-License-Identifier: Apache-2.0
// Runs grids: blocks one after another, threads in the order that the settings ask for; barriers of a block.
#include "machine.hpp"

#include <dlfcn.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <numeric>

#ifdef EMU_TSAN
extern "C" {
void __tsan_acquire(void*);
void __tsan_release(void*);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#endif

namespace emu {

thread_local Thread* current = nullptr;
Settings settings;

Machine& machine() {
  static thread_local Machine one;
  return one;
}

void happens_before([[maybe_unused]] char* moment) {
#ifdef EMU_TSAN
  __tsan_release(moment);
#endif
}
void unseen([[maybe_unused]] bool begins) {
#ifdef EMU_TSAN
  (begins ? AnnotateIgnoreReadsBegin : AnnotateIgnoreReadsEnd)(__FILE__, __LINE__);
  (begins ? AnnotateIgnoreWritesBegin : AnnotateIgnoreWritesEnd)(__FILE__, __LINE__);
#endif
}
void happens_after([[maybe_unused]] char* moment) {
#ifdef EMU_TSAN
  __tsan_acquire(moment);
#endif
}

bool is_without(Place p) {
  return p.line == settings.without.line && std::string_view(p.file).ends_with(settings.without.file);
}

namespace {

constexpr size_t guard = 256, alignment = 1024, most_shared = 227 * 1024;
constexpr char mark = 0x5a;

std::string text_of(dim3 d) {
  return "(" + std::to_string(d.x) + ", " + std::to_string(d.y) + ", " + std::to_string(d.z) + ")";
}
std::string text_of(Place p) {
  return std::string(p.file).substr(std::string(p.file).rfind('/') + 1) + ":" + std::to_string(p.line);
}

std::vector<const Kernel*>& enrolled() {
  static std::vector<const Kernel*> all;
  return all;
}

void body() {
  Fiber::begun();
  Machine& m = machine();
  happens_after(&m.launched), happens_after(&m.here->free[m.here->blocks % 2]);
  m.kernel->call(m.arguments);
  happens_before(&m.ended), happens_before(&m.here->free[(m.here->blocks + 1) % 2]);
  Lane& me = m.me();
  if (!me.copies.empty())
    m.failed("leaves the kernel with " + std::to_string(me.copies.size()) + " asynchronous copies under way");
  if (me.index / 128 < m.warp_groups.size() && me.started > m.warp_groups[me.index / 128].done)
    m.failed("leaves the kernel with products of its warp group under way");
  for (const Meeting& g : m.meetings[me.warp])
    if (g.mask >> me.lane & 1)
      m.failed("leaves the kernel while other lanes of its warp wait for it in a warp function");
  if (m.waiting)
    for (const auto& other : m.lanes)
      if (other->state == State::at_barrier)
        m.failed("leaves the kernel while others wait at the barrier " + text_of(other->place));
  m.left[me.warp] |= 1u << me.lane;
  me.state = State::left;
  --m.alive;
  m.scheduler.enter(me.fiber, true);
  std::abort();
}

dim3 unfold(uint64_t k, dim3 size) {
  return {unsigned(k % size.x), unsigned(k / size.x % size.y), unsigned(k / size.x / size.y)};
}

// All threads that are left wait: says for what.
std::string deadlock(const Machine& m) {
  unsigned at_barrier = 0, in_warp = 0;
  std::string example;
  for (unsigned k = 0; k < m.n; ++k) {
    const Lane& lane = *m.lanes[k];
    at_barrier += lane.state == State::at_barrier, in_warp += lane.state == State::in_warp;
    if (example.empty() && lane.state != State::left) example = m.who(lane) + " at " + text_of(lane.place);
  }
  return "deadlock: " + std::to_string(at_barrier) + " threads wait at a barrier of the block and " +
         std::to_string(in_warp) + " in warp functions for threads that never come, for example " + example;
}

void fill(char* at, size_t bytes, char with) {
#ifdef EMU_TSAN  // which takes memset for an access of this fiber
  for (volatile char* p = at; bytes > 0; --bytes) *p++ = with;
#else
  std::memset(at, with, bytes);
#endif
}

void run_threads(Machine& m, dim3 at, dim3 grid, dim3 block) {
  fill(m.shared, m.shared_bytes, '\xff');  // NaN in every floating type
#ifdef EMU_ASAN
  __asan_poison_memory_region(m.shared + m.shared_bytes, guard);
#else
  fill(m.shared + m.shared_bytes, guard, mark);
#endif
  const unsigned warps = (m.n + 31) / 32;
  m.meetings.resize(warps), m.left.assign(warps, 0);
  for (auto& w : m.meetings) w.clear(), w.reserve(32);
  m.alive = m.n, m.waiting = 0, m.ready = {}, m.syncs = {};
  m.warp_groups.clear(), m.warp_groups.resize(m.n / 128), m.unseen.assign(m.shared_bytes / 16 + 1, 0);
  for (unsigned k = 0; k < m.n; ++k) {
    Lane& lane = *m.lanes[k];
    lane.index = k, lane.lane = k % 32, lane.warp = k / 32;
    lane.thread = unfold(k, block), lane.block = at, lane.block_dim = block, lane.grid_dim = grid;
    lane.copies.clear(), lane.groups = 0;
    lane.landed.clear(), lane.committed.clear(), lane.sums.clear();
    lane.started = lane.again = 0, lane.fenced = false;
    lane.fiber.start(body);
    m.wake(k);
  }
  for (unsigned k = m.next(); k < most_threads; k = m.next()) {
    current = m.lanes[k].get();
    m.lanes[k]->fiber.enter(m.scheduler);
    if (!m.error.empty()) return;
  }
  if (m.alive) m.error = deadlock(m);
#ifndef EMU_ASAN
  if (m.error.empty() &&
      std::any_of(m.shared + m.shared_bytes, m.shared + m.shared_bytes + guard, [](char c) { return c != mark; }))
    m.error = "block " + text_of(at) + ": something was written behind the " + std::to_string(m.shared_bytes) +
              " bytes of shared memory";
#endif
}

void run_block(Machine& m, BlockPlace& here, dim3 at, dim3 grid, dim3 block) {
  for (auto& lane : here.lanes) lane->state = State::left;
  void* start = here.memory.data();
  size_t room = here.memory.size();
  m.shared = static_cast<char*>(std::align(alignment, m.shared_bytes + guard, start, room));
  m.here = &here;
  m.lanes.swap(here.lanes);
  run_threads(m, at, grid, block);
  m.lanes.swap(here.lanes);
  ++here.blocks;
#ifdef EMU_ASAN
  __asan_unpoison_memory_region(m.shared + m.shared_bytes, guard);
#endif
  if (!m.error.empty()) here.lanes.clear();  // some of them stopped half way
}

}  // namespace

unsigned Machine::next() {
  const auto take = [&](size_t word, int bit) {
    ready[word] &= ~(uint64_t{1} << bit);
    return static_cast<unsigned>(word * 64) + static_cast<unsigned>(bit);
  };
  const size_t words = (n + 63) / 64;
  if (settings.order == Order::backward) {
    for (size_t w = words; w-- > 0;)
      if (ready[w]) return take(w, 63 - std::countl_zero(ready[w]));
    return most_threads;
  }
  // In random order: the first one at or behind a random place, in a circle.
  const unsigned start = settings.order == Order::random ? static_cast<unsigned>(random()) % n : 0;
  const uint64_t behind = ready[start / 64] >> start % 64 << start % 64;
  if (behind) return take(start / 64, std::countr_zero(behind));
  for (size_t k = 1; k <= words; ++k) {
    const size_t w = (start / 64 + k) % words;
    if (ready[w]) return take(w, std::countr_zero(ready[w]));
  }
  return most_threads;
}

std::string Machine::who(const Thread& t) const {
  return "block " + text_of(t.block) + ", thread " + text_of(t.thread);
}

void Machine::failed(const std::string& text) {
  if (error.empty()) error = who(*current) + ": " + text;
  scheduler.enter(me().fiber, true);
  std::abort();
}

void fail(const char* text) {
  machine().failed(text);
}

void sync_block(Place place) {
  Machine& m = machine();
  if (is_without(place)) return;
  Lane& me = m.me();
  for (const Meeting& g : m.meetings[me.warp])
    if (g.mask >> me.lane & 1)
      m.failed("is at the barrier " + text_of(place) + " while other lanes of its warp wait for it in a warp function");
  if (m.alive < m.n) m.failed("waits at the barrier " + text_of(place) + ", but other threads have left the kernel");
  if (m.waiting)
    for (const auto& other : m.lanes)
      if (other->index < m.n && other->state == State::at_barrier && !(other->place == place))
        m.failed("waits at the barrier " + text_of(place) + ", others wait at " + text_of(other->place));
  char* moment = &m.here->barrier[m.phase];
  happens_before(moment);
  if (++m.waiting < m.n) {
    m.rest(State::at_barrier, place);
  } else {
    m.waiting = 0, m.phase ^= 1;
    for (unsigned k = 0; k < m.n; ++k)
      if (k != me.index) m.wake(k);
    // The last to come has no right to go on first.
    m.wake(me.index);
    m.rest(State::ready, place);
  }
  happens_after(moment);
}

void* shared(size_t bytes) {
  Machine& m = machine();
  if (bytes > m.shared_bytes)
    m.failed("uses " + std::to_string(bytes) + " bytes of shared memory, the launch gave " +
             std::to_string(m.shared_bytes));
  return m.shared;
}

void push_copy(const AsyncCopy& c) {
  Machine& m = machine();
  if (reinterpret_cast<uintptr_t>(c.to) % c.bytes || (c.valid && reinterpret_cast<uintptr_t>(c.from) % c.bytes))
    m.failed("copies " + std::to_string(c.bytes) +
             " bytes asynchronously from or to an address that is no multiple of that");
  const char* to = static_cast<const char*>(c.to);
  if (to < m.shared || to + c.bytes > m.shared + m.shared_bytes)
    m.failed("copies asynchronously to an address outside of the block's shared memory");
  m.me().copies.push_back(c);
  m.me().copies.back().group = m.me().groups;
}
void commit_copies() {
  ++machine().me().groups;
}
bool next_copy(int open, AsyncCopy* out) {
  Lane& me = machine().me();
  for (size_t k = 0; k < me.copies.size(); ++k)
    if (me.copies[k].group < me.groups - open) {
      *out = me.copies[k];
      const auto chunk = static_cast<size_t>(static_cast<char*>(out->to) - machine().shared) / 16;
      machine().unseen[chunk] = me.index + 1, me.landed.push_back(chunk);
      me.copies.erase(me.copies.begin() + std::ptrdiff_t(k));
      return true;
    }
  return false;
}

void enroll(const Kernel* kernel) {
  enrolled().push_back(kernel);
}

const Kernel* find(const char* mangled) {
  static const std::map<std::string, const Kernel*> names = [] {
    std::map<std::string, const Kernel*> all;
    for (const Kernel* k : enrolled()) {
      Dl_info info{};
      if (dladdr(k->address, &info) && info.dli_sname && info.dli_saddr == k->address) all[info.dli_sname] = k;
    }
    return all;
  }();
  const auto it = names.find(mangled);
  return it == names.end() ? nullptr : it->second;
}

void run(const Kernel& kernel, const void* arguments, dim3 grid, dim3 block, size_t shared_bytes) {
  Machine& m = machine();
  const uint64_t threads = uint64_t{block.x} * block.y * block.z, blocks = uint64_t{grid.x} * grid.y * grid.z;
  const auto refuse = [&](const std::string& why) { throw Error("kernel " + std::string(kernel.name) + ": " + why); };
  if (threads == 0 || threads > most_threads || block.z > 64) refuse("a block of " + text_of(block) + " threads");
  if (blocks == 0 || grid.x > 0x7fffffff || grid.y > 65535 || grid.z > 65535) refuse("a grid of " + text_of(grid));
  if (shared_bytes > most_shared) refuse(std::to_string(shared_bytes) + " bytes of shared memory");
  m.n = static_cast<unsigned>(threads), m.kernel = &kernel, m.arguments = arguments, m.error.clear();
  m.shared_bytes = shared_bytes;
  m.random.seed(static_cast<unsigned>(settings.seed % 2147483646 + 1));
  // ThreadSanitizer tells some 250 threads from each other.
  const uint64_t turns = std::min<uint64_t>(places, std::max<uint64_t>(2, 250 / threads));
  for (BlockPlace& here : m.turns) {
    while (here.lanes.size() < m.n) here.lanes.push_back(std::make_unique<Lane>());
    here.memory.resize(std::max(here.memory.size(), m.shared_bytes + alignment + guard));
  }
  happens_before(&m.launched);
  // In random order, blocks follow one another in steps that meet all of them.
  uint64_t stride = 1, first = 0;
  if (settings.order == Order::random) {
    first = m.random() % blocks, stride = m.random() % blocks + 1;
    while (std::gcd(stride, blocks) != 1) ++stride;
  }
  for (uint64_t b = 0; b < blocks && m.error.empty(); ++b) {
    const uint64_t at = settings.order == Order::backward ? blocks - 1 - b : (first + b * (stride % blocks)) % blocks;
    if (settings.block != UINT64_MAX && at != settings.block % blocks) continue;
    run_block(m, m.turns[b % turns], unfold(at, grid), grid, block);
  }
  happens_after(&m.ended);
  current = nullptr;
  if (!m.error.empty()) refuse(m.error);
}

}  // namespace emu
