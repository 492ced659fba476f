// SPDX-License-Identifier: Apache-2.0
// More bytes from one rank to another than an int counts, in one call.
#include <sys/mman.h>

#include <climits>

#include "rank.hpp"

namespace rank {
namespace {

constexpr uint64_t MiB = uint64_t{1} << 20;
constexpr uint64_t message = 2200 * MiB + 8;  // beyond INT_MAX, and no multiple of what is sent at once
static_assert(message > INT_MAX);

// Zeros. Of `sparse` ones only what is touched takes memory, page by page.
class Memory {
 public:
  Memory(uint64_t bytes, bool sparse) : bytes_(bytes) {
    at_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (at_ == MAP_FAILED) throw std::runtime_error("no address space");
    madvise(at_, bytes, sparse ? MADV_NOHUGEPAGE : MADV_HUGEPAGE);
  }
  ~Memory() { munmap(at_, bytes_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  void* data() const { return at_; }
  uint64_t& word(uint64_t byte) const { return *reinterpret_cast<uint64_t*>(static_cast<char*>(at_) + byte); }

 private:
  uint64_t bytes_;
  void* at_;
};

// The places that are looked at: evenly, and at every edge there may be. No two are neighbours.
std::vector<uint64_t> places() {
  std::vector<uint64_t> out;
  for (uint64_t at = 0; at < message; at += 13 * MiB + 24) out.push_back(at);
  for (const uint64_t edge : {1024 * MiB, 2047 * MiB, 2048 * MiB, message})
    for (const uint64_t back : {uint64_t{8}, uint64_t{64}}) out.push_back(edge - back);
  for (const uint64_t edge : {1024 * MiB, 2047 * MiB, 2048 * MiB}) out.push_back(edge + 8);
  return out;
}

// The value that rank r gives at a byte: never 0.
uint64_t value(uint32_t r, uint64_t byte) {
  return (byte * 0x9e3779b97f4a7c15u + r) | 1;
}

}  // namespace

void large(eng::Communicator& comm, bool gather_too) {
  const uint32_t n = comm.world().size, self = comm.world().rank;
  const auto all = static_cast<int64_t>(n * message);
  // `of` gives what must lie at a place of member m's message.
  const auto check = [&](const Memory& out, auto of) {
    for (uint32_t m = 0; m < n; ++m)
      for (const uint64_t at : places()) {
        EXPECT(out.word(m * message + at) == of(m, at));
        if (at + 16 <= message) EXPECT(out.word(m * message + at + 8) == 0);
      }
  };
  if (gather_too) {
    const Memory in(message, true), out(n * message, false);
    for (const uint64_t at : places()) in.word(at) = value(self, at);
    Bound gather(comm, ENG_OP_ALL_GATHER, 1, n, ENG_U8, static_cast<int64_t>(message));
    gather.bind(in.data(), out.data());
    gather();
    check(out, [&](uint32_t m, uint64_t at) { return value(m, at); });
  }
  const Memory in(n * message, true), out(n * message, false);
  for (uint32_t m = 0; m < n; ++m)
    for (const uint64_t at : places()) in.word(m * message + at) = value(self, m * message + at);
  Bound all_to_all(comm, ENG_OP_ALL_TO_ALL, 1, n, ENG_U8, all);
  all_to_all.bind(in.data(), out.data());
  all_to_all();
  check(out, [&](uint32_t m, uint64_t at) { return value(m, self * message + at); });
}

}  // namespace rank
