// SPDX-License-Identifier: Apache-2.0
// The scan and the gated norm of Mamba-2: gradients against central differences in f64, the device `cpu` against
// `reference` for every instruction set, any number of threads, documents, running sequences.
#include <catch2/catch.hpp>

#include <deque>

#include "../kernels/documents.hpp"
#include "../kernels/gradient_case.hpp"
#include "mamba_kernels.hpp"

using namespace mamba_test;

namespace ssd_test {
namespace {

#define SSD "eng.mamba.ssd/1"
#define SSD_GRAD "eng.mamba.ssd_grad/1"
#define SSD_STEP "eng.mamba.ssd_step/1"
#define GATED_NORM "eng.mamba.gated_norm/1"
#define GATED_NORM_GRAD "eng.mamba.gated_norm_grad/1"

// B sequences, T tokens, H heads of P channels, N states, G groups, columns of the matrix whose last H are dt.
struct Sizes {
  int64_t B, T, H, P, N, G, D;
  double low = 0, high = INFINITY;
  int64_t channels() const { return H * P; }
  int64_t row() const { return H * P + 2 * G * N; }
  std::vector<eng_attr> attrs() const {
    return {whole("groups", G), whole("states", N), real("low", low), real("high", high)};
  }
};
// Chunks of 64 tokens that are whole, partial or one; registers that are whole or partial; limited steps.
const Sizes sizes[] = {{1, 1, 1, 1, 1, 1, 1},
                       {2, 7, 4, 5, 3, 2, 6},
                       {1, 64, 2, 16, 16, 1, 2},
                       {1, 65, 3, 8, 24, 1, 9},
                       {2, 130, 6, 20, 17, 3, 8},
                       {1, 200, 20, 4, 33, 1, 20},
                       {3, 70, 4, 33, 8, 4, 4, 0.3, 1.2},
                       {1, 256, 2, 64, 128, 1, 4},
                       {1, 17, 36, 3, 2, 2, 40}};

// xbc, dt, a_log, d, dt_bias. Steps from short to beyond the linear part of the softplus.
Tensors inputs(Random& random, int32_t dtype, const Sizes& s) {
  Tensors in = {normal(random, dtype, {s.B, s.T, s.row()}), normal(random, dtype, {s.B, s.T, s.D}),
                normal(random, wide(dtype), {s.H}, 0.7, -1.0), normal(random, wide(dtype), {s.H}),
                normal(random, wide(dtype), {s.H}, 1.0, -1.0)};
  if (s.H > 1) in[4].put(0, 20.5);
  return in;
}
Tensor random_dy(Random& random, int32_t dtype, const Sizes& s) {
  return normal(random, dtype, {s.B, s.T, s.channels()});
}
Tensor run(const Device& device, const Sizes& s, const Tensors& in, const Tensor& segments = {}) {
  Tensors all = in;
  if (segments.d.dtype) all.push_back(segments);
  return device.run(SSD, all, {desc(in[0].d.dtype, {in[0].d.dims[0], in[0].d.dims[1], s.channels()})}, s.attrs())[0];
}
// In the order of the inputs.
Tensors run_grad(const Device& device, const Sizes& s, const Tensor& dy, const Tensors& in,
                 const Tensor& segments = {}) {
  Tensors all = {dy};
  all.insert(all.end(), in.begin(), in.end());
  if (segments.d.dtype) all.push_back(segments);
  std::vector<eng_desc> out;
  for (const Tensor& t : in) out.push_back(t.d);
  return device.run(SSD_GRAD, all, out, s.attrs());
}
Tensors run_step(const Device& device, const Sizes& s, const Tensors& in, const Tensor& h) {
  Tensors all = in;
  all.push_back(h);
  return device.run(SSD_STEP, all, {desc(in[0].d.dtype, {in[0].d.dims[0], in[0].d.dims[1], s.channels()}), h.d},
                    s.attrs(), {{1, 5}});
}
Tensor random_state(Random& random, int32_t dtype, const Sizes& s) {
  return normal(random, wide(dtype), {s.B, s.H, s.N, s.P});
}

std::vector<eng_attr> norm_attrs(int64_t groups) {
  return {whole("groups", groups), real("eps", 1e-5)};
}
// x, z, w
Tensors norm_inputs(Random& random, int32_t dtype, int64_t rows, int64_t columns) {
  return {normal(random, dtype, {1, rows, columns}), normal(random, dtype, {1, rows, columns}),
          normal(random, dtype, {columns}, 0.3, 1.0)};
}
Tensor run_norm(const Device& device, const Tensors& in, int64_t groups) {
  return device.run(GATED_NORM, in, {in[0].d}, norm_attrs(groups))[0];
}
Tensors run_norm_grad(const Device& device, const Tensor& dy, const Tensors& in, int64_t groups, bool in_place = false,
                      int32_t sums = 0) {
  eng_desc dw = in[2].d;
  if (sums) dw.dtype = sums;
  return device.run(GATED_NORM_GRAD, {dy, in[0], in[1], in[2]}, {in[0].d, in[1].d, dw}, norm_attrs(groups),
                    in_place ? Device::InPlace{{0, 0}} : Device::InPlace{});
}

// Columns first .. first + n - 1 of the rows of x.
Tensor columns_of(const Tensor& x, int64_t first, int64_t n) {
  const int64_t all = x.d.dims[x.d.ndim - 1], rows = x.size() / all;
  eng_desc d = x.d;
  d.dims[d.ndim - 1] = n;
  Tensor out(d.dtype, std::vector<int64_t>(d.dims, d.dims + d.ndim));
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < n; ++k) out.put(row * n + k, x.at(row * all + first + k));
  return out;
}
void put_columns(Tensor& x, int64_t first, const Tensor& part) {
  const int64_t all = x.d.dims[x.d.ndim - 1], n = part.d.dims[part.d.ndim - 1], rows = x.size() / all;
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t k = 0; k < n; ++k) x.put(row * all + first + k, part.at(row * n + k));
}
void add(Tensor& x, const Tensor& more) {
  for (int64_t k = 0; k < x.size(); ++k) x.put(k, x.at(k) + more.at(k));
}

