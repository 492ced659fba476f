// SPDX-License-Identifier: Apache-2.0
// Products of a warp group. Lanes start them as they come; what the descriptors lead to is read then, and once more
// when all lanes wait. The last lane computes. Between these two, sums are not numbers, what is read must not
// change, and what threads wrote must have been shown to the async proxy before.
#include "machine.hpp"

namespace emu {
namespace {

constexpr size_t lanes = 128;
constexpr uint64_t window = 1024;  // where a block's shared memory begins on a GPU, in its own numbers

WarpGroup& mine() {
  Machine& m = machine();
  if (m.n % lanes != 0) m.failed("calls a function of a warp group, and its block has no whole ones");
  return m.warp_groups[m.me().index / lanes];
}
// The chunk that a lane reads is one of another warp's rows: no warp may count on its own rows alone.
size_t chunk_of(size_t lane) {
  return (lane + lanes / 2) % lanes;
}
size_t bound(const Lane& me, int open) {
  const auto groups = static_cast<int>(me.committed.size());
  return groups > open ? me.committed[static_cast<size_t>(groups - open - 1)] : 0;
}

// False: what it reads has changed since it started.
bool compute(StartedProduct& p) {
  Machine& m = machine();
  static thread_local float A[64][16], B[16][64];
  const auto at = [&](const uint32_t* four, size_t e) {
    return p.what.half(static_cast<uint16_t>(four[e / 2] >> 16 * (e % 2)));
  };
  for (size_t lane = 0; lane < lanes; ++lane) {
    const Parts& parts = p.parts[lane];
    const size_t chunk = chunk_of(lane), r = lane / 32 * 16 + lane % 32 / 4, c = lane % 4 * 2;
    if (std::memcmp(parts.right, p.again[lane].right, 16) != 0 ||
        (p.what.a && std::memcmp(parts.left, p.again[lane].left, 16) != 0))
      return false;
    for (size_t e = 0; e < 8; ++e) {
      if (p.what.a)
        A[chunk / 2][chunk % 2 * 8 + e] = at(parts.left, e);
      else
        A[r + e / 2 % 2 * 8][c + e / 4 * 8 + e % 2] = at(parts.left, e);
      if (p.what.transposed)
        B[chunk / 8][chunk % 8 * 8 + e] = at(parts.right, e);
      else
        B[chunk % 2 * 8 + e][chunk / 2] = at(parts.right, e);
    }
  }
  for (size_t lane = 0; lane < lanes; ++lane) {
    Lane& one = *m.lanes[m.me().index / lanes * lanes + lane];
    Lane::Sums& sums = one.sums[p.d[lane]];
    for (size_t e = 0; e < 32; ++e) {
      const size_t r = lane / 32 * 16 + lane % 32 / 4 + e / 2 % 2 * 8, c = e / 4 * 8 + lane % 4 * 2 + e % 2;
      float sum = 0;  // a tensor core rounds such sums in its own way
      for (size_t k = 0; k < 16; ++k) sum += A[r][k] * B[k][c];
      sums.value[e] = p.what.add ? sums.value[e] + sum : sum;
    }
    if (--sums.open == 0) {
      std::memcpy(p.d[lane], sums.value.data(), sizeof sums.value);
      one.sums.erase(p.d[lane]);
    }
  }
  return true;
}

}  // namespace

uint64_t shared_offset(const void* at) {
  return window + static_cast<uint64_t>(static_cast<const char*>(at) - machine().shared);
}

const void* group_chunk(uint64_t d, bool transposed, Place place) {
  Machine& m = machine();
  const uint64_t start = (d & 0x3fff) * 16, stride = (d >> 32 & 0x3fff) * 16, chunk = chunk_of(m.me().index % lanes);
  if (d >> 62 != 1 || (d >> 49 & 7) != 0)
    m.failed("has a descriptor for another layout than patterns of 128 bytes at multiples of 1024");
  const uint64_t row = transposed ? chunk / 8 : chunk / 2, column = transposed ? chunk % 8 : chunk % 2;
  uint64_t at = start + row / 8 * stride + row % 8 * 128 + column * 16;
  at ^= (at >> 7 & 7) << 4;
  if (at < window || at + 16 > window + m.shared_bytes)
    m.failed("has a descriptor that leads outside of the block's shared memory, at line " + std::to_string(place.line));
  at -= window;
  if (const unsigned by = m.unseen[at / 16])
    m.failed("multiplies what thread " + std::to_string(by - 1) + " copied and has not shown to the async proxy");
  return m.shared + at;
}

void push_product(const GroupProduct& product, const Parts& parts, Place place) {
  Machine& m = machine();
  Lane& me = m.me();
  WarpGroup& group = mine();
  if (!me.fenced) m.failed("starts products without a fence for its registers since it last waited or committed");
  unseen(true);
  const size_t k = me.started++ - group.done;
  if (k == group.products.size()) {
    group.products.emplace_back();
    group.products.back().what = product;
  }
  StartedProduct& p = group.products[k];
  const bool same = p.what.a == product.a && p.what.b == product.b && p.what.transposed == product.transposed &&
                    p.what.add == product.add;
  p.parts[me.index % lanes] = parts, p.d[me.index % lanes] = product.d;
  Lane::Sums& sums = me.sums[product.d];
  if (sums.open++ == 0) {
    std::memcpy(sums.value.data(), product.d, sizeof sums.value);
    std::memset(product.d, 0xff, sizeof sums.value);
  }
  unseen(false);
  if (!same) m.failed("starts another product than its warp group does, at line " + std::to_string(place.line));
}
void fence_products() {
  machine().me().fenced = true;
}
void commit_products() {
  Lane& me = machine().me();
  unseen(true);
  me.committed.push_back(me.started), me.fenced = false;
  unseen(false);
}

bool next_product(int open, GroupProduct* out) {
  Lane& me = machine().me();
  WarpGroup& group = mine();
  me.again = std::max(me.again, group.done);
  if (me.again >= bound(me, open)) return false;
  *out = group.products[me.again - group.done].what;
  return true;
}
void put_again(const Parts& parts) {
  Lane& me = machine().me();
  WarpGroup& group = mine();
  unseen(true);
  group.products[me.again++ - group.done].again[me.index % lanes] = parts;
  unseen(false);
}
bool wait_products(int open, bool last, Place place) {
  Machine& m = machine();
  Lane& me = m.me();
  WarpGroup& group = mine();
  const size_t until = bound(me, open);
  me.fenced = false;
  if (until <= group.done) return false;
  if (group.waiting && group.until != until) m.failed("waits for other products than its warp group does");
  group.until = until;
  if (++group.waiting < lanes) {
    m.rest(State::in_warp, place);
    return true;
  }
  if (last) {
    bool same = true;
    unseen(true);
    for (; group.done < until && same; ++group.done) same = compute(group.products.front()), group.products.pop_front();
    unseen(false);
    if (!same) m.failed("waits for a product of its warp group, and what that reads has changed since it started");
  }
  group.waiting = 0;
  const unsigned first = me.index / unsigned{lanes} * unsigned{lanes};
  for (unsigned k = first; k < first + lanes; ++k) m.wake(k);
  m.rest(State::ready, place);
  return true;
}

void fence_proxy() {
  Machine& m = machine();
  for (const size_t chunk : m.me().landed)
    if (m.unseen[chunk] == m.me().index + 1) m.unseen[chunk] = 0;
  m.me().landed.clear();
}

}  // namespace emu
