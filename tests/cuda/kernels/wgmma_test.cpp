// SPDX-License-Identifier: Apache-2.0
// The gradient of attention by wgmma: against the reference.
#include <cstdio>
#include <sstream>

#include "emulated.hpp"

using namespace cuda_test;

namespace {

// The device of these tests, the emulated one as an H100, whose user asks for these kernels: [device] attention. What a
// GPU does not have is computed by other kernels.
const Device& hopper() {
  struct Hopper : Device {
    Hopper() : Device(device_file(), "cuda") {
      if (!std::getenv("ENG_TEST_DEVICE")) info.arch = 90;
      info.settings[1] = info.settings[1] / 4 * 4 + 3;
    }
  };
  static const Hopper device;
  return device;
}

struct GroupSizes {
  int64_t batch, length, heads, kv, size;
};
// `document`: rows of each, of packed samples; 0: they are not packed. o and lse are the reference's.
Use wgmma_gradient(uint64_t seed, int32_t type, const GroupSizes& s, int64_t document = 0) {
  Random random(seed);
  const std::vector<eng_attr> attrs = {whole("heads", s.heads), whole("kv_heads", s.kv),
                                       real("scale", 1 / std::sqrt(double(s.size)))};
  const Dims wide = {s.batch, s.length, s.heads * s.size}, narrow = {s.batch, s.length, s.kv * s.size};
  const Tensor q = random_normal(random, type, wide, 2), k = random_normal(random, type, narrow, 2),
               v = random_normal(random, type, narrow), grad = random_normal(random, type, wide);
  std::vector<Tensor> in = {q, k, v};
  Tensor segments(ENG_I32, {s.batch, s.length});
  for (int64_t t = 0; document && t < s.batch * s.length; ++t)
    segments.as<int32_t>()[t] = static_cast<int32_t>(t % s.length / document);
  if (document) in.push_back(segments);
  const auto o = reference().run(ENG_OP_ATTENTION, in, {q.d, desc(ENG_F32, {s.batch, s.heads, s.length})}, attrs);
  in = {grad, q, k, v, o[0], o[1]};
  if (document) in.push_back(segments);
  return {ENG_OP_ATTENTION_GRAD, in, {q.d, k.d, v.d}, attrs, {}, &hopper()};
}
void check_wgmma(uint64_t seed, int32_t type, const GroupSizes& s, int64_t document = 0) {
  INFO("(" << s.batch << ", " << s.length << "), " << s.heads << " heads of " << s.size << ", " << s.kv
           << " for keys, documents of " << document << (type == ENG_BF16 ? ", bf16" : ", f16"));
  Use use = wgmma_gradient(seed, type, s, document);
  check_close(use, type == ENG_BF16 ? 1e-2 : 1.4e-3);
  // The emulator adds as the kernels say, and these add in the order of the others: nothing is lost or counted twice.
  if (std::getenv("ENG_TEST_DEVICE")) return;
  const Device::Outputs got = use.on->run(use.op, use.in, use.out, use.attrs),
                        others = emulated().run(use.op, use.in, use.out, use.attrs);
  for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].same_bits(others[k]));
}

}  // namespace

TEST_CASE("emulated cuda: the gradient of attention by wgmma") {
  check_wgmma(1, ENG_BF16, {1, 70, 2, 1, 64});
  check_wgmma(2, ENG_F16, {1, 33, 1, 1, 128}, 20);
}
TEST_CASE("emulated cuda: the gradient of attention by wgmma, of odd lengths, shared heads and documents", "[.slow]") {
  uint64_t seed = 10;
  for (const int64_t size : {64, 128})
    for (const int64_t length : {1, 64, 130, 257})
      for (const int64_t document : {0, 50})
        check_wgmma(++seed, length % 2 == document / 50 ? ENG_BF16 : ENG_F16,
                    {length < 65 ? 2 : 1, length, 2, length % 2 ? 1 : 2, size}, document);
}

// ENG_TEST_SPEED = "B heads T D" (tools/gpu-check). By wall clock, over 20 launches.
TEST_CASE("speed of the gradient of attention, by who computes it", "[.speed]") {
  const char* const given = std::getenv("ENG_TEST_SPEED");
  std::istringstream words(given ? given : "1 2 70 64");
  int64_t batch = 0, heads = 0, length = 0, size = 0;
  REQUIRE((words >> batch >> heads >> length >> size));
  Random random(7);
  const Dims wide = {batch, length, heads * size};
  const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", heads),
                                       real("scale", 1 / std::sqrt(double(size)))};
  std::vector<Tensor> in;
  for (int k = 0; k < 4; ++k) in.push_back(random_normal(random, ENG_BF16, wide));
  const eng_desc x = in[0].d;
  Device::Outputs own;
  for (const std::string who : {"own", "own-wgmma", "cudnn"}) {
    ::setenv("ENG_TEST_OPTIONS", ("attention=" + who + " attention_workspace=17179869184").c_str(), 1);
    Device device(device_file(), "cuda");
    if (who == "own")
      for (const Tensor& o :
           device.run(ENG_OP_ATTENTION, {in[1], in[2], in[3]}, {x, desc(ENG_F32, {batch, heads, length})}, attrs))
        in.push_back(o);
    device.timed = 20;
    try {
      if (who == "own-wgmma" && std::getenv("ENG_TEST_DEVICE") && device.info.arch != 90)
        throw Failure{ENG_UNSUPPORTED, "the GPU is no sm_90"};  // `own` would compute it
      const Device::Outputs out = device.run(ENG_OP_ATTENTION_GRAD, in, {x, x, x}, attrs);
      if (own.empty()) own = out;
      double apart = 0;
      for (size_t k = 0; k < out.size(); ++k) apart = std::max(apart, error_of(out[k], own[k]));
      std::printf("%s %.4f ms %.2e apart\n", who.c_str(), device.seconds * 1e3, apart);
      INFO(who);
      CHECK(apart <= 0x1p-6);
    } catch (const Failure& e) {
      std::printf("%s refused: %s\n", who.c_str(), e.what());
      CHECK(who != "own");
    }
  }
  ::unsetenv("ENG_TEST_OPTIONS");
}