// The norm of `groups` groups, of which `ranks` parts are computed one by one: y, and dx, dz and dw.
Tensors run_parts(const Device& device, const Tensor& dy, const Tensors& in, int64_t groups, int64_t ranks) {
  const int64_t all = in[0].d.dims[2], n = all / ranks;
  const std::vector<int64_t> shape = {in[0].d.dims[0], in[0].d.dims[1], groups};
  const int32_t type = wide(in[0].d.dtype);
  Tensor sums(type, shape), dsums(type, shape);
  std::vector<Tensors> parts;
  std::vector<std::vector<eng_attr>> squares, norm;
  for (int64_t r = 0; r < ranks; ++r) {
    parts.push_back({columns_of(in[0], r * n, n), columns_of(in[1], r * n, n), columns_of(in[2], r * n, n)});
    const eng_attr at = whole("at", r * groups / ranks);
    squares.push_back({whole("groups", groups), at});
    norm.push_back({at, whole("columns", all / groups), real("eps", 1e-5)});
    add(sums, device.run("eng.mamba.gated_squares/1", {parts[size_t(r)][0], parts[size_t(r)][1]}, {sums.d},
                         squares.back())[0]);
  }
  Tensors out = {in[0], in[0], in[1], in[2]}, own;
  std::vector<Tensors> own_grads;
  for (size_t r = 0; r < parts.size(); ++r) {
    const Tensors& p = parts[r];
    const auto first = static_cast<int64_t>(r) * n;
    put_columns(out[0], first,
                device.run("eng.mamba.gated_norm_part/1", {p[0], p[1], p[2], sums}, {p[0].d}, norm[r])[0]);
    own_grads.push_back(device.run("eng.mamba.gated_norm_part_grad/1",
                                   {columns_of(dy, first, n), p[0], p[1], p[2], sums}, {p[0].d, p[1].d, p[2].d, sums.d},
                                   norm[r], r ? Device::InPlace{{0, 0}} : Device::InPlace{}));
    add(dsums, own_grads[r][3]);
  }
  for (size_t r = 0; r < parts.size(); ++r) {
    const auto first = static_cast<int64_t>(r) * n;
    const Tensors d = device.run("eng.mamba.gated_squares_grad/1",
                                 {parts[r][0], parts[r][1], dsums, own_grads[r][0], own_grads[r][1]},
                                 {parts[r][0].d, parts[r][1].d}, squares[r], {{0, 3}, {1, 4}});
    put_columns(out[1], first, d[0]), put_columns(out[2], first, d[1]), put_columns(out[3], first, own_grads[r][2]);
  }
  return out;
}

