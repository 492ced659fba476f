// SPDX-License-Identifier: Apache-2.0
// ssd, its gradient and its step, the gated norm and its gradient on the device `cpu`. A task of the scan is one
// sequence and some heads of one group. How many heads depends on their number only; documents are computed one after
// the other.
#pragma once

#include "cpu_shared.hpp"
#include "ssd.hpp"

namespace mamba {
namespace {

struct SsdBase {
  Call c;
  size_t first;  // the input xbc
  unsigned threads;
  int64_t sequences, blocks, size;  // of a group: blocks of `size` heads, the last one may have fewer
  SsdSizes s;
  SsdBase(const Call& call, size_t xbc) : c(call), first(xbc), threads(c.parallel), sequences(c.in[xbc].dims[0]) {
    s = {.tokens = c.in[xbc].dims[1],
         .heads = c.in[xbc + 2].dims[0],
         .width = 0,
         .states = c.integer("states"),
         .groups = c.integer("groups"),
         .row = columns(c.in[xbc]),
         .dt_row = columns(c.in[xbc + 1]),
         .low = static_cast<float>(c.real("low")),
         .high = static_cast<float>(c.real("high"))};
    s.width = (s.row - 2 * s.groups * s.states) / s.heads;
    // At most 16 blocks in all, or one for each group: the gradient of B and C has a sum for each.
    const int64_t heads = s.heads / s.groups, most = std::max<int64_t>(1, 16 / s.groups);
    size = (heads + most - 1) / most;
    blocks = (heads + size - 1) / size;
  }
  template <class T>
  SsdIn<T> inputs(const Args& a, int64_t token) const {
    return {.xbc = a.in<T>(first) + token * s.row,
            .dt = a.in<T>(first + 1) + token * s.dt_row,
            .a_log = a.in<float>(first + 2),
            .d = a.in<float>(first + 3),
            .dt_bias = a.in<float>(first + 4)};
  }
  // Calls f(thread, sequence, group, block of the group, its first head, its last head + 1).
  template <class F>
  void each_task(F&& f) const {
    cpu::parallel_tasks(threads, sequences * s.groups * blocks, [&](unsigned thread, int64_t task) {
      const int64_t block = task % blocks, group = task / blocks % s.groups, heads = s.heads / s.groups;
      const int64_t from = group * heads + block * size;
      f(thread, task / blocks / s.groups, group, block, from, std::min(from + size, (group + 1) * heads));
    });
  }
  SsdSizes of_document(int64_t tokens) const {
    SsdSizes part = s;
    return part.tokens = tokens, part;
  }
};

template <const Loops* (*loops)(), bool step>
struct Ssd : SsdBase {
  static constexpr const char* op = step ? MAMBA_OP_SSD_STEP : MAMBA_OP_SSD;
  static constexpr size_t segments = step ? SIZE_MAX : 5;
  explicit Ssd(const Call& c) : SsdBase(c, 0) {}
  static void check(const Call& c) {
    expect_one_type(c, {0, 1}, {0}, "xbc", "xbc and dt or y");
    expect_f32(c, {2, 3, 4}, {}, "one of a_log, d and dt_bias");
    if (step) expect_f32(c, {5}, {1}, "h");
    cpu::need_numbers(c, segments, c.in[0], "segments");
  }
  static uint64_t workspace(const Call& c) {
    const SsdBase base(c, 0);
    return floats(c.parallel * ssd_scratch(base.s, base.size));
  }
  void run(const Args& a) const {
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      each_task([&](unsigned thread, int64_t b, int64_t, int64_t, int64_t from, int64_t to) {
        float* scratch = a.scratch<float>() + thread * ssd_scratch(s, size);
        float* running = step ? a.out<float>(1) + b * s.heads * s.states * s.width : nullptr;
        cpu::each_document(cpu::segments_of(a, segments, b, s.tokens), s.tokens, [&](int64_t token, int64_t tokens) {
          token += b * s.tokens;
          typed.ssd(of_document(tokens), inputs<T>(a, token), a.out<T>(0) + token * s.heads * s.width, running, from,
                    to, scratch);
        });
      });
    });
  }
};

