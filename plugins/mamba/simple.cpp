// SPDX-License-Identifier: Apache-2.0
// split, join and the initial values. The same kernels serve every device whose memory is host memory.
#include <cmath>
#include <cstring>

#include "../common/philox.hpp"
#include "../common/reals.hpp"
#include "kernels.hpp"
#include "ssd.hpp"

namespace mamba {
namespace {

using common::Args;
using common::Call;
using common::columns;
using common::elements;
using common::rows;

uint64_t row_bytes(const eng_desc& d) {
  return common::dtype_size(d.dtype) * static_cast<uint64_t>(columns(d));
}

struct Split {
  static constexpr const char* op = MAMBA_OP_SPLIT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  uint64_t first, second;
  explicit Split(const Call& c) : n(rows(c.in[0])), first(row_bytes(c.out[0])), second(row_bytes(c.out[1])) {}
  void run(const Args& a) const {
    const char* x = a.in<char>(0);
    for (int64_t r = 0; r < n; ++r, x += first + second) {
      std::memcpy(a.out<char>(0) + static_cast<uint64_t>(r) * first, x, first);
      std::memcpy(a.out<char>(1) + static_cast<uint64_t>(r) * second, x + first, second);
    }
  }
};

struct Join {
  static constexpr const char* op = MAMBA_OP_JOIN;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  int64_t n;
  uint64_t first, second;
  explicit Join(const Call& c) : n(rows(c.in[0])), first(row_bytes(c.in[0])), second(row_bytes(c.in[1])) {}
  void run(const Args& a) const {
    char* x = a.out<char>(0);
    for (int64_t r = 0; r < n; ++r, x += first + second) {
      std::memcpy(x, a.in<char>(0) + static_cast<uint64_t>(r) * first, first);
      std::memcpy(x + first, a.in<char>(1) + static_cast<uint64_t>(r) * second, second);
    }
  }
};

// Writes value(e) to each element e of the output, which is a part of a parameter that starts at element `first`.
template <class Value>
void fill(const eng_desc& d, int64_t first, const Args& a, Value value) {
  const common::Reals out(a.out<void>(0), d.dtype);
  for (int64_t i = 0; i < elements(d); ++i) out.set(i, value(static_cast<uint64_t>(first + i)));
}

void expect_reals(const Call& c) {
  if (c.out.size() != 1 || (c.out[0].dtype != ENG_F32 && c.out[0].dtype != ENG_F64 && !common::is_half(c.out[0])))
    throw common::Error{ENG_UNSUPPORTED, "fills one tensor of f32, f64, bf16 or f16"};
}

struct InitALog {
  static constexpr const char* op = MAMBA_OP_INIT_A_LOG;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  eng_desc out;
  int64_t first, states;
  explicit InitALog(const Call& c) : out(c.out[0]), first(c.integer("first")), states(c.integer("states")) {}
  static void check(const Call& c) {
    expect_reals(c);
    if (c.integer("states") < 1) throw common::Error{ENG_INVALID, "states must be at least 1"};
  }
  void run(const Args& a) const {
    fill(out, first, a,
         [&](uint64_t e) { return std::log(static_cast<double>(e % static_cast<uint64_t>(states) + 1)); });
  }
};

struct InitDtBias {
  static constexpr const char* op = MAMBA_OP_INIT_DT_BIAS;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  eng_desc out;
  int64_t first;
  uint64_t seed, stream;
  double low, high, floor;
  explicit InitDtBias(const Call& c)
      : out(c.out[0]),
        first(c.integer("first")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint64_t>(c.integer("stream"))),
        low(c.real("low")),
        high(c.real("high")),
        floor(c.real("floor")) {}
  static void check(const Call& c) { expect_reals(c), (void)InitDtBias(c); }
  void run(const Args& a) const {
    fill(out, first, a, [&](uint64_t e) {
      const double step = std::max(floor, std::exp(low + (high - low) * common::philox_uniform(e, stream, seed)));
      return step + std::log(-std::expm1(-step));  // the softplus of this is `step`
    });
  }
};

struct InitLogUniform {
  static constexpr const char* op = MAMBA_OP_INIT_LOG_UNIFORM;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  eng_desc out;
  int64_t first;
  uint64_t seed, stream;
  double low, high;
  explicit InitLogUniform(const Call& c)
      : out(c.out[0]),
        first(c.integer("first")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(static_cast<uint64_t>(c.integer("stream"))),
        low(c.real("low")),
        high(c.real("high")) {}
  static void check(const Call& c) {
    expect_reals(c);
    if (!(c.real("low") > 0)) throw common::Error{ENG_INVALID, "low must be above 0"};
  }
  void run(const Args& a) const {
    fill(out, first, a,
         [&](uint64_t e) { return std::log(low + (high - low) * common::philox_uniform(e, stream, seed)); });
  }
};

}  // namespace

extern const eng_kernel split_kernel = common::kernel<Split>, join_kernel = common::kernel<Join>,
                        init_a_log_kernel = common::kernel<InitALog>, init_dt_bias_kernel = common::kernel<InitDtBias>,
                        init_log_uniform_kernel = common::kernel<InitLogUniform>;

}  // namespace mamba
