// SPDX-License-Identifier: Apache-2.0
// Convolution and scan of several documents in one sample: each gets what it gets alone, on every device.
#include <catch2/catch.hpp>

#include "../kernels/documents.hpp"
#include "../kernels/gradient_case.hpp"
#include "mamba_kernels.hpp"

using namespace mamba_test;

namespace mamba_documents {
namespace {

struct On {
  std::shared_ptr<const Device> device;
  int32_t dtype;
  std::string name;
};

std::vector<On> everywhere() {
  std::vector<On> all;
  for (const int32_t dtype : {ENG_F64, ENG_F32, ENG_BF16, ENG_F16}) {
    const std::string name = ", dtype " + std::to_string(dtype);
    all.push_back({std::shared_ptr<const Device>(&reference_scan(), [](const Device*) {}), dtype, "reference" + name});
    for (const std::string& isa : isas())
      if (dtype != ENG_F64) all.push_back({std::make_shared<Fast>(isa, dtype == ENG_F32 ? 5 : 1), dtype, isa + name});
  }
  return all;
}

struct Inputs {
  Shape s;
  Tensors conv, scan;
  Tensor dy, acc;
};

// The tokens first .. first + n - 1 of one sequence.
Inputs part_of(const Inputs& x, int64_t b, int64_t first, int64_t n) {
  Inputs out = x;
  out.s.B = 1, out.s.T = n;
  for (Tensor* t : {&out.conv[0], &out.scan[0], &out.scan[1], &out.scan[3], &out.scan[6], &out.dy, &out.acc})
    *t = part(*t, b, first, n);
  return out;
}

Inputs inputs_of(const Documents& d, int32_t dtype, int64_t taps, int64_t channels = 37) {
  Inputs x{{d.batch(), d.tokens(), channels, 5, taps, channels + 3}, {}, {}, {}, {}};
  x.s.bias = taps != 3;
  Random random(uint64_t(d.tokens() * taps));
  x.conv = conv_inputs(random, dtype, x.s), x.scan = scan_inputs(random, dtype, x.s);
  x.dy = normal(random, dtype, {x.s.B, x.s.T, channels}), x.acc = normal(random, dtype, {x.s.B, x.s.T, x.s.G});
  return x;
}

// Outputs with a row for each token, and sums over all tokens.
struct Outputs {
  Tensors rows, sums;
};

Outputs run(const Device& device, const Inputs& x, const Tensor& segments) {
  Outputs out;
  const int32_t sums = wide(x.dy.d.dtype);
  Tensors in = x.conv;
  if (segments.d.dtype) in.push_back(segments);
  out.rows.push_back(conv_run(device, x.s, in));
  const Tensors of_conv = conv_grad_run(device, x.s, x.dy, x.conv, {}, sums, segments);
  out.rows.push_back(of_conv[0]);
  out.sums.insert(out.sums.end(), of_conv.begin() + 1, of_conv.end());
  out.rows.push_back(conv_grad_run(device, x.s, x.dy, x.conv, x.acc, sums, segments)[0]);
  in = x.scan;
  if (segments.d.dtype) in.insert(in.end(), {Tensor(), Tensor(), segments});
  const Tensors y = scan_run(device, x.s, in);
  out.rows.push_back(y[0]);
  const Tensors of_scan = scan_grad_run(device, x.dy, x.scan, y[1], true, segments);
  for (size_t k : {0, 1, 3, 6}) out.rows.push_back(of_scan[k]);
  for (size_t k : {2, 4, 5}) out.sums.push_back(of_scan[k]);
  return out;
}

// Counts the outputs of documents that differ from those of the documents alone, and compares the sums over all with
// those of the documents.
struct Against {
  int64_t unlike = 0;
  double error = 0;
};
Against against_alone(const Device& device, const Documents& d, const Inputs& x, const Outputs& all) {
  Against out;
  Tensors sums;
  d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
    const Outputs alone = run(device, part_of(x, b, first, n), {});
    for (size_t k = 0; k < all.rows.size(); ++k) out.unlike += !alone.rows[k].same_bits(part(all.rows[k], b, first, n));
    if (sums.empty())
      for (const Tensor& t : alone.sums) sums.push_back(Tensor(ENG_F64, Dims(t.d.dims, t.d.dims + t.d.ndim)));
    for (size_t k = 0; k < sums.size(); ++k)
      for (int64_t i = 0; i < sums[k].size(); ++i) sums[k].put(i, sums[k].at(i) + alone.sums[k].at(i));
  });
  for (size_t k = 0; k < sums.size(); ++k) out.error = std::max(out.error, error_of(all.sums[k], sums[k]));
  return out;
}

}  // namespace