// Everything that the ops give for one shape.
Tensors run_all(const Device& device, const Sizes& s, int32_t dtype) {
  Random random(static_cast<uint64_t>(s.T * 1000 + s.H));
  const Tensors in = inputs(random, dtype, s);
  const Tensor dy = random_dy(random, dtype, s), h = random_state(random, dtype, s);
  Tensors out = {run(device, s, in)};
  for (const Tensor& t : run_grad(device, s, dy, in)) out.push_back(t);
  for (const Tensor& t : run_step(device, s, in, h)) out.push_back(t);
  const Tensors norm = norm_inputs(random, dtype, s.T, s.channels());
  const Tensor of_norm = normal(random, dtype, {1, s.T, s.channels()});
  out.push_back(run_norm(device, norm, s.G));
  for (const Tensor& t : run_norm_grad(device, of_norm, norm, s.G)) out.push_back(t);
  return out;
}

}  // namespace

TEST_CASE("gradient of the scan of Mamba-2") {
  for (const Sizes& s :
       {Sizes{2, 5, 4, 3, 2, 2, 6}, Sizes{1, 4, 3, 1, 3, 1, 3}, Sizes{1, 6, 2, 2, 2, 1, 4, 0.2, 0.9}}) {
    Random random(static_cast<uint64_t>(s.N));
    const Tensors in = inputs(random, ENG_F64, s);
    const Tensor dy = random_dy(random, ENG_F64, s);
    gradients::check({in, [&](const Tensors& x) { return gradients::inner(dy, run(reference_scan(), s, x)); },
                      [&](const Tensors& x) { return run_grad(reference_scan(), s, dy, x); }});
  }
}

TEST_CASE("gradient of the gated norm") {
  for (const int64_t groups : {1, 3}) {
    Random random(7);
    const Tensors in = norm_inputs(random, ENG_F64, 3, 12);
    const Tensor dy = normal(random, ENG_F64, {1, 3, 12});
    gradients::check({in, [&](const Tensors& x) { return gradients::inner(dy, run_norm(reference_scan(), x, groups)); },
                      [&](const Tensors& x) { return run_norm_grad(reference_scan(), dy, x, groups); }});
  }
}

TEST_CASE("parts of the gated norm and of its gradient are those of the whole one") {
  for (const auto& [groups, ranks, columns] : {std::tuple<int64_t, int64_t, int64_t>{1, 2, 34}, {1, 4, 68}, {2, 4, 40}})
    for (const int32_t dtype : {ENG_F64, ENG_F32, ENG_BF16}) {
      Random random(11);
      const Tensors in = norm_inputs(random, dtype, 7, columns);
      const Tensor dy = normal(random, dtype, {1, 7, columns});
      std::vector<std::pair<std::string, const Device*>> devices = {{"reference", &reference_scan()}};
      std::deque<Fast> fast;
      for (const std::string& isa : dtype == ENG_F64 ? std::vector<std::string>() : isas())
        devices.push_back({isa, &fast.emplace_back(isa, 3)});
      for (const auto& [name, device] : devices) {
        Tensors want = {run_norm(reference_scan(), in, groups)};
        for (const Tensor& t : run_norm_grad(reference_scan(), dy, in, groups)) want.push_back(t);
        const Tensors parts = run_parts(*device, dy, in, groups, ranks);
        for (size_t k = 0; k < want.size(); ++k) {
          INFO(name << ", dtype " << dtype << ", groups " << groups << ", ranks " << ranks << ", output " << k);
          CHECK(error_of(parts[k], want[k]) < (dtype == ENG_F64 ? 1e-14 : dtype == ENG_F32 ? 2e-6 : 0.02));
          if (groups > 1) continue;
          // Planted: the norm of each part by itself.
          const Tensors other = run_parts(*device, dy, in, ranks, ranks);
          CHECK(error_of(other[k], want[k]) > 0.03);
        }
      }
      if (dtype == ENG_F64) continue;
      CHECK(same_bits(run_parts(Fast("auto", 1), dy, in, groups, ranks),
                      run_parts(Fast("auto", 4), dy, in, groups, ranks)));
    }
}

