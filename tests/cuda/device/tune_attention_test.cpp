// SPDX-License-Identifier: Apache-2.0
// [device] tune of the gradient of attention by cuda.eng.so as it ships, on the software CUDA runtime (emulated): who
// computes it is measured where wgmma can, and recorded.
#include <catch2/catch.hpp>

#include "engine/ops_attention.h"
#include "run.hpp"

using namespace cuda_test;
using Catch::Contains;

namespace {

constexpr char call[] = "attention backward 1 40 2 1 64 bf16";

Use attention_gradient(int64_t size, bool packed) {
  Random random(1);
  const kernels_test::Dims wide = {1, 40, 2 * size}, narrow = {1, 40, size};
  std::vector<Tensor> in = {random_normal(random, ENG_BF16, wide), random_normal(random, ENG_BF16, narrow),
                            random_normal(random, ENG_BF16, narrow)};
  const Tensor grad = random_normal(random, ENG_BF16, wide), segments(ENG_I32, {1, 40});
  const std::vector<eng_attr> attrs = {whole("heads", 2), whole("kv_heads", 1), real("scale", 0.125)};
  if (packed) in.push_back(segments);
  const auto o = reference().run(ENG_OP_ATTENTION, in, {in[0].d, desc(ENG_F32, {1, 2, 40})}, attrs);
  Use use{ENG_OP_ATTENTION_GRAD, {grad, in[0], in[1], in[2], o[0], o[1]}, {in[0].d, in[1].d, in[2].d}, attrs};
  if (packed) use.in.push_back(segments);
  return use;
}

// The choices after it ran with those of a run so far.
std::string choices_of(const char* card, std::string choices, int64_t size = 64, bool packed = false) {
  const Machine machine(with_twins({{"SOFTCUDA_CARD", card}}));
  How how;
  how.choices = &choices;
  check_close(attention_gradient(size, packed), 1e-2, how);
  return choices;
}

}  // namespace

TEST_CASE("tune: a gradient of attention that wgmma can compute is measured, and the record is taken again") {
  const std::string name = std::string(call) + " = ";
  const std::string measured = choices_of("h200", "");
  CHECK((measured == name + "own\n" || measured == name + "own wgmma\n"));
  for (const char* by : {"own\n", "own wgmma\n"}) CHECK(choices_of("h200", name + by) == name + by);
  CHECK_THAT(choices_of("h200", "", 64, true), Contains(std::string(call) + " bounded = own"));
}

TEST_CASE("tune: gradients of attention that wgmma cannot compute are not measured") {
  CHECK(choices_of("a100-80g", "", 64, true).empty());
  CHECK(choices_of("h200", "", 32, true).empty());
  // The record of another rank, whose GPU has wgmma.
  const std::string record = std::string(call) + " bounded = own wgmma\n";
  CHECK(choices_of("a100-80g", record, 64, true) == record);
}

TEST_CASE("tune: measuring attention leaves no memory, stream or event behind") {
  const Machine machine(with_twins({{"SOFTCUDA_CARD", "h200"}}));
  std::string choices;
  How how;
  how.choices = &choices;
  run(attention_gradient(64, true), how);
  CHECK(software_cuda_bytes(0) == 0);
}
