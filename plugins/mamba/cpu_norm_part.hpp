// SPDX-License-Identifier: Apache-2.0
// The norm whose groups are divided, and its gradient, on the device `cpu`, row by row.
#pragma once

#include <cmath>

#include "cpu_shared.hpp"
#include "norm_part.hpp"

namespace mamba {
namespace {

float* sums_of(const Args& a, size_t k, int64_t row, int64_t groups) {
  return a.out<float>(k) + row * groups;
}

template <const Loops* (*loops)()>
struct GatedSquares {
  static constexpr const char* op = MAMBA_OP_GATED_SQUARES;
  Call c;
  explicit GatedSquares(const Call& call) : c(call) {}
  static void check(const Call& c) { expect_one_type(c, {0, 1}, {}, "x", "x and z"), expect_f32(c, {}, {0}, "sums"); }
  void run(const Args& a) const {
    const int64_t n = columns(c.in[0]), groups = c.integer("groups");
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      each_row(c.parallel, common::rows(c.in[0]), [&](int64_t row) {
        float* sums = sums_of(a, 0, row, groups);
        std::fill(sums, sums + groups, 0.0f);
        sums[c.integer("at")] = loops()->template of<T>().gated_squares(n, a.in<T>(0) + row * n, a.in<T>(1) + row * n);
      });
    });
  }
};

template <const Loops* (*loops)()>
struct GatedSquaresGrad {
  static constexpr const char* op = MAMBA_OP_GATED_SQUARES_GRAD;
  Call c;
  explicit GatedSquaresGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_one_type(c, {0, 1, 3, 4}, {0, 1}, "x", "x and z or one of the gradients"), expect_f32(c, {2}, {}, "dsums");
  }
  void run(const Args& a) const {
    const int64_t n = columns(c.in[0]), groups = c.integer("groups");
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      const T *dx_acc = c.has(3) ? a.in<T>(3) : nullptr, *dz_acc = c.has(4) ? a.in<T>(4) : nullptr;
      each_row(c.parallel, common::rows(c.in[0]), [&](int64_t row) {
        const int64_t at = row * n;
        loops()->template of<T>().gated_squares_grad(
            n, a.in<T>(0) + at, a.in<T>(1) + at, 2.0f * a.in<float>(2)[row * groups + c.integer("at")],
            dx_acc ? dx_acc + at : nullptr, dz_acc ? dz_acc + at : nullptr, a.out<T>(0) + at, a.out<T>(1) + at);
      });
    });
  }
};

float part_scale(const Call& c, float sum) {
  return 1.0f / std::sqrt(sum / static_cast<float>(c.integer("columns")) + static_cast<float>(c.real("eps")));
}

template <const Loops* (*loops)()>
struct GatedNormPart {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_PART;
  Call c;
  explicit GatedNormPart(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_one_type(c, {0, 1, 2}, {0}, "x", "x and z, w or y"), expect_f32(c, {3}, {}, "sums");
  }
  void run(const Args& a) const {
    const int64_t n = columns(c.in[0]), groups = columns(c.in[3]);
    cpu::by_type(c.in[0].dtype, [&]<class T>(T) {
      each_row(c.parallel, common::rows(c.in[0]), [&](int64_t row) {
        const float scale = part_scale(c, a.in<float>(3)[row * groups + c.integer("at")]);
        loops()->template of<T>().gated_norm_part(n, a.in<T>(0) + row * n, a.in<T>(1) + row * n, a.in<T>(2),
                                                  a.out<T>(0) + row * n, scale);
      });
    });
  }
};

template <const Loops* (*loops)()>
struct GatedNormPartGrad {
  static constexpr const char* op = MAMBA_OP_GATED_NORM_PART_GRAD;
  static constexpr int64_t blocks = 32;  // of rows: each has a sum for dw
  Call c;
  explicit GatedNormPartGrad(const Call& call) : c(call) {}
  static void check(const Call& c) {
    expect_one_type(c, {1, 0, 2, 3}, {0, 1}, "x", "x and dy, z, w or one of the gradients");
    expect_f32(c, {4}, {3}, "sums and dsums");
    cpu::need_sums(c, c.in[3].dtype, {}, {2});
  }
  static uint64_t workspace(const Call& c) { return floats(blocks * columns(c.in[1])); }
  void run(const Args& a) const {
    const int64_t n = columns(c.in[1]), groups = columns(c.in[4]), rows = common::rows(c.in[1]), at = c.integer("at");
    float* sums = a.scratch<float>();
    std::memset(sums, 0, floats(blocks * n));
    cpu::by_type(c.in[1].dtype, [&]<class T>(T) {
      const TypedLoops<T>& typed = loops()->template of<T>();
      cpu::parallel_tasks(c.parallel, blocks, [&](unsigned, int64_t block) {
        for (int64_t row = rows * block / blocks; row < rows * (block + 1) / blocks; ++row) {
          const float scale = part_scale(c, a.in<float>(4)[row * groups + at]);
          const float dot = typed.gated_norm_part_grad(n, a.in<T>(0) + row * n, a.in<T>(1) + row * n,
                                                       a.in<T>(2) + row * n, a.in<T>(3), a.out<T>(0) + row * n,
                                                       a.out<T>(1) + row * n, sums + block * n, scale);
          float* dsums = sums_of(a, 3, row, groups);
          std::fill(dsums, dsums + groups, 0.0f);
          dsums[at] = -0.5f * dot * scale * scale / static_cast<float>(c.integer("columns"));
        }
      });
    });
    const Reals dw(c, a, a.n_in + 2);
    for (int64_t i = 0; i < n; ++i) {
      float sum = 0;
      for (int64_t block = 0; block < blocks; ++block) sum += sums[block * n + i];
      dw.set(i, double(sum));
    }
  }
};

}  // namespace
}  // namespace mamba
