// SPDX-License-Identifier: Apache-2.0
// The file of [reference] store: what it gives back, and hostile ones.
#include <catch2/catch.hpp>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "core/base/error.hpp"
#include "engine/data.h"
#include "session/checksum.hpp"
#include "session/data/stored_reference.hpp"
#include "tests/fields/plugins.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using Catch::Contains;
using fields_test::refusal;
using test::read_file;
using test::Scratch;
using test::write_file;

namespace stored_reference_test {
namespace {

using Entry = StoredReference::Entry;

constexpr int64_t length = 12;

struct Sequence {
  std::vector<int32_t> tokens, labels;
  explicit Sequence(int32_t first, int64_t trained = 4) : tokens(length, first), labels(length, ENG_IGNORE_LABEL) {
    for (int64_t t = 3; t < 3 + trained; ++t) labels[static_cast<std::size_t>(t)] = first + 1;
  }
  uint64_t key() const { return StoredReference::key(length, tokens.data(), labels.data()); }
};

const StoredReference::Facts facts = {length, "00aa", "11bb", "22cc"};

// Sums as a loss takes them: of the values at the labels, in f64, in order.
double sum_at_labels(const std::vector<float>& values, const std::vector<int32_t>& labels) {
  double out = 0;
  for (std::size_t t = 0; t < labels.size(); ++t)
    if (labels[t] != ENG_IGNORE_LABEL) out += double{values[t]};
  return out;
}

// Writes right checksums into the head of a file's bytes.
std::string sealed(std::string bytes) {
  const auto put = [&](std::size_t at, const std::string& text) { bytes.replace(at, text.size(), text); };
  put(144, Checksum::of(bytes.substr(256)));
  put(216, Checksum::of(bytes.substr(0, 216)));
  return bytes;
}

}  // namespace

TEST_CASE("a stored sum comes back without rounding, from any number of labels", "[stored]") {
  std::mt19937_64 random(5);
  const Scratch folder;
  std::vector<Entry> entries;
  std::vector<Sequence> sequences;
  std::vector<double> sums;
  for (int32_t k = 0; k < 3000; ++k) {
    const int64_t n = k % 10;
    double sum = 0;
    for (int64_t t = 0; t < n; ++t) {  // from -2^-40 to -2^10
      const int scale = static_cast<int>(random() % 51) - 40;
      sum += double{-std::ldexp(1.0F + static_cast<float>(random() % (1 << 23)) / (1 << 23), scale)};
    }
    sequences.emplace_back(k, n);
    sums.push_back(sum);
    entries.push_back({sequences.back().key(), sum});
  }
  entries.push_back(entries.front());  // the same again
  StoredReference::write(folder / "x", facts, entries);
  const StoredReference file(folder / "x");
  CHECK(file.sequences() == 3000);
  CHECK(file.facts().length == length);
  CHECK((file.facts().data == "00aa" && file.facts().weights == "11bb" && file.facts().model == "22cc"));
  CHECK(StoredReference::facts_of(folder / "x").weights == "11bb");
  CHECK(std::filesystem::file_size(folder / "x") == 256 + 16 * 3000);
  std::vector<float> values(length);
  for (std::size_t k = 0; k < sequences.size(); ++k) {
    std::fill(values.begin(), values.end(), NAN);
    REQUIRE(file.fill(sequences[k].tokens.data(), sequences[k].labels.data(), values.data()));
    const double got = sum_at_labels(values, sequences[k].labels);
    if (got != sums[k]) FAIL(k << ": " << got << " instead of " << sums[k]);
    for (std::size_t t = 0; t < values.size(); ++t)
      if (sequences[k].labels[t] == ENG_IGNORE_LABEL && values[t] != 0) FAIL(k << " has a value without a label");
  }
  const Sequence other(5000);
  CHECK_FALSE(file.fill(other.tokens.data(), other.labels.data(), values.data()));
  Sequence moved(4, 4);  // the same tokens, other labels
  std::rotate(moved.labels.begin(), moved.labels.begin() + 1, moved.labels.end());
  CHECK_FALSE(file.fill(moved.tokens.data(), moved.labels.data(), values.data()));
}

TEST_CASE("two sums of one sequence are refused, and so is what is no such file", "[stored]") {
  const Scratch folder;
  const auto path = folder / "x";
  const Sequence a(1), b(2);
  CHECK_THAT(refusal([&] {
               StoredReference::write(path, facts, {{a.key(), -1}, {b.key(), -1}, {a.key(), -2}});
             }).text,
             Contains("two sequences with the same tokens and labels have the log-probabilities"));
  CHECK_FALSE(std::filesystem::exists(path));
  StoredReference::write(path, facts, {{a.key(), -1}, {b.key(), -3}});
  const std::string good = read_file(path);
  const auto told = [&](const std::string& bytes) {
    write_file(path, bytes);
    return refusal([&] { const StoredReference file(path); });
  };
  CHECK(told(good).exit == Exit::done);
  CHECK(told(sealed(good)).exit == Exit::done);
  for (std::size_t k = 0; k < good.size(); ++k) {
    std::string bad = good;
    bad[k] = static_cast<char>(bad[k] ^ 0x40);
    INFO(k);
    const auto refused = told(bad);
    CHECK((refused.exit == Exit::data && refused.help == "compute it again: engine data reference CONFIG"));
  }
  for (std::size_t n = 0; n < good.size(); n += 5) CHECK(told(good.substr(0, n)).exit == Exit::data);
  CHECK_THAT(told(good + "x").text, Contains("is said to hold 2 sequences"));
  CHECK_THAT(told("").text, Contains("is too short"));
  // A file with right checksums may hold anything.
  const auto with = [&](std::size_t at, auto value) {
    std::string bytes = good;
    std::memcpy(bytes.data() + at, &value, sizeof(value));
    return sealed(bytes);
  };
  CHECK_THAT(told(with(16, uint64_t{3})).text, Contains("is said to hold 3 sequences"));
  CHECK_THAT(told(with(16, UINT64_MAX)).text, Contains("is damaged"));
  CHECK_THAT(told(with(8, uint32_t{2})).text, Contains("is of version 2"));
  CHECK_THAT(told(with(256 + 8, std::numeric_limits<double>::quiet_NaN())).text, Contains("not finite"));
  CHECK_THAT(told(with(256 + 8, HUGE_VAL)).text, Contains("not finite"));
  CHECK_THAT(told(with(256, UINT64_MAX)).text, Contains("not in order"));
  std::string twice = good;
  twice.replace(272, 8, good.substr(256, 8));
  CHECK_THAT(told(sealed(twice)).text, Contains("not in order"));
  std::string endless = good;  // a text without its NUL
  endless.replace(24, 40, std::string(40, 'a'));
  CHECK(told(sealed(endless)).exit == Exit::done);
  CHECK(StoredReference::facts_of(path).data == std::string(40, 'a'));
}

}  // namespace stored_reference_test
