// SPDX-License-Identifier: Apache-2.0
// pack and unpack: against the golden of tools/goldens/packed.py, which bitsandbytes made, on every device.
#include <bit>
#include <cmath>
#include <fstream>
#include <iterator>

#include "engine/packed.h"
#include "fast_elem.hpp"
#include "tests/paths.hpp"

using namespace kernels_test;

namespace {

constexpr int32_t packed_types[] = {ENG_PACKED_NF4, ENG_PACKED_INT8, ENG_PACKED_E4M3,
                                    ENG_PACKED_NF4_DOUBLE};  // in the order of the golden

// The values of tools/goldens/packed.py.
Tensor golden_values() {
  Tensor x(ENG_F32, {2 * ENG_PACKED_CHUNK});
  float levels[256];
  eng_packed_levels(ENG_PACKED_NF4, levels);
  uint32_t state = 12345;
  for (int64_t k = 0; k < x.size(); ++k) {
    state = state * 1664525 + 1013904223;
    const float v = float(int32_t(state)) * 0x1p-31f;
    const int64_t block = k / ENG_PACKED_BLOCK;
    x.as<float>()[k] = block == 5 ? 0 : block == 8 ? levels[k % 16] : v * v * v * std::ldexp(1.0f, int(block % 7) - 3);
  }
  return x;
}

Tensor pack(const Tensor& x, int32_t packed) {
  const Case c{ENG_OP_PACK,
               {x},
               {desc(ENG_U8, {x.size() / ENG_PACKED_CHUNK * int64_t(eng_packed_bytes(packed))})},
               {whole("packed", packed)},
               {}};
  check_exact(c);
  return reference().run(c.op, c.in, c.out, c.attrs)[0];
}

Tensor unpack(const Tensor& x, int32_t packed, int32_t dtype) {
  const Case c{ENG_OP_UNPACK,
               {x},
               {desc(dtype, {x.size() / int64_t(eng_packed_bytes(packed)) * ENG_PACKED_CHUNK})},
               {whole("packed", packed), whole("dtype", dtype)},
               {}};
  check_exact(c);
  return reference().run(c.op, c.in, c.out, c.attrs)[0];
}

}  // namespace

TEST_CASE("codes and scales are those of bitsandbytes, and of NumPy") {
  std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/tests/kernels/golden/packed.bin", std::ios::binary);
  const std::vector<char> golden{std::istreambuf_iterator<char>(file), {}};
  const Tensor x = golden_values();
  size_t at = 0;
  for (int32_t packed : packed_types) {
    INFO(packed);
    const Tensor codes = pack(x, packed);
    REQUIRE(at + size_t(codes.size()) <= golden.size());
    CHECK(std::memcmp(codes.memory.data(), golden.data() + at, size_t(codes.size())) == 0);
    at += size_t(codes.size());
  }
  CHECK(at == golden.size());
}

TEST_CASE("what was decoded is encoded as it was, and lies as near as the format can") {
  Random random(41);
  Tensor x = random_normal(random, ENG_F32, {16 * ENG_PACKED_CHUNK});
  for (int64_t k = 0; k < x.size(); ++k) x.as<float>()[k] *= std::ldexp(1.0f, int(k / ENG_PACKED_BLOCK % 200) - 100);
  for (int32_t packed : packed_types) {
    INFO(packed);
    const Tensor codes = pack(x, packed), y = unpack(codes, packed, ENG_F32);
    CHECK(pack(y, packed).same_bits(codes));
    // Half of the largest distance between two levels.
    const double most = eng_packed_is_nf4(packed) ? 0.1520 : packed == ENG_PACKED_INT8 ? 0.5 / 127 : 16.0 / 448;
    const auto largest = [&](int64_t first, int64_t n) {
      double scale = 0;
      for (int64_t k = first; k < first + n; ++k) scale = std::fmax(scale, std::fabs(x.as<float>()[k]));
      return scale;
    };
    double worst = 0;
    for (int64_t first = 0; first < x.size(); first += ENG_PACKED_BLOCK) {
      const double scale = largest(first, ENG_PACKED_BLOCK);
      // A scale of 8 bits is wrong by at most half of a 255th of the largest one of the chunk.
      const double off = packed == ENG_PACKED_NF4_DOUBLE
                             ? largest(first / ENG_PACKED_CHUNK * ENG_PACKED_CHUNK, ENG_PACKED_CHUNK) / 510
                             : 0;
      for (int64_t k = first; k < first + ENG_PACKED_BLOCK; ++k)
        worst = std::fmax(worst, (std::fabs(double(x.as<float>()[k]) - double(y.as<float>()[k])) - off) / scale);
    }
    CHECK(worst <= most * 1.0001);
    CHECK(worst > most / 2);
    // A 16-bit type is one more rounding.
    for (int32_t dtype : {ENG_BF16, ENG_F16}) {
      const Tensor narrow = unpack(codes, packed, dtype);
      CHECK(narrow.same_bits(reference().run(ENG_OP_CAST, {y}, {narrow.d}, {whole("dtype", dtype)})[0]));
    }
  }
}

