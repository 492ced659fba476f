// SPDX-License-Identifier: Apache-2.0
// The terms of the loss. They read B (2E + 1) numbers, so one thread is enough, and the same kernels serve every device
// whose memory is host memory.
#include "../common/reals.hpp"
#include "kernels.hpp"
#include "ops.hpp"

namespace moe {
namespace {

using common::Args;
using common::Call;
using common::Reals;

struct LoadSizes {
  int64_t sequences, experts;
  double rows;
  explicit LoadSizes(const Call& c)
      : sequences(c.in[0].dims[0]), experts(c.in[0].dims[1] / 2), rows(static_cast<double>(c.integer("rows"))) {}
};

struct Balance {
  static constexpr const char* op = MOE_OP_BALANCE;
  Call c;
  LoadSizes s;
  explicit Balance(const Call& call) : c(call), s(call) {}
  void run(const Args& a) const {
    const Reals load(c, a, 0), balance(c, a, 1), z(c, a, 2);
    double sum = 0, squares = 0;
    for (int64_t b = 0; b < s.sequences; ++b) {
      const int64_t first = b * (2 * s.experts + 1);
      double product = 0;
      for (int64_t e = 0; e < s.experts; ++e) product += load[first + e] * load[first + s.experts + e];
      sum += static_cast<double>(s.experts) * product / (s.rows * s.rows);
      squares += load[first + 2 * s.experts] / s.rows;
    }
    balance.set(0, sum), z.set(0, squares);
  }
};

struct BalanceGrad {
  static constexpr const char* op = MOE_OP_BALANCE_GRAD;
  Call c;
  LoadSizes s;
  explicit BalanceGrad(const Call& call) : c(call), s(call) {}
  void run(const Args& a) const {
    const Reals load(c, a, 0), dload(c, a, a.n_in);
    const double slope = c.has(1) ? Reals(c, a, 1)[0] * static_cast<double>(s.experts) / (s.rows * s.rows) : 0.0;
    const double z = c.has(2) ? Reals(c, a, 2)[0] / s.rows : 0.0;
    for (int64_t b = 0; b < s.sequences; ++b) {
      const int64_t first = b * (2 * s.experts + 1);
      for (int64_t e = 0; e < s.experts; ++e) {
        const double count = load[first + e], p = load[first + s.experts + e];  // dload may be in place of load
        dload.set(first + e, slope * p), dload.set(first + s.experts + e, slope * count);
      }
      dload.set(first + 2 * s.experts, z);
    }
  }
};

}  // namespace

extern const eng_kernel balance_kernel = common::kernel<Balance>, balance_grad_kernel = common::kernel<BalanceGrad>;

}  // namespace moe
