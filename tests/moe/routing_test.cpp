// SPDX-License-Identifier: Apache-2.0
// The choice of experts: ties, order, experts without tokens, numbers that are none.
#include <catch2/catch.hpp>
#include <cmath>
#include <numeric>

#include "moe_kernels.hpp"

using namespace moe_test;

namespace {

std::vector<int32_t> ids(const Tensor& t) {
  return {t.as<int32_t>(), t.as<int32_t>() + t.size()};
}

Tensor logits_of(int32_t dtype, const Shape& s, const std::vector<double>& values) {
  Tensor out(dtype, {s.B, s.T, s.E});
  for (size_t i = 0; i < values.size(); ++i) out.put(static_cast<int64_t>(i), values[i]);
  return out;
}

const std::vector<const Device*>& devices() {
  static const Fast one("auto", 1), four("auto", 4);
  static const std::vector<const Device*> all = {&reference_moe(), &one, &four};
  return all;
}

}  // namespace

TEST_CASE("of equal logits the expert with the lower number is chosen, the larger logit first") {
  const Shape s{1, 4, 0, 0, 4, 2};
  const int32_t dtype = GENERATE(ENG_F32, ENG_BF16, ENG_F16);
  const Tensor logits = logits_of(dtype, s, {1, 1, 1, 1, 0, 2, 2, 2, 3, 0, 3, 1, -1, 0.5, -1, 0.25});
  for (const Device* device : devices()) {
    const Tensors out = route(*device, s, logits);
    CHECK(ids(out[1]) == std::vector<int32_t>{0, 1, 1, 2, 0, 2, 1, 3});
    CHECK(out[0].at(0) == 0.5);
    CHECK(out[0].at(1) == 0.5);
    // Rows: the pairs of expert 0, then of 1, 2 and 3, each in the order of their numbers.
    CHECK(ids(out[2]) == std::vector<int32_t>{0, 4, 1, 2, 6, 3, 5, 7});
    CHECK(ids(out[3]) == std::vector<int32_t>{0, 2, 3, 5, 1, 6, 4, 7});
    CHECK(ids(out[4]) == std::vector<int32_t>{0, 2, 5, 7, 8});
  }
}

TEST_CASE("routers with sigmoids choose by what the correction adds, within the best groups") {
  const Shape s{1, 2, 0, 0, 4, 2, false};
  const Tensor logits = logits_of(ENG_F32, s, {0, 3, 2, 2.5, 1, -1, 0, 0.5});
  const auto sigmoid = [](double x) { return 1.0 / (1.0 + std::exp(-x)); };
  Tensor none, correction(ENG_F32, {4});
  for (int64_t e = 0; e < 4; ++e) correction.put(e, e == 0 ? 1.0 : 0.0);
  for (const Device* device : devices()) {
    Tensors out = route_sigmoid(*device, s, {}, logits, none);
    CHECK(ids(out[1]) == std::vector<int32_t>{1, 3, 0, 3});
    CHECK(out[0].at(0) == Approx(sigmoid(3)));
    CHECK(out[0].at(3) == Approx(sigmoid(0.5)));
    CHECK(ids(out[2]) == std::vector<int32_t>{2, 0, 1, 3});
    CHECK(ids(out[4]) == std::vector<int32_t>{0, 1, 2, 2, 4});
    out = route_sigmoid(*device, s, {}, logits, correction);
    CHECK(ids(out[1]) == std::vector<int32_t>{0, 1, 0, 3});
    CHECK(out[0].at(0) == Approx(0.5));  // without the correction
    // The group {2, 3} has more than {0, 1} for both tokens.
    out = route_sigmoid(*device, s, {2.0, 2, 1}, logits, none);
    CHECK(ids(out[1]) == std::vector<int32_t>{3, 2, 3, 2});
    CHECK(out[0].at(0) == Approx(2 * sigmoid(2.5)));
  }
  const Shape one{1, 3, 0, 0, 1, 1, false};  // a single expert: the weight is the sigmoid
  for (const Device* device : devices()) {
    const Tensors out = route_sigmoid(*device, one, {}, logits_of(ENG_F32, one, {-2, 0, 1}), none);
    CHECK(out[0].at(0) == Approx(sigmoid(-2)));
    CHECK(ids(out[2]) == std::vector<int32_t>{0, 1, 2});
  }
}

TEST_CASE("a NaN among the logits is chosen last, and every token still has different experts") {
  const Shape s{1, 2, 0, 0, 3, 2};
  const double nan = std::nan("");
  const Tensor logits = logits_of(ENG_F32, s, {nan, 0, 1, nan, nan, nan});
  for (const Device* device : devices()) CHECK(ids(route(*device, s, logits)[1]) == std::vector<int32_t>{2, 1, 0, 1});
}