TEST_CASE("convolution and scan of a document in a packed sample are those of the document alone") {
  for (const On& on : everywhere())
    for (const Documents& d : packed_samples())
      for (const int64_t taps : {2, 3, 4}) {
        if (d.tokens() > 100 && taps != 4) continue;
        INFO(on.name << ", T " << d.tokens() << ", taps " << taps);
        const Inputs x = inputs_of(d, on.dtype, taps);
        const Against right = against_alone(*on.device, d, x, run(*on.device, x, d.segments()));
        CHECK(right.unlike == 0);
        CHECK(right.error < (on.dtype == ENG_F64 ? 1e-13 : 2e-6));
        // Planted faults: a border that is one token off, and none at all.
        for (const Tensor& wrong : {d.moved().segments(), Tensor()}) {
          const Against off = against_alone(*on.device, d, x, run(*on.device, x, wrong));
          CHECK(off.unlike >= 6);
          CHECK(off.error > 1e-4);
        }
      }
}

TEST_CASE("convolution and scan of one document are those without segments") {
  for (const On& on : everywhere())
    for (const int64_t t : {1, 65, 130}) {
      INFO(on.name << ", T " << t);
      const Documents d = {{{t}, {t}}};
      const Inputs x = inputs_of(d, on.dtype, 4);
      const Outputs with = run(*on.device, x, d.segments()), without = run(*on.device, x, {});
      CHECK(same_bits(with.rows, without.rows));
      CHECK(same_bits(with.sums, without.sums));
    }
}

TEST_CASE("convolution and scan take nothing from another document, not even NaN") {
  const Documents d = {{{5, 60, 70}}};
  for (const On& on : everywhere()) {
    INFO(on.name);
    Inputs x = inputs_of(d, on.dtype, 4);
    const Outputs before = run(*on.device, x, d.segments());
    for (Tensor* t : {&x.conv[0], &x.scan[0], &x.scan[1], &x.scan[3], &x.scan[6], &x.dy, &x.acc}) poison(*t, 0, 5, 60);
    const Outputs after = run(*on.device, x, d.segments());
    for (size_t k = 0; k < after.rows.size(); ++k) {
      INFO("output " << k);
      CHECK(part(after.rows[k], 0, 0, 5).same_bits(part(before.rows[k], 0, 0, 5)));
      CHECK(part(after.rows[k], 0, 65, 70).same_bits(part(before.rows[k], 0, 65, 70)));
      CHECK(!part(after.rows[k], 0, 5, 60).same_bits(part(before.rows[k], 0, 5, 60)));
    }
  }
}

TEST_CASE("fast convolution and scan of documents are those of the reference") {
  for (const Documents& d : packed_samples())
    for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16})
      for (const std::string& isa : isas()) {
        INFO(isa << ", dtype " << dtype << ", T " << d.tokens());
        const Inputs x = inputs_of(d, dtype, 4, 70);
        const Outputs want = run(reference_scan(), x, d.segments()), one = run(Fast(isa, 1), x, d.segments()),
                      many = run(Fast(isa, 4), x, d.segments());
        for (size_t k = 0; k < want.rows.size(); ++k)
          if (dtype == ENG_F32)
            CHECK(error_of(one.rows[k], want.rows[k]) < 2e-5);
          else
            CHECK(wrong(one.rows[k], want.rows[k], 1e-5) == 0);
        for (size_t k = 0; k < want.sums.size(); ++k) CHECK(error_of(one.sums[k], want.sums[k]) < 2e-5);
        CHECK(same_bits(one.rows, many.rows));
        CHECK(same_bits(one.sums, many.sums));
      }
}

