// SPDX-License-Identifier: Apache-2.0
// The order of an epoch: a permutation, fixed by seed, epoch and split.
#include <catch2/catch.hpp>
#include <cmath>
#include <vector>

#include "harness.hpp"

using namespace data_test;

namespace {

// A source of `n` training windows of one token, and the window at each position.
Source one_token_windows(const Folder& folder, std::size_t n, uint64_t seed = 1) {
  folder.write("a.txt", pairs(n + 1));
  return Source(folder, {.paths = {"a.txt"},
                         .strings = {{"format", "bytes"}},
                         .numbers = {{"validation", 0}},
                         .seed = seed,
                         .length = 1});
}

uint64_t window_at(Source& source, uint64_t position) {
  const Sample& sample = source.read(0, position);
  return place(sample.tokens[0], sample.labels[0]);
}

bool is_permutation_of_n(const std::vector<uint64_t>& order) {
  std::vector<bool> seen(order.size());
  for (uint64_t i : order) {
    if (i >= order.size() || seen[i]) return false;
    seen[i] = true;
  }
  return true;
}

// The largest of the squared distances from uniform, in units where 1 is expected on average.
double chi_squared(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum / double(counts.size() - 1);
}

}  // namespace

TEST_CASE("each epoch of 1 to 2000 windows visits every window once", "[.slow]") {
  Folder folder;
  for (std::size_t n = 1; n <= 2000; ++n) {
    Source source = one_token_windows(folder, n);
    REQUIRE(source.samples(0) == n);
    for (uint64_t epoch = 0; epoch < (n <= 200 ? 3u : 1u); ++epoch) {
      std::vector<uint64_t> order(n);
      for (uint64_t i = 0; i < n; ++i) order[i] = window_at(source, epoch * n + i);
      if (!is_permutation_of_n(order)) FAIL("not a permutation of " << n);
    }
  }
  CHECK_FALSE(is_permutation_of_n({0, 2, 2}));
}

TEST_CASE("order depends on seed and epoch and on nothing else") {
  Folder folder;
  auto order = [&](uint64_t seed, uint64_t epoch) {
    Source source = one_token_windows(folder, 500, seed);
    std::vector<uint64_t> result(500);
    // Backwards, since a sample does not depend on what was read before.
    for (uint64_t i = 500; i-- > 0;) result[i] = window_at(source, epoch * 500 + i);
    return result;
  };
  auto same = [](const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
    int count = 0;
    for (std::size_t i = 0; i < a.size(); ++i) count += a[i] == b[i];
    return count;
  };
  const auto base = order(1, 0);
  CHECK(order(1, 0) == base);
  // Two unrelated permutations agree in one place on average.
  for (uint64_t seed : {uint64_t{0}, uint64_t{2}, uint64_t{3}, uint64_t{1} << 63, ~uint64_t{0}}) {
    CHECK(same(base, order(seed, 0)) < 8);
  }
  for (uint64_t epoch : {1u, 2u, 3u, 1000000u}) CHECK(same(base, order(1, epoch)) < 8);
  CHECK(same(order(2, 1), order(1, 2)) < 8);
  std::vector<uint64_t> identity(500);
  for (uint64_t i = 0; i < 500; ++i) identity[i] = i;
  CHECK(same(base, identity) < 8);
}

TEST_CASE("order is the same on every machine and in every version") {
  Folder folder;
  Source source = one_token_windows(folder, 1000, 42);
  std::vector<uint64_t> order;
  for (uint64_t i = 0; i < 6; ++i) order.push_back(window_at(source, i));
  for (uint64_t i = 0; i < 2; ++i) order.push_back(window_at(source, 123456789 + i));
  CHECK(order == std::vector<uint64_t>{351, 232, 76, 709, 42, 463, 514, 295});
}

TEST_CASE("positions and pairs of neighbours are uniform over many epochs") {
  Folder folder;
  for (std::size_t n : {2u, 3u, 4u, 5u, 7u, 8u, 16u, 17u, 33u}) {
    Source source = one_token_windows(folder, n);
    const uint64_t epochs = 20000;
    std::vector<int> first(n), last(n), step(n);
    for (uint64_t epoch = 0; epoch < epochs; ++epoch) {
      uint64_t a = window_at(source, epoch * n);
      uint64_t b = window_at(source, epoch * n + 1);
      ++first[a];
      ++last[window_at(source, epoch * n + n - 1)];
      ++step[(b + n - a) % n];
    }
    CAPTURE(n);
    // 1 on average with a spread of sqrt(2 / (n - 1)); a few spreads are allowed.
    const double limit = 1 + 6 * std::sqrt(2.0 / double(n - 1));
    CHECK(chi_squared(first, double(epochs) / double(n)) < limit);
    CHECK(chi_squared(last, double(epochs) / double(n)) < limit);
    step.erase(step.begin());  // no window follows itself
    if (n > 2) CHECK(chi_squared(step, double(epochs) / double(n - 1)) < 1 + 6 * std::sqrt(2.0 / double(n - 2)));
  }
  CHECK(chi_squared({1100, 900}, 1000) > 1 + 6 * std::sqrt(2.0));
}

TEST_CASE("held-out order is the same for every seed and epoch") {
  Folder folder;
  folder.write("a.txt", pairs(30000));
  const auto with = [](Settings settings) {
    settings.paths = {"a.txt"};
    settings.strings["format"] = "bytes";
    return settings;
  };
  Source one(folder, with({.numbers = {{"validation", 0.1}}, .seed = 1, .length = 8}));
  Source two(folder, with({.numbers = {{"validation", 0.1}}, .seed = 99, .length = 8}));
  const uint64_t n = one.samples(1);
  REQUIRE(n > 300);
  bool rising = true;
  uint64_t before = 0;
  for (uint64_t i = 0; i < n; ++i) {
    const Sample sample = one.read(1, i);
    CHECK(two.read(1, i) == sample);
    CHECK(one.read(1, n + i) == sample);
    uint64_t at = place(sample.tokens[0], sample.labels[0]);
    rising = rising && at >= before;
    before = at;
  }
  // Shuffled, so that the first few stand for all of it.
  CHECK_FALSE(rising);
}
