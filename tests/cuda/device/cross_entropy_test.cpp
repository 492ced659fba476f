// SPDX-License-Identifier: Apache-2.0
// eng.cross_entropy/1 and its gradient of cuda.eng.so as it ships: products by the software cuBLASLt, the rest by own
// kernels (emulated), beside the reference device.
#include <catch2/catch.hpp>

#include "run.hpp"

using namespace cuda_test;

namespace {

enum class Sums { none, narrow, wide, added };  // no dw; of the type of w; f32; f32, added to what is there

Use use_of(Random& random, int32_t type, int64_t tokens, int64_t vocabulary, int64_t width, bool gradient,
           Sums sums = Sums::none) {
  Use use{ENG_OP_CROSS_ENTROPY,
          {random_normal(random, type, {tokens, width}), random_normal(random, type, {vocabulary, width}),
           random_ints(random, {tokens}, 0, int(vocabulary) - 1)},
          {desc(ENG_F32, {1})}};
  for (int64_t t = 0; t < tokens; t += 5) use.in[2].as<int32_t>()[t] = -100;
  if (!gradient) return use;
  use.op = ENG_OP_CROSS_ENTROPY_GRAD;
  Tensor scalars(ENG_F32, {ENG_S_COUNT});
  scalars.put(ENG_S_INV_TOKENS, 1.0 / double(tokens)), scalars.put(ENG_S_LOSS_SCALE, 64);
  use.in.push_back(scalars);
  use.out.push_back(desc(type, {tokens, width}));
  use.attrs = {whole("no_dw", sums == Sums::none)};
  if (sums == Sums::none) return use;
  const int32_t dw = sums == Sums::narrow ? type : int32_t{ENG_F32};
  use.out.push_back(desc(dw, {vocabulary, width}));
  if (sums == Sums::added) use.in.push_back(random_normal(random, dw, {vocabulary, width})), use.in_place = {{2, 4}};
  return use;
}

// Gradients of logits are rounded to 16 bits before they are multiplied.
double most(int32_t type) {
  return type == ENG_BF16 ? 0x1p-8 : type == ENG_F16 ? 0x1p-10 : 4e-6;
}

}  // namespace

TEST_CASE("cross-entropy: products by cuBLASLt") {
  const Machine machine(with_twins());
  Random random(1);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    INFO("dtype " << type);
    {
      const Count count;
      check_close(use_of(random, type, 21, 70, 24, false), 4e-6);
      CHECK(count() == 1);
    }
    for (const Sums sums : {Sums::none, Sums::narrow, Sums::wide, Sums::added}) {
      INFO("dw " << int(sums));
      const Count count;
      check_close(use_of(random, type, 21, 70, 24, true, sums), most(type));
      CHECK(count() == (sums == Sums::none ? 2 : 3));
    }
  }
}

TEST_CASE("cross-entropy: several chunks of tokens, the last one shorter") {
  const Machine machine(with_twins());
  Random random(2);
  for (const auto& [type, sums] : {std::pair(int32_t{ENG_BF16}, Sums::narrow), {int32_t{ENG_F32}, Sums::added}}) {
    INFO("dtype " << type << ", dw " << int(sums));
    const Count count;
    check_close(use_of(random, type, 4096 + 9, 5, 3, true, sums), 2 * most(type));
    CHECK(count() == 6);
  }
}

TEST_CASE("cross-entropy: rows of logits and of their gradients are aligned, whatever the vocabulary") {
  Random random(6);
  for (const int32_t type : {ENG_BF16, ENG_F16})
    for (const int64_t vocabulary : {1, 71, 129, 1030}) {
      INFO("dtype " << type << ", vocabulary " << vocabulary);
      const Use use = use_of(random, type, 9, vocabulary, 24, true, Sums::added);
      std::string choices;
      for (const bool tune : {false, true}) {
        const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "narrow"}}));
        const Count count;
        check_close(use, most(type), {.choices = tune ? &choices : nullptr});
        CHECK(count() >= 3);
      }
      const int64_t row = (vocabulary + 63) / 64 * 64;
      const std::string shape = "9 x " + std::to_string(vocabulary) + " x 24 tb c by " + std::to_string(row) + ",";
      CHECK_THAT(choices, Catch::Contains(shape) && Catch::Contains(" a by " + std::to_string(2 * row) + ","));
      // The logits, 9 losses and the scratch of products.
      const Machine machine;
      CHECK(workspace_of(use, describe(with_workspace(cap))) == uint64_t(9 * row * 4 + 256 + cap));
    }
}

TEST_CASE("cross-entropy: products have all rows of w, those behind the ids included") {
  Random random(7);
  for (const int32_t type : {ENG_F32, ENG_BF16})
    for (const Sums sums : {Sums::none, Sums::narrow, Sums::added}) {
      INFO("dtype " << type << ", dw " << int(sums));
      Use use = use_of(random, type, 9, 100, 24, true, sums);
      use.in[2] = random_ints(random, {9}, 0, 70);
      for (int64_t k = 71 * 24; k < 100 * 24; ++k) use.in[1].put(k, 0);
      use.attrs.push_back(whole("vocabulary", 71));
      const Machine machine(with_twins());
      std::string choices;
      check_close(use, most(type), {.choices = &choices});
      CHECK_THAT(choices, Catch::Contains("9 x 100 x 24 tb c by 128,"));
    }
}

TEST_CASE("cross-entropy: without cuBLASLt, gradients of logits stay f32") {
  const Machine machine(with_twins({{"SOFTCUBLAS_REFUSE", "all"}}));
  Random random(3);
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    INFO("dtype " << type);
    const Count count;
    check_close(use_of(random, type, 21, 70, 24, false), 4e-6);
    check_close(use_of(random, type, 21, 70, 24, true, Sums::wide), 4e-6);
    CHECK(count() == 0);
  }
}

TEST_CASE("cross-entropy: its scratch ends with [device] workspace, whether cuBLASLt takes the products or not") {
  Random random(4);
  for (const int32_t type : {ENG_F32, ENG_BF16}) {
    const Use use = use_of(random, type, 21, 70, 24, true, Sums::narrow);
    const Machine machine;
    const uint64_t none = workspace_of(use, describe(with_workspace(0))),
                   most = workspace_of(use, describe(with_workspace(cap)));
    CHECK(most == none + uint64_t{cap});
  }
}

TEST_CASE("cross-entropy: [device] loss_chunk bounds the logits that exist at a time") {
  Random random(5);
  const Use use = use_of(random, ENG_BF16, 700, 64, 24, true, Sums::wide);
  const Machine machine(with_twins());
  eng_device_info info = describe(with_workspace(cap));
  CHECK(info.settings[cuda::library::loss_chunk_setting] == 4096);
  const uint64_t whole = workspace_of(use, info);
  info.settings[cuda::library::loss_chunk_setting] = 100;
  CHECK(workspace_of(use, info) == whole - 600 * 64 * sizeof(float));
  const Count count;
  check_close(use, 2 * most(ENG_BF16), {.loss_chunk = 100});
  CHECK(count() == 7 * 3);
}
