// SPDX-License-Identifier: Apache-2.0
// The update: sums of squares, adamw, sgd. All EXACT: the same bits as every other device's.
#include <cstring>
#include <iterator>
#include <optional>

#include "../../common/rounding.hpp"
#include "../../common/weight.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

constexpr int64_t chunk = 4096;  // elements of one partial sum

// If the update is skipped (scalars[OK] is 0), everything stays as it was.
template <class S>
void keep(S* to, const S* from, int64_t first, int64_t last) {
  if (to && to != from) std::memcpy(to + first, from + first, size_t(last - first) * sizeof(S));
}
template <class G, class S>
void keep(const update_memory<G, S>& to, int64_t first, int64_t last) {
  keep(to.p, to.p_in, first, last);
  for (int k : {0, 1}) keep(to.out[k], to.in[k], first, last);
}

// An update of p and its states, inputs `states`.
template <class G, class S>
update_memory<G, S> memory_of(const Args& args, std::initializer_list<size_t> states) {
  update_memory<G, S> to{};
  to.grad = args.in<G>(1), to.p_in = args.in<S>(0), to.p = args.out<S>(0);
  size_t k = 0;
  for (size_t s : states) to.in[k] = args.in<S>(s), to.out[k] = args.out<S>(k + 1), ++k;
  return to;
}

// The additional inputs of an update in bf16.
struct Rounded {
  std::optional<Rounding> by;
  int32_t grad = 0;
  size_t counters = 0;
  Rounded(const Call& c, size_t counters_at) : counters(counters_at) {
    if (is_rounded(c)) by.emplace(c), grad = c.in[1].dtype;
  }
  // f(loops, memory)
  template <class F>
  void run(const simd_table& simd, const Args& args, std::initializer_list<size_t> states, F f) const {
    const auto update = static_cast<uint32_t>(args.in<int64_t>(counters)[ENG_C_UPDATES]);
    const auto of = [&]<class G>(G) {
      update_memory<G, bf16> to = memory_of<G, bf16>(args, states);
      to.first = by->first, to.key = {by->seed, by->stream, update};
      f(simd.rounded<G>(), to);
    };
    if (grad == ENG_BF16)
      of(bf16{});
    else
      of(float{});
  }
};

// The type of output k, the weight that an update writes; f32, of which no weight is, if there is none.
int32_t weight_type(const Call& c, size_t k) {
  return has_weight(c, k) ? c.out[k].dtype : ENG_F32;
}

struct SumSquares {
  static constexpr const char* op = ENG_OP_SUM_SQUARES;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n;

  static void check(const Call& c) {
    need_counts(c, 1, 1, 1, 1);
    need_float(c.in[0], "x");
    need_f32(c.out[0], "out");
    need_size(c.in[0], elements(c.out[0]) * chunk, "x");
  }
  SumSquares(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), type(c.in[0].dtype), n(elements(c.out[0])) {}
  void run(const Args& args) const {
    by_type(type, [&]<class T>(T) {
      const T* x = args.in<T>(0);
      float* out = args.out<float>(0);
      in_ranges(threads, n, chunk, n < 1024 ? 1 : 16,
                [&](int64_t first, int64_t last) { simd.of<T>().sum_squares(x, out, first, last); });
    });
  }
};

struct AdamW {
  static constexpr const char* op = ENG_OP_ADAMW;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;
  int32_t weight;
  Rounded rounded;
  adamw_numbers fixed{};

  static void check(const Call& c) {
    need_counts(c, 5, is_rounded(c) ? 6 : 5, 3, 4);
    need_scalars(c.in[4]);
    for (const char* key : {"beta1", "beta2", "eps", "weight_decay"}) c.real(key);
    if (is_rounded(c)) return check_rounded(c, 2, 5);
    check_weight(c, 3);
    need_f32(c.in[0], "p");
    for (size_t k : {1, 2, 3}) need_same(c.in[0], c.in[k], "p and grad, m or v");
    for (size_t k : {0, 1, 2}) need_same(c.in[0], c.out[k], "p, m or v before and after");
  }
  AdamW(const Call& c, void* device)
      : simd(simd_for(device)), threads(c.parallel), n(elements(c.in[0])), weight(weight_type(c, 3)), rounded(c, 5) {
    fixed.rest1 = static_cast<float>(1.0 - c.real("beta1"));
    fixed.beta2 = static_cast<float>(c.real("beta2"));
    fixed.rest2 = static_cast<float>(1.0 - c.real("beta2"));
    fixed.eps = static_cast<float>(c.real("eps"));
    fixed.wd = static_cast<float>(c.real("weight_decay"));
  }
  void run(const Args& args) const {
    const float* scalars = args.in<float>(4);
    adamw_numbers u = fixed;
    u.clip = scalars[ENG_S_CLIP], u.lr = scalars[ENG_S_LR], u.c1 = scalars[ENG_S_LR + 1], u.c2 = scalars[ENG_S_LR + 2];
    const bool counts = scalars[ENG_S_OK] != 0.0f;
    if (rounded.by)
      return rounded.run(simd, args, {2, 3}, [&](const auto& loops, const auto& to) {
        in_lines(threads, n, [&](int64_t first, int64_t last) {
          counts ? loops.adamw(u, to, first, last) : keep(to, first, last);
        });
      });
    const auto to = memory_of<float, float>(args, {2, 3});
    in_lines(threads, n, [&](int64_t first, int64_t last) {
      if (counts) return by_type(weight, [&]<class T>(T) { simd.of<T>().adamw(u, to, args.out<T>(3), first, last); });
      keep(to, first, last);
      cast_weight(weight, to.p, args.out<void>(3), first, last);
    });
  }
};