TEST_CASE("the scan of Mamba-2 of every instruction set is that of the reference") {
  for (const Sizes& s : sizes) {
    const Tensors theirs = run_all(reference_scan(), s, ENG_F32);
    for (const std::string& isa : isas()) {
      const Tensors ours = run_all(Fast(isa, 1), s, ENG_F32);
      REQUIRE(ours.size() == theirs.size());
      for (size_t k = 0; k < ours.size(); ++k) {
        INFO(isa << ", T " << s.T << ", H " << s.H << ", output " << k);
        // The terms of the gradients of a_log, d and dt_bias (outputs 3 to 5), sums over all tokens, cancel.
        CHECK(error_of(ours[k], theirs[k]) < (k >= 3 && k <= 5 ? 1e-4 : 2e-5));
        Tensor wrong = ours[k];  // the twin
        wrong.put(wrong.size() - 1, wrong.at(wrong.size() - 1) + 1.0);
        CHECK(error_of(wrong, theirs[k]) > 2e-5);
      }
    }
  }
}

TEST_CASE("the scan of Mamba-2 in 16 bits is that of the reference, rounded once") {
  for (const int32_t dtype : half_types)
    for (const Sizes& s : sizes) {
      const Tensors theirs = run_all(reference_scan(), s, dtype);
      for (const std::string& isa : isas()) {
        const Tensors ours = run_all(Fast(isa, 2), s, dtype);
        for (size_t k = 0; k < ours.size(); ++k) {
          INFO(isa << ", dtype " << dtype << ", T " << s.T << ", H " << s.H << ", output " << k);
          if (ours[k].d.dtype == dtype) {
            CHECK(wrong(ours[k], theirs[k], 2e-5) == 0);
            CHECK(uneven(ours[k], theirs[k]) <= 3 + ours[k].size() / 50);
          } else {
            CHECK(error_of(ours[k], theirs[k]) < 2e-5);
          }
        }
      }
      Random random(5);
      const Tensors norm = norm_inputs(random, dtype, 100, 24);
      const Tensor dy = normal(random, dtype, {1, 100, 24});
      const Tensor exact = run_norm_grad(reference_scan(), dy, norm, 2, false, ENG_F32)[2];
      for (const std::string& isa : isas())
        CHECK(error_of(run_norm_grad(Fast(isa, 1), dy, norm, 2, false, ENG_F32)[2], exact) < 2e-5);
    }
}

TEST_CASE("the number of threads changes no bit of the scan of Mamba-2, nor does memory that is shared") {
  for (const Sizes& s : sizes) {
    INFO("T " << s.T << ", H " << s.H);
    const Tensors one = run_all(Fast("auto", 1), s, ENG_F32);
    CHECK(same_bits(run_all(Fast("auto", 2), s, ENG_F32), one));
    CHECK(same_bits(run_all(Fast("auto", 5), s, ENG_F32), one));
    Random random(8);
    const Tensors norm = norm_inputs(random, ENG_F32, s.T, s.channels());
    const Tensor dy = normal(random, ENG_F32, {1, s.T, s.channels()});
    const Fast device("auto", 3);
    CHECK(same_bits(run_norm_grad(device, dy, norm, s.G, true), run_norm_grad(device, dy, norm, s.G)));
  }
}

// The rows of xbc, dt and dy of one document.
Tensors alone(const Tensors& in, int64_t b, int64_t first, int64_t n) {
  Tensors out = in;
  for (size_t k : {0, 1}) out[k] = part(in[k], b, first, n);
  return out;
}

