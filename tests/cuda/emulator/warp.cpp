// SPDX-License-Identifier: Apache-2.0
// Functions of a warp: the lanes of a mask meet, the last to come computes for all.
#include <bit>

#include "machine.hpp"

namespace emu {
namespace {

std::string hex(unsigned mask) {
  static const char digits[] = "0123456789abcdef";
  std::string text = "0x";
  for (int k = 28; k >= 0; k -= 4) text += digits[mask >> k & 15];
  return text;
}

// `bring(meeting, lane)` adds what this lane has; `finish(meeting)` computes, once all are here.
template <class Bring, class Finish>
void meet(Warp kind, unsigned mask, Place place, Bring&& bring, Finish&& finish) {
  Machine& m = machine();
  Lane& me = m.me();
  auto& open = m.meetings[me.warp];
  if (!(mask >> me.lane & 1)) m.failed("calls a warp function whose mask " + hex(mask) + " leaves it out");
  const unsigned lanes = m.n - me.warp * 32;
  const unsigned there = lanes >= 32 ? ~0u : (1u << lanes) - 1;
  if (mask & ~there)
    m.failed("calls a warp function for mask " + hex(mask) + ", its warp has only lanes " + hex(there));
  if (mask & m.left[me.warp])
    m.failed("waits in a warp function for lanes " + hex(mask & m.left[me.warp]) + ", which have left the kernel");
  unseen(true);
  Meeting* g = nullptr;
  for (Meeting& other : open)
    if (other.mask & mask) {
      if (other.mask != mask || other.kind != kind)
        m.failed("meets lanes of its warp in another function, or with another mask: " + hex(mask) + " and " +
                 hex(other.mask));
      g = &other;
    }
  if (!g) {
    open.emplace_back();
    g = &open.back();
    g->kind = kind, g->mask = mask, g->moment = m.syncs[me.warp]++ % warp_moments;
  }
  g->here |= 1u << me.lane;
  bring(*g, me.lane);
  if (g->here != mask) {
    unseen(false);
    return m.rest(State::in_warp, place);
  }
  finish(*g);
  *g = open.back();
  open.pop_back();
  unseen(false);
  for (unsigned lane = 0; lane < 32; ++lane)
    if (mask >> lane & 1) m.wake(me.warp * 32 + lane);
  m.rest(State::ready, place);
}

Lane& lane_of(unsigned lane) {
  return *machine().lanes[machine().me().warp * 32 + lane];
}
void give(unsigned lane, uint64_t value) {
  lane_of(lane).result[0] = static_cast<uint32_t>(value), lane_of(lane).result[1] = static_cast<uint32_t>(value >> 32);
}

}  // namespace

void sync_warp(unsigned mask, Place place) {
  if (is_without(place)) return;
  Machine& m = machine();
  char* moment = nullptr;
  meet(
      Warp::sync, mask, place,
      [&](Meeting& g, unsigned) {
        moment = &m.here->warp_sync[m.me().warp][g.moment];
        happens_before(moment);
      },
      [](Meeting&) {});
  happens_after(moment);
}

uint64_t shuffle(Shuffle kind, unsigned mask, uint64_t value, int by, int width, Place place) {
  Machine& m = machine();
  meet(
      Warp::shuffle, mask, place,
      [&](Meeting& g, unsigned lane) {
        const int l = static_cast<int>(lane), base = l / width * width;
        int from = base + (by & (width - 1));
        if (kind == Shuffle::across) from = l ^ by;
        if (kind == Shuffle::down) from = l + by;
        if (kind == Shuffle::up) from = l - by;
        if (from < base || from >= base + width) from = l;
        g.value[lane] = value, g.from[lane] = from;
      },
      [&](Meeting& g) {
        for (unsigned lane = 0; lane < 32; ++lane) {
          if (!(g.mask >> lane & 1)) continue;
          const int from = g.from[lane];
          if (!(g.mask >> from & 1))
            m.failed("a shuffle reads lane " + std::to_string(from) + ", which is not in the mask " + hex(g.mask));
          give(lane, g.value[static_cast<size_t>(from)]);
        }
      });
  return m.me().result[0] | uint64_t{m.me().result[1]} << 32;
}

unsigned ballot(unsigned mask, bool value, Place place) {
  meet(
      Warp::ballot, mask, place, [&](Meeting& g, unsigned lane) { g.value[lane] = value; },
      [](Meeting& g) {
        unsigned votes = 0;
        for (unsigned lane = 0; lane < 32; ++lane) votes |= (g.mask >> lane & 1 && g.value[lane] ? 1u : 0u) << lane;
        for (unsigned lane = 0; lane < 32; ++lane)
          if (g.mask >> lane & 1) give(lane, votes);
      });
  return machine().me().result[0];
}

void mma_16816(float* d, const uint32_t* a, const uint32_t* b, float (*half)(uint16_t), Place place) {
  meet(
      Warp::mma, ~0u, place,
      [&](Meeting& g, unsigned lane) { g.pointers[0][lane] = d, g.pointers[1][lane] = a, g.pointers[2][lane] = b; },
      [&](Meeting& g) {
        float A[16][16], B[16][8];
        const auto at = [&](uint32_t pair, unsigned h) { return half(static_cast<uint16_t>(pair >> 16 * h)); };
        for (unsigned lane = 0; lane < 32; ++lane) {
          const auto* pa = static_cast<const uint32_t*>(g.pointers[1][lane]);
          const auto* pb = static_cast<const uint32_t*>(g.pointers[2][lane]);
          const unsigned r = lane / 4, c = lane % 4 * 2;
          for (unsigned h = 0; h < 2; ++h) {
            A[r][c + h] = at(pa[0], h), A[r + 8][c + h] = at(pa[1], h);
            A[r][c + 8 + h] = at(pa[2], h), A[r + 8][c + 8 + h] = at(pa[3], h);
            B[c + h][r] = at(pb[0], h), B[c + 8 + h][r] = at(pb[1], h);
          }
        }
        for (unsigned lane = 0; lane < 32; ++lane) {
          auto* out = static_cast<float*>(const_cast<void*>(g.pointers[0][lane]));
          for (unsigned e = 0; e < 4; ++e) {
            const unsigned r = lane / 4 + e / 2 * 8, c = lane % 4 * 2 + e % 2;
            float sum = 0;  // a tensor core rounds such sums in its own way
            for (unsigned k = 0; k < 16; ++k) sum += A[r][k] * B[k][c];
            out[e] += sum;
          }
        }
      });
}

void exchange_rows(uint32_t* out, const uint32_t* row, bool transposed, Place place) {
  meet(
      Warp::ldmatrix, ~0u, place, [&](Meeting& g, unsigned lane) { std::memcpy(g.row[lane].data(), row, 16); },
      [&](Meeting& g) {
        for (unsigned lane = 0; lane < 32; ++lane)
          for (unsigned j = 0; j < 4; ++j) {
            const auto at = [&](unsigned r, unsigned c) { return g.row[j * 8 + r][c / 2] >> 16 * (c % 2) & 0xffff; };
            const unsigned r = lane / 4, c = lane % 4 * 2;
            lane_of(lane).result[j] = transposed ? at(c, r) | at(c + 1, r) << 16 : at(r, c) | at(r, c + 1) << 16;
          }
      });
  std::memcpy(out, machine().me().result.data(), 16);
}

}  // namespace emu
