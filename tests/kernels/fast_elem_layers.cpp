// SPDX-License-Identifier: Apache-2.0
// layer_norm, activation, scale, positions and their gradients against the reference, odd widths among the shapes.
#include "fast_elem.hpp"

using namespace kernels_test;

namespace fast_elem_layers {
namespace {

const std::vector<Dims> shapes = {{1, 1, 2},    {2, 3, 7},    {1, 5, 64},  {2, 9, 513},
                                  {2, 130, 64}, {3, 50, 200}, {1, 700, 31}};

}  // namespace

TEST_CASE("fast layer_norm") {
  Random random(31);
  for (const Dims& shape : shapes)
    for (int affine : {0, 1, 2})
      for (bool residual : {false, true}) {
        const Tensor x = random_normal(random, ENG_F32, shape), r = random_normal(random, ENG_F32, shape);
        Case c{ENG_OP_LAYER_NORM,
               {x, Tensor(), Tensor(), Tensor()},
               {x.d, desc(ENG_F32, {shape[0], shape[1], 2})},
               {real("eps", 1e-5)},
               {}};
        for (int k = 1; k <= affine; ++k) c.in[size_t(k)] = random_normal(random, ENG_F32, {shape[2]});
        if (residual) c.in[3] = r, c.out.push_back(x.d);
        check_close(c, 1e-6);
        if (!residual) continue;
        for (size_t place : {0, 3}) {  // s in the memory of x or of residual
          c.in_place = {{2, place}};
          check_close(c, 1e-6);
        }
      }
}

TEST_CASE("fast layer_norm keeps its precision far from zero") {
  Random random(32);
  Tensor x = random_normal(random, ENG_F32, {3, 5, 129});
  for (int64_t i = 0; i < x.size(); ++i) x.put(i, x.at(i) + 1000);
  check_close({ENG_OP_LAYER_NORM, {x}, {x.d, desc(ENG_F32, {3, 5, 2})}, {real("eps", 1e-5)}, {}},
              1e-4);  // an ulp of 1000 is 6e-5
}

TEST_CASE("the comparison sees another eps in layer_norm and a dropped bias gradient") {
  Random random(33);
  const Tensor x = random_normal(random, ENG_F32, {4, 64}), dy = random_normal(random, ENG_F32, {4, 64});
  const Tensor w = random_normal(random, ENG_F32, {64}), acc(ENG_F32, {64});
  const std::vector<eng_desc> out = {x.d, desc(ENG_F32, {4, 2})}, back = {x.d, w.d, w.d};
  const auto want = reference().run(ENG_OP_LAYER_NORM, {x, w, w}, out, {real("eps", 1e-5)});
  const auto grads = reference().run(ENG_OP_LAYER_NORM_GRAD, {dy, x, w, want[1]}, back, {whole("bias", 1)});
  for (const Fast& f : fast_devices()) {
    CHECK(error_of(f.device->run(ENG_OP_LAYER_NORM, {x, w, w}, out, {real("eps", 2e-5)})[0], want[0]) > 1e-6);
    auto got = f.device->run(ENG_OP_LAYER_NORM_GRAD, {dy, x, w, want[1]}, back, {whole("bias", 1)});
    CHECK(error_of(got[2], grads[2]) < 1e-6);
    CHECK(error_of(acc, grads[2]) > 0.5);
    for (int64_t i = 0; i < 64; ++i) got[1].put(i, got[1].at(i) * 1.01);
    CHECK(error_of(got[1], grads[1]) > 5e-3);
  }
}

TEST_CASE("fast layer_norm_grad") {
  Random random(34);
  for (const Dims& shape : shapes)
    for (int affine : {0, 1, 2})
      for (int optional : {0, 1, 2, 3}) {
        const Tensor dy = random_normal(random, ENG_F32, shape), s = random_normal(random, ENG_F32, shape);
        const Tensor w = random_normal(random, ENG_F32, {shape[2]});
        const Tensor stats = reference().run(ENG_OP_LAYER_NORM, {s}, {s.d, desc(ENG_F32, {shape[0], shape[1], 2})},
                                             {real("eps", 1e-5)})[1];
        Case c{ENG_OP_LAYER_NORM_GRAD,
               {dy, s, affine ? w : Tensor(), stats, Tensor(), Tensor(), Tensor()},
               {dy.d},
               {whole("bias", affine == 2)},
               {}};
        // With two columns dx is almost nothing but rounding: only the absolute size counts there.
        if ((optional & 1) || shape[2] == 2) c.in[4] = random_normal(random, ENG_F32, shape);
        if (optional & 1) c.in_place.push_back({0, 4});
        for (size_t k = 1; k <= size_t(affine); ++k) {
          c.out.push_back(w.d);
          if (optional & 2) c.in[k + 4] = random_normal(random, ENG_F32, {shape[2]}), c.in_place.push_back({k, k + 4});
        }
        check_close(c, 3e-6);
      }
}

TEST_CASE("fast activation and its gradient") {
  Random random(35);
  for (const Dims& shape : shapes)
    for (int64_t act : {ENG_ACT_SILU, ENG_ACT_GELU, ENG_ACT_GELU_TANH, ENG_ACT_RELU}) {
      const Tensor x = random_normal(random, ENG_F32, shape, 3), dy = random_normal(random, ENG_F32, shape);
      check_close({ENG_OP_ACTIVATION, {x}, {x.d}, {whole("act", act)}, {{0, 0}}}, 1e-6);
      for (size_t place : {0, 1})
        check_close({ENG_OP_ACTIVATION_GRAD, {dy, x}, {x.d}, {whole("act", act)}, {{0, place}}}, 1e-6);
      const Tensor y = reference().run(ENG_OP_ACTIVATION, {x}, {x.d}, {whole("act", act)})[0];
      const auto want = reference().run(ENG_OP_ACTIVATION_GRAD, {dy, x}, {x.d}, {whole("act", act)});
      for (const Fast& f : fast_devices()) {  // from the output: relu alone
        const auto from_y = f.device->run(ENG_OP_ACTIVATION_GRAD, {dy, y}, {x.d}, {whole("act", act)});
        if (act == ENG_ACT_RELU)
          CHECK(same(from_y, want));
        else
          CHECK(!same(from_y, want));
      }
    }
}

TEST_CASE("fast scale and positions") {
  Random random(36);
  for (const Dims& shape : shapes) {
    const Tensor x = random_normal(random, ENG_F32, shape);
    check_exact({ENG_OP_SCALE, {x}, {x.d}, {real("factor", 0.1118033989)}, {{0, 0}}});
    for (int64_t offset : {0, 2}) {
      const Tensor table = random_normal(random, ENG_F32, {shape[1] + 3, shape[2]});
      check_exact({ENG_OP_POSITIONS, {x, table}, {x.d}, {whole("offset", offset)}, {{0, 0}}});
      const Tensor counters(ENG_I64, {ENG_C_COUNT}, {0, 0, 0, 1});  // position 1
      check_exact({ENG_OP_POSITIONS, {x, table, counters}, {x.d}, {whole("offset", offset)}, {{0, 0}}});
      CHECK(same(reference().run(ENG_OP_POSITIONS, {x, table, counters}, {x.d}, {whole("offset", offset)}),
                 reference().run(ENG_OP_POSITIONS, {x, table}, {x.d}, {whole("offset", offset + 1)})));
      const std::vector<eng_attr> attrs = {whole("offset", offset), whole("rows", shape[1] + 3)};
      check_close({ENG_OP_POSITIONS_GRAD, {x}, {table.d}, attrs, {}}, 1e-6);
      check_close({ENG_OP_POSITIONS_GRAD, {x, table}, {table.d}, attrs, {{0, 1}}}, 1e-6);
      const auto want = reference().run(ENG_OP_POSITIONS_GRAD, {x}, {table.d}, attrs);
      const auto moved = fast_devices()[0].device->run(ENG_OP_POSITIONS_GRAD, {x}, {table.d},
                                                       {whole("offset", offset + 1), whole("rows", shape[1] + 3)});
      CHECK(error_of(moved[0], want[0]) > 0.1);
    }
  }
}

TEST_CASE("the fast layer kernels say what they cannot serve") {
  const Device& d = *fast_devices()[0].device;
  const Tensor x(ENG_F32, {1, 2, 3}), w(ENG_F32, {3}), short_table(ENG_F32, {3, 3});
  CHECK_THROWS_WITH(d.run(ENG_OP_LAYER_NORM, {x, Tensor(), w}, {x.d, desc(ENG_F32, {1, 2, 2})}, {real("eps", 1)}),
                    Catch::Contains("a bias needs a weight"));
  CHECK_THROWS_WITH(
      d.run(ENG_OP_LAYER_NORM, {x, Tensor(ENG_F32, {4})}, {x.d, desc(ENG_F32, {1, 2, 2})}, {real("eps", 1)}),
      Catch::Contains("w must have 3 elements"));
  CHECK_THROWS_WITH(d.run(ENG_OP_ACTIVATION, {x}, {x.d}, {whole("act", 9)}), Catch::Contains("act = 9"));
  CHECK_THROWS_WITH(d.run(ENG_OP_POSITIONS, {x, short_table}, {x.d}, {whole("offset", 2)}),
                    Catch::Contains("T + offset rows"));
}

}  // namespace fast_elem_layers
