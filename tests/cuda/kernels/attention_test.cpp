// SPDX-License-Identifier: Apache-2.0
// Attention on tensor cores: against the reference, and mistakes planted into its kernels. windows_test.cpp: in f32.
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
  // Scores of about +-1000, of which one takes all; and a negative scale, which goes to plain threads.
  for (const double scale : {50.0, -0.5}) {
    Case c = case_of(6, ENG_F16, {1, 70, 2, 1, 16});
    c.forward.attrs[2] = real("scale", scale);
    check_close(c.forward, apart(ENG_F16));
  }
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

#ifndef TESTS_SANITIZED  // a sanitizer ends the process at such a mistake
namespace {

// FILE:LINE of each barrier of a file, as the emulated kernels name it. They are compiled from copies.
std::vector<std::string> barriers_of(const std::string& file, const std::string& compiled) {
  std::ifstream in(std::string(ENGINE_SOURCE_DIR) + "/plugins/cuda/kernels/" + file);
  std::vector<std::string> found;
  std::string text;
  for (int line = 1; std::getline(in, text); ++line)
    if (text.find("__syncthreads();") != std::string::npos) found.push_back(compiled + ":" + std::to_string(line));
  return found;
}

}  // namespace

TEST_CASE("emulated cuda: each barrier of attention on tensor cores is needed", "[emulated]") {
  const Case c = case_of(5, ENG_BF16, {1, 100, 2, 1, 32});
  struct Without {
    explicit Without(const std::string& place) { ::setenv("ENG_EMULATED_WITHOUT", place.c_str(), 1); }
    ~Without() { ::unsetenv("ENG_EMULATED_WITHOUT"); }
  };
  const auto run = [](const Use& use, const std::string& order, const std::string& place) {
    const Without without(place);
    ::setenv("ENG_EMULATED_ORDER", order.c_str(), 1);
    return emulated().run(use.op, use.in, use.out, use.attrs);
  };
  const auto caught = [&](const Use& use, const std::string& place) {
    const Device::Outputs right = run(use, "forward", ":0");
    for (const char* order : {"forward", "backward", "random:1"}) {
      Device::Outputs got;
      try {
        got = run(use, order, place);
      } catch (const Failure&) {
        return true;
      }
      for (size_t k = 0; k < got.size(); ++k)
        if (!got[k].same_bits(right[k])) return true;
    }
    return false;
  };
  size_t barriers = 0;
  for (const std::string kernel : {"forward", "grad_query", "grad_key"})
    for (const std::string& place : barriers_of("attention_" + kernel + ".cu", "attention_" + kernel + ".cpp")) {
      INFO("without the barrier " << place);
      CHECK(caught(kernel == "forward" ? c.forward : c.backward, place));
      ++barriers;
    }
  CHECK(barriers == 3);
  CHECK_FALSE(caught(c.forward, ":0"));
}
#endif

TEST_CASE("emulated cuda: attention in tiles needs no scratch that grows with the square of the length") {
  const auto scratch = [](int32_t type, int64_t length, int64_t size, double scale) {
    const eng_desc x = desc(type, {8, length, 32 * size}), lse = desc(ENG_F32, {8, 32, length});
    const eng_desc in[] = {x, x, x, x, x, lse}, out[] = {x, x, x};
    const eng_attr attrs[] = {whole("heads", 32), whole("kv_heads", 32), real("scale", scale)};
    eng_call call{};
    call.struct_size = sizeof call, call.parallel = 1, call.device = &emulated().info;
    call.in = in, call.out = out, call.attrs = attrs, call.n_in = 6, call.n_out = 3, call.n_attrs = 3;
    uint64_t bytes = 0;
    Sink sink;
    sink.check(emulated().find(ENG_OP_ATTENTION_GRAD)->workspace(&call, &bytes, sink.get()));
    return bytes;
  };
  for (const int32_t type : {ENG_BF16, ENG_F16, ENG_F32})
    for (const int64_t length : {2048, 65536}) CHECK(scratch(type, length, 128, 0.1) == uint64_t(8 * 32 * 4 * length));
  // Plain threads alone serve a call only while a row of scores fits a block.
  CHECK(scratch(ENG_F32, 2048, 130, 0.1) == 8 * 32 * 4 * 2048);
  CHECK_THROWS_WITH(scratch(ENG_F32, 65536, 130, 0.1), Catch::Contains("in f32 of 4, at most 128, without a cap"));
  CHECK_THROWS_WITH(scratch(ENG_BF16, 65536, 20, 0.1), Catch::Contains("multiple of 8"));
  CHECK_THROWS_WITH(scratch(ENG_BF16, 65536, 264, 0.1), Catch::Contains("at most 256"));
  CHECK_THROWS_WITH(scratch(ENG_BF16, 65536, 128, -0.1), Catch::Contains("at most 6112 positions"));
}
