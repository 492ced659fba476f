// SPDX-License-Identifier: Apache-2.0
// Updates of what is kept in bf16: the same bits everywhere, those that engine/ops.h states, and right on average.
#include "fast_elem.hpp"
#include "tests/rounding.hpp"

namespace rounded_exact {

using namespace kernels_test;
using rounding::number;
using rounding::Place;
using rounding::upper;

namespace {

Tensor scalars_of(double clip, double ok, double lr, double a = 0, double b = 0) {
  Tensor s(ENG_F32, {ENG_S_COUNT});
  s.put(ENG_S_CLIP, clip), s.put(ENG_S_OK, ok), s.put(ENG_S_LR, lr), s.put(ENG_S_LR + 1, a), s.put(ENG_S_LR + 2, b);
  return s;
}

Tensor counters_of(int64_t update) {
  Tensor c(ENG_I64, {ENG_C_COUNT});
  c.put(ENG_C_UPDATES, double(update));
  return c;
}

void add(Case& c, const Place& at) {
  c.in.push_back(counters_of(at.update));
  for (const eng_attr& a : {whole("seed", at.seed), whole("stream", at.stream), whole("first", at.first)})
    c.attrs.push_back(a);
}

Case adamw(Random& random, int64_t n, int32_t grad, double ok, double weight_decay, const Place& at) {
  Case c;
  c.op = ENG_OP_ADAMW;
  c.in = {random_normal(random, ENG_BF16, {n}), random_normal(random, grad, {n}), random_normal(random, ENG_BF16, {n}),
          random_normal(random, ENG_BF16, {n}), scalars_of(0.37, ok, 3e-4, 0.5, 0.6)};
  for (int64_t i = 0; i < n; ++i) c.in[3].put(i, std::fabs(c.in[3].at(i)));
  c.out = {c.in[0].d, c.in[2].d, c.in[3].d};
  c.attrs = {real("beta1", 0.9), real("beta2", 0.95), real("eps", 1e-8), real("weight_decay", weight_decay)};
  c.in_place = {{0, 0}, {1, 2}, {2, 3}};
  add(c, at);
  return c;
}

Case sgd(Random& random, int64_t n, int32_t grad, double ok, bool buffer, bool nesterov, const Place& at) {
  Case c;
  c.op = ENG_OP_SGD;
  c.in = {random_normal(random, ENG_BF16, {n}), random_normal(random, grad, {n}), {}, scalars_of(0.7, ok, 0.1)};
  c.out = {c.in[0].d};
  c.in_place = {{0, 0}};
  if (buffer) c.in[2] = random_normal(random, ENG_BF16, {n}), c.out.push_back(c.in[0].d), c.in_place.push_back({1, 2});
  c.attrs = {real("momentum", buffer ? 0.9 : 0), real("weight_decay", 0.01), whole("nesterov", nesterov)};
  add(c, at);
  return c;
}

// An update whose new p, m and v are g, g and g * g, rounded.
Case rounding_of(const Tensor& g, const Place& at) {
  const Tensor zero(ENG_BF16, {g.size()});
  Case c{ENG_OP_ADAMW,
         {zero, g, zero, zero, scalars_of(1, 1, 0)},
         {zero.d, zero.d, zero.d},
         {real("beta1", 0), real("beta2", 0), real("eps", 1), real("weight_decay", 0)},
         {{0, 0}, {1, 2}, {2, 3}}};
  add(c, at);
  return c;
}
// The result of rounding g as value 1.
Tensor rounded(const Tensor& g, const Place& at, const Device& device = reference()) {
  const Case c = rounding_of(g, at);
  return device.run(c.op, c.in, c.out, c.attrs, c.in_place)[1];
}

// The distance of the mean over `updates` of the rounded x from x, in standard deviations of that mean. `round` gives
// the pattern for (x, update).
template <class Round>
double away(float x, int updates, Round round) {
  const HalfType half(ENG_BF16);
  const double low = half.value(upper(x, 0)), high = half.value(upper(x, 0xffff)), step = high - low;
  double sum = 0;
  for (int u = 1; u <= updates; ++u) sum += half.value(round(x, u)) - double(x);
  const double p = (double(x) - low) / step;
  return std::fabs(sum / updates) / (std::fabs(step) * std::sqrt(p * (1 - p) / updates));
}

}  // namespace

TEST_CASE("fast updates that round stochastically have the reference's bits") {
  Random random(31);
  for (const int32_t grad : {ENG_F32, ENG_BF16})
    for (int64_t n : {1, 7, 16, 31, 32, 33, 64, 513, 40000}) {
      const Place at{int64_t(random() >> 1), pick(random, 0, 1000), n % 2 ? 4096 : (int64_t{1} << 34) - 32, 5};
      check_exact(adamw(random, n, grad, 1, n % 2 ? 0.1 : 0, at));
      check_exact(adamw(random, n, grad, 0, 0.1, at));
      for (bool buffer : {false, true}) check_exact(sgd(random, n, grad, n % 3 != 0, buffer, buffer && n % 2, at));
    }
  Case broken = adamw(random, 513, ENG_F32, 1, 0.1, {});
  for (int64_t i = 0; i < 513; i += 3) broken.in[1].put(i, i % 2 ? INFINITY : NAN);
  check_exact(broken);
}

TEST_CASE("a skipped update leaves what is kept in bf16 as it was") {
  Random random(32);
  const Case c = adamw(random, 1000, ENG_F32, 0, 0.1, {});
  CHECK(same(reference().run(c.op, c.in, c.out, c.attrs, c.in_place), {c.in[0], c.in[2], c.in[3]}));
}

TEST_CASE("the numbers of random rounding are those of engine/ops.h") {
  Random random(33);
  const int64_t n = 1024;
  const Tensor g = random_normal(random, ENG_F32, {n});
  for (const Place& at : {Place{}, Place{-5, 0, 32, 1}, Place{1, 8, int64_t{1} << 33, 100000}}) {
    const Case c = rounding_of(g, at);
    const auto got = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
    for (int64_t i = 0; i < n; ++i) {
      const float x = g.as<float>()[i];
      REQUIRE(got[1].as<uint16_t>()[i] == upper(x, number(at, i, 1)));
      REQUIRE(got[2].as<uint16_t>()[i] == upper(x * x, number(at, i, 2)));
    }
    Case p{ENG_OP_SGD, {Tensor(ENG_BF16, {n}), g, {}, scalars_of(1, 1, -1)}, {desc(ENG_BF16, {n})}, {}, {{0, 0}}};
    p.attrs = {real("momentum", 0), real("weight_decay", 0), whole("nesterov", 0)};
    add(p, at);
    const Tensor made = reference().run(p.op, p.in, p.out, p.attrs, p.in_place)[0];
    for (int64_t i = 0; i < n; ++i) REQUIRE(made.as<uint16_t>()[i] == upper(g.as<float>()[i], number(at, i, 0)));
  }
}

TEST_CASE("a parameter that is cut gets the numbers that it gets whole") {
  Random random(34);
  const Tensor g = random_normal(random, ENG_F32, {8192});
  Tensor tail(ENG_F32, {4096});
  std::memcpy(tail.memory.data(), g.as<float>() + 4096, tail.memory.size());
  for (const Fast& f : fast_devices()) {
    const Tensor all = rounded(g, {}, *f.device), end = rounded(tail, {42, 3, 4096, 7}, *f.device);
    CHECK(std::memcmp(all.as<uint16_t>() + 4096, end.memory.data(), end.memory.size()) == 0);
    CHECK(std::memcmp(all.as<uint16_t>() + 4096, rounded(tail, {}, *f.device).memory.data(), end.memory.size()) != 0);
  }
}

TEST_CASE("random rounding keeps what bf16 has, and what is not finite") {
  Tensor g(ENG_F32, {65536});
  for (uint32_t k = 0; k < 65536; ++k) {
    const uint32_t bits = k << 16;
    std::memcpy(g.as<float>() + k, &bits, sizeof bits);
  }
  const Tensor got = rounded(g, {});
  int64_t finite = 0;
  for (uint32_t k = 0; k < 65536; ++k) {
    const float x = g.as<float>()[k];
    if (std::isnan(x)) REQUIRE(std::isnan(HalfType(ENG_BF16).value(got.as<uint16_t>()[k])));
    if (!std::isfinite(x) || x == 0) continue;
    REQUIRE(got.as<uint16_t>()[k] == k);
    ++finite;
  }
  CHECK(finite > 65000);
  // Infinite values stay infinite.
  Tensor huge(ENG_F32, {2}, {INFINITY, -INFINITY});
  const Tensor kept = rounded(huge, {});
  CHECK(kept.at(0) == INFINITY);
  CHECK(kept.at(1) == -INFINITY);
}

TEST_CASE("random rounding is right on average, over updates and over elements; faults are seen") {
  const int updates = 4000;
  for (float x : {1.001f, -3.14159f, 1e-20f, 0.999f, 7e30f}) {
    INFO(x);
    const Tensor g(ENG_F32, {1}, {double(x)});
    CHECK(away(x, updates, [&](float, int u) { return rounded(g, {42, 3, 0, u}).as<uint16_t>()[0]; }) < 5);
    // Faults: cut off; to nearest; the same number for every update.
    CHECK(away(x, updates, [](float y, int) { return upper(y, 0); }) > 5);
    CHECK(away(x, updates, [](float y, int) { return upper(y, 0x7fff); }) > 5);
    CHECK(away(x, updates, [](float y, int) { return upper(y, number({}, 0, 1)); }) > 5);
  }
  const int64_t n = 1 << 20;
  Tensor g(ENG_F32, {n});
  for (int64_t i = 0; i < n; ++i) g.put(i, 1 + 0x1p-8);  // half of the way
  const auto ups = [&](const Tensor& t, auto weight) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += (t.at(i) > 1 ? 1 : -1) * weight(i);
    return std::fabs(sum) / std::sqrt(double(n));
  };
  const Tensor one = rounded(g, {});
  CHECK(ups(one, [](int64_t) { return 1; }) < 5);
  // Neighbours, the two halves of a word, other updates, parameters, seeds and values have nothing to do with it.
  const auto sign = [](const Tensor& t, int64_t i) { return t.at(i) > 1 ? 1 : -1; };
  for (int64_t apart : {1, 16, 32}) CHECK(ups(one, [&](int64_t i) { return sign(one, (i + apart) % n); }) < 5);
  for (const Place& other : {Place{42, 3, 0, 8}, Place{42, 4, 0, 7}, Place{43, 3, 0, 7}}) {
    const Tensor two = rounded(g, other);
    CHECK(ups(one, [&](int64_t i) { return sign(two, i); }) < 5);
  }
  Tensor root(ENG_F32, {n});
  for (int64_t i = 0; i < n; ++i) root.as<float>()[i] = std::sqrt(1 + 0x1p-8f);
  const Case c = rounding_of(root, {});
  const Tensor squares = reference().run(c.op, c.in, c.out, c.attrs, c.in_place)[2];
  CHECK(ups(one, [&](int64_t i) { return sign(squares, i); }) < 5);
  CHECK(ups(one, [&](int64_t i) { return sign(one, i); }) > 5);
}

