// SPDX-License-Identifier: Apache-2.0
// One over the root of the update's number: Vaswani et al., "Attention Is All You Need" (2017, arXiv:1706.03762),
// section 5.3. The timescale, as a number of its own beside the warm-up, is that of Zhai et al., "Scaling Vision
// Transformers" (2022, arXiv:2106.04560), section 3.5.
//
// With P = peak, W = warmup_steps, T = timescale:
//   k < W    P k / W
//   k >= W   P sqrt(T / (k - W + T))
// T = W, the default, is Vaswani's P sqrt(W / k). The steps of the run do not occur: it can be made longer.
#include "schedule.hpp"

namespace {

struct InverseSqrt {
  double peak, timescale = 0;
  int64_t warmup;

  InverseSqrt(const eng_options* options, const eng_schedule_run& run, eng_error* error)
      : peak(run.peak), warmup(schedule::integer(options, "warmup_steps", error)) {
    if (options->is_set(options, "timescale"))
      timescale = static_cast<double>(schedule::integer(options, "timescale", error));
    else if (warmup > 0)
      timescale = static_cast<double>(warmup);
    else
      throw schedule::Error(ENG_INVALID,
                            "without a warm-up it needs timescale, the number of updates after which the rate is at "
                            "0.71 of its peak; or set warmup_steps");
  }

  double rate(uint64_t k) const {
    if (k < static_cast<uint64_t>(warmup)) return schedule::warm(peak, warmup, k);
    const double after = static_cast<double>(k - static_cast<uint64_t>(warmup));
    return peak * std::sqrt(timescale / (after + timescale));
  }
};

}  // namespace

const eng_schedule inverse_sqrt_table = schedule::table_of<InverseSqrt>();
