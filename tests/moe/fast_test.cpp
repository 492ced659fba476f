// SPDX-License-Identifier: Apache-2.0
// The kernels of the device `cpu` against those of `reference`, for every instruction set of this machine; the same
// bits for any number of threads.
#include <catch2/catch.hpp>

#include "moe_kernels.hpp"

using namespace moe_test;

namespace {

// Whole and partial tiles, blocks and parts; experts without tokens; one expert; as many experts of a token as there
// are.
const Shape shapes[] = {{1, 1, 1, 1, 1, 1},
                        {2, 7, 5, 3, 4, 2},
                        {1, 33, 64, 32, 3, 3, false},
                        {2, 65, 33, 17, 9, 2, false, ENG_ACT_GELU},
                        {1, 5, 20, 7, 40, 2, true, ENG_ACT_RELU},
                        {1, 140, 530, 40, 2, 1, false},
                        {3, 200, 48, 300, 2, 2, true, ENG_ACT_GELU_TANH},
                        {1, 600, 16, 24, 1, 1}};

std::string text(const Shape& s) {
  return "T " + std::to_string(s.T) + ", H " + std::to_string(s.H) + ", E " + std::to_string(s.E);
}

}  // namespace

TEST_CASE("routers, products and gates of every instruction set are those of the reference") {
  for (const Shape& s : shapes) {
    const Tensors theirs = run_all(reference_moe(), s, ENG_F32);
    for (const std::string& isa : isas()) {
      INFO(isa << ", " << text(s));
      const Fast device(isa);
      const Tensors ours = run_all(device, s, ENG_F32);
      for (size_t k = 0; k < ours.size(); ++k) {
        INFO("output " << k);
        if (ours[k].d.dtype == ENG_I32)
          CHECK(ours[k].same_bits(theirs[k]));
        else
          CHECK(error_of(ours[k], theirs[k]) < 2e-5);
      }
      CHECK(same_bits(run_all(device, s, ENG_F32, true), ours));
      Tensor wrong = ours[6];  // the twin: one element a little off is seen
      wrong.put(wrong.size() - 1, wrong.at(wrong.size() - 1) + 1.0);
      CHECK(error_of(wrong, theirs[6]) > 2e-5);
    }
  }
}

TEST_CASE("the number of threads changes no bit of a mixture of experts") {
  for (const Shape& s : shapes)
    for (const int32_t dtype : {ENG_F32, ENG_BF16}) {
      INFO(text(s));
      const Tensors one = run_all(Fast("auto", 1), s, dtype);
      CHECK(same_bits(run_all(Fast("auto", 2), s, dtype), one));
      CHECK(same_bits(run_all(Fast("auto", 5), s, dtype), one));
    }
}

TEST_CASE("in 16 bits every result is that of the reference, rounded once", "[.slow]") {
  for (const Shape& s : shapes)
    for (const int32_t dtype : half_types)
      for (const int32_t sums : {0, int32_t{ENG_F32}}) {
        const Tensors theirs = run_all(reference_moe(), s, dtype, false, sums);
        for (const std::string& isa : isas()) {
          INFO(isa << ", " << text(s) << ", dtype " << dtype);
          const Tensors ours = run_all(Fast(isa), s, dtype, false, sums);
          for (size_t k = 0; k < ours.size(); ++k) {
            INFO("output " << k);
            if (ours[k].d.dtype == ENG_I32)
              CHECK(ours[k].same_bits(theirs[k]));
            else if (ours[k].d.dtype == ENG_F32)
              CHECK(error_of(ours[k], theirs[k]) < 2e-5);
            else
              CHECK(wrong(ours[k], theirs[k], 2e-5) == 0);
          }
        }
      }
}

TEST_CASE("kernels of a mixture of experts refuse what they do not compute") {
  const Shape s{1, 2, 2, 2, 2, 1};
  const Fast device("auto");
  CHECK_THROWS_WITH(run_all(device, s, ENG_F64), Catch::Contains("logits must be f32, bf16 or f16"));
  for (const Device* each : {&reference_moe(), static_cast<const Device*>(&device)})
    CHECK_THROWS_WITH(run_all(*each, s, ENG_BF16, false, ENG_F16), Catch::Contains("sums must all have the type"));
}
