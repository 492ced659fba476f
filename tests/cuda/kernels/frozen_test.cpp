// SPDX-License-Identifier: Apache-2.0
// Frozen weights in 8 or 4 bits: the codes, the scales and the decoded values of the reference device.
#include "emulated.hpp"
#include "engine/packed.h"

namespace frozen_on_cuda {

using namespace cuda_test;

namespace {

constexpr int32_t forms[] = {ENG_PACKED_INT8, ENG_PACKED_E4M3, ENG_PACKED_NF4, ENG_PACKED_NF4_DOUBLE};

Use pack(const Tensor& x, int32_t form) {
  const int64_t bytes = x.size() / ENG_PACKED_CHUNK * int64_t(eng_packed_bytes(form));
  return {ENG_OP_PACK, {x}, {desc(ENG_U8, {bytes})}, {whole("packed", form)}};
}
Use unpack(const Tensor& codes, int32_t form, int32_t type) {
  const int64_t n = codes.size() / int64_t(eng_packed_bytes(form)) * ENG_PACKED_CHUNK;
  return {ENG_OP_UNPACK, {codes}, {desc(type, {n})}, {whole("packed", form), whole("dtype", type)}};
}
void check_decoded(const Tensor& codes, int32_t form) {
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    INFO("form " << form << ", type " << type);
    check_exact(unpack(codes, form, type));
  }
}

// Scales of all sizes; in each chunk also lots of zeros, of tiny numbers, and of numbers between two levels.
Tensor weights(Random& random, int64_t chunks) {
  Tensor x = random_normal(random, ENG_F32, {chunks * ENG_PACKED_CHUNK});
  float levels[16];
  eng_packed_levels(ENG_PACKED_NF4, levels);
  for (int64_t k = 0; k < x.size(); ++k) {
    const int64_t lot = k / ENG_PACKED_BLOCK % 64, at = k % ENG_PACKED_BLOCK;
    float& v = x.as<float>()[k];
    if (lot == 3)
      v = at % 2 ? -0.0f : 0.0f;
    else if (lot == 4)
      v = at % 2 ? 1e-39f : -9e-39f;
    else if (lot == 5)
      v = at ? (levels[at % 15] + levels[at % 15 + 1]) / 2 : 1.0f;
    else if (lot == 6)
      v = at ? float(at - 32) * 0.5f : 127.0f;
    else
      v *= std::ldexp(1.0f, int(lot % 13) - 9);
  }
  return x;
}

}  // namespace

TEST_CASE("emulated cuda: frozen weights are encoded and decoded, exactly") {
  Random random(51);
  const int64_t chunks = GENERATE(1, 3);
  const Tensor x = weights(random, chunks);
  for (const int32_t form : forms) {
    INFO("form " << form << ", " << chunks << " chunks");
    const Use use = pack(x, form);
    check_exact(use);
    check_decoded(use.wanted()[0], form);
  }
}

TEST_CASE("emulated cuda: frozen weights that are not finite, exactly") {
  Random random(52);
  for (const float odd : {NAN, -NAN, INFINITY, -INFINITY}) {
    Tensor x = weights(random, 1);
    for (const int64_t at : {700, 701, 759, 4095}) x.as<float>()[at] = odd;
    x.as<float>()[702] = INFINITY;  // beside it
    for (const int32_t form : forms) {
      INFO("form " << form << ", with " << odd);
      const Use use = pack(x, form);
      check_exact(use);
      check_decoded(use.wanted()[0], form);
    }
  }
}

TEST_CASE("emulated cuda: frozen weights of any bytes are decoded, exactly") {
  Random random(53);
  for (const int32_t form : forms) {
    Tensor codes(ENG_U8, {2 * int64_t(eng_packed_bytes(form))});
    for (int64_t k = 0; k < codes.size(); ++k) codes.put(k, double(pick(random, 0, 255)));
    check_decoded(codes, form);
  }
}

TEST_CASE("emulated cuda: frozen weights of more chunks than blocks, exactly", "[.slow]") {
  Random random(54);
  const int64_t chunks = 4099;
  Tensor codes(ENG_U8, {chunks * int64_t(eng_packed_bytes(ENG_PACKED_NF4_DOUBLE))});
  for (int64_t k = 0; k < codes.size(); ++k) codes.put(k, double(pick(random, 0, 255)));
  check_exact(unpack(codes, ENG_PACKED_NF4_DOUBLE, ENG_BF16));
}

TEST_CASE("emulated cuda: frozen weights of other types are refused") {
  const Tensor x(ENG_F32, {ENG_PACKED_CHUNK}), codes(ENG_U8, {2304});
  const auto run = [](const Use& use) { return use.on->run(use.op, use.in, use.out, use.attrs); };
  CHECK_THROWS_WITH(run({ENG_OP_PACK, {x}, {codes.d}, {whole("packed", 3)}}), Catch::Contains("must be a packed type"));
  CHECK_THROWS_WITH(run({ENG_OP_PACK, {x}, {desc(ENG_U8, {2303})}, {whole("packed", ENG_PACKED_NF4)}}),
                    Catch::Contains("2304 bytes for each 4096 elements"));
  CHECK_THROWS_WITH(run(unpack(codes, ENG_PACKED_NF4, ENG_F64)), Catch::Contains("gives f32, bf16 or f16"));
}

}  // namespace frozen_on_cuda