TEST_CASE("order and place are inverse, rows are sorted by expert, counts are those of the choices") {
  const Shape s = GENERATE(Shape{2, 70, 0, 0, 9, 3}, Shape{1, 1, 0, 0, 1, 1}, Shape{3, 64, 0, 0, 130, 8},
                           Shape{1, 200, 0, 0, 5, 5, false});
  Random random(7);
  const Tensor logits = random_normal(random, ENG_F32, {s.B, s.T, s.E}, 1.0);
  for (const Device* device : devices()) {
    const Tensors out = route(*device, s, logits);
    const auto chosen = ids(out[1]), order = ids(out[2]), place = ids(out[3]), offsets = ids(out[4]);
    std::vector<int64_t> counts(static_cast<size_t>(s.B * s.E));
    for (size_t r = 0; r < order.size(); ++r) {
      const auto p = static_cast<size_t>(order[r]);
      CHECK(place[p] == static_cast<int32_t>(r));
      const auto e = static_cast<size_t>(chosen[p]);
      CHECK((offsets[e] <= place[p] && place[p] < offsets[e + 1]));
      if (r > 0 && static_cast<size_t>(chosen[static_cast<size_t>(order[r - 1])]) == e) CHECK(order[r - 1] < order[r]);
      ++counts[p / static_cast<size_t>(s.T * s.k) * static_cast<size_t>(s.E) + e];
    }
    CHECK(offsets.back() == s.B * s.T * s.k);
    for (int64_t b = 0; b < s.B; ++b) {
      double probabilities = 0;
      for (int64_t e = 0; e < s.E; ++e) {
        CHECK(out[5].at(b * (2 * s.E + 1) + e) == counts[static_cast<size_t>(b * s.E + e)]);
        probabilities += out[5].at(b * (2 * s.E + 1) + s.E + e);
      }
      CHECK(probabilities == Approx(static_cast<double>(s.T)));
    }
    for (int64_t t = 0; t < s.B * s.T && s.normalise; ++t) {
      double sum = 0;
      for (int64_t j = 0; j < s.k; ++j) sum += out[0].at(t * s.k + j);
      CHECK(sum == Approx(1.0));
    }
  }
}

TEST_CASE("an expert without tokens has a gradient of zero, and leaves what was summed before") {
  const Shape s{1, 3, 5, 4, 3, 1};
  const Tensor logits = logits_of(ENG_F32, s, {0, 5, 1, 0, 5, 1, 9, 5, 1});  // nobody chooses expert 2
  Random random(3);
  const Tensor dy = random_normal(random, ENG_F32, {1, 3, 1, 5}, 1.0),
               x = random_normal(random, ENG_F32, {1, 3, 1, 4}, 1.0);
  const Tensor acc = random_normal(random, ENG_F32, {3, 5, 4}, 1.0);
  for (const Device* device : devices()) {
    const Tensors routed = route(*device, s, logits);
    const Tensor fresh = linear_weight_grad(*device, dy, x, routed),
                 more = linear_weight_grad(*device, dy, x, routed, acc);
    for (int64_t i = 40; i < 60; ++i) {
      CHECK(fresh.at(i) == 0.0);
      CHECK(more.at(i) == acc.at(i));
    }
    for (int64_t i = 0; i < 20; ++i) CHECK(fresh.at(i) != 0.0);
  }
}

TEST_CASE("a row gets the same bits whatever other rows its expert has") {
  const Shape one{1, 1, 96, 80, 3, 1}, many{1, 700, 96, 80, 3, 1};
  Random random(11);
  const Tensor w = random_normal(random, ENG_F32, {3, 160, 96}, 0.3),
               x = random_normal(random, ENG_F32, {1, 700, 96}, 1.0);
  const Tensor logits = random_normal(random, ENG_F32, {1, 700, 3}, 1.0);
  const Fast device("auto", 2);
  const Tensors all = route(device, many, logits);
  const Tensor y = linear(device, x, w, all, true);
  for (int64_t t : {0, 13, 699}) {
    Tensor mine(ENG_F32, {1, 1, 96}), of(ENG_F32, {1, 1, 3});
    for (int64_t i = 0; i < 96; ++i) mine.put(i, x.at(t * 96 + i));
    for (int64_t e = 0; e < 3; ++e) of.put(e, logits.at(t * 3 + e));
    const Tensor alone = linear(device, mine, w, route(device, one, of), true);
    const int64_t row = all[3].as<int32_t>()[t];
    int64_t differences = 0;
    for (int64_t i = 0; i < 160; ++i) differences += alone.at(i) != y.at(row * 160 + i);
    CHECK(differences == 0);
  }
}
