// SPDX-License-Identifier: Apache-2.0
// The kernels of the device `cpu` on bf16 and f16 tensors against those of `reference`, whose results are those of f64
// rounded once, for every instruction set of this machine.
#include <catch2/catch.hpp>

#include "mamba_kernels.hpp"

using namespace mamba_test;

namespace half_test {
namespace {

// If sums cancel, a value may be off by this part of the largest one; elsewhere by one unit in the last place.
constexpr double tolerance = 1e-5;

Tensor converted(const Tensor& t, int32_t dtype) {
  Tensor out(dtype, Dims(t.d.dims, t.d.dims + t.d.ndim));
  for (int64_t i = 0; i < t.size(); ++i) out.put(i, t.at(i));
  return out;
}

struct Output {
  std::string name;
  Tensor tensor;
};
using Outputs = std::vector<Output>;

// Everything that the ops give for one shape, on one device, and what they are. `exact`: the same values, all in f64.
Outputs run_all(const Device& device, const Shape& s, int32_t dtype, bool in_place = false, bool exact = false) {
  Outputs out;
  const auto keep = [&](const char* op, const Tensors& tensors) {
    for (size_t k = 0; k < tensors.size(); ++k) out.push_back({op + (" " + std::to_string(k)), tensors[k]});
  };
  const auto given = [&](const Tensor& t) { return exact && t.d.dtype ? converted(t, ENG_F64) : t; };
  const auto all_given = [&](Tensors tensors) {
    for (Tensor& t : tensors) t = given(t);
    return tensors;
  };
  Random random(static_cast<uint64_t>(s.T * 1000 + s.E));
  Tensors in = all_given(conv_inputs(random, dtype, s));
  const Tensor dy = given(normal(random, dtype, {s.B, s.T, s.E})), acc = given(normal(random, dtype, {s.B, s.T, s.G}));
  keep("conv", {conv_run(device, s, in)});
  keep("conv_grad", conv_grad_run(device, s, dy, in));
  keep("conv_grad, dx added to, sums in f32", conv_grad_run(device, s, dy, in, acc, exact ? ENG_F64 : ENG_F32));
  keep("conv_step", conv_step_run(device, s, in, given(normal(random, dtype, {s.B, s.K - 1, s.E}))));
  in = all_given(scan_inputs(random, dtype, s));
  keep("scan_step", scan_step_run(device, in, given(normal(random, ENG_F32, {s.B, s.N, s.E}))));
  const Tensors y = scan_run(device, s, in);
  keep("scan", y);
  keep("scan_grad", scan_grad_run(device, dy, in, y[1], in_place));
  return out;
}

bool same(const Outputs& a, const Outputs& b) {
  bool all = a.size() == b.size();
  for (size_t k = 0; all && k < a.size(); ++k) all = a[k].tensor.same_bits(b[k].tensor);
  return all;
}

// True if more than one element in 50 is not the one expected.
bool rounded_twice(const Tensor& got, const Tensor& want) {
  return uneven(got, want) > 3 + want.size() / 50;
}

const char* name_of(int32_t dtype) {
  return dtype == ENG_BF16 ? "bf16" : dtype == ENG_F16 ? "f16" : "f32";
}

}  // namespace

TEST_CASE("the reference's scan and convolution in 16 bits are those of f64 rounded once") {
  for (const int32_t dtype : half_types)
    for (const Shape& s : {Shape{2, 7, 5, 8, 4, 10}, Shape{1, 65, 33, 16, 2, 66, false}}) {
      const Outputs half = run_all(reference_scan(), s, dtype),
                    exact = run_all(reference_scan(), s, dtype, false, true);
      REQUIRE(half.size() == exact.size());
      for (size_t k = 0; k < half.size(); ++k) {
        INFO(half[k].name << ", " << name_of(dtype));
        CHECK(half[k].tensor.same_bits(converted(exact[k].tensor, half[k].tensor.d.dtype)));
      }
    }
}

TEST_CASE("scan and convolution in 16 bits are those of the reference") {
  const int32_t dtype = GENERATE(ENG_BF16, ENG_F16);
  for (const Shape& s : shapes) {
    const Outputs theirs = run_all(reference_scan(), s, dtype);
    for (const std::string& isa : isas()) {
      INFO(isa << ", " << name_of(dtype) << ", B " << s.B << ", T " << s.T << ", E " << s.E << ", N " << s.N);
      const Fast device(isa, 1);
      const Outputs ours = run_all(device, s, dtype);
      REQUIRE(ours.size() == theirs.size());
      for (size_t k = 0; k < ours.size(); ++k) {
        const Tensor &got = ours[k].tensor, &want = theirs[k].tensor;
        INFO(ours[k].name);
        if (want.d.dtype == ENG_F32) {
          CHECK(error_of(got, want) < 2 * tolerance);
        } else {
          CHECK(wrong(got, want, tolerance) == 0);
          CHECK(!rounded_twice(got, want));
        }
      }
      CHECK(same(run_all(Fast(isa, 2), s, dtype, true), ours));
    }
  }
}

// The twin: what is added to dx after its own rounding.
TEST_CASE("a gradient in 16 bits that was rounded twice is seen") {
  const Shape s{3, 70, 48, 16, 4, 96};
  for (const int32_t dtype : half_types) {
    Random random(11);
    const Tensors in = conv_inputs(random, dtype, s);
    const Tensor dy = normal(random, dtype, {s.B, s.T, s.E}), acc = normal(random, dtype, {s.B, s.T, s.G});
    const Tensor want = conv_grad_run(reference_scan(), s, dy, in, acc)[0];
    Tensor twice = conv_grad_run(reference_scan(), s, dy, in)[0];
    for (int64_t i = 0; i < twice.size(); ++i) twice.put(i, twice.at(i) + acc.at(i));
    CHECK(rounded_twice(twice, want));
    for (const std::string& isa : isas()) CHECK(!rounded_twice(conv_grad_run(Fast(isa, 1), s, dy, in, acc)[0], want));
  }
}

// The values are halves: a sum in bf16 would stop at 128.
TEST_CASE("sums over many tokens and sequences are rounded once") {
  const Shape s{3, 500, 37, 0, 4, 40};
  for (const int32_t dtype : half_types) {
    Tensor x(dtype, {s.B, s.T, s.G}), dy(dtype, {s.B, s.T, s.E});
    for (Tensor* t : {&x, &dy})
      for (int64_t i = 0; i < t->size(); ++i) t->put(i, 1);
    const Tensors in = {x, Tensor(dtype, {s.E, 1, s.K}), Tensor(dtype, {s.E})};  // with weights of 0 the slope is 1/2
    for (const int32_t sums : {dtype, int32_t{ENG_F32}})
      for (const std::string& isa : isas()) {
        const Tensors got = conv_grad_run(Fast(isa, 1), s, dy, in, {}, sums);
        const auto exactly = [&](double value) { return Tensor(sums, {1}, {value}).at(0); };
        int64_t missed = 0;
        for (int64_t e = 0; e < s.E; ++e) {
          for (int64_t k = 0; k < s.K; ++k)
            missed += got[1].at(e * s.K + k) != exactly(1.5 * static_cast<double>(s.T - s.K + 1 + k));
          missed += got[2].at(e) != exactly(1.5 * static_cast<double>(s.T));
        }
        CHECK(missed == 0);
      }
  }
}

TEST_CASE("running sequences in 16 bits, in pieces, have the bits of the whole one") {
  const Shape s{1, 37, 35, 12, 4, 70};
  const int64_t cut = 19;
  for (const int32_t dtype : half_types)
    for (const std::string& isa : isas()) {
      const Fast device(isa, 2);
      Random random(13);
      // The tokens first .. first + n - 1 of (1, T, columns).
      const auto piece = [&](const Tensor& t, int64_t first, int64_t n) {
        Tensor out(t.d.dtype, {1, n, t.d.dims[2]});
        for (int64_t i = 0; i < out.size(); ++i) out.put(i, t.at(first * t.d.dims[2] + i));
        return out;
      };
      Shape part = s;
      const Tensors conv = conv_inputs(random, dtype, s), scan = scan_inputs(random, dtype, s);
      Tensor last(dtype, {1, s.K - 1, s.E}), h(ENG_F32, {1, s.N, s.E});
      const Tensor whole_u = conv_run(device, s, conv), whole_y = scan_run(device, s, scan)[0];
      for (int64_t first : {int64_t{0}, cut}) {
        part.T = first ? s.T - cut : cut;
        Tensors conv_part = conv, scan_part = scan;
        conv_part[0] = piece(conv[0], first, part.T);
        for (size_t k : {0, 1, 3, 6}) scan_part[k] = piece(scan[k], first, part.T);
        const Tensors u = conv_step_run(device, part, conv_part, last), y = scan_step_run(device, scan_part, h);
        CHECK(u[0].same_bits(piece(whole_u, first, part.T)));
        CHECK(y[0].same_bits(piece(whole_y, first, part.T)));
        last = u[1], h = y[1];
      }
    }
}

TEST_CASE("initial values of A_log and the time step in 16 bits are those of f64 rounded once") {
  const Fast device("auto", 1);
  for (const int32_t dtype : {int32_t{ENG_F32}, half_types[0], half_types[1]}) {
    const auto check = [&](const char* op, const std::vector<eng_attr>& attrs) {
      INFO(op << " " << name_of(dtype));
      const Tensor exact = device.run(op, {}, {desc(ENG_F64, {1001})}, attrs)[0];
      CHECK(device.run(op, {}, {desc(dtype, {1001})}, attrs)[0].same_bits(converted(exact, dtype)));
    };
    const eng_attr first = whole("first", 7);
    check("eng.mamba.init_a_log/1", {whole("states", 16), first});
    check("eng.mamba.init_dt_bias/1",
          {real("low", -7), real("high", -2), real("floor", 1e-4), whole("seed", 3), whole("stream", 5), first});
  }
}

}  // namespace half_test
