// SPDX-License-Identifier: Apache-2.0
#include "../../common/philox.hpp"
#include "reference.hpp"

namespace reference {
namespace {

struct Dropout {
  static constexpr const char* op = ENG_OP_DROPOUT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  Call c;
  double p;
  uint64_t seed, stream;

  explicit Dropout(const Call& call)
      : c(call), p(c.real("p")), seed(uint64_t(c.integer("seed"))), stream(uint64_t(c.integer("stream"))) {}
  static void check(const Call& c) {
    expect_inputs(c, {0, 1});
    expect_types(c, 2, {0}, 1, {0});
    expect(c.in[1].dtype == ENG_I64 && elements(c.in[1]) == ENG_C_COUNT, "counters must be i64 (8)");
    expect(c.in[0].ndim >= 1 && elements(c.out[0]) == elements(c.in[0]), "y must have the shape of x, (B, ...)");
    const Dropout op(c);
    expect(op.p >= 0 && op.p < 1, "p must be at least 0 and below 1");
    expect(op.stream > 0 && op.stream < uint64_t{1} << 32, "stream must be above 0 and have 32 bits");
  }
  void run(const Args& a) const {
    const int64_t* counters = a.in<int64_t>(1);
    const uint32_t threshold = common::dropout_threshold(p);
    by_type(c.in[0].dtype, [&]<class T>(T) {
      const int64_t B = c.in[0].dims[0], n = B ? elements(c.in[0]) / B : 0;
      const auto scale = Arithmetic<T>(1.0 / (1.0 - p));
      for (int64_t b = 0; b < B; ++b)
        for (int64_t j = 0; j < n; ++j) {
          const uint64_t block = uint64_t(j / 64 * 16 + j % 16),
                         sequence = uint64_t(common::dropout_row(counters) * B + b);
          const common::PhiloxWords words = common::philox4x32_10(
              common::dropout_low(block, sequence), common::dropout_low(uint64_t(counters[ENG_C_STEP]), stream), seed);
          const bool kept = words[size_t(j % 64 / 16)] >= threshold;
          a.out<T>(0)[b * n + j] = T(kept ? a.in<T>(0)[b * n + j] * scale : 0);
        }
    });
  }
};

}  // namespace

void add_dropout(List& list) {
  list.insert(list.end(), {&common::kernel<Dropout>});
}

}  // namespace reference
