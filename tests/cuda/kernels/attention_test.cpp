// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores: against the reference, and mistakes planted into its kernels.
#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "emulated.hpp"

using namespace cuda_test;

namespace {

struct Sizes {
  int64_t batch, length, heads, kv, size;
};

struct Case {
  Use forward, backward;
};

// o and lse are the reference's, so that the gradient is tested by itself.
Case case_of(uint64_t seed, int32_t type, const Sizes& s) {
  Random random(seed);
  const std::vector<eng_attr> attrs = {whole("heads", s.heads), whole("kv_heads", s.kv),
                                       real("scale", 1 / std::sqrt(double(s.size)))};
  const Dims wide = {s.batch, s.length, s.heads * s.size}, narrow = {s.batch, s.length, s.kv * s.size};
  const Tensor q = random_normal(random, type, wide, 2), k = random_normal(random, type, narrow, 2),
               v = random_normal(random, type, narrow), grad = random_normal(random, type, wide);
  const Use forward = {ENG_OP_ATTENTION, {q, k, v}, {q.d, desc(ENG_F32, {s.batch, s.heads, s.length})}, attrs};
  const Device::Outputs o = reference().run(forward.op, forward.in, forward.out, attrs);
  return {forward, {ENG_OP_ATTENTION_GRAD, {grad, q, k, v, o[0], o[1]}, {q.d, k.d, v.d}, attrs}};
}

// A product on tensor cores rounds probabilities and their gradients to 16 bits.
double apart(int32_t type) {
  return type == ENG_BF16 ? 5e-3 : 7e-4;
}
void check(uint64_t seed, int32_t type, const Sizes& s) {
  INFO("(" << s.batch << ", " << s.length << "), " << s.heads << " heads of " << s.size << ", " << s.kv << " for keys, "
           << (type == ENG_BF16 ? "bf16" : "f16"));
  const Case c = case_of(seed, type, s);
  check_close(c.forward, apart(type));
  check_close(c.backward, 2 * apart(type));
}

}  // namespace

TEST_CASE("emulated cuda: attention on tensor cores") {
  check(1, ENG_BF16, {2, 1, 2, 1, 16});
  check(2, ENG_F16, {1, 9, 4, 4, 24});
  check(3, ENG_BF16, {1, 65, 2, 1, 64});
  check(4, ENG_F16, {1, 33, 1, 1, 72});
}

TEST_CASE("emulated cuda: attention on tensor cores, odd lengths and shared heads", "[.slow]") {
  uint64_t seed = 10;
  for (const int64_t length : {1, 9, 63, 64, 65, 130})
    for (const int64_t group : {1, 2, 4, 8})
      check(++seed, group % 4 == length % 2 ? ENG_BF16 : ENG_F16,
            {length < 10 ? 2 : 1, length, group == 1 ? 2 : group, group == 1 ? 2 : 1, 32});
}

TEST_CASE("emulated cuda: attention on tensor cores, heads of all sizes", "[.slow]") {
  uint64_t seed = 40;
  for (const int64_t size : {16, 48, 64, 80, 96, 112, 128, 192, 256})
    for (const int32_t type : {ENG_BF16, ENG_F16}) check(++seed, type, {1, type == ENG_BF16 ? 130 : 67, 2, 1, size});
}
