// SPDX-License-Identifier: Apache-2.0
// Attention of the cpu device and its gradient against plain loops in double.
#include <catch2/catch.hpp>

#include "fast_device.hpp"

using fast::Device;
using fast::error_of;
using fast::random_tensor;
using fast::Run;
using fast::Tensor;

namespace fast_attention {
namespace {

struct Case {
  int64_t batch, tokens, heads, kv_heads, width;
  double scale;
};

struct Plain {
  std::vector<double> o, lse, dq, dk, dv;
};

// fault: the scale of the scores is wrong by this factor (a planted mistake when not 1).
Plain plain_attention(const Case& c, const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& grad,
                      double fault = 1.0) {
  Plain r;
  r.o.assign(static_cast<size_t>(q.count), 0), r.dq = r.o;
  r.dk.assign(static_cast<size_t>(k.count), 0), r.dv = r.dk;
  r.lse.assign(static_cast<size_t>(c.batch * c.heads * c.tokens), 0);
  const double scale = c.scale * fault;
  for (int64_t b = 0; b < c.batch; ++b)
    for (int64_t h = 0; h < c.heads; ++h)
      for (int64_t t = 0; t < c.tokens; ++t) {
        const int64_t kv = h / (c.heads / c.kv_heads);
        const auto q_at = [&](int64_t d) { return ((b * c.tokens + t) * c.heads + h) * c.width + d; };
        const auto k_at = [&](int64_t j, int64_t d) { return ((b * c.tokens + j) * c.kv_heads + kv) * c.width + d; };
        std::vector<double> p(static_cast<size_t>(t + 1)), dp = p;
        double top = -INFINITY, sum = 0, mean = 0;
        for (int64_t j = 0; j <= t; ++j) {
          double& s = p[static_cast<size_t>(j)];
          for (int64_t d = 0; d < c.width; ++d) s += double(q[q_at(d)]) * k[k_at(j, d)];
          s *= scale, top = std::max(top, s);
        }
        for (double& s : p) s = std::exp(s - top), sum += s;
        r.lse[static_cast<size_t>((b * c.heads + h) * c.tokens + t)] = top + std::log(sum);
        for (int64_t j = 0; j <= t; ++j) {
          p[static_cast<size_t>(j)] /= sum;
          for (int64_t d = 0; d < c.width; ++d) {
            r.o[static_cast<size_t>(q_at(d))] += p[static_cast<size_t>(j)] * v[k_at(j, d)];
            dp[static_cast<size_t>(j)] += double(grad[q_at(d)]) * v[k_at(j, d)];
          }
          mean += p[static_cast<size_t>(j)] * dp[static_cast<size_t>(j)];
        }
        for (int64_t j = 0; j <= t; ++j) {
          const double prob = p[static_cast<size_t>(j)], ds = prob * (dp[static_cast<size_t>(j)] - mean) * scale;
          for (int64_t d = 0; d < c.width; ++d) {
            r.dq[static_cast<size_t>(q_at(d))] += ds * k[k_at(j, d)];
            r.dk[static_cast<size_t>(k_at(j, d))] += ds * q[q_at(d)];
            r.dv[static_cast<size_t>(k_at(j, d))] += prob * grad[q_at(d)];
          }
        }
      }
  return r;
}

std::vector<std::string> sets() {
  std::vector<std::string> found;
  for (const char* isa : {"avx512", "avx2", "portable"})
    if (fast::isa_present(isa)) found.push_back(isa);
  return found;
}

struct Outputs {
  Tensor o, lse, dq, dk, dv;
};

Outputs run_attention(const std::string& isa, uint32_t threads, const Case& c, const Tensor& q, const Tensor& k,
                      const Tensor& v, const Tensor& grad) {
  const Device device(threads, isa);
  const std::vector<eng_attr> attrs = {{"heads", c.heads, 0}, {"kv_heads", c.kv_heads, 0}, {"scale", 0, c.scale}};
  const std::vector<int64_t> wide = {c.batch, c.tokens, c.heads * c.width},
                             kv = {c.batch, c.tokens, c.kv_heads * c.width};
  Outputs r{Tensor(wide), Tensor({c.batch, c.heads, c.tokens}), Tensor(wide), Tensor(kv), Tensor(kv)};
  Run forward(device, threads, ENG_OP_ATTENTION, {q, k, v}, {r.o, r.lse}, attrs);
  Run backward(device, threads, ENG_OP_ATTENTION_GRAD, {grad, q, k, v, r.o, r.lse}, {r.dq, r.dk, r.dv}, attrs);
  for (int round = 0; round < 2; ++round) {  // the second round starts from used scratch
    forward.launch(), backward.launch();
    REQUIRE(forward.guards_intact());
    REQUIRE(backward.guards_intact());
    if (round == 0) {
      const Tensor o = r.o.clone(), dq = r.dq.clone(), dk = r.dk.clone(), dv = r.dv.clone();
      forward.launch(), backward.launch();
      REQUIRE((r.o.same_bits(o) && r.dq.same_bits(dq) && r.dk.same_bits(dk) && r.dv.same_bits(dv)));
    }
  }
  return r;
}

const std::vector<Case> cases = {{1, 1, 1, 1, 1, 1.0},     {2, 5, 3, 1, 7, 0.4},    {1, 64, 2, 2, 16, 0.25},
                                 {2, 65, 4, 2, 64, 0.125}, {1, 130, 6, 3, 20, 0.2}, {1, 200, 2, 1, 128, 0.09},
                                 {1, 70, 1, 1, 256, 0.06}, {3, 63, 2, 2, 33, 0.2},  {1, 129, 8, 1, 48, 0.15}};

}  // namespace

TEST_CASE("attention and its gradient agree with plain loops", "[cpu]") {
  for (const auto& isa : sets())
    for (const Case& c : cases) {
      const Tensor q = random_tensor({c.batch, c.tokens, c.heads * c.width}, 1);
      const Tensor k = random_tensor({c.batch, c.tokens, c.kv_heads * c.width}, 2);
      const Tensor v = random_tensor({c.batch, c.tokens, c.kv_heads * c.width}, 3);
      const Tensor grad = random_tensor({c.batch, c.tokens, c.heads * c.width}, 4);
      INFO(isa << " B " << c.batch << " T " << c.tokens << " heads " << c.heads << " kv " << c.kv_heads << " D "
               << c.width);
      const Plain want = plain_attention(c, q, k, v, grad);
      const Outputs got = run_attention(isa, 2, c, q, k, v, grad);
      CHECK(error_of(got.o, want.o) < 2e-6);
      CHECK(error_of(got.lse, want.lse) < 1e-6);
      CHECK(error_of(got.dv, want.dv) < 3e-6);
      if (c.tokens > 1) {  // of one token the exact gradient is zero
        CHECK(error_of(got.dq, want.dq) < 3e-6);
        CHECK(error_of(got.dk, want.dk) < 3e-6);
        // A scale off by 1 % would be seen.
        const Plain wrong = plain_attention(c, q, k, v, grad, 1.01);
        CHECK(error_of(got.o, wrong.o) > 1e-4);
        CHECK(error_of(got.dq, wrong.dq) > 1e-4);
      }
      // The bits are the same for any number of threads.
      for (const uint32_t threads : {1U, 3U, 8U}) {
        const Outputs other = run_attention(isa, threads, c, q, k, v, grad);
        CHECK((got.o.same_bits(other.o) && got.lse.same_bits(other.lse)));
        CHECK((got.dq.same_bits(other.dq) && got.dk.same_bits(other.dk) && got.dv.same_bits(other.dv)));
      }
    }
}

TEST_CASE("attention survives large scores and takes no value from the future", "[cpu]") {
  const Case c{1, 100, 2, 1, 32, 1.0};
  for (const auto& isa : sets()) {
    Tensor q = random_tensor({1, 100, 64}, 1, 20.0f), k = random_tensor({1, 100, 32}, 2, 20.0f);
    Tensor v = random_tensor({1, 100, 32}, 3);
    const Tensor grad = random_tensor({1, 100, 64}, 4);
    const Outputs before = run_attention(isa, 2, c, q, k, v, grad);
    CHECK(error_of(before.o, plain_attention(c, q, k, v, grad).o) < 1e-3);  // scores near 1e4 keep few digits
    for (int64_t i = 80 * 32; i < 100 * 32; ++i) k[i] = 1e4f, v[i] = 1e4f;
    const Outputs after = run_attention(isa, 2, c, q, k, v, grad);
    CHECK(std::memcmp(before.o.data(), after.o.data(), 80 * 64 * 4) == 0);
    CHECK(std::memcmp(before.o.data() + 80 * 64, after.o.data() + 80 * 64, 20 * 64 * 4) != 0);
  }
}

TEST_CASE("attention refuses heads that do not divide", "[cpu]") {
  const Device device(1);
  const std::vector<eng_attr> attrs = {{"heads", 3, 0}, {"kv_heads", 2, 0}, {"scale", 0, 1.0}};
  REQUIRE_THROWS_WITH(Run(device, 1, ENG_OP_ATTENTION, {Tensor({1, 4, 12}), Tensor({1, 4, 8}), Tensor({1, 4, 8})},
                          {Tensor({1, 4, 12}), Tensor({1, 3, 4})}, attrs),
                      Catch::Contains("3 heads cannot share 2 key heads"));
}

}  // namespace fast_attention