TEST_CASE("the scan of Mamba-2 of a document in a packed sample is that of the document alone") {
  for (const Documents& d : packed_samples())
    for (const int32_t dtype : {ENG_F64, ENG_F32, ENG_BF16})
      for (const bool fast : {false, true}) {
        if (fast && dtype == ENG_F64) continue;
        INFO("T " << d.tokens() << ", dtype " << dtype << (fast ? " cpu" : " reference"));
        const Fast cpu("auto", 3);
        const Device& device = fast ? static_cast<const Device&>(cpu) : reference_scan();
        const Sizes s{d.batch(), d.tokens(), 4, 5, 3, 2, 6};
        Random random(static_cast<uint64_t>(d.tokens()));
        const Tensors in = inputs(random, dtype, s);
        const Tensor dy = random_dy(random, dtype, s);
        // Outputs of documents that differ from those alone; the sums over all tokens are those of the documents.
        const auto compare = [&](const Tensor& segments, int64_t& unlike, double& error) {
          const Tensor y = run(device, s, in, segments);
          const Tensors g = run_grad(device, s, dy, in, segments);
          Tensors sums(3, Tensor(ENG_F64, {s.H}));
          unlike = 0, error = 0;
          d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
            const Tensors own = alone(in, b, first, n);
            unlike += !run(device, s, own).same_bits(part(y, b, first, n));
            const Tensors own_g = run_grad(device, s, part(dy, b, first, n), own);
            for (size_t k : {0, 1}) unlike += !own_g[k].same_bits(part(g[k], b, first, n));
            for (size_t k = 0; k < 3; ++k)
              for (int64_t j = 0; j < s.H; ++j) sums[k].put(j, sums[k].at(j) + own_g[k + 2].at(j));
          });
          for (size_t k = 0; k < 3; ++k) error = std::max(error, error_of(g[k + 2], sums[k]));
        };
        int64_t unlike = 0;
        double error = 0;
        compare(d.segments(), unlike, error);
        CHECK(unlike == 0);
        CHECK(error < (dtype == ENG_F64 ? 1e-13 : 2e-6));
        for (const Tensor& wrong : {d.moved().segments(), Tensor()}) {  // planted faults
          compare(wrong, unlike, error);
          CHECK(unlike >= 3);
          CHECK(error > 1e-4);
        }
      }
}

TEST_CASE("the scan of Mamba-2 takes nothing from another document, not even NaN") {
  const Documents d = {{{5, 60, 70}}};
  const Sizes s{1, 135, 4, 5, 3, 2, 6};
  const Fast cpu("auto", 2);
  for (const Device* device : {&reference_scan(), static_cast<const Device*>(&cpu)}) {
    Random random(4);
    Tensors in = inputs(random, ENG_F32, s);
    Tensor dy = random_dy(random, ENG_F32, s);
    const Tensor y = run(*device, s, in, d.segments());
    const Tensors g = run_grad(*device, s, dy, in, d.segments());
    for (Tensor* t : {&in[0], &in[1], &dy}) poison(*t, 0, 5, 60);
    const Tensor bad = run(*device, s, in, d.segments());
    const Tensors bad_g = run_grad(*device, s, dy, in, d.segments());
    for (const auto& [before, after] : {std::pair(y, bad), std::pair(g[0], bad_g[0]), std::pair(g[1], bad_g[1])}) {
      CHECK(part(after, 0, 0, 5).same_bits(part(before, 0, 0, 5)));
      CHECK(part(after, 0, 65, 70).same_bits(part(before, 0, 65, 70)));
      CHECK(!part(after, 0, 5, 60).same_bits(part(before, 0, 5, 60)));
    }
  }
}

TEST_CASE("gradients of the scan of Mamba-2 within documents are those of differences") {
  const Documents d = {{{2, 3}, {4, 1}}};
  const Sizes s{2, 5, 2, 2, 3, 1, 3};
  Random random(9);
  const Tensors in = inputs(random, ENG_F64, s);
  const Tensor dy = random_dy(random, ENG_F64, s), segments = d.segments();
  const gradients::GradientCase c = {
      in, [&](const Tensors& x) { return gradients::inner(dy, run(reference_scan(), s, x, segments)); },
      [&](const Tensors& x) { return run_grad(reference_scan(), s, dy, x, segments); }};
  gradients::check(c);
  CHECK(gradients::worst_error(c, run_grad(reference_scan(), s, dy, in)) > gradients::tolerance);
}

