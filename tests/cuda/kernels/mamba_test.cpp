// SPDX-License-Identifier: Apache-2.0
// The kernels of Mamba's ops for the cuda device, emulated.
#include "packed.hpp"
#include "tests/mamba/mamba_kernels.hpp"

namespace mamba_on_cuda {

using namespace cuda_test;
using mamba_test::normal;
using mamba_test::Shape;
using mamba_test::Tensors;

namespace {

const Device& plain() {
  static const Plain device("mamba/mamba.eng.so");
  return device;
}
// Sequences are not cut on one processor; on many each chunk is a span.
const Device& narrow() {
  static const Emulated device("mamba", 1);
  return device;
}
const Device& broad() {
  static const Emulated device("mamba", 132);
  return device;
}
const int32_t types[] = {ENG_F32, ENG_BF16, ENG_F16};
double tolerance(int32_t type) {
  return type == ENG_F32 ? 2e-5 : type == ENG_BF16 ? 1e-2 : 2e-3;
}
Use use_of(const Device& on, const char* op, const Tensors& in, const std::vector<eng_desc>& out,
           const std::vector<eng_attr>& attrs = {}, const Device::InPlace& in_place = {}) {
  return {op, in, out, attrs, in_place, &on, &plain()};
}

const Shape shapes[] = {{1, 1, 1, 1, 4, 1},      {2, 7, 5, 8, 4, 10},          {1, 64, 69, 16, 3, 74},
                        {2, 130, 13, 16, 2, 26}, {1, 140, 9, 64, 4, 9, false}, {1, 75, 70, 21, 4, 140}};

}  // namespace

TEST_CASE("emulated cuda: causal_conv1d, its gradient and its step") {
  for (const int32_t type : types)
    for (const Shape& s : shapes) {
      INFO("type " << type << ", T " << s.T << ", E " << s.E);
      Random random(static_cast<uint64_t>(s.T));
      const Tensors in = mamba_test::conv_inputs(random, type, s);
      const Tensor dy = normal(random, type, {s.B, s.T, s.E}), acc = normal(random, type, {s.B, s.T, s.G}),
                   last = normal(random, type, {s.B, s.K - 1, s.E});
      check_close(use_of(narrow(), CONV, in, {dy.d}), tolerance(type));
      check_close(use_of(narrow(), CONV_STEP, {in[0], in[1], last, in[2]}, {dy.d, last.d}, {}, {{1, 2}}),
                  tolerance(type));
      for (const int32_t sums : {type, int32_t{ENG_F32}}) {
        std::vector<eng_desc> out = {in[0].d, desc(sums, {s.E, 1, s.K})};
        if (s.bias) out.push_back(desc(sums, {s.E}));
        check_close(use_of(narrow(), CONV_GRAD, {dy, in[0], in[1], in[2], Tensor()}, out), tolerance(type));
        check_close(use_of(narrow(), CONV_GRAD, {dy, in[0], in[1], in[2], acc}, out, {}, {{0, 4}}), tolerance(type));
      }
    }
}

TEST_CASE("emulated cuda: selective_scan, its gradient and its step") {
  const Device& on = GENERATE(0, 1) ? broad() : narrow();
  for (const int32_t type : types)
    for (const Shape& s : shapes) {
      if (type != ENG_F32 && s.T != 7 && s.T != 75) continue;
      INFO("type " << type << ", T " << s.T << ", E " << s.E << ", N " << s.N << ", processors " << on.info.parallel);
      Random random(static_cast<uint64_t>(s.T));
      const Tensors in = mamba_test::scan_inputs(random, type, s);
      const Tensor dy = normal(random, type, {s.B, s.T, s.E}), h = normal(random, ENG_F32, {s.B, s.N, s.E});
      const Use forward = use_of(on, SCAN, in, {dy.d, desc(ENG_F32, {s.B, s.chunks(), s.N, s.E})});
      check_close(forward, tolerance(type));
      Tensors more = in;
      more.push_back(h);
      if (on.info.parallel == 1) check_close(use_of(on, SCAN_STEP, more, {dy.d, h.d}, {}, {{1, 7}}), tolerance(type));
      more = in;
      more.insert(more.begin(), dy), more.push_back(forward.wanted()[1]);
      std::vector<eng_desc> out;
      for (const Tensor& t : in) out.push_back(t.d);
      check_close(use_of(on, SCAN_GRAD, more, out, {}, {{0, 0}, {1, 2}}), 2 * tolerance(type));
      if (s.T == 7) check_close(use_of(on, SCAN_GRAD, more, out), 2 * tolerance(type));
    }
}

TEST_CASE("emulated cuda: causal_conv1d and its gradient in packed samples") {
  for (const int32_t type : types)
    for (const Shape& s : shapes) {
      INFO("type " << type << ", T " << s.T << ", E " << s.E);
      Random random(static_cast<uint64_t>(s.T));
      Tensors in = mamba_test::conv_inputs(random, type, s);
      const Tensor dy = normal(random, type, {s.B, s.T, s.E}), acc = normal(random, type, {s.B, s.T, s.G}),
                   segments = pack_some(random, s.B, s.T).segments, whole = pack_one(s.B, s.T).segments;
      check_close(use_of(narrow(), CONV, {in[0], in[1], in[2], segments}, {dy.d}), tolerance(type));
      check_as_plain(use_of(narrow(), CONV, {in[0], in[1], in[2], whole}, {dy.d}), use_of(narrow(), CONV, in, {dy.d}));
      std::vector<eng_desc> out = {in[0].d, desc(ENG_F32, {s.E, 1, s.K})};
      if (s.bias) out.push_back(desc(ENG_F32, {s.E}));
      in.insert(in.begin(), dy), in.push_back(acc), in.push_back(segments);
      check_close(use_of(narrow(), CONV_GRAD, in, out, {}, {{0, 4}}), tolerance(type));
      in[4] = Tensor();
      check_close(use_of(narrow(), CONV_GRAD, in, out), tolerance(type));
      in[5] = whole;
      check_as_plain(use_of(narrow(), CONV_GRAD, in, out),
                     use_of(narrow(), CONV_GRAD, {in[0], in[1], in[2], in[3], in[4]}, out));
    }
}

TEST_CASE("emulated cuda: selective_scan and its gradient in packed samples") {
  const Device& on = GENERATE(0, 1) ? broad() : narrow();
  for (const int32_t type : types)
    for (const Shape& s : shapes) {
      if (type != ENG_F32 && s.T != 7) continue;
      INFO("type " << type << ", T " << s.T << ", E " << s.E << ", N " << s.N << ", processors " << on.info.parallel);
      Random random(static_cast<uint64_t>(s.T));
      const Tensors in = mamba_test::scan_inputs(random, type, s);
      const Tensor dy = normal(random, type, {s.B, s.T, s.E}), none;
      const std::vector<eng_desc> out = {dy.d, desc(ENG_F32, {s.B, s.chunks(), s.N, s.E})};
      std::vector<eng_desc> out_grad;
      for (const Tensor& t : in) out_grad.push_back(t.d);
      // Documents begin at the first, the last and some token of a chunk, and in one of several.
      Packed packed = pack_some(random, s.B, s.T);
      if (s.T == 140) packed = pack({{64, 1, 62, 13}});
      if (s.T == 130) packed = pack({{1, 129}, {128, 1, 1}});
      for (const bool one : {false, true}) {
        if (one && s.T != 75) continue;
        const Tensor segments = one ? pack_one(s.B, s.T).segments : packed.segments;
        Tensors with = in;
        with.insert(with.end(), {none, none, segments});
        const Use forward = use_of(on, SCAN, with, out);
        Tensors more = in;
        more.insert(more.begin(), dy), more.push_back(forward.wanted()[1]);
        const Use plain = use_of(on, SCAN_GRAD, more, out_grad, {}, {{0, 0}, {1, 2}});
        more.push_back(segments);
        const Use backward = use_of(on, SCAN_GRAD, more, out_grad, {}, {{0, 0}, {1, 2}});
        if (one) {
          check_as_plain(forward, use_of(on, SCAN, in, out));
          check_as_plain(backward, plain);
        } else {
          check_close(forward, tolerance(type));
          check_close(backward, 2 * tolerance(type));
        }
      }
    }
}

TEST_CASE("emulated cuda: nothing passes from a document to the next through convolution and scan") {
  const Shape s{1, 200, 3, 16, 4, 3};
  Random random(6);
  const Tensor segments = pack({{100, 100}}).segments, none;
  for (const Device* on : {&narrow(), &broad()})
    for (const bool first : {true, false}) {
      const auto lose = [&](const Tensors& from, std::initializer_list<size_t> which) {
        Tensors out = from;
        for (const size_t k : which) {
          const int64_t half = out[k].size() / 2, start = first ? 0 : half;
          for (int64_t i = start; i < start + half; ++i) out[k].put(i, std::nan(""));
        }
        return out;
      };
      const auto lost = [&](const Tensor& t) {
        const int64_t half = t.size() / 2, start = first ? half : 0;
        int64_t n = 0;
        for (int64_t i = start; i < start + half; ++i) n += std::isnan(t.at(i));
        return n;
      };
      INFO("without the " << (first ? "first" : "second") << " document, processors " << on->info.parallel);
      Tensors in = mamba_test::conv_inputs(random, ENG_F32, s);
      const Tensor dy = normal(random, ENG_F32, {s.B, s.T, s.E});
      const std::vector<eng_desc> taps = {in[0].d, in[1].d, in[2].d};
      CHECK(lost(outputs(use_of(*on, CONV, lose({in[0], in[1], in[2], segments}, {0}), {dy.d}))[0]) == 0);
      CHECK(lost(outputs(use_of(*on, CONV_GRAD, lose({dy, in[0], in[1], in[2], none, segments}, {0, 1}), taps))[0]) ==
            0);
      in = mamba_test::scan_inputs(random, ENG_F32, s);
      std::vector<eng_desc> shapes_of_in;
      for (const Tensor& t : in) shapes_of_in.push_back(t.d);
      Tensors with = in;
      with.insert(with.end(), {none, none, segments});
      with = lose(with, {0, 1, 3, 6});
      const Device::Outputs y = outputs(use_of(*on, SCAN, with, {dy.d, desc(ENG_F32, {s.B, s.chunks(), s.N, s.E})}));
      CHECK(lost(y[0]) == 0);
      Tensors more = lose({dy, in[0], in[1], in[2], in[3], in[4], in[5], in[6], y[1], segments}, {0, 1, 2, 4, 7});
      const Device::Outputs grads = outputs(use_of(*on, SCAN_GRAD, more, shapes_of_in));
      for (const size_t k : {0, 1, 3, 6}) CHECK(lost(grads[k]) == 0);
    }
}

TEST_CASE("emulated cuda: channels of more groups than blocks of the gradient of selective_scan") {
  const Shape s{1, 3, 2050, 17, 4, 2050};  // 129 groups of 16 channels for 128 blocks at most
  Random random(3);
  const Tensors in = mamba_test::scan_inputs(random, ENG_F32, s);
  Tensors more = in;
  more.insert(more.begin(), normal(random, ENG_F32, {s.B, s.T, s.E}));
  more.push_back(Tensor(ENG_F32, {s.B, 1, s.N, s.E}));
  std::vector<eng_desc> out;
  for (const Tensor& t : in) out.push_back(t.d);
  check_close(use_of(narrow(), SCAN_GRAD, more, out), 4e-5);
}

TEST_CASE("emulated cuda: spans of several chunks in the gradient of selective_scan") {
  static const Emulated device("mamba", 2);  // 6 chunks are 3 spans
  const Shape s{1, 330, 3, 16, 4, 6};
  Random random(8);
  const Tensors in = mamba_test::scan_inputs(random, ENG_F32, s);
  const Tensor dy = normal(random, ENG_F32, {s.B, s.T, s.E});
  const Use forward = use_of(device, SCAN, in, {dy.d, desc(ENG_F32, {s.B, s.chunks(), s.N, s.E})});
  Tensors more = in;
  more.insert(more.begin(), dy), more.push_back(forward.wanted()[1]);
  std::vector<eng_desc> out;
  for (const Tensor& t : in) out.push_back(t.d);
  check_close(use_of(device, SCAN_GRAD, more, out), 4e-5);
}

TEST_CASE("emulated cuda: steps far outside of the usual range, and NaN, pass through a scan") {
  const Shape s{1, 70, 16, 16, 4, 32};
  Random random(4);
  Tensors in = mamba_test::scan_inputs(random, ENG_F32, s);
  for (int64_t i = 0; i < in[1].size(); ++i) in[1].put(i, in[1].at(i) * 60);  // softplus from 1e-60 to 200
  const eng_desc states = desc(ENG_F32, {s.B, s.chunks(), s.N, s.E});
  for (const Device* on : {&narrow(), &broad()}) check_close(use_of(*on, SCAN, in, {in[0].d, states}), 2e-5);
  for (size_t input = 0; input < 7; ++input)
    for (const Device* on : {&narrow(), &broad()}) {
      Tensors with = in;
      with[input].put(2, std::nan(""));
      const Use use = use_of(*on, SCAN, with, {in[0].d, states});
      const Tensor got = outputs(use)[0], want = use.wanted()[0];
      size_t lost = 0;
      for (int64_t i = 0; i < want.size(); ++i) lost += std::isnan(want.at(i)) != std::isnan(got.at(i));
      INFO("input " << input << ", processors " << on->info.parallel);
      CHECK(lost == 0);
    }
}

TEST_CASE("emulated cuda: split, join and the initial values of Mamba") {
  Random random(5);
  for (const int32_t type : types) {
    const Tensor x = normal(random, type, {2, 5, 19}), a(type, {2, 5, 12}), b(type, {2, 5, 7});
    const Use split = use_of(narrow(), "eng.mamba.split/1", {x}, {a.d, b.d}, {whole("at", 12)});
    check_exact(split);
    check_exact(use_of(narrow(), "eng.mamba.join/1", split.wanted(), {x.d}));
    check_exact(use_of(narrow(), "eng.mamba.init_a_log/1", {}, {desc(type, {9, 13})},
                       {whole("states", 16), whole("first", 37)}));
    check_close(use_of(narrow(), "eng.mamba.init_dt_bias/1", {}, {desc(type, {777})},
                       {real("low", std::log(1e-3)), real("high", std::log(0.1)), real("floor", 1e-4), whole("seed", 9),
                        whole("stream", 4), whole("first", 5)}),
                1e-6);
  }
}

TEST_CASE("emulated cuda: what Mamba's kernels do not take is refused") {
  const Shape s{1, 2, 2, 2, 4, 2};
  Random random(1);
  Tensors in = mamba_test::scan_inputs(random, ENG_F64, s);
  CHECK_THROWS_WITH(mamba_test::scan_run(narrow(), s, in),
                    Catch::Contains("u must be f32, bf16 or f16: f64 (1, 2, 2)"));
  in = mamba_test::scan_inputs(random, ENG_F32, {1, 2, 2, 65, 4, 2});
  CHECK_THROWS_WITH(mamba_test::scan_run(narrow(), {1, 2, 2, 65, 4, 2}, in), Catch::Contains("1 to 64 states"));
  in = mamba_test::conv_inputs(random, ENG_BF16, s);
  in[1] = normal(random, ENG_F16, {2, 1, 4});
  CHECK_THROWS_WITH(mamba_test::conv_run(narrow(), s, in), Catch::Contains("has another type: f16 (2, 1, 4)"));
}

}  // namespace mamba_on_cuda
