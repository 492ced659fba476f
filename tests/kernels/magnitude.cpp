// SPDX-License-Identifier: Apache-2.0
// The ops of DoRA (plugins/transform/magnitude.hpp) against plain sums and central differences in f64.
#include <catch2/catch.hpp>

#include <random>

#include "distance.hpp"
#include "kernel_harness.hpp"

using namespace kernels_test;

namespace {

constexpr const char *norm_op = "eng.low_rank.row_norm/1", *magnitude_op = "eng.low_rank.magnitude/1",
                     *gradient_op = "eng.low_rank.magnitude_grad/1";

const eng_kernels* dora_kernels(const char* name) {
  void* library = dlopen(built_plugin("transform/low_rank.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  REQUIRE(library);
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"));
  return static_cast<const eng_kernels*>(query(ENG_ABI_MINOR)->get_interface(ENG_KERNELS_KIND, name));
}

struct Draw {
  std::mt19937 bits{7};
  Tensor operator()(int32_t dtype, const Dims& dims) {
    Tensor out(dtype, dims);
    std::normal_distribution<double> normal;
    for (int64_t k = 0; k < out.size(); ++k) out.put(k, normal(bits));
    return out;
  }
};

}  // namespace

TEST_CASE("lengths of rows of W + scale B A are those of plain sums, with any number of threads") {
  const int64_t rows = 37, columns = 53, rank = 3;
  Draw draw;
  for (const auto& [type, tolerance] :
       {std::pair{ENG_F64, 1e-14}, {ENG_F32, 1e-7}, {ENG_BF16, 1e-7}, {ENG_F16, 1e-7}}) {
    const Tensor w = draw(type, {rows, columns}), a = draw(type, {rank, columns}), b = draw(type, {rows, rank});
    const int32_t out = type == ENG_F64 ? ENG_F64 : ENG_F32;
    Tensor wanted(ENG_F64, {rows});
    for (int64_t i = 0; i < rows; ++i) {
      double sum = 0;
      for (int64_t j = 0; j < columns; ++j) {
        double path = 0;
        for (int64_t k = 0; k < rank; ++k) path += b.at(i * rank + k) * a.at(k * columns + j);
        sum += std::pow(w.at(i * columns + j) + 0.75 * path, 2);
      }
      wanted.put(i, std::sqrt(sum));
    }
    std::vector<Tensor> got;
    for (const int threads : {1, 2, 5}) {
      Device device("cpu/reference.eng.so", "reference", threads);
      device.kernels = dora_kernels("cpu");
      device.info.parallel = static_cast<uint32_t>(threads);
      got.push_back(device.run(norm_op, {w, a, b}, {desc(out, {rows})}, {real("scale", 0.75)})[0]);
      CHECK(distance(got.back(), wanted) < tolerance);
      CHECK(got.back().same_bits(got[0]));
    }
    Device device("cpu/reference.eng.so", "reference");
    device.kernels = dora_kernels("reference");
    CHECK(distance(device.run(norm_op, {w, a, b}, {desc(out, {rows})}, {real("scale", 0.5)})[0], wanted) > 1e-3);
    CHECK_THROWS_AS(device.run(norm_op, {w, b, a}, {desc(out, {rows})}, {real("scale", 1)}), Failure);
    // Squares, which ranks with some of the columns add up.
    const Tensor squares =
        device.run(norm_op, {w, a, b}, {desc(out, {rows})}, {real("scale", 0.75), {"squares", 1, 0}})[0];
    Tensor roots(ENG_F64, {rows});
    for (int64_t i = 0; i < rows; ++i) roots.put(i, std::sqrt(squares.at(i)));
    CHECK(distance(roots, wanted) < tolerance);
  }
}

TEST_CASE("the gradients of scaled rows are central differences, and a constant length has none") {
  Device device("cpu/reference.eng.so", "reference");
  device.kernels = dora_kernels("cpu");
  const Dims dims = {3, 5, 70};
  Draw draw;
  const Tensor z = draw(ENG_F64, dims), m = draw(ENG_F64, {70}), bias = draw(ENG_F64, {70}), dy = draw(ENG_F64, dims);
  Tensor norm(ENG_F64, {70});
  for (int64_t k = 0; k < 70; ++k) norm.put(k, 0.5 + std::fabs(draw(ENG_F64, {1}).at(0)));
  const auto value = [&](const Tensor& of_z, const Tensor& of_m) {
    const Tensor y = device.run(magnitude_op, {of_z, of_m, norm, bias}, {desc(ENG_F64, dims)})[0];
    double sum = 0;
    for (int64_t k = 0; k < y.size(); ++k) sum += y.at(k) * dy.at(k);
    return sum;
  };
  const double step = 1e-5;
  const Tensor dz = device.run(magnitude_op, {dy, m, norm}, {desc(ENG_F64, dims)})[0];
  const Tensor dm = device.run(gradient_op, {dy, z, norm}, {desc(ENG_F64, {70})})[0];
  const auto difference = [&](const Tensor& of, int64_t k, const auto& at) {
    Tensor above = of, below = of;
    above.put(k, of.at(k) + step), below.put(k, of.at(k) - step);
    return (at(above) - at(below)) / (2 * step);
  };
  double worst = 0;
  for (int64_t k = 0; k < 70; ++k)
    worst = std::max(worst, std::fabs(dm.at(k) - difference(m, k, [&](const Tensor& x) { return value(z, x); })));
  for (int64_t k = 0; k < z.size(); k += 13)
    worst = std::max(worst, std::fabs(dz.at(k) - difference(z, k, [&](const Tensor& x) { return value(x, m); })));
  CHECK(worst < 1e-8);
  Tensor wrong = norm;
  wrong.put(3, norm.at(3) * 1.01);
  CHECK(distance(device.run(gradient_op, {dy, z, wrong}, {desc(ENG_F64, {70})})[0], dm) > 1e-4);
  // Squares of the lengths give the same.
  Tensor square = norm;
  for (int64_t k = 0; k < 70; ++k) square.put(k, norm.at(k) * norm.at(k));
  const eng_attr squares = {"squares", 1, 0};
  CHECK(distance(device.run(magnitude_op, {dy, m, square}, {desc(ENG_F64, dims)}, {squares})[0], dz) < 1e-14);
  CHECK(distance(device.run(gradient_op, {dy, z, square}, {desc(ENG_F64, {70})}, {squares})[0], dm) < 1e-14);
}

TEST_CASE("narrow types are those of f64, rounded; a row without a direction gives 0") {
  const Dims dims = {9, 33};
  Draw draw;
  for (const auto& [type, tolerance] : {std::pair{ENG_F32, 1e-6}, {ENG_BF16, 1e-2}, {ENG_F16, 2e-3}}) {
    const Tensor z = draw(type, dims), dy = draw(type, dims), bias = draw(type, {33});
    const Tensor m = draw(ENG_F32, {33});
    Tensor norm = draw(ENG_F32, {33});
    for (int64_t k = 0; k < 33; ++k) norm.put(k, k == 4 ? 0.0 : 1 + std::fabs(norm.at(k)));
    std::vector<Tensor> y, dm;
    for (const int threads : {1, 3}) {
      Device device("cpu/reference.eng.so", "reference", threads);
      device.kernels = dora_kernels("cpu");
      device.info.parallel = static_cast<uint32_t>(threads);
      y.push_back(device.run(magnitude_op, {z, m, norm, bias}, {desc(type, dims)})[0]);
      dm.push_back(device.run(gradient_op, {dy, z, norm}, {desc(ENG_F32, {33})})[0]);
      const Tensor over = device.run(magnitude_op, {z, m, norm, bias}, {desc(type, dims)}, {}, {{0, 0}})[0];
      CHECK((y.back().same_bits(y[0]) && dm.back().same_bits(dm[0]) && over.same_bits(y[0])));
    }
    for (int64_t i = 0; i < 33; ++i) {
      double sum = 0;
      for (int64_t t = 0; t < 9; ++t) {
        sum += dy.at(t * 33 + i) * z.at(t * 33 + i);
        const double factor = i == 4 ? 0 : m.at(i) / norm.at(i), wanted = z.at(t * 33 + i) * factor + bias.at(i);
        CHECK(std::fabs(y[0].at(t * 33 + i) - wanted) < tolerance * (1 + std::fabs(wanted)));
      }
      CHECK(dm[0].at(i) == Approx(i == 4 ? 0 : sum / norm.at(i)).epsilon(1e-6));
    }
  }
}
