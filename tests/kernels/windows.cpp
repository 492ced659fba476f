// SPDX-License-Identifier: Apache-2.0
// Attention within a window and with capped scores: gradients against finite differences, the device cpu against the
// reference, packed documents against each alone, the next positions against the whole sequence.
#include "documents.hpp"
#include "engine/ops_attention.h"
#include "fast_half.hpp"
#include "gradient_case.hpp"

using namespace kernels_test;

namespace windows {
namespace {

using Outputs = Device::Outputs;

struct Heads {
  int64_t heads, kv_heads, width;
};

std::vector<eng_attr> attrs_of(const Heads& h, int64_t window, double cap) {
  return {whole("heads", h.heads), whole("kv_heads", h.kv_heads), real("scale", 0.4), whole("window", window),
          real("softcap", cap)};
}

// q, k, v and the gradient of o. Scores are large enough for a cap of 2 to matter.
std::vector<Tensor> inputs(const Heads& h, int64_t batch, int64_t tokens, int32_t dtype) {
  Random random{uint64_t(tokens)};
  const Dims wide = {batch, tokens, h.heads * h.width}, narrow = {batch, tokens, h.kv_heads * h.width};
  return {random_normal(random, dtype, wide), random_normal(random, dtype, narrow),
          random_normal(random, dtype, narrow), random_normal(random, dtype, wide)};
}

eng_desc lse_of(const Heads& h, const eng_desc& q) {
  return desc(q.dtype == ENG_F64 ? ENG_F64 : ENG_F32, {q.dims[0], h.heads, q.dims[1]});
}

// o, lse, dq, dk, dv. Without a window and a cap: by eng.attention/1.
Outputs attend(const Device& device, const Heads& h, const std::vector<Tensor>& x, const Tensor& segments,
               int64_t window, double cap, bool plain = false) {
  std::vector<eng_attr> attrs = attrs_of(h, window, cap);
  if (plain) attrs.resize(3);
  std::vector<Tensor> in = {x[0], x[1], x[2]};
  if (segments.d.dtype) in.push_back(segments);
  Outputs out = device.run(plain ? ENG_OP_ATTENTION : ENG_OP_ATTENTION_WINDOW, in, {x[0].d, lse_of(h, x[0].d)}, attrs);
  in = {x[3], x[0], x[1], x[2], out[0], out[1]};
  if (segments.d.dtype) in.push_back(segments);
  const char* const grad = plain ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION_WINDOW_GRAD;
  for (Tensor& t : device.run(grad, in, {x[0].d, x[1].d, x[2].d}, attrs)) out.push_back(t);
  return out;
}

std::vector<const Device*> devices_for(int32_t dtype) {
  std::vector<const Device*> all = {&reference()};
  for (const Fast& f : fast_devices())
    if (dtype != ENG_F64) all.push_back(f.device.get());
  return all;
}

}  // namespace

TEST_CASE("gradient of attention in a window, with a cap, within documents") {
  using namespace gradients;
  for (uint64_t round = 0; round < 8; ++round) {
    INFO("round " << round);
    Random random(900 + round);
    const Heads h = {2 * int64_t(round % 2 + 1), 2, pick(random, 1, 4)};
    const int64_t window = round % 4 == 3 ? 0 : pick(random, 2, 3);
    const double cap = round % 4 == 0 ? 0.0 : 1.5;
    const Documents d = {{{2, 5}}};
    const Tensor r = normal(random, {1, 7, h.heads * h.width}), segments = d.segments();
    const Dims key = {1, 7, h.kv_heads * h.width};
    const auto forward = [&](const Tensors& in) {
      return reference().run(ENG_OP_ATTENTION_WINDOW, {in[0], in[1], in[2], segments}, {r.d, lse_of(h, r.d)},
                             attrs_of(h, window, cap));
    };
    const auto backward = [&](const Tensors& in, int64_t within, double capped) {
      const Tensors out = forward(in);
      return reference().run(ENG_OP_ATTENTION_WINDOW_GRAD, {r, in[0], in[1], in[2], out[0], out[1], segments},
                             {in[0].d, in[1].d, in[2].d}, attrs_of(h, within, capped));
    };
    const GradientCase c = {{normal(random, dims_of(r)), normal(random, key), normal(random, key)},
                            [&](const Tensors& in) { return inner(r, forward(in)[0]); },
                            [&](const Tensors& in) { return backward(in, window, cap); }};
    check(c);
    // Planted faults: another window, another cap.
    CHECK(worst_error(c, backward(c.inputs, window ? window + 1 : 2, cap)) > tolerance);
    CHECK(worst_error(c, backward(c.inputs, window, cap != 0 ? 0.0 : 1.5)) > tolerance);
  }
}

TEST_CASE("a query sees itself and window - 1 keys before it") {
  const Heads h = {2, 1, 20};
  const int64_t tokens = 140, changed = 66;
  for (const int64_t window : {1, 2, 40, 70})
    for (const Device* device : devices_for(ENG_F32)) {
      INFO("window " << window);
      std::vector<Tensor> x = inputs(h, 1, tokens, ENG_F32);
      const Tensor before = attend(*device, h, x, {}, window, 0)[0];
      for (int64_t i = 0; i < h.width; ++i)
        for (const size_t k : {1, 2}) x[k].put(changed * h.width + i, 3 - x[k].at(changed * h.width + i));
      const Tensor after = attend(*device, h, x, {}, window, 0)[0];
      const auto same_rows = [&](int64_t first, int64_t n) {
        return part(before, 0, first, n).same_bits(part(after, 0, first, n));
      };
      CHECK(same_rows(0, changed));
      CHECK(same_rows(changed + window, tokens - changed - window));
      for (int64_t t = changed; t < changed + window; ++t) CHECK_FALSE(same_rows(t, 1));
    }
}

TEST_CASE("a window that holds all keys, and no cap, give the bits of plain attention") {
  const Heads h = {4, 2, 20};
  for (const int32_t dtype : {ENG_F64, ENG_F32, ENG_BF16})
    for (const int64_t tokens : {1, 65, 130}) {
      const std::vector<Tensor> x = inputs(h, 2, tokens, dtype);
      for (const Device* device : devices_for(dtype)) {
        INFO("T " << tokens << ", type " << dtype);
        const Outputs plain = attend(*device, h, x, {}, 0, 0, true);
        CHECK(same(attend(*device, h, x, {}, 0, 0), plain));
        CHECK(same(attend(*device, h, x, {}, tokens, 0), plain));
        if (tokens > 1) CHECK_FALSE(same(attend(*device, h, x, {}, tokens - 1, 0), plain));
        CHECK_FALSE(same(attend(*device, h, x, {}, 0, 2), plain));
      }
    }
}

TEST_CASE("fast attention in a window and with a cap is that of the reference, with any number of threads") {
  for (const Heads& h : {Heads{2, 1, 20}, Heads{3, 3, 8}})
    for (const auto& [tokens, window, cap] : std::vector<std::tuple<int64_t, int64_t, double>>{
             {5, 2, 0}, {64, 2, 0}, {65, 64, 2}, {130, 3, 2}, {130, 65, 0}, {200, 64, 2}, {200, 100, 0}, {129, 0, 2}})
      for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16}) {
        INFO("T " << tokens << ", window " << window << ", cap " << cap << ", D " << h.width << ", type " << dtype);
        const std::vector<Tensor> x = inputs(h, 2, tokens, dtype);
        const Outputs want = attend(reference(), h, x, {}, window, cap);
        const std::vector<eng_attr> attrs = attrs_of(h, window, cap);
        const Case forward = {ENG_OP_ATTENTION_WINDOW, {x[0], x[1], x[2]}, {want[0].d, want[1].d}, attrs, {}};
        const Case backward = {ENG_OP_ATTENTION_WINDOW_GRAD,
                               {x[3], x[0], x[1], x[2], want[0], want[1]},
                               {want[2].d, want[3].d, want[4].d},
                               attrs,
                               {}};
        if (dtype == ENG_F32) {
          check_close(forward, 5e-6), check_close(backward, 1e-5);
          // Planted fault: one key too many.
          Outputs wrong = attend(*fast_devices()[0].device, h, x, {}, window ? window + 1 : 64, cap);
          for (const size_t k : {0, 2, 3, 4}) CHECK(error_of(wrong[k], want[k]) > 1e-4);
        } else {
          check_half(forward, 2e-5), check_half(backward, 2e-5);
        }
      }
}