TEST_CASE("the kept state is zero where a chunk begins with a document") {
  const Documents d = {{{chunk, chunk - 1, 1, 2}}};  // the third one before the third chunk's first token
  const Inputs x = inputs_of(d, ENG_F32, 4);
  Tensors in = x.scan;
  in.insert(in.end(), {Tensor(), Tensor(), d.segments()});
  for (const std::string& isa : isas()) {
    const Tensor states = scan_run(Fast(isa, 1), x.s, in)[1], theirs = scan_run(reference_scan(), x.s, in)[1];
    const int64_t one = x.s.N * x.s.E;
    for (int64_t i = 0; i < 3 * one; ++i) CHECK(states.at(i) == 0);
    CHECK(states.same_bits(theirs));
  }
}

TEST_CASE("gradients of convolution and scan within documents are those of differences") {
  for (const Documents& d : {Documents{{{2, 3}, {4, 1}}}, Documents{{{1, 2, 2}}}}) {
    Inputs x = inputs_of(d, ENG_F64, 3, 3);
    x.s.bias = false;
    const Tensor segments = d.segments();
    const auto conv = [&](const gradients::Tensors& in) {
      return gradients::inner(x.dy, conv_run(reference_scan(), x.s, {in[0], in[1], Tensor(), segments}));
    };
    const auto conv_by = [&](const gradients::Tensors& in, const Tensor& by) {
      return conv_grad_run(reference_scan(), x.s, x.dy, {in[0], in[1], Tensor()}, {}, 0, by);
    };
    const gradients::GradientCase of_conv = {
        {x.conv[0], x.conv[1]}, conv, [&](const gradients::Tensors& in) { return conv_by(in, segments); }};
    gradients::check(of_conv);
    CHECK(gradients::worst_error(of_conv, conv_by(of_conv.inputs, {})) > gradients::tolerance);

    const auto scan_all = [&](const gradients::Tensors& in) {
      Tensors all = in;
      all.insert(all.end(), {Tensor(), Tensor(), segments});
      return scan_run(reference_scan(), x.s, all);
    };
    const auto scan_by = [&](const gradients::Tensors& in, const Tensor& by) {
      return scan_grad_run(reference_scan(), x.dy, in, scan_all(in)[1], false, by);
    };
    const gradients::GradientCase of_scan = {
        x.scan, [&](const gradients::Tensors& in) { return gradients::inner(x.dy, scan_all(in)[0]); },
        [&](const gradients::Tensors& in) { return scan_by(in, segments); }};
    gradients::check(of_scan);
    CHECK(gradients::worst_error(of_scan, scan_by(of_scan.inputs, {})) > gradients::tolerance);
  }
}

TEST_CASE("segments of another shape or type are refused by convolution and scan") {
  const Documents d = {{{2, 1}}};
  const Inputs x = inputs_of(d, ENG_F32, 4);
  const std::vector<std::shared_ptr<const Device>> devices = {everywhere()[0].device,
                                                              std::make_shared<Fast>("auto", 1)};
  for (const auto& device : devices)
    for (const Tensor& wrong : {Tensor(ENG_I32, {3, 1}), Tensor(ENG_I32, {3}), Tensor(ENG_F32, {1, 3})}) {
      const auto text = Catch::Contains("segments must be (B, T) i32");
      CHECK_THROWS_WITH(conv_run(*device, x.s, {x.conv[0], x.conv[1], x.conv[2], wrong}), text);
      CHECK_THROWS_WITH(conv_grad_run(*device, x.s, x.dy, x.conv, {}, 0, wrong), text);
      Tensors in = x.scan;
      in.insert(in.end(), {Tensor(), Tensor(), wrong});
      CHECK_THROWS_WITH(scan_run(*device, x.s, in), text);
      CHECK_THROWS_WITH(scan_grad_run(*device, x.dy, x.scan, Tensor(ENG_F32, {1, 1, x.s.N, x.s.E}), false, wrong),
                        text);
    }
}

}  // namespace mamba_documents
