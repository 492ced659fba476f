// SPDX-License-Identifier: Apache-2.0
#include "emulated.hpp"

using namespace cuda_test;

TEST_CASE("emulated cuda: add, scale, activation, gated and their gradients") {
  Random random(1);
  const int32_t type = GENERATE(int32_t{ENG_F32}, int32_t{ENG_BF16}, int32_t{ENG_F16});
  const Dims dims = GENERATE(Dims{1}, Dims{3, 7}, Dims{5, 1024}, Dims{2, 3, 701});
  const Tensor a = random_normal(random, type, dims), b = random_normal(random, type, dims),
               c = random_normal(random, type, dims);
  check_close({ENG_OP_ADD, {a, b}, {a.d}}, 1e-7);
  check_close({ENG_OP_ADD, {a, b}, {a.d}, {}, {{0, 1}}}, 1e-7);
  const Tensor wide = random_normal(random, ENG_F32, dims);
  check_close({ENG_OP_ADD, {a, wide}, {wide.d}}, 1e-7);
  check_close({ENG_OP_ADD, {wide, a}, {wide.d}}, 1e-7);
  for (int64_t act = ENG_ACT_SILU; act <= ENG_ACT_RELU; ++act) {
    const std::vector<eng_attr> attrs = {whole("act", act)};
    check_close({ENG_OP_ACTIVATION, {a}, {a.d}, attrs, {{0, 0}}}, 1e-6);
    check_close({ENG_OP_ACTIVATION_GRAD, {b, a}, {a.d}, attrs}, 2e-6);
    check_close({ENG_OP_GATED, {a, b}, {a.d}, attrs}, 1e-6);
    check_close({ENG_OP_GATED_GRAD, {c, a, b}, {a.d, a.d}, attrs, {{0, 1}, {1, 2}}}, 2e-6);
  }
}

TEST_CASE("emulated cuda: what an op does not take is refused") {
  const Tensor a(ENG_F32, {4}), b(ENG_I32, {4});
  CHECK_THROWS_WITH(outputs({ENG_OP_ADD, {a, b}, {a.d}}), Catch::Contains("must be f32, bf16 or f16: i32 (4)"));
  CHECK_THROWS_WITH(outputs({ENG_OP_ACTIVATION, {a}, {a.d}, {whole("act", 9)}}), Catch::Contains("act = 9 is unknown"));
  CHECK_THROWS_WITH(outputs({ENG_OP_SCALE, {a}, {a.d}}), Catch::Contains("attribute factor is missing"));
}