template <const Loops* (*loops)()>
struct SsdGrad : SsdBase {
  static constexpr const char* op = MAMBA_OP_SSD_GRAD;
  explicit SsdGrad(const Call& c) : SsdBase(c, 1) {}
  static void check(const Call& c) {
    expect_one_type(c, {1, 0, 2}, {0, 1}, "xbc", "xbc and dy, dt or one of their gradients");
    expect_f32(c, {3, 4, 5}, {2, 3, 4}, "one of a_log, d, dt_bias and their gradients");
    cpu::need_numbers(c, 6, c.in[1], "segments");
  }
  // Scratch: for each sequence (3, H), the gradients of a_log, d and dt_bias; for each sequence, group and block (T,
  // 2N), those of B and C.
  int64_t bc_part() const { return s.tokens * 2 * s.states; }
  static uint64_t workspace(const Call& c) {
    const SsdGrad g(c);
    return floats(g.sequences * (3 * g.s.heads + g.s.groups * g.blocks * g.bc_part()) +
                  c.parallel * ssd_grad_scratch(g.s, g.size));
  }
  void run(const Args& a) const {
    float *parts = a.scratch<float>(), *dbc = parts + sequences * 3 * s.heads,
          *scratch = dbc + sequences * s.groups * blocks * bc_part();
    std::memset(parts, 0, floats(sequences * 3 * s.heads));
    cpu::by_type(c.in[1].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      each_task([&](unsigned thread, int64_t b, int64_t group, int64_t block, int64_t from, int64_t to) {
        float *part = parts + b * 3 * s.heads, *own = dbc + ((b * s.groups + group) * blocks + block) * bc_part();
        cpu::each_document(cpu::segments_of(a, 6, b, s.tokens), s.tokens, [&](int64_t at, int64_t tokens) {
          const int64_t token = b * s.tokens + at;
          const SsdGradOut<T> out = {.dxbc = a.out<T>(0) + token * s.row,
                                     .ddt = a.out<T>(1) + token * s.dt_row,
                                     .dbc = own + at * 2 * s.states,
                                     .da_log = part,
                                     .dd = part + s.heads,
                                     .ddt_bias = part + 2 * s.heads};
          typed.ssd_grad(of_document(tokens), inputs<T>(a, token), a.in<T>(0) + token * s.heads * s.width, out, from,
                         to, scratch + thread * ssd_grad_scratch(s, size));
        });
      });
    });
    // The gradients of B and C of each token: the sum over the blocks, in order. The columns of ddt before dt are zero.
    const Reals to(c, a, a.n_in);
    each_row(threads, sequences * s.tokens, [&](int64_t row) {
      const int64_t b = row / s.tokens, t = row % s.tokens;
      for (int64_t group = 0; group < s.groups; ++group) {
        const float* from = dbc + (b * s.groups + group) * blocks * bc_part() + t * 2 * s.states;
        const int64_t at = row * s.row + s.heads * s.width + group * s.states;
        for (int64_t i = 0; i < 2 * s.states; ++i) {
          float sum = from[i];
          for (int64_t block = 1; block < blocks; ++block) sum += from[block * bc_part() + i];
          to.set(at + (i < s.states ? i : (s.groups - 1) * s.states + i), double(sum));
        }
      }
      if (s.dt_row > s.heads) clear(c, a, 1, row * s.dt_row, s.dt_row - s.heads);
    });
    for (int64_t k = 0; k < 3; ++k)
      for (int64_t j = 0; j < s.heads; ++j) {
        float sum = 0;
        for (int64_t b = 0; b < sequences; ++b) sum += parts[(b * 3 + k) * s.heads + j];
        a.out<float>(static_cast<size_t>(2 + k))[j] = sum;
      }
  }
};

NormSizes norm_sizes(const Call& c, size_t x) {
  return {.columns = columns(c.in[x]), .groups = c.integer("groups"), .eps = static_cast<float>(c.real("eps"))};
}

template <const Loops* (*loops)()>
struct GatedNorm {
  static constexpr const char* op = MAMBA_OP_GATED_NORM;
  Call c;
  explicit GatedNorm(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_one_type(c, {0, 1, 2}, {0}, "x", "x and z, w or y"); }
  static uint64_t workspace(const Call& c) { return floats(c.parallel * columns(c.in[0])); }
  void run(const Args& a) const {
    const NormSizes s = norm_sizes(c, 0);
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      cpu::parallel_for(c.parallel, [&](unsigned thread, unsigned n) {
        const cpu::Share share = cpu::share_of(common::rows(c.in[0]), thread, n);
        for (int64_t row = share.first; row < share.last; ++row)
          typed.gated_norm(s, a.in<T>(0) + row * s.columns, a.in<T>(1) + row * s.columns, a.in<T>(2),
                           a.out<T>(0) + row * s.columns, a.scratch<float>() + thread * s.columns);
      });
    });
  }
};

template <const Loops* (*loops)()>
struct GatedNormGrad {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_GRAD;
  static constexpr int64_t blocks = 32;  // of rows: each has a sum for dw
  Call c;
  explicit GatedNormGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_one_type(c, {1, 0, 2, 3}, {0, 1}, "x", "x and dy, z, w or one of the gradients");
    cpu::need_sums(c, c.in[3].dtype, {}, {2});
  }
  static uint64_t workspace(const Call& c) { return floats((c.parallel + blocks) * columns(c.in[1])); }
  void run(const Args& a) const {
    const NormSizes s = norm_sizes(c, 1);
    const int64_t rows = common::rows(c.in[1]);
    float *sums = a.scratch<float>(), *scratch = sums + blocks * s.columns;
    std::memset(sums, 0, floats(blocks * s.columns));
    cpu::by_type(c.in[1].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      cpu::parallel_tasks(c.parallel, blocks, [&](unsigned thread, int64_t block) {
        for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row) {
          const int64_t at = row * s.columns;
          typed.gated_norm_grad(s, a.in<T>(0) + at, a.in<T>(1) + at, a.in<T>(2) + at, a.in<T>(3), a.out<T>(0) + at,
                                a.out<T>(1) + at, sums + block * s.columns, scratch + thread * s.columns);
        }
      });
    });
    const Reals dw(c, a, a.n_in + 2);
    for (int64_t i = 0; i < s.columns; ++i) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += sums[block * s.columns + i];
      dw.set(i, double(sum));
    }
  }
};

}  // namespace
}  // namespace mamba