TEST_CASE("attention in a window of a document in a packed sample is that of the document alone") {
  const Heads h = {2, 1, 20};
  for (const int32_t dtype : {ENG_F32, ENG_BF16})
    for (const Documents& d : packed_samples())
      for (const Device* device : devices_for(dtype)) {
        INFO("T " << d.tokens());
        const std::vector<Tensor> x = inputs(h, d.batch(), d.tokens(), dtype);
        const Outputs all = attend(*device, h, x, d.segments(), 2, 2.0);
        d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
          std::vector<Tensor> own;
          for (const Tensor& t : x) own.push_back(part(t, b, first, n));
          const Outputs alone = attend(*device, h, own, {}, 2, 2.0);
          for (size_t k = 0; k < all.size(); ++k) CHECK(alone[k].same_bits(part(all[k], b, first, n, k == 1)));
        });
      }
}

TEST_CASE("attention of the next positions in a window is that of the whole sequence") {
  const Heads h = {6, 2, 17};
  const int64_t tokens = 19, rows = 24;
  for (const auto& [window, cap] : {std::pair<int64_t, double>{3, 0}, {1, 2}, {7, 2}, {0, 2}, {30, 0}})
    for (const int32_t dtype : {ENG_F64, ENG_F32}) {
      INFO("window " << window << ", cap " << cap << ", type " << dtype);
      const std::vector<Tensor> x = inputs(h, 2, tokens, dtype);
      const Tensor all = attend(reference(), h, x, {}, window, cap)[0];
      const auto both = [&](size_t k, int64_t first, int64_t n) {  // of both sequences
        Tensor out(dtype, {2, n, x[k].d.dims[2]});
        for (int64_t b = 0; b < 2; ++b) {
          const Tensor one = part(x[k], b, first, n);
          for (int64_t i = 0; i < one.size(); ++i) out.put(b * one.size() + i, one.at(i));
        }
        return out;
      };
      // Positions that were not written are never read: they are NaN.
      Tensor keys(desc(dtype, {2, rows, h.kv_heads * h.width}), 0xFF), values = keys;
      int64_t at = 0;
      for (const int64_t n : {1, 5, 1, 9, 2, 1}) {
        Tensor counters(ENG_I64, {ENG_C_COUNT});
        counters.put(ENG_C_POSITION, double(at));
        const Case c = {ENG_OP_ATTENTION_WINDOW_STEP,
                        {both(0, at, n), both(1, at, n), both(2, at, n), keys, values, counters},
                        {desc(dtype, {2, n, h.heads * h.width}), keys.d, values.d},
                        attrs_of(h, window, cap),
                        {{1, 3}, {2, 4}}};
        const Outputs out = reference().run(c.op, c.in, c.out, c.attrs, c.in_place);
        for (int64_t b = 0; b < 2; ++b)
          CHECK(error_of(part(out[0], b, 0, n), part(all, b, at, n)) < (dtype == ENG_F64 ? 1e-14 : 1e-6));
        for (const Fast& f : fast_devices()) {
          if (dtype == ENG_F64) break;
          const Outputs got = f.device->run(c.op, c.in, c.out, c.attrs, c.in_place);
          CHECK(error_of(got[0], out[0]) < 3e-6);
          CHECK((got[1].same_bits(out[1]) && got[2].same_bits(out[2])));
        }
        keys = out[1], values = out[2];
        at += n;
      }
    }
}

TEST_CASE("a window or a cap below 0 is refused") {
  const Heads h = {1, 1, 4};
  const std::vector<Tensor> x = inputs(h, 1, 3, ENG_F32);
  for (const Device* device : devices_for(ENG_F32)) {
    CHECK_THROWS_WITH(attend(*device, h, x, {}, -1, 0), Catch::Contains("window must be at least 0"));
    for (const double cap : {-1.0, double(INFINITY), std::nan("")})
      CHECK_THROWS_WITH(attend(*device, h, x, {}, 0, cap), Catch::Contains("softcap must be at least 0, and finite"));
  }
}

}  // namespace windows
