// SPDX-License-Identifier: Apache-2.0
// Attention in a window and with capped scores, attention of f32 in tiles, and capped logits.
#include "engine/ops_attention.h"
#include "engine/ops_softcap.h"
#include "packed.hpp"

namespace windows_on_cuda {

using namespace cuda_test;

namespace {

struct Sizes {
  int64_t batch, length, heads, kv, size;
  int64_t window = 0;
  double cap = 0;
};
struct Case {
  Use forward, backward;
  std::vector<Use> both() const { return {forward, backward}; }
};

std::vector<eng_attr> attrs_of(const Sizes& s) {
  return {whole("heads", s.heads), whole("kv_heads", s.kv), real("scale", 1 / std::sqrt(double(s.size))),
          whole("window", s.window), real("softcap", s.cap)};
}
// o and lse of the gradient are the reference's. Scores are large enough for a cap of 3 to matter.
Case case_of(uint64_t seed, int32_t type, const Sizes& s, const Tensor& segments = {}) {
  Random random(seed);
  const std::vector<eng_attr> attrs = attrs_of(s);
  const Dims wide = {s.batch, s.length, s.heads * s.size}, narrow = {s.batch, s.length, s.kv * s.size};
  const Tensor q = random_normal(random, type, wide, 2), k = random_normal(random, type, narrow, 2),
               v = random_normal(random, type, narrow), grad = random_normal(random, type, wide);
  const bool plain = s.window == 0 && s.cap == 0;
  Case c;
  c.forward = {plain ? ENG_OP_ATTENTION : ENG_OP_ATTENTION_WINDOW,
               {q, k, v},
               {q.d, desc(ENG_F32, {s.batch, s.heads, s.length})},
               attrs};
  if (segments.d.dtype) c.forward.in.push_back(segments);
  const Device::Outputs o = c.forward.wanted();
  c.backward = {plain ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION_WINDOW_GRAD,
                {grad, q, k, v, o[0], o[1]},
                {q.d, k.d, v.d},
                attrs};
  if (segments.d.dtype) c.backward.in.push_back(segments);
  return c;
}
double apart(int32_t type) {
  return type == ENG_F32 ? 5e-6 : type == ENG_BF16 ? 5e-3 : 7e-4;
}
void check(uint64_t seed, int32_t type, const Sizes& s, const Tensor& segments = {}) {
  INFO("(" << s.batch << ", " << s.length << "), " << s.heads << " heads of " << s.size << ", " << s.kv
           << " for keys, window " << s.window << ", cap " << s.cap << ", type " << type);
  const Case c = case_of(seed, type, s, segments);
  check_close(c.forward, apart(type));
  check_close(c.backward, 2 * apart(type));
}

}  // namespace

TEST_CASE("emulated cuda: attention in a window and with capped scores") {
  check(1, ENG_BF16, {1, 140, 2, 1, 32, 40});
  check(2, ENG_F16, {2, 70, 2, 2, 16, 1, 3});
  check(3, ENG_BF16, {1, 33, 2, 1, 64, 0, 3});
  check(4, ENG_F32, {1, 140, 2, 1, 32, 40});
  check(5, ENG_F32, {2, 20, 2, 1, 6, 7});  // plain threads
  check(6, ENG_BF16, {1, 33, 2, 2, 20, 9});
  for (const int32_t type : {ENG_F32, ENG_BF16})
    check(7, type, {2, 70, 2, 1, 16, 12, type == ENG_F32 ? 0.0 : 3.0}, pack({{1, 1, 62, 5, 1}, {33, 37}}).segments);
  check(8, ENG_F32, {1, 21, 2, 1, 8, 3, 3}, pack({{1, 13, 7}}).segments);
  // Planted faults: a key too many, another cap.
  for (const Sizes& other : {Sizes{1, 33, 2, 1, 16, 10, 3}, Sizes{1, 33, 2, 1, 16, 9, 3.3}})
    for (Use& use : case_of(9, ENG_BF16, {1, 33, 2, 1, 16, 9, 3}).both()) {
      const Device::Outputs want = use.wanted();
      use.attrs = attrs_of(other);
      const Device::Outputs got = use.on->run(use.op, use.in, use.out, use.attrs);
      for (size_t k = 0; k < got.size(); ++k) CHECK(error_of(got[k], want[k]) > 0.02);
    }
}

TEST_CASE("emulated cuda: attention in a window and with capped scores, heads of all sizes", "[.slow]") {
  uint64_t seed = 20;
  for (const int64_t size : {16, 64, 96, 128, 256})
    for (const int32_t type : {ENG_BF16, ENG_F16, ENG_F32})
      for (const double cap : {0.0, 3.0}) {
        if (type == ENG_F32 && size > 128) continue;
        const int64_t length = type == ENG_BF16 ? 141 : 67;
        check(++seed, type, {1, length, 2, 1, size, length / 3, cap});
      }
}

TEST_CASE("emulated cuda: attention of f32 in tiles") {
  check(10, ENG_F32, {2, 1, 2, 1, 16});
  check(11, ENG_F32, {1, 37, 4, 2, 36});
  check(12, ENG_F32, {1, 66, 1, 1, 128});
  check(13, ENG_F32, {1, 131, 1, 1, 64});
}

TEST_CASE("emulated cuda: attention of f32 in tiles, odd lengths and shared heads", "[.slow]") {
  uint64_t seed = 40;
  for (const int64_t length : {9, 63, 64, 65, 128, 200})
    for (const int64_t group : {1, 3})
      for (const int64_t size : {20, 32, 64, 96, 128}) check(++seed, ENG_F32, {1, length, group, 1, size});
}

TEST_CASE("emulated cuda: attention in a window that holds all keys has the bits of attention", "[own]") {
  for (const int32_t type : {ENG_F32, ENG_BF16}) {
    const Case plain = case_of(30, type, {1, 75, 2, 1, 32}), all = case_of(30, type, {1, 75, 2, 1, 32, 75});
    check_as_plain(all.forward, plain.forward), check_as_plain(all.backward, plain.backward);
    const Case less = case_of(30, type, {1, 75, 2, 1, 32, 74});
    CHECK_FALSE(outputs(less.forward)[0].same_bits(outputs(plain.forward)[0]));
  }
}

// A tile that was read would bring NaN, for 0 times NaN is NaN.
TEST_CASE("emulated cuda: tiles outside of the window are skipped by attention") {
  for (const int32_t type : {ENG_BF16, ENG_F32}) {
    const int64_t length = 256, size = 32;
    Case c = case_of(31, type, {1, length, 1, 1, size, 16});
    const auto lose = [&](Use& use, const std::vector<size_t>& inputs, int64_t first, int64_t end) {
      for (const size_t k : inputs) {
        const int64_t each = use.in[k].size() / length;
        for (int64_t i = first * each; i < end * each; ++i) use.in[k].put(i, std::nan(""));
      }
    };
    const auto nans = [&](const Tensor& t, int64_t first, int64_t end) {
      const int64_t each = t.size() / length;
      int64_t found = 0;
      for (int64_t i = first * each; i < end * each; ++i) found += std::isnan(t.at(i));
      return found;
    };
    INFO("type " << type);
    Use queries = c.backward, keys = c.backward;
    lose(c.forward, {1, 2}, 0, 64), lose(queries, {2, 3}, 0, 64), lose(keys, {0, 1, 4, 5}, 192, length);
    const Device::Outputs o = outputs(c.forward);
    CHECK(nans(o[0], 128, length) + nans(o[1], 128, length) == 0);
    CHECK(nans(o[0], 0, 64) > 0);
    CHECK(nans(outputs(queries)[0], 128, length) == 0);
    const Device::Outputs d = outputs(keys);
    CHECK(nans(d[1], 0, 128) + nans(d[2], 0, 128) == 0);
    CHECK(nans(d[1], 192, length) > 0);
  }
}

TEST_CASE("emulated cuda: attention of the next positions in a window and with capped scores") {
  Random random(32);
  for (const auto& [rows, at, window, cap] :
       std::vector<std::tuple<int64_t, int64_t, int64_t, double>>{{12, 4, 3, 0}, {12, 4, 0, 3}, {7000, 6500, 90, 3}})
    for (const int32_t type : {ENG_F32, ENG_BF16}) {
      const Sizes s{1, 3, 2, 1, 8, window, cap};
      INFO("window " << window << ", cap " << cap << ", type " << type);
      const Tensor q = random_normal(random, type, {1, 3, 16}, 2), k = random_normal(random, type, {1, 3, 8}, 2),
                   v = random_normal(random, type, {1, 3, 8}), keys = random_normal(random, type, {1, rows, 8}, 2),
                   values = random_normal(random, type, {1, rows, 8});
      Tensor count = counters(0, 0, 0);
      count.as<int64_t>()[ENG_C_POSITION] = at;
      check_close({ENG_OP_ATTENTION_WINDOW_STEP,
                   {q, k, v, keys, values, count},
                   {q.d, keys.d, values.d},
                   attrs_of(s),
                   {{1, 3}, {2, 4}}},
                  apart(type));
    }
}

TEST_CASE("emulated cuda: a window or a cap below 0 is refused by attention, and where bounds lie is planned") {
  Case c = case_of(33, ENG_BF16, {1, 9, 2, 1, 16, 4, 3});
  const auto with = [&](int64_t window, double cap) {
    Use use = c.forward;
    use.attrs[3] = whole("window", window), use.attrs[4] = real("softcap", cap);
    return use;
  };
  CHECK_THROWS_WITH(outputs(with(-1, 0)), Catch::Contains("window must be at least 0"));
  for (const double cap : {-1.0, double(INFINITY), std::nan("")})
    CHECK_THROWS_WITH(outputs(with(0, cap)), Catch::Contains("softcap must be at least 0, and finite"));
  const auto scratch = [&](bool backward, int64_t window, double cap) {
    const eng_desc x = desc(ENG_BF16, {8, 2048, 32 * 64}), lse = desc(ENG_F32, {8, 32, 2048});
    const std::vector<eng_desc> in(5, x), grads(3, x), results{x, lse};
    std::vector<eng_desc> given(in.begin(), in.begin() + (backward ? 5 : 3));
    if (backward) given.push_back(lse);
    const std::vector<eng_attr> attrs = attrs_of({8, 2048, 32, 32, 64, window, cap});
    const std::vector<eng_desc>& out = backward ? grads : results;
    eng_call call{};
    call.struct_size = sizeof call, call.parallel = 1, call.device = &emulated().info;
    call.in = given.data(), call.out = out.data(), call.attrs = attrs.data();
    call.n_in = uint32_t(given.size()), call.n_out = uint32_t(out.size()), call.n_attrs = uint32_t(attrs.size());
    uint64_t bytes = 0;
    Sink sink;
    const char* const op = backward ? ENG_OP_ATTENTION_WINDOW_GRAD : ENG_OP_ATTENTION_WINDOW;
    sink.check(emulated().find(op)->workspace(&call, &bytes, sink.get()));
    return bytes;
  };
  const uint64_t rows = 8 * 2048, deltas = rows * 32 * 4;
  for (const auto& [window, cap] : {std::pair<int64_t, double>{512, 0}, {0, 3}, {512, 3}}) {
    CHECK(scratch(false, window, cap) == rows * 4);
    CHECK(scratch(true, window, cap) == deltas + rows * 8);
  }
  CHECK(scratch(false, 2048, 0) == 0);
  CHECK(scratch(true, 2048, 0) == deltas);
}

TEST_CASE("emulated cuda: the loss of capped logits and its gradient") {
  Random random(34);
  for (const int32_t type : {ENG_F32, ENG_BF16}) {
    // Rows of w behind the vocabulary, whose last vector is not whole.
    const Tensor x = random_normal(random, type, {1, 3, 12}, 2), w = random_normal(random, type, {24, 12});
    Tensor labels = random_ints(random, {1, 3}, 0, 17), scalars(ENG_F32, {ENG_S_COUNT});
    labels.put(1, -100), scalars.put(ENG_S_INV_TOKENS, 1.0 / 6), scalars.put(ENG_S_LOSS_SCALE, 4);
    const Tensor acc = random_normal(random, ENG_F32, {24, 12}), weights = random_normal(random, ENG_F32, {1, 3});
    const eng_desc loss = desc(ENG_F32, {1});
    const double most = type == ENG_F32 ? 5e-6 : 1.5e-2;
    const std::vector<eng_attr> attrs = {real("softcap", 2.5), real("z_loss", 0.25), whole("vocabulary", 18)};
    check_close({ENG_OP_CAPPED_CROSS_ENTROPY, {x, w, labels, weights}, {loss, loss}, attrs}, 1e-5);
    check_close({ENG_OP_CAPPED_CROSS_ENTROPY_GRAD,
                 {x, w, labels, scalars, acc, weights},
                 {loss, x.d, acc.d, loss},
                 attrs,
                 {{2, 4}}},
                most);
    check_close({ENG_OP_CAPPED_CROSS_ENTROPY_GRAD,
                 {x, w, labels, scalars},
                 {loss, x.d},
                 {real("softcap", 2.5), whole("no_dw", 1)}},
                most);
  }
  const Tensor x = random_normal(random, ENG_F32, {5, 33}, 60);
  check_close({ENG_OP_SOFTCAP, {x}, {x.d}, {real("softcap", 30)}, {{0, 0}}}, 1e-6);
  CHECK_THROWS_WITH(outputs({ENG_OP_SOFTCAP, {x}, {x.d}, {real("softcap", 0)}}), Catch::Contains("must be above 0"));
}

}  // namespace windows_on_cuda
