// SPDX-License-Identifier: Apache-2.0
// The kernels of Mamba-2's ops for the cuda device, emulated: the scan, its gradient and its step, and the gated norm.
#include "packed.hpp"
#include "tests/mamba/mamba_kernels.hpp"

namespace ssd_on_cuda {

using namespace cuda_test;
using mamba_test::normal;
using mamba_test::Tensors;

namespace {

const Device& plain() {
  static const Plain device("mamba/mamba.eng.so");
  return device;
}
const Device& on() {
  static const Emulated device("mamba");
  return device;
}
double tolerance(int32_t type) {
  return type == ENG_F32 ? 2e-5 : type == ENG_BF16 ? 1e-2 : 2e-3;
}

// B sequences, T tokens, H heads of P channels, N states, G groups, columns of the matrix whose last H are dt.
struct Sizes {
  int64_t B, T, H, P, N, G, D;
  double low = 0, high = INFINITY;
  int64_t channels() const { return H * P; }
  std::vector<eng_attr> attrs() const {
    return {whole("groups", G), whole("states", N), real("low", low), real("high", high)};
  }
};
// One token; several groups and columns before dt; limited steps; more chunks, parts of a group's heads, and tiles of
// channels and states than one.
const Sizes sizes[] = {{1, 1, 1, 1, 1, 1, 1},
                       {2, 7, 4, 5, 3, 2, 6},
                       {3, 70, 4, 9, 8, 4, 4, 0.3, 1.2},
                       {1, 66, 9, 3, 17, 1, 9},
                       {1, 130, 1, 66, 70, 1, 2}};

// xbc, dt, a_log, d, dt_bias. Steps from short to beyond the linear part of the softplus.
Tensors inputs(Random& random, int32_t type, const Sizes& s) {
  Tensors in = {normal(random, type, {s.B, s.T, s.channels() + 2 * s.G * s.N}), normal(random, type, {s.B, s.T, s.D}),
                normal(random, ENG_F32, {s.H}, 0.7, -1.0), normal(random, ENG_F32, {s.H}),
                normal(random, ENG_F32, {s.H}, 1.0, -1.0)};
  if (s.H > 1) in[4].put(0, 20.5);
  return in;
}
Tensor random_y(Random& random, int32_t type, const Sizes& s) {
  return normal(random, type, {s.B, s.T, s.channels()});
}
Use scan(const Sizes& s, Tensors in, const Tensor& segments = {}) {
  const eng_desc y = desc(in[0].d.dtype, {s.B, s.T, s.channels()});
  if (segments.d.dtype) in.push_back(segments);
  return {"eng.mamba.ssd/1", in, {y}, s.attrs(), {}, &on(), &plain()};
}
Use grad(const Sizes& s, const Tensor& dy, Tensors in, const Tensor& segments = {}) {
  std::vector<eng_desc> out;
  for (const Tensor& t : in) out.push_back(t.d);
  in.insert(in.begin(), dy);
  if (segments.d.dtype) in.push_back(segments);
  return {"eng.mamba.ssd_grad/1", in, out, s.attrs(), {}, &on(), &plain()};
}
Use step(const Sizes& s, Tensors in, const Tensor& h) {
  const eng_desc y = desc(in[0].d.dtype, {s.B, s.T, s.channels()});
  in.push_back(h);
  return {"eng.mamba.ssd_step/1", in, {y, h.d}, s.attrs(), {{1, 5}}, &on(), &plain()};
}
// The types of a shape: long ones have one each for threads and for tensor cores.
std::vector<int32_t> types_of(const Sizes& s) {
  return s.T > 7 ? std::vector<int32_t>{ENG_F32, ENG_BF16} : types_of_long_cases();
}

}  // namespace

TEST_CASE("emulated cuda: the scan of Mamba-2, its gradient and its step") {
  for (const Sizes& s : sizes)
    for (const int32_t type : types_of(s)) {
      INFO("type " << type << ", T " << s.T << ", H " << s.H);
      Random random(static_cast<uint64_t>(s.T));
      const Tensors in = inputs(random, type, s);
      const Tensor dy = random_y(random, type, s), h = normal(random, ENG_F32, {s.B, s.H, s.N, s.P});
      check_close(scan(s, in), tolerance(type));
      check_close(grad(s, dy, in), 2 * tolerance(type));
      check_close(step(s, in, h), tolerance(type));
    }
}

TEST_CASE("emulated cuda: the scan of Mamba-2 and its gradient in packed samples") {
  for (const Sizes& s : sizes)
    for (const int32_t type : types_of(s)) {
      if (s.T == 70 && type != ENG_F32) continue;
      INFO("type " << type << ", T " << s.T << ", H " << s.H);
      Random random(static_cast<uint64_t>(s.T));
      const Tensors in = inputs(random, type, s);
      const Tensor dy = random_y(random, type, s);
      // Documents begin at the first, the last and some token of a chunk, and in one of several.
      Packed packed = pack_some(random, s.B, s.T);
      if (s.T == 130) packed = pack({{64, 1, 62, 1, 2}});
      if (s.T == 66) packed = pack({{1, 65}});
      check_close(scan(s, in, packed.segments), tolerance(type));
      check_close(grad(s, dy, in, packed.segments), 2 * tolerance(type));
      if (s.T != 70) continue;
      const Tensor one = pack_one(s.B, s.T).segments;
      check_as_plain(scan(s, in, one), scan(s, in));
      check_as_plain(grad(s, dy, in, one), grad(s, dy, in));
    }
}

TEST_CASE("emulated cuda: nothing passes from a document to the next through the scan of Mamba-2") {
  const Sizes s{1, 200, 2, 3, 4, 1, 2};
  Random random(6);
  const Tensor segments = pack({{40, 60, 100}}).segments;
  const Tensors in = inputs(random, ENG_F32, s);
  const Tensor dy = random_y(random, ENG_F32, s);
  for (const bool middle : {true, false}) {
    // NaN in the tokens of the second document, or in those of the two others.
    const auto lost = [&](int64_t t) { return (t >= 40 && t < 100) == middle; };
    const auto lose = [&](Tensor t) {
      for (int64_t i = 0; i < t.size(); ++i)
        if (lost(i * s.T / t.size())) t.put(i, std::nan(""));
      return t;
    };
    const Tensors with = {lose(in[0]), lose(in[1]), in[2], in[3], in[4]};
    const auto check = [&](const Tensor& got, const Tensor& want) {
      int64_t wrong = 0;
      for (int64_t i = 0; i < got.size(); ++i)
        wrong += lost(i * s.T / got.size()) ? !std::isnan(got.at(i)) : got.at(i) != want.at(i);
      CHECK(wrong == 0);
    };
    check(outputs(scan(s, with, segments))[0], outputs(scan(s, in, segments))[0]);
    const Device::Outputs got = outputs(grad(s, lose(dy), with, segments)), want = outputs(grad(s, dy, in, segments));
    for (const size_t k : {0, 1}) check(got[k], want[k]);
  }
}

TEST_CASE("emulated cuda: the scan of Mamba-2 loses no NaN, and long steps stay finite") {
  const Sizes s{1, 70, 4, 5, 3, 2, 6};
  for (size_t input = 0; input < 5; ++input) {
    Random random(4);
    Tensors in = inputs(random, ENG_F32, s);
    in[input].put(in[input].size() - 1, std::nan(""));
    const Use use = scan(s, in);
    const Tensor got = outputs(use)[0], want = use.wanted()[0];
    size_t lost = 0, seen = 0;
    for (int64_t i = 0; i < want.size(); ++i)
      lost += std::isnan(want.at(i)) && !std::isnan(got.at(i)), seen += std::isnan(want.at(i));
    INFO("input " << input);
    CHECK(lost == 0);
    CHECK(seen > 0);
  }
  Random random(3);
  Tensors in = inputs(random, ENG_F32, s);
  for (int64_t i = 0; i < in[1].size(); ++i) in[1].put(i, in[1].at(i) * 60);  // softplus from 1e-60 to 200
  check_close(scan(s, in), 2e-5);
  check_close(grad(s, random_y(random, ENG_F32, s), in), 3e-4);  // terms of the gradient of a_log cancel
}

TEST_CASE("emulated cuda: long sequences go through the scan of Mamba-2 one after another") {
  const Sizes s{2, 4097, 1, 1, 1, 1, 1};  // a slice has less than 8193 tokens
  Random random(7);
  const Tensors in = inputs(random, ENG_F32, s);
  const Tensor dy = random_y(random, ENG_F32, s);
  ::setenv("ENG_EMULATED_ORDER", "forward", 1);
  for (const Use& use : {scan(s, in), grad(s, dy, in)}) {
    const Device::Outputs got = on().run(use.op, use.in, use.out, use.attrs), want = use.wanted();
    for (size_t k = 0; k < want.size(); ++k) CHECK(error_of(got[k], want[k]) <= 4e-5);
  }
}

TEST_CASE("emulated cuda: the gated norm of Mamba-2 and its gradient") {
  for (const int32_t type : types_of_long_cases())
    for (const auto& [rows, columns, groups] :
         {std::tuple<int64_t, int64_t, int64_t>(1, 1, 1), {37, 24, 3}, {3, 600, 2}, {5, 130, 1}, {1050, 2, 1}}) {
      if (rows == 1050 && type != ENG_F32) continue;
      INFO("type " << type << ", rows " << rows << ", columns " << columns);
      Random random(static_cast<uint64_t>(rows));
      const Tensor dy = normal(random, type, {1, rows, columns}), x = normal(random, type, {1, rows, columns}),
                   z = normal(random, type, {1, rows, columns}), w = normal(random, type, {columns}, 0.3, 1.0);
      const std::vector<eng_attr> attrs = {whole("groups", groups), real("eps", 1e-5)};
      check_close({"eng.mamba.gated_norm/1", {x, z, w}, {x.d}, attrs, {}, &on(), &plain()}, 2e-5);
      for (const int32_t sums : {type, int32_t{ENG_F32}})
        for (const Device::InPlace& places : {Device::InPlace{}, Device::InPlace{{0, 0}}})
          check_close({"eng.mamba.gated_norm_grad/1",
                       {dy, x, z, w},
                       {x.d, z.d, desc(sums, {columns})},
                       attrs,
                       places,
                       &on(),
                       &plain()},
                      2e-5);
    }
}

TEST_CASE("emulated cuda: decay rates of Mamba-2 are the logarithms of uniform numbers") {
  for (const int32_t type : types_of_long_cases())
    check_close({"eng.mamba.init_log_uniform/1",
                 {},
                 {desc(type, {777})},
                 {real("low", 1), real("high", 16), whole("seed", 9), whole("stream", 4), whole("first", 5)},
                 {},
                 &on(),
                 &plain()},
                1e-6);
}

TEST_CASE("emulated cuda: what the kernels of Mamba-2 do not take is refused") {
  const Sizes s{1, 2, 4, 2, 2, 2, 4};
  Random random(1);
  Tensors in = inputs(random, ENG_BF16, s);
  in[1] = normal(random, ENG_F16, {1, 2, 4});
  CHECK_THROWS_WITH(scan(s, in).on->run("eng.mamba.ssd/1", in, {desc(ENG_BF16, {1, 2, 8})}, s.attrs()),
                    Catch::Contains("dt has another type: f16 (1, 2, 4)"));
  in = inputs(random, ENG_F32, s);
  in[2] = normal(random, ENG_F16, {4});
  CHECK_THROWS_WITH(on().run("eng.mamba.ssd/1", in, {desc(ENG_F32, {1, 2, 8})}, s.attrs()),
                    Catch::Contains("a_log, d or dt_bias has another type"));
}

}  // namespace ssd_on_cuda