TEST_CASE("running sequences of Mamba-2, in pieces, are the whole one") {
  const Sizes s{2, 150, 4, 10, 12, 2, 4};
  for (const std::string& isa : isas()) {
    const Fast device(isa, 2);
    Random random(13);
    const Tensors in = inputs(random, ENG_F32, s);
    const Tensor want = run(reference_scan(), s, in);
    Tensor h(ENG_F32, {s.B, s.H, s.N, s.P});
    int64_t first = 0;
    for (const int64_t n : {64, 1, 1, 70, 14}) {
      Tensors piece = in;
      for (size_t k : {0, 1}) {
        piece[k] = Tensor(ENG_F32, {s.B, n, in[k].d.dims[2]});
        for (int64_t i = 0; i < piece[k].size(); ++i) {
          const int64_t row = i / in[k].d.dims[2], b = row / n, t = row % n;
          piece[k].put(i, in[k].at((b * s.T + first + t) * in[k].d.dims[2] + i % in[k].d.dims[2]));
        }
      }
      const Tensors out = run_step(device, s, piece, h);
      Tensor part_of(ENG_F32, {s.B, n, s.channels()});
      for (int64_t i = 0; i < part_of.size(); ++i) {
        const int64_t row = i / s.channels(), b = row / n, t = row % n;
        part_of.put(i, want.at((b * s.T + first + t) * s.channels() + i % s.channels()));
      }
      CHECK(error_of(out[0], part_of) < 2e-5);
      h = out[1], first += n;
    }
  }
}

TEST_CASE("the scan of Mamba-2 loses no NaN, and long steps stay finite") {
  const Sizes s{1, 70, 4, 5, 3, 2, 6};
  for (const std::string& isa : isas()) {
    for (size_t input = 0; input < 5; ++input) {
      INFO(isa << ", input " << input);
      Random random(4);
      Tensors in = inputs(random, ENG_F32, s);
      in[input].put(in[input].size() - 1, std::nan(""));
      const Tensor theirs = run(reference_scan(), s, in), ours = run(Fast(isa, 1), s, in);
      size_t lost = 0, seen = 0;
      for (int64_t i = 0; i < theirs.size(); ++i)
        lost += std::isnan(theirs.at(i)) && !std::isnan(ours.at(i)), seen += std::isnan(theirs.at(i));
      CHECK(lost == 0);
      CHECK(seen > 0);
    }
    Random random(3);
    Tensors in = inputs(random, ENG_F32, s);
    for (int64_t i = 0; i < in[1].size(); ++i) in[1].put(i, in[1].at(i) * 60);  // softplus from 1e-60 to 200
    CHECK(error_of(run(Fast(isa, 1), s, in), run(reference_scan(), s, in)) < 2e-5);
    const Tensor dy = random_dy(random, ENG_F32, s);
    const Tensors ours = run_grad(Fast(isa, 1), s, dy, in), theirs = run_grad(reference_scan(), s, dy, in);
    for (size_t k = 0; k < 5; ++k) CHECK(error_of(ours[k], theirs[k]) < 1e-4);
  }
}

TEST_CASE("the ops of Mamba-2 refuse what they do not compute") {
  const Sizes s{1, 2, 4, 2, 2, 2, 4};
  const Fast device("auto", 1);
  Random random(1);
  CHECK_THROWS_WITH(run(device, s, inputs(random, ENG_F64, s)), Catch::Contains("xbc must be f32, bf16 or f16"));
  Tensors in = inputs(random, ENG_BF16, s);
  in[1] = normal(random, ENG_F16, {1, 2, 4});
  CHECK_THROWS_WITH(run(device, s, in), Catch::Contains("xbc and dt or y differ in type"));
  in = inputs(random, ENG_F16, s);
  in[2] = normal(random, ENG_F16, {4});
  CHECK_THROWS_WITH(run(device, s, in), Catch::Contains("a_log, d and dt_bias must be f32"));
  in = inputs(random, ENG_F32, s);
  for (const Tensor& wrong : {Tensor(ENG_I32, {2, 1}), Tensor(ENG_F32, {1, 2})})
    for (const Device* each : {&reference_scan(), static_cast<const Device*>(&device)})
      CHECK_THROWS_WITH(run(*each, s, in, wrong), Catch::Contains("segments must be (B, T) i32"));
}

}  // namespace ssd_test