TEST_CASE("updates in bf16 that lack something are refused") {
  Random random(35);
  const auto refused = [](const Case& c, const char* text) {
    for (const Device* d : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())})
      CHECK_THROWS_WITH(d->run(c.op, c.in, c.out, c.attrs), Catch::Contains(text));
  };
  const Case good = adamw(random, 64, ENG_F32, 1, 0, {});
  Case c = good;
  c.in.pop_back();
  refused(c, "needs the counters");
  c = good;
  c.in[3].d.dtype = ENG_F32, c.in[3] = Tensor(c.in[3].d), c.out[2].dtype = ENG_F32;
  refused(c, "must all be bf16");
  c = good;
  c.in[1] = Tensor(ENG_F16, {64});
  refused(c, "f32 or bf16");
  c = good;
  c.out.push_back(c.out[0]), c.attrs.push_back(whole("weight", ENG_BF16));
  refused(c, "no other output");
  refused(adamw(random, 64, ENG_F32, 1, 0, {42, 3, 16, 7}), "multiple of 32");
  refused(adamw(random, 64, ENG_F32, 1, 0, {42, -1, 0, 7}), "stream");
  c = sgd(random, 64, ENG_F32, 1, true, false, {});
  c.in.pop_back();
  CHECK_THROWS(reference().run(c.op, c.in, c.out, c.attrs));
}

}  // namespace rounded_exact
