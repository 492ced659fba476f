// SPDX-License-Identifier: Apache-2.0
// The kernels of the device `cpu` against those of `reference`, for every instruction set of this machine; the same
// bits for any number of threads.
#include <catch2/catch.hpp>

#include "mamba_kernels.hpp"

using namespace mamba_test;

namespace {

constexpr double tolerance = 2e-5;

// The worst error of any tensor, each measured against its largest element.
double worst(const Tensors& ours, const Tensors& theirs) {
  double most = ours.size() == theirs.size() ? 0.0 : INFINITY;
  for (size_t k = 0; k < theirs.size() && k < ours.size(); ++k) most = std::max(most, error_of(ours[k], theirs[k]));
  return most;
}

// Everything that the ops give for one shape, on one device.
Tensors run_all(const Device& device, const Shape& s, bool in_place) {
  Random random(static_cast<uint64_t>(s.T * 1000 + s.E));
  Tensors in = conv_inputs(random, ENG_F32, s), out;
  const Tensor dy = normal(random, ENG_F32, {s.B, s.T, s.E}), acc = normal(random, ENG_F32, {s.B, s.T, s.G});
  out.push_back(conv_run(device, s, in));
  for (Tensor& t : conv_grad_run(device, s, dy, in)) out.push_back(t);
  out.push_back(conv_grad_run(device, s, dy, in, acc)[0]);
  for (Tensor& t : conv_step_run(device, s, in, normal(random, ENG_F32, {s.B, s.K - 1, s.E}))) out.push_back(t);
  in = scan_inputs(random, ENG_F32, s);
  for (Tensor& t : scan_step_run(device, in, normal(random, ENG_F32, {s.B, s.N, s.E}))) out.push_back(t);
  Tensors y = scan_run(device, s, in);
  for (const Tensor& t : y) out.push_back(t);
  for (Tensor& t : scan_grad_run(device, dy, in, y[1], in_place)) out.push_back(t);
  return out;
}

}  // namespace

TEST_CASE("scan and convolution of every instruction set are those of the reference") {
  for (const Shape& s : shapes) {
    const Tensors theirs = run_all(reference_scan(), s, false);
    for (const std::string& isa : isas()) {
      INFO(isa << ", T " << s.T << ", E " << s.E << ", N " << s.N);
      const Fast device(isa, 1);
      const Tensors ours = run_all(device, s, false);
      for (size_t k = 0; k < ours.size(); ++k) {
        INFO("output " << k);
        CHECK(error_of(ours[k], theirs[k]) < tolerance);
      }
      CHECK(same_bits(run_all(device, s, true), ours));
      Tensors wrong = ours;  // the twin: one element a little off is seen
      wrong.back().put(wrong.back().size() - 1, wrong.back().at(wrong.back().size() - 1) + 1.0);
      CHECK(worst(wrong, theirs) > tolerance);
    }
  }
}

TEST_CASE("the number of threads changes no bit of scan and convolution") {
  for (const Shape& s : shapes) {
    INFO("T " << s.T << ", E " << s.E);
    const Tensors one = run_all(Fast("auto", 1), s, false);
    CHECK(same_bits(run_all(Fast("auto", 2), s, false), one));
    CHECK(same_bits(run_all(Fast("auto", 5), s, false), one));
  }
}

TEST_CASE("steps far outside of the usual range stay finite") {
  const Shape s{1, 70, 16, 16, 4, 32};
  for (const std::string& isa : isas()) {
    Random random(3);
    Tensors in = scan_inputs(random, ENG_F32, s);
    for (int64_t i = 0; i < in[1].size(); ++i) in[1].put(i, in[1].at(i) * 60);  // softplus from 1e-60 to 200
    const Tensors theirs = scan_run(reference_scan(), s, in), ours = scan_run(Fast(isa, 1), s, in);
    CHECK(worst(ours, theirs) < tolerance);
    const Tensor dy = normal(random, ENG_F32, {s.B, s.T, s.E});
    CHECK(worst(scan_grad_run(Fast(isa, 1), dy, in, ours[1]), scan_grad_run(reference_scan(), dy, in, theirs[1])) <
          1e-4);
  }
}

TEST_CASE("a scan loses no NaN") {
  const Shape s{1, 6, 20, 3, 4, 20};
  const int32_t dtype = GENERATE(ENG_F32, ENG_BF16, ENG_F16);
  for (const std::string& isa : isas())
    for (size_t input = 0; input < 7; ++input) {
      INFO(isa << ", dtype " << dtype << ", input " << input);
      Random random(4);
      Tensors in = scan_inputs(random, dtype, s);
      in[input].put(2, std::nan(""));
      const Tensor h = normal(random, ENG_F32, {s.B, s.N, s.E});
      const Tensor theirs = scan_run(reference_scan(), s, in)[0], ours = scan_run(Fast(isa, 1), s, in)[0];
      const Tensor next = scan_step_run(reference_scan(), in, h)[0], our_next = scan_step_run(Fast(isa, 1), in, h)[0];
      size_t lost = 0, seen = 0;
      for (int64_t i = 0; i < theirs.size(); ++i) {
        lost += std::isnan(theirs.at(i)) != std::isnan(ours.at(i));
        lost += std::isnan(next.at(i)) != std::isnan(our_next.at(i));
        seen += std::isnan(theirs.at(i));
      }
      CHECK(lost == 0);
      CHECK(seen > 0);
    }
}

TEST_CASE("kernels refuse what they do not compute") {
  const Shape s{1, 2, 2, 2, 4, 2};
  Random random(1);
  const Fast device("auto", 1);
  Tensors in = scan_inputs(random, ENG_F64, s);
  CHECK_THROWS_WITH(scan_run(device, s, in), Catch::Contains("u must be f32, bf16 or f16, it is f64 (1, 2, 2)"));
  in = scan_inputs(random, ENG_BF16, s);
  in[6] = normal(random, ENG_F16, {1, 2, 2});
  CHECK_THROWS_WITH(scan_run(device, s, in), Catch::Contains("differ in type: bf16 (1, 2, 2), f16 (1, 2, 2)"));
  in = scan_inputs(random, ENG_F16, s);
  in[2] = normal(random, ENG_F16, {2, 2});
  CHECK_THROWS_WITH(scan_run(device, s, in), Catch::Contains("a_log, d, dt_bias and the states must be f32"));
  in = conv_inputs(random, ENG_BF16, s);
  const Tensor dy = normal(random, ENG_BF16, {1, 2, 2});
  for (const Device* each : {&reference_scan(), static_cast<const Device*>(&device)})
    CHECK_THROWS_WITH(conv_grad_run(*each, s, dy, in, {}, ENG_F16), Catch::Contains("sums must all have the type"));
}
