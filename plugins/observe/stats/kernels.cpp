// SPDX-License-Identifier: Apache-2.0
// The op and its kernel for devices in host memory: `reference` has one thread, `cpu` all of a call.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "../../common/half.hpp"
#include "../../common/parallel.hpp"
#include "engine/ops.h"
#include "stats.hpp"

namespace stats {
namespace {

using common::Args;
using common::Call;
using common::elements;
using common::Error;

constexpr int64_t chunk = 4096;

struct Sum {
  double squares, largest;
};

double larger(double a, double b) {
  return std::isnan(a) || std::isnan(b) ? NAN : std::max(a, b);
}

template <class T>
Sum measure(const T* x, int64_t n, double factor) {
  Sum out{0, 0};
  bool number = true;
  for (int64_t i = 0; i < n; ++i) {
    const double v = static_cast<double>(x[i]) * factor;
    out.squares += v * v;
    out.largest = std::max(out.largest, std::abs(v));
    number = number && v == v;
  }
  if (!number) out.largest = NAN;
  return out;
}

Sum measure(int32_t dtype, const void* x, int64_t first, int64_t n, double factor) {
  if (dtype == ENG_BF16) return measure(static_cast<const common::Bf16*>(x) + first, n, factor);
  if (dtype == ENG_F16) return measure(static_cast<const common::F16*>(x) + first, n, factor);
  return measure(static_cast<const float*>(x) + first, n, factor);
}

template <bool fast>
struct Measure {
  static constexpr const char* op = STATS_OP_MEASURE;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int32_t dtype;
  int64_t n;
  unsigned threads;

  static void check(const Call& c) {
    const int32_t type = c.in.empty() ? 0 : c.in[0].dtype;
    if (type != ENG_F32 && type != ENG_BF16 && type != ENG_F16)
      throw Error{ENG_UNSUPPORTED, "x must be f32, bf16 or f16"};
    if (c.in.size() > 2 || (c.has(1) && (c.in[1].dtype != ENG_F32 || elements(c.in[1]) != ENG_S_COUNT)))
      throw Error{ENG_INVALID, "takes x and perhaps scalars f32 (32)"};
    if (c.out.size() != 1 || c.out[0].dtype != ENG_F32 || elements(c.out[0]) != 2)
      throw Error{ENG_INVALID, "gives f32 (2)"};
  }
  static uint64_t workspace(const Call& c) {
    return static_cast<uint64_t>((elements(c.in[0]) + chunk - 1) / chunk) * sizeof(Sum);
  }
  explicit Measure(const Call& c) : dtype(c.in[0].dtype), n(elements(c.in[0])), threads(fast ? c.parallel : 1) {}
  void run(const Args& a) const {
    const float* const scalars = a.in<float>(1);
    const double factor = scalars ? 1.0 / static_cast<double>(scalars[ENG_S_LOSS_SCALE]) : 1.0;
    Sum* const sums = a.scratch<Sum>();
    const int64_t chunks = (n + chunk - 1) / chunk;
    cpu::parallel_tasks(chunks < 16 ? 1 : threads, chunks, [&](unsigned, int64_t k) {
      sums[k] = measure(dtype, a.in<void>(0), k * chunk, std::min(chunk, n - k * chunk), factor);
    });
    Sum all{0, 0};
    for (int64_t k = 0; k < chunks; ++k) all = {all.squares + sums[k].squares, larger(all.largest, sums[k].largest)};
    a.out<float>(0)[0] = static_cast<float>(all.squares);
    a.out<float>(0)[1] = static_cast<float>(all.largest);
  }
};

eng_status infer(const eng_call*, eng_desc* out, uint32_t, uint32_t* n_out, eng_error*) {
  out[0] = eng_desc{};
  out[0].dtype = ENG_F32, out[0].ndim = 1, out[0].dims[0] = 2;
  *n_out = 1;
  return ENG_OK;
}

constexpr eng_op make_measure() {
  eng_op op{};
  op.struct_size = sizeof op, op.id = STATS_OP_MEASURE, op.min_in = 1, op.max_in = 2, op.infer = infer;
  return op;
}
const eng_op measure_op = make_measure();
const eng_op* const list[] = {&measure_op};

}  // namespace

const eng_ops ops = {.struct_size = sizeof(eng_ops), .count = 1, .ops = list};
const eng_kernels cpu_kernels = common::kernel_table<Measure<true>>;
const eng_kernels reference_kernels = common::kernel_table<Measure<false>>;

}  // namespace stats