TEST_CASE("scales of 8 bits: codes of nf4, scales rounded to 255ths of the largest one of a chunk") {
  Random random(43);
  Tensor x = random_normal(random, ENG_F32, {2 * ENG_PACKED_CHUNK});
  const Tensor plain = pack(x, ENG_PACKED_NF4), twice = pack(x, ENG_PACKED_NF4_DOUBLE);
  CHECK(eng_packed_bytes(ENG_PACKED_NF4_DOUBLE) == 2116);
  for (int64_t chunk = 0; chunk < 2; ++chunk) {
    const auto *one = reinterpret_cast<const uint8_t*>(plain.memory.data()) + chunk * 2304,
               *two = reinterpret_cast<const uint8_t*>(twice.memory.data()) + chunk * 2116;
    CHECK(std::memcmp(one, two, 2048) == 0);
    float top = 0;
    for (uint32_t k = 0; k < 64; ++k) top = std::fmax(top, eng_packed_scale(ENG_PACKED_NF4, one, k));
    for (uint32_t k = 0; k < 64; ++k) {
      const float exact = eng_packed_scale(ENG_PACKED_NF4, one, k),
                  kept = eng_packed_scale(ENG_PACKED_NF4_DOUBLE, two, k);
      CHECK(std::fabs(exact - kept) <= top / 510 * 1.0001f);
      if (exact == top) CHECK(kept == top);
    }
  }
  // A block that is tiny beside another one of its chunk is kept as zeros, and packed again as it was.
  for (int64_t k = 64; k < 128; ++k) x.as<float>()[k] = 1e-4f;
  const Tensor codes = pack(x, ENG_PACKED_NF4_DOUBLE), y = unpack(codes, ENG_PACKED_NF4_DOUBLE, ENG_F32);
  CHECK(y.as<float>()[100] == 0);
  CHECK(pack(y, ENG_PACKED_NF4_DOUBLE).same_bits(codes));
  // With a value that is not finite no element of the chunk is; the next chunk does not notice.
  for (float odd : {NAN, INFINITY}) {
    x.as<float>()[2048] = odd;
    const Tensor z = unpack(pack(x, ENG_PACKED_NF4_DOUBLE), ENG_PACKED_NF4_DOUBLE, ENG_F32);
    for (int64_t k = 0; k < ENG_PACKED_CHUNK; ++k)
      if (std::isfinite(z.as<float>()[k])) FAIL(k);
    CHECK(std::isfinite(z.as<float>()[ENG_PACKED_CHUNK]));
  }
}

TEST_CASE("every level is kept; tiny blocks are zeros; a value that is not finite does not get lost") {
  for (int32_t packed : packed_types) {
    if (packed == ENG_PACKED_NF4_DOUBLE) continue;  // the test above
    INFO(packed);
    float levels[256];
    eng_packed_levels(packed, levels);
    Tensor x(ENG_F32, {ENG_PACKED_CHUNK});
    float* const v = x.as<float>();
    const int n = packed == ENG_PACKED_NF4 ? 16 : 256;
    for (int k = 0; k < ENG_PACKED_CHUNK; ++k) v[k] = 0;
    int at = 0;
    for (int code = 0; code < n; ++code) {
      if (std::fabs(levels[code]) > 1) continue;  // NaN of e4m3, and -128
      if (at % ENG_PACKED_BLOCK == 0) v[at++] = 3.0f;
      v[at++] = 3.0f * levels[code];
    }
    v[1024] = 1e-39f, v[1025] = -1e-39f;
    v[2048] = NAN, v[3072] = INFINITY;
    const Tensor y = unpack(pack(x, packed), packed, ENG_F32);
    for (int k = 0; k < at; ++k) CHECK(y.as<float>()[k] == v[k]);
    CHECK(y.as<float>()[1024] == 0);
    CHECK(std::isnan(y.as<float>()[2049]));
    CHECK_FALSE(std::isfinite(y.as<float>()[3072]));
  }
}

TEST_CASE("calls of pack and unpack that do not fit are refused") {
  for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices().front().device.get())}) {
    const Tensor x(ENG_F32, {ENG_PACKED_CHUNK}), codes(ENG_U8, {2304});
    CHECK_THROWS_WITH(d->run(ENG_OP_PACK, {x}, {desc(ENG_U8, {2304})}, {whole("packed", 3)}),
                      Catch::Contains("must be a packed type"));
    CHECK_THROWS_WITH(d->run(ENG_OP_PACK, {x}, {desc(ENG_U8, {2303})}, {whole("packed", ENG_PACKED_NF4)}),
                      Catch::Contains("2304 bytes for each 4096 elements"));
    CHECK_THROWS_WITH(d->run(ENG_OP_UNPACK, {codes}, {desc(ENG_F64, {4096})},
                             {whole("packed", ENG_PACKED_NF4), whole("dtype", ENG_F64)}),
                      Catch::Contains("gives f32, bf16 or f16"));
  }
}
