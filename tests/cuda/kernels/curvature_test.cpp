// SPDX-License-Identifier: Apache-2.0
// The kernels of the curvature job's ops for the cuda device, emulated: the bits of the reference.
#include "emulated.hpp"

namespace curvature_on_cuda {

using namespace cuda_test;

namespace {

const Device& on() {
  static const Emulated device("curvature");
  return device;
}
const Device& plain() {
  static const Plain device("curvature/curvature.eng.so");
  return device;
}
Tensor scalars_of(std::initializer_list<double> numbers) {
  Tensor t(ENG_F32, {ENG_S_COUNT});
  int64_t at = ENG_S_LR;
  for (const double x : numbers) t.put(at++, x);
  return t;
}
// Values that are easily damaged are among them.
Tensor values(Random& random, int64_t n) {
  Tensor t = random_normal(random, ENG_F32, {n}, 0.02);
  const double special[] = {-0.0, 0.0, 1e-42, -1e-40, INFINITY, NAN, 3e38};
  for (int64_t i = 0; i < n && n > 100 && i < 7; ++i) t.put(i * 13 + 5, special[i]);
  return t;
}
std::vector<eng_attr> drawn(int64_t first, double rate) {
  return {whole("seed", (int64_t{1} << 40) + 9), whole("stream", 77), whole("first", first), real("rate", rate)};
}

}  // namespace

TEST_CASE("emulated cuda: curvature's directions and moments, exactly") {
  Random random(41);
  const int64_t n = GENERATE(1, 31, 1029, 4100);
  const Tensor base = values(random, n), grad = values(random, n), mean = random_normal(random, ENG_F32, {n}),
               m2 = random_normal(random, ENG_F32, {n}), at = counters(3, 5, 0);
  const Device::InPlace moments = {{0, 2}, {1, 3}};
  for (const int64_t first : {int64_t{0}, (int64_t{1} << 39) + 4096})
    for (const double rate : {1.0, 0.3, 0.0}) {
      check_exact({"eng.curvature.perturb/1",
                   {base, scalars_of({-1e-3, rate == 1.0 ? 1.0 : 0.5}), at},
                   {base.d},
                   drawn(first, rate),
                   {},
                   &on(),
                   &plain()});
      check_exact({"eng.curvature.hutchinson/1",
                   {base, grad, mean, m2, scalars_of({500.0, 1.0, 0.25}), at},
                   {mean.d, m2.d},
                   drawn(first, rate),
                   moments,
                   &on(),
                   &plain()});
    }
  check_exact({"eng.curvature.fisher/1",
               {grad, mean, m2, scalars_of({3.0, 0.0, 0.125})},
               {mean.d, m2.d},
               {},
               {{0, 1}, {1, 2}},
               &on(),
               &plain()});
}

TEST_CASE("emulated cuda: curvature's noise, exactly") {
  Random random(42);
  const int64_t n = GENERATE(1, 45, 4100, 9000);
  const Tensor base = values(random, n);
  Tensor classes(ENG_U8, {n}), scale(ENG_F32, {(n + 4095) / 4096});
  for (int64_t i = 0; i < n; ++i) classes.put(i, double(i / 37 % 3));
  for (int64_t i = 0; i < scale.size(); ++i) scale.put(i, i == 2 ? 0.0 : 0.5 + double(i));
  for (const double wanted : {0.0, 2.0})
    for (const double sigma : {0.0, 1e-3})
      check_exact({"eng.curvature.noise/1",
                   {base, classes, scale, scalars_of({sigma, wanted}), counters(3, 5, 0)},
                   {base.d},
                   drawn(4096 * 7, 1.0),
                   {},
                   &on(),
                   &plain()});
}

TEST_CASE("emulated cuda: curvature's copies, exactly") {
  Random random(43);
  for (const int64_t n : {1, 1029}) {
    const Tensor x = values(random, n);
    Tensor bytes(ENG_U8, {n});
    for (int64_t i = 0; i < n; ++i) bytes.put(i, double(i % 251));
    check_exact({"eng.curvature.copy/1", {x}, {x.d}, {}, {}, &on(), &plain()});
    check_exact({"eng.curvature.copy/1", {bytes}, {bytes.d}, {}, {}, &on(), &plain()});
  }
}

TEST_CASE("emulated cuda: curvature's counts, exactly") {
  Random random(44);
  const Dims dims = GENERATE(Dims{1, 1}, Dims{3, 5, 7}, Dims{50, 64}, Dims{21, 77});
  for (const int32_t type : {ENG_F32, ENG_BF16, ENG_F16}) {
    Tensor x = random_normal(random, type, dims);
    for (int64_t i = 0; i < x.size(); ++i)
      if (pick(random, 0, 3) == 0) x.put(i, i % 5 == 0 ? -0.0 : i % 7 == 0 ? NAN : 0.0);
    Tensor into(ENG_I64, {2, dims.back()});
    for (int64_t i = 0; i < into.size(); ++i) into.put(i, double(i * 3));
    check_exact({"eng.curvature.count/1", {x, into}, {into.d}, {real("threshold", 0.25)}, {{0, 1}}, &on(), &plain()});
  }
}

}  // namespace curvature_on_cuda
