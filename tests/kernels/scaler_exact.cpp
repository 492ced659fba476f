// SPDX-License-Identifier: Apache-2.0
// The dynamic loss scale: the state machine as DeepSpeed states it, over random overflows, on all host devices.
#include <catch2/catch.hpp>

#include "fast_elem.hpp"
#include "kernel_harness.hpp"

using namespace kernels_test;

namespace {

// deepspeed/runtime/fp16/loss_scaler.py, in words: section "Precision" of DeepSpeed's documentation.
struct Stated {
  double scale, minimum;
  int64_t window, hysteresis;
  bool consecutive;
  int64_t it = 0, last = -1, left = hysteresis, skipped = 0;
  bool may_skip() const { return left > 1 || scale > minimum; }
  void step(bool overflow) {
    if (overflow) {
      if (left == 1)
        scale = std::max(scale / 2, minimum);
      else
        --left;
      last = it, ++skipped;
    } else {
      if (consecutive) left = hysteresis;
      if (const int64_t n = it - last - 1; n > 0 && n % window == 0) {
        if (!consecutive) left = hysteresis;
        scale *= 2;
      }
    }
    ++it;
  }
};

std::vector<const Device*> devices() {
  std::vector<const Device*> out{&reference()};
  for (const Fast& f : fast_devices())
    if (f.threads == 1) out.push_back(f.device.get());
  return out;
}

}  // namespace

TEST_CASE("the loss scale follows DeepSpeed's state machine") {
  Random random(41);
  for (const Device* d : devices())
    for (int64_t window : {1, 2, 5})
      for (int64_t hysteresis : {1, 2, 4})
        for (bool consecutive : {false, true}) {
          Stated stated{1024, 4, window, hysteresis, consecutive};
          const std::vector<eng_attr> attrs = {real("initial", 1024), real("minimum", 4), whole("window", window),
                                               whole("hysteresis", hysteresis), whole("consecutive", consecutive)};
          Device::Outputs state = {Tensor(ENG_F32, {ENG_SCALER_COUNT})};
          Tensor scalars(ENG_F32, {ENG_S_COUNT});
          scalars.put(ENG_S_LR, 7);
          for (int k = 0; k < 200; ++k) {
            const Tensor begun = d->run(ENG_OP_LOSS_SCALE, {state[0], scalars}, {scalars.d}, attrs, {{0, 1}})[0];
            INFO("step " << k << ", window " << window << ", hysteresis " << hysteresis);
            REQUIRE(begun.at(ENG_S_LOSS_SCALE) == stated.scale);
            REQUIRE(begun.at(ENG_S_MAY_SKIP) == stated.may_skip());
            REQUIRE(begun.at(ENG_S_LR) == 7);
            const bool overflow = random() % 100 < (k % 50 < 25 ? 60u : 5u);
            scalars = begun;
            scalars.put(ENG_S_OK, overflow ? 0 : 1);
            state = d->run(ENG_OP_SCALER, {state[0], scalars}, {state[0].d}, attrs, {{0, 0}});
            stated.step(overflow);
            REQUIRE(state[0].at(3) == double(stated.skipped));
          }
        }
}

TEST_CASE("a loss scale with a window of 0 never grows, and no scale becomes infinite") {
  for (const Device* d : devices()) {
    std::vector<eng_attr> attrs = {real("initial", 0x1p125), real("minimum", 0x1p125), whole("window", 0),
                                   whole("hysteresis", 1), whole("consecutive", 0)};
    Tensor state(ENG_F32, {ENG_SCALER_COUNT}), scalars(ENG_F32, {ENG_S_COUNT});
    scalars.put(ENG_S_OK, 1);
    const auto after = [&](int updates) {
      Tensor now = state;
      for (int k = 0; k < updates; ++k) now = d->run(ENG_OP_SCALER, {now, scalars}, {now.d}, attrs)[0];
      return now.at(0);
    };
    CHECK(after(50) == 0x1p125);
    attrs[2] = whole("window", 1);
    CHECK(after(2) == 0x1p126);
    CHECK(after(50) == 0x1p127);
    // An overflow at the minimum ends the run.
    CHECK(d->run(ENG_OP_LOSS_SCALE, {state, scalars}, {scalars.d}, attrs)[0].at(ENG_S_MAY_SKIP) == 0);
    attrs[0] = real("initial", 0);
    CHECK_THROWS_WITH(d->run(ENG_OP_LOSS_SCALE, {state, scalars}, {scalars.d}, attrs), Catch::Contains("above 0"));
  }
}
