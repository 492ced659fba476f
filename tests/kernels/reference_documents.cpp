// SPDX-License-Identifier: Apache-2.0
// Gradients of the ops that know documents, against central differences in f64, with planted faults.
#include "documents.hpp"
#include "gradient_case.hpp"

using namespace gradients;

namespace {

// Two documents in each sequence, one of them of at least two tokens.
Documents two_documents(Random& random) {
  Documents d;
  const int64_t batch = pick(random, 1, 2), t = pick(random, 3, 6);
  for (int64_t b = 0; b < batch; ++b) {
    const int64_t first = pick(random, 1, t - 1);
    d.lengths.push_back({first, t - first});
  }
  return d;
}

}  // namespace

TEST_CASE("gradient of attention within documents") {
  for (uint64_t round = 0; round < 6; ++round) {
    INFO("round " << round);
    Random random(700 + round);
    const Documents d = two_documents(random);
    const int64_t D = pick(random, 1, 4), kv_heads = pick(random, 1, 2), heads = kv_heads * int64_t(round % 3 + 1);
    const std::vector<eng_attr> attrs = {whole("heads", heads), whole("kv_heads", kv_heads), real("scale", 0.7)};
    const Tensor r = normal(random, {d.batch(), d.tokens(), heads * D}), segments = d.segments();
    const eng_desc lse = desc(ENG_F64, {d.batch(), heads, d.tokens()});
    const auto forward = [&](const Tensors& in) {
      return reference().run(ENG_OP_ATTENTION, {in[0], in[1], in[2], segments}, {r.d, lse}, attrs);
    };
    const auto backward = [&](const Tensors& in, const Tensor& documents) {
      const Tensors out = forward(in);
      Tensors all = {r, in[0], in[1], in[2], out[0], out[1]};
      if (documents.d.dtype) all.push_back(documents);
      return reference().run(ENG_OP_ATTENTION_GRAD, all, {in[0].d, in[1].d, in[2].d}, attrs);
    };
    const Dims key = {d.batch(), d.tokens(), kv_heads * D};
    const GradientCase c = {
        {normal(random, {d.batch(), d.tokens(), heads * D}), normal(random, key), normal(random, key)},
        [&](const Tensors& in) { return inner(r, forward(in)[0]); },
        [&](const Tensors& in) { return backward(in, segments); }};
    check(c);
    // Planted fault: a gradient that crosses the border.
    CHECK(worst_error(c, backward(c.inputs, {})) > tolerance);
  }
}

TEST_CASE("gradients of rope and positions with positions") {
  for (uint64_t round = 0; round < 6; ++round) {
    INFO("round " << round);
    Random random(800 + round);
    const Documents d = two_documents(random);
    const int64_t t = d.tokens(), heads = pick(random, 1, 3), D = 2 * pick(random, 1, 2), H = heads * D;
    Tensor angles(ENG_F64, {t, D});
    for (int64_t i = 0; i < t; ++i)
      for (int64_t j = 0; j < D / 2; ++j) {
        const double angle = 0.4 * double(i + 1) * double(j + 1);
        angles.put(i * D + j, std::cos(angle)), angles.put(i * D + D / 2 + j, std::sin(angle));
      }
    const Tensor r = normal(random, {d.batch(), t, H}), table = normal(random, {t + 2, H}), positions = d.positions();
    const auto turn = [&](const Tensor& x, int64_t inverse, const Tensor& by) {
      Tensors in = {x, angles};
      if (by.d.dtype) in.push_back(by);
      return reference().run(ENG_OP_ROPE, in, {x.d}, {whole("heads", heads), whole("inverse", inverse)})[0];
    };
    const GradientCase rotation = {{normal(random, {d.batch(), t, H})},
                                   [&](const Tensors& in) { return inner(r, turn(in[0], 0, positions)); },
                                   [&](const Tensors&) { return Tensors{turn(r, 1, positions)}; }};
    check(rotation);
    CHECK(worst_error(rotation, {turn(r, 1, {})}) > tolerance);

    const Tensor acc = normal(random, {t + 2, H});
    const auto gradient = [&](const Tensor& by) {
      Tensors in = {r, acc};
      if (by.d.dtype) in.push_back(by);
      const std::vector<eng_attr> attrs = {whole("offset", 1), whole("rows", t + 2)};
      return Tensors{r, reference().run(ENG_OP_POSITIONS_GRAD, in, {acc.d}, attrs, {{0, 1}})[0]};
    };
    // The accumulator already holds the gradient of the last term.
    const GradientCase added = {{normal(random, {d.batch(), t, H}), table},
                                [&](const Tensors& in) {
                                  const auto y = reference().run(ENG_OP_POSITIONS, {in[0], in[1], Tensor(), positions},
                                                                 {r.d}, {whole("offset", 1)});
                                  return inner(r, y[0]) + inner(acc, in[1]);
                                },
                                [&](const Tensors&) { return gradient(positions); }};
    check(added);
    CHECK(worst_error(added, gradient({})) > tolerance);
  }
}