// The buffer b comes as third input and second output, or not at all. The weight is the output after it.
struct Sgd {
  static constexpr const char* op = ENG_OP_SGD;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int64_t n;
  bool buffer;
  size_t scalars_at, weight_at;
  int32_t weight;
  Rounded rounded;
  sgd_numbers fixed{};

  static size_t scalars_of(const Call& c) { return is_rounded(c) ? 3 : c.in.size() - 1; }
  static bool has_buffer(const Call& c) { return scalars_of(c) == 3 && c.has(2); }
  static void check(const Call& c) {
    need_counts(c, is_rounded(c) ? 5 : 3, is_rounded(c) ? 5 : 4, 1, 3);
    need_scalars(c.in[scalars_of(c)]);
    need(has_buffer(c) || c.real("momentum") == 0.0, "momentum needs the buffer b");
    c.real("weight_decay"), c.integer("nesterov");
    if (is_rounded(c)) return check_rounded(c, has_buffer(c) ? 1 : 0, 4);
    need_f32(c.in[0], "p");
    need_same(c.in[0], c.in[1], "p and grad");
    need_same(c.in[0], c.out[0], "p before and after");
    need(has_buffer(c) ? c.has_out(1) : !c.has_out(1) || c.out[1].dtype != ENG_F32,
         "the momentum buffer b is an input and an output, or neither");
    check_weight(c, has_buffer(c) ? 2 : 1);
    if (has_buffer(c)) need_same(c.in[0], c.in[2], "p and b"), need_same(c.in[0], c.out[1], "p and b");
  }
  Sgd(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        n(elements(c.in[0])),
        buffer(has_buffer(c)),
        scalars_at(scalars_of(c)),
        weight_at(buffer ? 2 : 1),
        weight(weight_type(c, weight_at)),
        rounded(c, 4) {
    fixed.momentum = static_cast<float>(c.real("momentum"));
    fixed.wd = static_cast<float>(c.real("weight_decay"));
    fixed.nesterov = c.integer("nesterov") != 0;
  }
  void run(const Args& args) const {
    const float* scalars = args.in<float>(scalars_at);
    sgd_numbers u = fixed;
    u.clip = scalars[ENG_S_CLIP], u.lr = scalars[ENG_S_LR], u.first = scalars[ENG_S_LR + 1] != 0.0f;
    const bool counts = scalars[ENG_S_OK] != 0.0f;
    const auto update = [&](const auto& states) {
      if (rounded.by)
        return rounded.run(simd, args, states, [&](const auto& loops, const auto& to) {
          in_lines(threads, n, [&](int64_t first, int64_t last) {
            counts ? loops.sgd(u, to, first, last) : keep(to, first, last);
          });
        });
      const auto to = memory_of<float, float>(args, states);
      in_lines(threads, n, [&](int64_t first, int64_t last) {
        if (counts)
          return by_type(weight, [&]<class T>(T) { simd.of<T>().sgd(u, to, args.out<T>(weight_at), first, last); });
        keep(to, first, last);
        cast_weight(weight, to.p, args.out<void>(weight_at), first, last);
      });
    };
    buffer ? update(std::initializer_list<size_t>{2}) : update(std::initializer_list<size_t>{});
  }
};

}  // namespace

extern const eng_kernel* const optimizer_kernels[] = {&kernel<SumSquares>, &kernel<AdamW>, &kernel<Sgd>};
extern const uint32_t optimizer_kernel_count = std::size(optimizer_kernels);

}  // namespace cpu
