// SPDX-License-Identifier: Apache-2.0
// eng.rope_step/1, eng.attention_step/1, eng.attention_window_step/1: the next positions of a running sequence.
#include <algorithm>
#include <cstring>
#include <iterator>

#include "device.hpp"
#include "kernels.hpp"
#include "scores.hpp"
#include "shapes.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

// The first of `n` positions, which must lie below `length`.
int64_t position(const int64_t* counters, int64_t n, int64_t length) {
  const int64_t at = counters[ENG_C_POSITION];
  if (at < 0 || at > length - n)
    throw Error{ENG_OUT_OF_RANGE, "positions " + std::to_string(at) + " to " + std::to_string(at + n - 1) +
                                      " of a sequence of " + std::to_string(length)};
  return at;
}

struct RopeStep {
  static constexpr const char* op = ENG_OP_ROPE_STEP;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t all, n, length, heads, d;
  bool inverse;

  static void check(const Call& c) {
    need_counts(c, 3, 3, 1, 1);
    need_float(c.in[0], "x"), need_f32(c.in[1], "table"), need_counters(c.in[2]);
    need_same(c.in[0], c.out[0], "x and y");
    const int64_t heads = c.integer("heads");
    c.integer("inverse");
    need(c.in[0].ndim == 3 && c.in[1].ndim == 2 && heads > 0, "x must be (B, n, heads*D) and the table (T, D)");
    need(c.in[1].dims[1] % 2 == 0 && c.in[1].dims[1] * heads == columns(c.in[0]) && c.in[1].dims[0] >= c.in[0].dims[1],
         "the table must be (T, D), D even, T at least n");
  }
  RopeStep(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        all(rows(c.in[0])),
        n(c.in[0].dims[1]),
        length(c.in[1].dims[0]),
        heads(c.integer("heads")),
        d(c.in[1].dims[1] / 2),
        inverse(c.integer("inverse") != 0) {}
  void run(const Args& a) const {
    const int64_t at = position(a.in<int64_t>(2), n, length);
    by_type(type, [&]<class T>(T) {
      const rope_call<T> r{a.in<T>(0), a.in<float>(1) + at * 2 * d, a.out<T>(0), heads, d, n, inverse, nullptr};
      in_ranges(threads, all, heads * 2 * d, 1,
                [&](int64_t first, int64_t last) { simd.of<T>().rope(r, first, last); });
    });
  }
};

// Few positions are computed one by one, as each key is read once for them. More are computed in blocks.
template <bool window>
struct AttentionStep {
  static constexpr const char* op = window ? ENG_OP_ATTENTION_WINDOW_STEP : ENG_OP_ATTENTION_STEP;
  static constexpr int64_t least_block = 8;
  const simd_table& simd;
  const Isa* isa;
  unsigned threads;
  int32_t type;
  AttentionShape shape;
  int64_t length, parts;  // parts: of the query heads of one key head

  static void check(const Call& c) {
    need_counts(c, 6, 6, 3, 3);
    need_float(c.in[0], "q");
    for (size_t k = 1; k < 5; ++k) need_same_type(c.in[0], c.in[k], "q and k, v or a cache");
    need_counters(c.in[5]);
    const int64_t heads = c.integer("heads"), kv = c.integer("kv_heads");
    c.real("scale"), bounds_of(c);
    need(heads > 0 && kv > 0 && heads % kv == 0, "heads must be a multiple of kv_heads");
    need(c.in[0].ndim == 3 && columns(c.in[0]) % heads == 0, "q must be (B, n, heads*D)");
    const int64_t batch = c.in[0].dims[0], row = columns(c.in[0]) / heads * kv;
    need(c.in[3].ndim == 3 && c.in[3].dims[1] >= c.in[0].dims[1],
         "the caches must be (B, S, kv_heads*D), S at least n");
    for (size_t k : {1, 2}) {
      need_size(c.in[k], batch * c.in[0].dims[1] * row, "k and v");
      need_size(c.in[k + 2], batch * c.in[3].dims[1] * row, "the caches");
      need_same(c.in[k + 2], c.out[k], "a cache and its output");
    }
    need_same(c.in[0], c.out[0], "q and o");
  }
  // Floats of one thread: the scores of `group` heads, and their sums over v if o has no room for them.
  static int64_t scratch(int32_t type, int64_t group, int64_t length, int64_t d) {
    return group * (length + (type == ENG_F32 ? 0 : d));
  }
  static AttentionShape shape_of(const Call& c) {
    const auto [keys, cap] = bounds_of(c);
    const int64_t heads = c.integer("heads");
    return {c.in[0].dims[0],
            c.in[0].dims[1],
            heads,
            c.integer("kv_heads"),
            columns(c.in[0]) / heads,
            static_cast<float>(c.real("scale")),
            stored_of(c.in[0]),
            keys,
            cap};
  }
  static uint64_t workspace(const Call& c) {
    const AttentionShape s = shape_of(c);
    if (s.tokens >= least_block) return c.parallel * s.step_scratch();
    const int64_t floats = scratch(c.in[0].dtype, s.heads / s.kv_heads, c.in[3].dims[1], s.width);
    return c.parallel * static_cast<uint64_t>(floats) * sizeof(float);
  }

