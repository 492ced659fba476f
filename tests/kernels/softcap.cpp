// SPDX-License-Identifier: Apache-2.0
// The loss of capped logits: its gradient against finite differences, the device cpu against the reference; and the cap
// of the logits of a running sequence.
#include "engine/ops_softcap.h"
#include "fast_half.hpp"
#include "gradient_case.hpp"

using namespace kernels_test;

namespace softcap {
namespace {

Tensor scalars_of(int32_t dtype, double inv_tokens, double loss_scale) {
  Tensor out(dtype, {ENG_S_COUNT});
  out.put(ENG_S_INV_TOKENS, inv_tokens), out.put(ENG_S_LOSS_SCALE, loss_scale);
  return out;
}

}  // namespace

TEST_CASE("gradient of the cross-entropy of capped logits") {
  using namespace gradients;
  for (uint64_t round = 0; round < 6; ++round) {
    INFO("round " << round);
    Random random(1000 + round);
    const int64_t B = pick(random, 1, 2), T = pick(random, 2, 5), V = pick(random, 2, 6), H = pick(random, 1, 5);
    Tensor labels = random_ints(random, {B, T}, 0, int(V) - 1);
    labels.put(pick(random, 1, B * T - 1), -100);
    const double cap = 1.5, z_loss = round % 2 ? 0.375 : 0.0;
    const Tensor scalars = scalars_of(ENG_F64, 0.25, 8.0), weights = random_normal(random, ENG_F64, {B, T});
    const std::vector<eng_desc> sums(z_loss > 0 ? 2 : 1, desc(ENG_F64, {1}));
    const auto value = [&](const Tensors& in) {
      const Tensors out = reference().run(ENG_OP_CAPPED_CROSS_ENTROPY, {in[0], in[1], labels, weights}, sums,
                                          {real("softcap", cap), real("z_loss", z_loss)});
      return (out[0].at(0) + (z_loss > 0 ? z_loss * out[1].at(0) : 0.0)) * 0.25 * 8.0;
    };
    const auto backward = [&](const Tensors& in, double capped) {
      std::vector<eng_desc> out = {sums[0], in[0].d, in[1].d};
      if (z_loss > 0) out.push_back(sums[0]);
      const Tensors made =
          reference().run(ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, {in[0], in[1], labels, scalars, Tensor(), weights}, out,
                          {real("softcap", capped), real("z_loss", z_loss)});
      return Tensors{made[1], made[2]};
    };
    const GradientCase c = {{normal(random, {B, T, H}), normal(random, {V, H})}, value, [&](const Tensors& in) {
                              return backward(in, cap);
                            }};
    check(c);
    CHECK(worst_error(c, backward(c.inputs, 2 * cap)) > tolerance);  // a planted fault
  }
}

TEST_CASE("fast cross-entropy of capped logits is that of the reference") {
  for (const auto& [tokens, vocabulary] : {std::pair<int64_t, int64_t>{3, 5}, {70, 257}, {300, 1000}})
    for (const int32_t dtype : {ENG_F32, ENG_BF16}) {
      INFO("tokens " << tokens << ", vocabulary " << vocabulary << ", type " << dtype);
      Random random(7);
      const int64_t H = 24;
      const Tensor x = random_normal(random, dtype, {1, tokens, H}), w = random_normal(random, dtype, {vocabulary, H}),
                   acc = random_normal(random, ENG_F32, {vocabulary, H}), scalars = scalars_of(ENG_F32, 0.01, 4.0);
      Tensor labels = random_ints(random, {1, tokens}, 0, int(vocabulary) - 1);
      labels.put(1, -100);
      const eng_desc one = desc(ENG_F32, {1});
      const std::vector<eng_attr> attrs = {real("softcap", 2.5)};
      const auto close = [&](const Case& c) { dtype == ENG_F32 ? check_close(c, 1e-5) : check_half(c, 1e-4); };
      close({ENG_OP_CAPPED_CROSS_ENTROPY, {x, w, labels}, {one}, attrs, {}});
      close({ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, {x, w, labels, scalars}, {one, x.d}, attrs, {}});
      if (dtype == ENG_F32)
        close({ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, {x, w, labels, scalars, acc}, {one, x.d, acc.d}, attrs, {{2, 4}}});
      const Fast& fast = fast_devices()[0];
      const Tensor want = reference().run(ENG_OP_CAPPED_CROSS_ENTROPY, {x, w, labels}, {one}, attrs)[0];
      const Tensor wrong =
          fast.device->run(ENG_OP_CAPPED_CROSS_ENTROPY, {x, w, labels}, {one}, {real("softcap", 2.6)})[0];
      CHECK(error_of(wrong, want) > 1e-4);
    }
}

TEST_CASE("logits of a running sequence are capped, small and large ones") {
  Random random(8);
  for (const double std : {1e-3, 1.0, 100.0}) {
    const Tensor x = random_normal(random, ENG_F32, {2, 3, 11000}, std);
    const std::vector<eng_attr> attrs = {real("softcap", 30.0)};
    const Tensor want = reference().run(ENG_OP_SOFTCAP, {x}, {x.d}, attrs)[0];
    CHECK(want.at(7) == Approx(30.0 * std::tanh(x.at(7) / 30.0)));
    check_close({ENG_OP_SOFTCAP, {x}, {x.d}, attrs, {{0, 0}}}, 1e-6);
  }
}

TEST_CASE("a cap of logits that is not above 0 is refused") {
  const Tensor x(ENG_F32, {1, 2, 3}), w(ENG_F32, {4, 3}), labels(ENG_I32, {1, 2});
  for (const double cap : {0.0, -1.0, std::nan("")}) {
    const std::vector<eng_attr> attrs = {real("softcap", cap)};
    for (const Device* device : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())}) {
      CHECK_THROWS_WITH(device->run(ENG_OP_SOFTCAP, {x}, {x.d}, attrs), Catch::Contains("softcap must be above 0"));
      CHECK_THROWS_WITH(device->run(ENG_OP_CAPPED_CROSS_ENTROPY, {x, w, labels}, {desc(ENG_F32, {1})}, attrs),
                        Catch::Contains("softcap must be above 0"));
    }
  }
}

}  // namespace softcap
