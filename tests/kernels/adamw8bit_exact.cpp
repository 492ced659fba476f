// SPDX-License-Identifier: Apache-2.0
// AdamW with moments of 8 bits: the bytes against their published definition, and the same bits on every instruction
// set, with any number of threads, wherever the elements are cut.
#include <dlfcn.h>
#include <catch2/catch.hpp>

#include "kernel_harness.hpp"

namespace adamw8bit_test {

using namespace kernels_test;
using Outputs = Device::Outputs;

namespace {

#define UPDATE "eng.adamw8bit.update/1"
constexpr int64_t block = 256;

const eng_kernels* kernels_of(const char* kind, const char* name) {
  static const eng_plugin* const plugin = [] {
    void* library = dlopen((std::string(ENGINE_PLUGIN_DIR) + "/optim/adamw8bit.eng.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) throw std::runtime_error(dlerror());
    return reinterpret_cast<eng_plugin_query_fn>(dlsym(library, "eng_plugin_query_1"))(ENG_ABI_MINOR);
  }();
  return static_cast<const eng_kernels*>(plugin->get_interface(kind, name));
}

struct Plain : Device {
  Plain() : Device("cpu/reference.eng.so", "reference") { kernels = kernels_of(ENG_KERNELS_KIND, "reference"); }
};
struct Quick : Device {
  Quick(const char* isa, int64_t threads) : Device("cpu/cpu.eng.so", "cpu", threads) {
    kernels = isa ? kernels_of("eng.adamw8bit.kernels/1", isa) : kernels_of(ENG_KERNELS_KIND, "cpu");
    info.parallel = static_cast<uint32_t>(threads);
  }
};
const Device& plain() {
  static const Plain device;
  return device;
}

struct Settings {
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8, weight_decay = 0.1;
  double clip = 0.37, ok = 1, rate = 3e-4, c1 = 1 - std::pow(0.9, 7), c2 = std::sqrt(1 - std::pow(0.95, 7));
};

struct State {
  Tensor p, grad, m, m_scales, v, v_scales;
  explicit State(int64_t n)
      : p(ENG_F32, {n}),
        grad(ENG_F32, {n}),
        m(ENG_U8, {n}),
        m_scales(ENG_F32, {n / block}),
        v(ENG_U8, {n}),
        v_scales(ENG_F32, {n / block}) {}
};

// p, m, m_scales, v, v_scales, and the weight if `dtype` is a 16-bit type.
Outputs update(const Device& device, const State& s, const Settings& set, int32_t dtype = 0) {
  Tensor scalars(ENG_F32, {ENG_S_COUNT});
  scalars.put(ENG_S_CLIP, set.clip), scalars.put(ENG_S_OK, set.ok), scalars.put(ENG_S_LR, set.rate);
  scalars.put(ENG_S_LR + 1, set.c1), scalars.put(ENG_S_LR + 2, set.c2);
  std::vector<eng_desc> out = {s.p.d, s.m.d, s.m_scales.d, s.v.d, s.v_scales.d};
  std::vector<eng_attr> attrs = {real("beta1", set.beta1), real("beta2", set.beta2), real("eps", set.eps),
                                 real("weight_decay", set.weight_decay)};
  if (dtype) out.push_back(desc(dtype, {s.p.size()})), attrs.push_back(whole("weight", dtype));
  return device.run(UPDATE, {s.p, s.grad, s.m, s.m_scales, s.v, s.v_scales, scalars}, out, attrs,
                    {{0, 0}, {1, 2}, {2, 3}, {3, 4}, {4, 5}});
}

// Stores the gradient, and its square, as they are: m = g and v = g^2 before they become bytes.
Settings store() {
  Settings set;
  set.beta1 = set.beta2 = 0, set.clip = 1;
  return set;
}

// The magnitudes in ascending order, as published: of `zeros` zero bits and `bits` further ones, the middles of 2^bits
// equal parts of 0.1 .. 1, times 10^-zeros; 0; and 1.
std::vector<double> magnitudes(bool has_sign) {
  std::vector<double> out = {0};
  for (int zeros = 6; zeros >= 0; --zeros) {
    const int parts = 1 << (6 - zeros + (has_sign ? 0 : 1));
    for (int k = 0; k < parts; ++k) {
      const double low = 0.1 + 0.9 * k / parts, high = 0.1 + 0.9 * (k + 1) / parts;
      out.push_back((low + high) / 2 * std::pow(10.0, -zeros));
    }
  }
  out.push_back(1);
  return out;
}
// By byte.
std::vector<double> m_values() {
  const std::vector<double> size = magnitudes(true);
  REQUIRE(size.size() == 129);
  std::vector<double> out(size.begin(), size.end());
  for (size_t k = 1; k < 128; ++k) out.push_back(-size[k]);
  return out;
}
std::vector<double> v_values() {
  std::vector<double> out = magnitudes(false);
  REQUIRE(out.size() == 256);
  std::rotate(out.begin() + 1, out.end() - 1, out.end());  // 1 is byte 1
  return out;
}

// Gradients of many sizes, blocks of zeros, of denormals, and one with a single value.
State wild(Random& random, int64_t blocks) {
  State s(blocks * block);
  s.p = random_normal(random, ENG_F32, {s.p.size()});
  for (int64_t b = 0; b < blocks; ++b) {
    const double sizes[] = {1, 1e-3, 1e-20, 1e-42, 1e12, 0};
    const double size = sizes[pick(random, 0, 5)];
    s.m_scales.put(b, b % 7 == 3 ? 0 : size), s.v_scales.put(b, b % 7 == 3 ? 0 : size * size);
    for (int64_t i = b * block; i < (b + 1) * block; ++i) {
      std::normal_distribution<double> normal;
      s.grad.put(i, size * normal(random) * std::pow(10.0, -double(pick(random, 0, 12))));
      if (b % 5 == 1 && i % block) s.grad.put(i, 0);
      s.m.put(i, double(pick(random, 0, 255))), s.v.put(i, double(pick(random, 0, 255)));
    }
  }
  return s;
}

bool same(const Outputs& a, const Outputs& b) {
  bool equal = a.size() == b.size();
  for (size_t k = 0; equal && k < a.size(); ++k) equal = a[k].same_bits(b[k]);
  return equal;
}

void check_everywhere(const State& s, const Settings& set, int32_t dtype = 0) {
  const Outputs want = update(plain(), s, set, dtype);
  for (const char* isa : {"portable", "avx2"})
    for (int64_t threads : {1, 2, 3}) {
      if (!kernels_of("eng.adamw8bit.kernels/1", isa)) continue;
      INFO(isa << ", threads " << threads << ", elements " << s.p.size());
      CHECK(same(update(Quick(isa, threads), s, set, dtype), want));
    }
  CHECK(same(update(Quick(nullptr, 2), s, set, dtype), want));
}

}  // namespace

TEST_CASE("the bytes of 8-bit moments stand for the published values") {
  State s(block);
  Settings keep;  // m and v stay; p becomes m / (sqrt(v) + eps)
  keep.beta1 = keep.beta2 = 1, keep.rate = -1, keep.c1 = keep.c2 = 1, keep.eps = 1, keep.weight_decay = 0;
  s.m_scales.put(0, 1), s.v_scales.put(0, 0);
  for (int64_t k = 0; k < block; ++k) s.m.put(k, double(k));
  Outputs out = update(plain(), s, keep);
  const std::vector<double> m = m_values(), v = v_values();
  for (int64_t k = 0; k < block; ++k) CHECK(std::fabs(out[0].at(k) - m[size_t(k)]) <= 6e-8 * std::fabs(m[size_t(k)]));
  CHECK(out[1].same_bits(s.m));  // a value becomes its own byte again
  CHECK(out[2].at(0) == 1);

  keep.eps = 0;
  for (int64_t k = 0; k < block; ++k) s.m.put(k, 128), s.v.put(k, double(k));
  s.v_scales.put(0, 1);
  out = update(plain(), s, keep);
  for (int64_t k = 1; k < block; ++k) CHECK(std::fabs(std::pow(out[0].at(k), -2) / v[size_t(k)] - 1) < 1e-6);
  CHECK(out[3].same_bits(s.v));
  CHECK(out[4].at(0) == 1);
}

TEST_CASE("a moment becomes the nearest value, and is off by no more than half of an interval") {
  Random random(71);
  const std::vector<double> m = m_values(), v = v_values();
  double worst_m = 0, worst_v = 0;
  for (int round = 0; round < 40; ++round) {
    State s(block);
    for (int64_t i = 0; i < block; ++i)
      s.grad.put(i, std::pow(10.0, -8.0 * double(random() % 1000000) / 1e6) * (random() % 2 ? 1 : -1));
    const Outputs out = update(plain(), s, store());
    const double m_scale = out[2].at(0), v_scale = out[4].at(0);
    double most = 0;
    for (int64_t i = 0; i < block; ++i) most = std::max(most, std::fabs(s.grad.at(i)));
    CHECK(m_scale == most);
    for (int64_t i = 0; i < block; ++i) {
      const double x = s.grad.at(i) / m_scale, have = m[size_t(out[1].at(i))];
      double nearest = 2;
      for (size_t k = 0; k < m.size(); ++k)
        if (x > 0 || k != 128) nearest = std::min(nearest, std::fabs(m[k] - x));  // -1 has no byte
      const double off = std::fabs(have - x);
      CHECK(off <= nearest + 1e-7 * std::fabs(x));
      CHECK(have * x >= 0);
      if (std::fabs(x) >= 0.1) worst_m = std::max(worst_m, off);

      const double g = s.grad.at(i), y = double(float(g) * float(g)) / v_scale, is = v[size_t(out[3].at(i))];
      nearest = 2;
      for (size_t k = 1; k < v.size(); ++k) nearest = std::min(nearest, std::fabs(v[k] - y));
      CHECK(std::fabs(is - y) <= nearest + 1e-7 * y);
      CHECK(is > 0);
      if (y >= 0.1) worst_v = std::max(worst_v, std::fabs(is - y));
    }
  }
  // Half of 0.9 / 64, and of 0.9 / 128; the bounds are reached.
  CHECK(worst_m <= 0.45 / 64 + 1e-6);
  CHECK(worst_v <= 0.45 / 128 + 1e-6);
  CHECK(worst_m > 0.4 / 64);
  CHECK(worst_v > 0.4 / 128);
}

TEST_CASE("updates with 8-bit moments have the same bits on every instruction set") {
  Random random(72);
  for (int64_t blocks : {1, 2, 3, 16, 150}) {
    const State s = wild(random, blocks);
    for (int32_t dtype : {0, int32_t{ENG_BF16}, int32_t{ENG_F16}}) {
      Settings set;
      check_everywhere(s, set, dtype);
      set.weight_decay = 0;
      check_everywhere(s, set, dtype);
      set.ok = 0;
      check_everywhere(s, set, dtype);
    }
    check_everywhere(s, store());
  }
}

TEST_CASE("many steps with 8-bit moments have the same bits on every instruction set", "[.slow]") {
  Random random(73);
  State s(400 * block);
  for (int step = 0; step < 30; ++step) {
    for (int64_t i = 0; i < s.grad.size(); ++i)
      s.grad.put(i, std::pow(10.0, -8.0 * double(random() % 1000000) / 1e6) * (random() % 2 ? 1 : -1));
    check_everywhere(s, {});
    Outputs out = update(plain(), s, {});
    s.p = out[0], s.m = out[1], s.m_scales = out[2], s.v = out[3], s.v_scales = out[4];
  }
}

TEST_CASE("elements may be cut at every block") {
  Random random(74);
  const State all = wild(random, 9);
  const Outputs want = update(plain(), all, {}, ENG_BF16);
  for (int64_t cut : {1, 4, 8}) {
    const auto part = [&](const Tensor& t, int64_t first, int64_t last) {  // in blocks
      const int64_t per = t.size() / 9;
      Tensor out(t.d.dtype, {(last - first) * per});
      const size_t bytes = dtype_size(t.d.dtype) * size_t(per);
      std::memcpy(out.memory.data(), t.memory.data() + size_t(first) * bytes, size_t(last - first) * bytes);
      return out;
    };
    for (const auto& [first, last] : {std::pair<int64_t, int64_t>(0, cut), {cut, 9}}) {
      State s(block);
      s.p = part(all.p, first, last), s.grad = part(all.grad, first, last), s.m = part(all.m, first, last);
      s.m_scales = part(all.m_scales, first, last), s.v = part(all.v, first, last);
      s.v_scales = part(all.v_scales, first, last);
      const Outputs got = update(Quick(nullptr, 2), s, {}, ENG_BF16);
      for (size_t k = 0; k < got.size(); ++k) CHECK(got[k].same_bits(part(want[k], first, last)));
    }
  }
}

TEST_CASE("a step that does not count leaves 8-bit moments, and writes the weight") {
  Random random(75);
  const State s = wild(random, 3);
  Settings set;
  set.ok = 0;
  const Outputs out = update(plain(), s, set, ENG_BF16);
  const Outputs want = {
      s.p,        s.m,
      s.m_scales, s.v,
      s.v_scales, reference().run(ENG_OP_CAST, {s.p}, {desc(ENG_BF16, {s.p.size()})}, {whole("dtype", ENG_BF16)})[0]};
  CHECK(same(out, want));
  set.ok = 1;
  const Outputs moved = update(plain(), s, set, ENG_BF16);
  CHECK(!moved[0].same_bits(s.p));
  CHECK(moved[5].same_bits(reference().run(ENG_OP_CAST, {moved[0]}, {want[5].d}, {whole("dtype", ENG_BF16)})[0]));
}

TEST_CASE("blocks whose moments are all zero or not finite") {
  State s(4 * block);
  Settings set;
  set.weight_decay = 0;
  Random random(76);
  s.grad = random_normal(random, ENG_F32, {4 * block});
  for (int64_t i = 0; i < block; ++i) s.grad.put(block + i, 0);  // block 1: all zero
  s.m_scales.put(2, NAN), s.v_scales.put(2, INFINITY);           // block 2: from a file, say
  s.grad.put(3 * block + 5, INFINITY);
  check_everywhere(s, set);
  check_everywhere(s, store());
  const Outputs out = update(plain(), s, set);
  CHECK(out[2].at(0) > 0);
  CHECK(out[4].at(0) > 0);
  CHECK(out[2].at(1) == 0);
  CHECK(out[4].at(1) == 0);
  for (int64_t i = 0; i < block; ++i) {
    CHECK(std::isfinite(out[0].at(i)));
    CHECK(out[0].at(block + i) == s.p.at(block + i));
    for (size_t k : {1, 3})
      for (int64_t b : {1, 2, 3}) CHECK(out[k].at(b * block + i) == 0);
  }
  for (size_t k : {2, 4})
    for (int64_t b : {2, 3}) CHECK(std::isnan(out[k].at(b)));
}

TEST_CASE("the kernels of 8-bit moments refuse what they cannot compute") {
  const Quick fast(nullptr, 1);
  for (const Device* d : {&plain(), static_cast<const Device*>(&fast)}) {
    State s(block);
    s.p = Tensor(ENG_F32, {300});
    CHECK_THROWS_WITH(update(*d, s, {}), Catch::Contains("must be a multiple of 256"));
    s = State(block);
    s.m = Tensor(ENG_F32, {block});
    CHECK_THROWS_WITH(update(*d, s, {}), Catch::Contains("codes must be u8"));
    s = State(block);
    s.v_scales = Tensor(ENG_F32, {2});
    CHECK_THROWS_WITH(update(*d, s, {}), Catch::Contains("one for every 256 elements"));
    CHECK_THROWS_WITH(update(*d, State(block), {}, ENG_F32), Catch::Contains("the weight must be bf16 or f16"));
  }
}

}  // namespace adamw8bit_test