  AttentionStep(const Call& c, void* device)
      : simd(simd_for(device)),
        isa(device_of(device).isa),
        threads(c.parallel),
        type(c.in[0].dtype),
        shape(shape_of(c)),
        length(c.in[3].dims[1]),
        parts(1) {
    // Few key heads for many threads: their query heads are shared out. No result depends on that.
    const int64_t tasks = std::max<int64_t>(shape.batch * shape.query_blocks() * shape.kv_heads, 1);
    if (threads > 1 && tasks < 2 * int64_t{threads})
      parts = std::clamp<int64_t>((2 * int64_t{threads} + tasks - 1) / tasks, 1, shape.heads / shape.kv_heads);
  }
  void run(const Args& a) const {
    const int64_t at = position(a.in<int64_t>(5), shape.tokens, length);
    by_type(type, [&]<class T>(T) {
      append<T>(a, at);
      if (shape.tokens < least_block) one_by_one<T>(a, at);
    });
    if (shape.tokens >= least_block) in_blocks(a, at);
  }
  // The new keys and values to the caches.
  template <class T>
  void append(const Args& a, int64_t at) const {
    const int64_t batch = shape.batch, n = shape.tokens, row = shape.kv_heads * shape.width;
    for (size_t k : {1, 2}) {
      T* const cache = a.out<T>(k);
      if (cache != a.in<T>(k + 2))
        std::memcpy(cache, a.in<T>(k + 2), static_cast<size_t>(batch * length * row) * sizeof(T));
      for (int64_t b = 0; b < batch; ++b)
        std::memcpy(cache + (b * length + at) * row, a.in<T>(k) + b * n * row,
                    static_cast<size_t>(n * row) * sizeof(T));
    }
  }
  void in_blocks(const Args& a, int64_t at) const {
    const int64_t blocks = shape.query_blocks();
    parallel_tasks(threads, shape.batch * shape.kv_heads * blocks * parts, [&](unsigned thread, int64_t task) {
      const int64_t part = task % parts, head = task / parts % shape.kv_heads, rest = task / parts / shape.kv_heads;
      isa->attention_step(shape, at, length, rest / blocks, rest % blocks * attention_side, head, part, parts,
                          a.in<void>(0), a.out<void>(1), a.out<void>(2), a.out<void>(0),
                          a.scratch<char>() + thread * shape.step_scratch());
    });
  }
  template <class T>
  void one_by_one(const Args& a, int64_t at) const {
    const int64_t n = shape.tokens, kv_heads = shape.kv_heads, d = shape.width, group = shape.heads / kv_heads;
    const int64_t row = kv_heads * d;
    const unsigned used = at * row < parallel_least ? 1 : threads;
    parallel_tasks(used, shape.batch * n * kv_heads, [&](unsigned thread, int64_t task) {
      const int64_t head = task % kv_heads, token = task / kv_heads, seen = at + token % n + 1;
      const int64_t keys = shape.window ? std::min(seen, shape.window) : seen;
      const int64_t cache = (token / n * length + seen - keys) * row + head * d;
      const int64_t query = (token * shape.heads + head * group) * d;
      T* const o = a.out<T>(0) + query;
      float *const scores = a.scratch<float>() + thread * scratch(type, group, length, d), *sums;
      if constexpr (std::is_same_v<T, float>)
        sums = o;
      else
        sums = scores + group * length;
      simd.of<T>().attend({a.in<T>(0) + query, a.out<T>(1) + cache, a.out<T>(2) + cache, o, sums, scores, group, d,
                           keys, row, shape.scale, shape.cap});
    });
  }
};

}  // namespace

extern const eng_kernel* const sequence_kernels[] = {&kernel<RopeStep>, &kernel<AttentionStep<false>>,
                                                     &kernel<AttentionStep<true>>};
extern const uint32_t sequence_kernel_count = std::size(sequence_kernels);

}  // namespace cpu
