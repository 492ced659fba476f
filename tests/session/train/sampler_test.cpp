// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cmath>
#include <map>

#include "session/text/sampler.hpp"
#include "session/text/text_stream.hpp"

using namespace eng;

namespace {

const std::vector<float> logits = {1.0f, 3.0f, -2.0f, 3.0f, 2.0f, 0.0f};

std::map<int32_t, int> counts(const Sampling& sampling, int n) {
  Sampler sampler(sampling);
  std::map<int32_t, int> out;
  for (int k = 0; k < n; ++k) ++out[sampler.next(logits, static_cast<uint64_t>(k))];
  return out;
}

}  // namespace

TEST_CASE("temperature 0 takes the most likely token, of equals the first") {
  CHECK(counts({0.0, 0, 1.0, 7}, 50) == std::map<int32_t, int>{{1, 50}});
}

TEST_CASE("top_k and top_p cut where they say") {
  CHECK(counts({1.0, 1, 1.0, 7}, 50) == std::map<int32_t, int>{{1, 50}});
  CHECK(counts({1.0, 3, 1.0, 7}, 2000).size() == 3);
  CHECK(counts({1.0, 0, 1.0, 7}, 5000).size() == 6);
  // The two most likely tokens have 0.39 each of all, 0.50 each of what top_k = 2 leaves.
  CHECK(counts({1.0, 0, 0.39, 7}, 200).size() == 1);
  CHECK(counts({1.0, 0, 0.41, 7}, 200).size() == 2);
  CHECK(counts({1.0, 2, 0.49, 7}, 200).size() == 1);
  CHECK(counts({1.0, 0, 1e-9, 7}, 200).size() == 1);
}

TEST_CASE("tokens come as often as softmax says") {
  for (const double temperature : {0.5, 1.0, 2.0}) {
    constexpr int n = 40000;
    auto seen = counts({temperature, 0, 1.0, 3}, n);
    double all = 0;
    for (const float x : logits) all += std::exp(x / temperature);
    for (size_t k = 0; k < logits.size(); ++k) {
      const double p = std::exp(logits[k] / temperature) / all;
      CHECK(std::abs(seen[static_cast<int32_t>(k)] - n * p) < 5 * std::sqrt(n * p * (1 - p)) + 1);
    }
  }
}

TEST_CASE("same seed, same tokens; another seed, others") {
  auto series = [](uint64_t seed) {
    Sampler sampler({1.0, 0, 1.0, seed});
    std::vector<int32_t> out;
    for (uint64_t k = 0; k < 64; ++k) out.push_back(sampler.next(logits, k));
    return out;
  };
  CHECK(series(5) == series(5));
  CHECK(series(5) != series(6));
  // A token depends only on its position, not on how many were drawn before.
  CHECK(Sampler({1.0, 0, 1.0, 5}).next(logits, 40) == series(5)[40]);
}

TEST_CASE("numbers are even in (0, 1)") {
  double sum = 0, squares = 0;
  constexpr int n = 100000;
  for (int k = 0; k < n; ++k) {
    const double x = uniform(11, static_cast<uint64_t>(k));
    REQUIRE((x > 0 && x < 1));
    sum += x, squares += x * x;
  }
  CHECK(sum / n == Approx(0.5).margin(0.005));
  CHECK(squares / n == Approx(1.0 / 3).margin(0.005));
}

TEST_CASE("only the start of a character is held back until the rest arrives") {
  CHECK(complete("") == 0);
  CHECK(complete("abc") == 3);
  CHECK(complete("a\xc3") == 1);
  CHECK(complete("a\xc3\xa4") == 3);
  CHECK(complete("\xe2\x82") == 0);
  CHECK(complete("\xe2\x82\xac") == 3);
  CHECK(complete("x\xf0\x9f\x98") == 1);
  CHECK(complete("x\xf0\x9f\x98\x80") == 5);
  CHECK(complete("\x80\x80\x80\x80") == 4);  // no beginning in sight
  CHECK(complete("a\xff") == 2);
}
