// SPDX-License-Identifier: Apache-2.0
// The update: sums of squares, adamw, sgd. All EXACT: the same bits as every other device's.
#include <cstring>
#include <iterator>

#include "simd/select.hpp"

namespace cpu {
namespace {

constexpr int64_t chunk = 4096;  // elements of one partial sum

// If the update is skipped (scalars[OK] is 0), everything stays as it was.
void keep(float* to, const float* from, int64_t first, int64_t last) {
  if (to && to != from) std::memcpy(to + first, from + first, size_t(last - first) * sizeof(float));
}

struct SumSquares {
  static constexpr const char* op = ENG_OP_SUM_SQUARES;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_f32(c.in[0], "x");
    need_f32(c.out[0], "out");
    need_size(c.in[0], elements(c.out[0]) * chunk, "x");
  }
  SumSquares(const Call& c, void* device) : simd(simd_for(device)), threads(c.parallel), n(elements(c.out[0])) {}
  void run(const Args& args) const {
    const float* x = args.in<float>(0);
    float* out = args.out<float>(0);
    in_ranges(threads, n, chunk, n < 1024 ? 1 : 16,
              [&](int64_t first, int64_t last) { simd.sum_squares(x, out, first, last); });
  }
};

struct AdamW {
  static constexpr const char* op = ENG_OP_ADAMW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;
  adamw_call fixed{};

  static void check(const Call& c) {
    need_counts(c, 5, 5, 3, 3);
    need_f32(c.in[0], "p");
    for (size_t k : {1, 2, 3}) need_same(c.in[0], c.in[k], "p and grad, m or v");
    for (size_t k : {0, 1, 2}) need_same(c.in[0], c.out[k], "p, m or v before and after");
    need_scalars(c.in[4]);
    for (const char* key : {"beta1", "beta2", "eps", "weight_decay"}) c.real(key);
  }
  AdamW(const Call& c, void* device) : simd(simd_for(device)), threads(c.parallel), n(elements(c.in[0])) {
    fixed.rest1 = static_cast<float>(1.0 - c.real("beta1"));
    fixed.beta2 = static_cast<float>(c.real("beta2"));
    fixed.rest2 = static_cast<float>(1.0 - c.real("beta2"));
    fixed.eps = static_cast<float>(c.real("eps"));
    fixed.wd = static_cast<float>(c.real("weight_decay"));
  }
  void run(const Args& args) const {
    const float* scalars = args.in<float>(4);
    adamw_call u = fixed;
    u.p_in = args.in<float>(0), u.grad = args.in<float>(1), u.m_in = args.in<float>(2), u.v_in = args.in<float>(3);
    u.p = args.out<float>(0), u.m = args.out<float>(1), u.v = args.out<float>(2);
    u.clip = scalars[ENG_S_CLIP], u.lr = scalars[ENG_S_LR], u.c1 = scalars[ENG_S_LR + 1], u.c2 = scalars[ENG_S_LR + 2];
    const bool counts = scalars[ENG_S_OK] != 0.0f;
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      if (counts) return simd.adamw(u, first, last);
      keep(u.p, u.p_in, first, last), keep(u.m, u.m_in, first, last), keep(u.v, u.v_in, first, last);
    });
  }
};

// The buffer b comes as third input and second output, or not at all.
struct Sgd {
  static constexpr const char* op = ENG_OP_SGD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;
  bool buffer;
  size_t scalars_at;
  sgd_call fixed{};

  static bool has_buffer(const Call& c) { return c.in.size() == 4 && c.has(2); }
  static void check(const Call& c) {
    need_counts(c, 3, 4, 1, 2);
    need_f32(c.in[0], "p");
    need_same(c.in[0], c.in[1], "p and grad");
    need_same(c.in[0], c.out[0], "p before and after");
    need_scalars(c.in.back());
    need(has_buffer(c) == c.has_out(1), "the momentum buffer b is an input and an output, or neither");
    if (has_buffer(c)) need_same(c.in[0], c.in[2], "p and b"), need_same(c.in[0], c.out[1], "p and b");
    need(has_buffer(c) || c.real("momentum") == 0.0, "momentum needs the buffer b");
    c.real("weight_decay"), c.integer("nesterov");
  }
  Sgd(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(elements(c.in[0])),
        buffer(has_buffer(c)),
        scalars_at(c.in.size() - 1) {
    fixed.momentum = static_cast<float>(c.real("momentum"));
    fixed.wd = static_cast<float>(c.real("weight_decay"));
    fixed.nesterov = c.integer("nesterov") != 0;
  }
  void run(const Args& args) const {
    const float* scalars = args.in<float>(scalars_at);
    sgd_call u = fixed;
    u.p_in = args.in<float>(0), u.grad = args.in<float>(1), u.p = args.out<float>(0);
    if (buffer) u.b_in = args.in<float>(2), u.b = args.out<float>(1);
    u.clip = scalars[ENG_S_CLIP], u.lr = scalars[ENG_S_LR], u.first = scalars[ENG_S_LR + 1] != 0.0f;
    const bool counts = scalars[ENG_S_OK] != 0.0f;
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      if (counts) return simd.sgd(u, first, last);
      keep(u.p, u.p_in, first, last), keep(u.b, u.b_in, first, last);
    });
  }
};

}  // namespace

extern const eng_kernel* const optimizer_kernels[] = {&kernel<SumSquares>, &kernel<AdamW>, &kernel<Sgd>};
extern const uint32_t optimizer_kernel_count = std::size(optimizer_kernels);

}  // namespace cpu
