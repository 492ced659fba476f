// SPDX-License-Identifier: Apache-2.0
// Products in fp8 of transform-cuda.eng.so as it ships, on the software cuBLASLt (emulated): addresses, GPUs, scratch.
#include <catch2/catch.hpp>

#include "engine/ops_fp8.h"
#include "run.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

Use fp8(Use use) {
  static const eng_plugin* const kernels = load(FP8_PLUGIN);
  use.of = kernels;
  return use;
}
Use linear_fp8(Random& random, int32_t type, int64_t m, int64_t n, int64_t k, bool bias) {
  Use use = linear(random, type, m, n, k, bias);
  use.op = ENG_OP_FP8_LINEAR, use.attrs = {whole("gradients", ENG_FP8_E5M2), whole("margin", 0)};
  return fp8(use);
}
// A gradient of a weight, added to another one.
Use sum_fp8(Random& random, int64_t m, int64_t n, int64_t k) {
  Use use = matmul(random, ENG_BF16, ENG_F32, m, n, k, true, false, Add::in_place);
  use.op = ENG_OP_FP8_MATMUL;
  for (const auto& [key, value] : {std::pair("a", ENG_FP8_E5M2), {"b", ENG_FP8_E4M3}, {"margin", 0}})
    use.attrs.push_back(whole(key, value));
  return fp8(use);
}

}  // namespace

TEST_CASE("products in fp8: cuBLASLt computes them on the GPU of their memory, within their scratch") {
  const Machine machine(with_twins({{"SOFTCUDA_DEVICES", "2"}}));
  Random random(1);
  for (const uint32_t gpu : {0u, 1u})
    for (const int64_t workspace : {int64_t{0}, cap})
      for (const Use& use : {linear_fp8(random, ENG_BF16, 24, 48, 80, true), sum_fp8(random, 32, 16, 40)}) {
        INFO(use.op << ", GPU " << gpu << ", workspace " << workspace);
        How how{workspace};
        how.gpu = gpu;
        const Count count;
        check_close(use, 1e-5, how);
        CHECK(count() == 1);
        CHECK(software_blas_last().scratch <= uint64_t(workspace));
      }
}

TEST_CASE("products in fp8: an address that is less aligned than cuBLASLt was told is refused when it is bound") {
  const Machine machine(with_twins());
  Random random(2);
  for (const uint64_t offset : {uint64_t{16}, uint64_t{128}}) {
    CHECK_THROWS_WITH(run(linear_fp8(random, ENG_BF16, 24, 48, 80, true), {cap, offset}),
                      Contains("[in bf16 (24, 80) bf16 (48, 80) bf16 (48); out bf16 (24, 48)]: the result of a product "
                               "in fp8 must be aligned to 256 bytes"));
    // Own kernels compute what cuBLASLt refuses.
    const Count count;
    check_close(linear_fp8(random, ENG_BF16, 24, 33, 80, true), 1e-5, {cap, offset});
    CHECK(count() == 0);
  }
}
