// SPDX-License-Identifier: Apache-2.0
#include "engine/observer.h"
#include "session/run/run_dir.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "session/file.hpp"
#include "tests/session/checkpoint/scratch.hpp"

using namespace eng;
using namespace eng::test;

namespace {

Metrics sample(int64_t step) {
  Metrics m;
  m.step = step;
  m.tokens = uint64_t(step) * 2048;
  m.loss = 6.1034 / double(step);
  m.grad_norm = 0.1 + double(step);
  m.lr = 1e-4 / 3;
  return m;
}

}  // namespace

TEST_CASE("metrics: one JSON object with the documented keys", "[metrics]") {
  Metrics m = sample(50);
  m.wait_seconds = {0.25, 0.5, 0.75};
  m.device_peak_bytes = 3;
  m.host_peak_bytes = 18446744073709551615u;
  const std::string line = metrics_line(m);
  CHECK(line.back() == '\n');
  CHECK(line.find('\n') == line.size() - 1);
  const auto json = nlohmann::ordered_json::parse(line);
  std::vector<std::string> keys;
  for (const auto& item : json.items()) keys.push_back(item.key());
  CHECK(keys == std::vector<std::string>{"v", "step", "tokens", "loss", "grad_norm", "lr", "loss_scale",
                                         "tokens_per_second", "mfu", "step_seconds", "wait_seconds",
                                         "device_peak_bytes", "host_peak_bytes", "attempt"});
  CHECK(json["v"] == 1);
  CHECK(json["tokens"] == 102400);
  CHECK(json["wait_seconds"].dump() == R"({"data":0.25,"comm":0.5,"offload":0.75})");
  CHECK(json["host_peak_bytes"] == 18446744073709551615u);
  m.eval_loss = 2.5;
  CHECK(nlohmann::json::parse(metrics_line(m))["eval_loss"] == 2.5);
}

TEST_CASE("metrics: terms and what is observed, flat under one key each", "[metrics]") {
  Metrics m = sample(2);
  m.terms = {{"cross_entropy", 5.5, true}, {"z_loss", 31.25, true}};
  m.observed = {{"stats.gradient_norm.layers.0", 1.5}, {"stats.gradient_max.layers.0", NAN}};
  const std::string line = metrics_line(m);
  CHECK(line.find(R"("terms":{"cross_entropy":5.5,"z_loss":31.25},"observed":{"stats.gradient_norm.layers.0":1.5,)"
                  R"("stats.gradient_max.layers.0":null},"tokens_per_second")") != std::string::npos);
}

TEST_CASE("results of a step are combined over micro-batches, ranks and sites", "[metrics]") {
  Plan plan;
  plan.ranks = Ranks({0, 2, 0, 2});
  plan.accumulate = 2;
  plan.terms = {{"a", 1.0}, {"b", 0.5}, {"c", 0.0}};
  plan.row = 4, plan.once = 2;
  plan.observed = {{"sum", 0, ENG_COMBINE_SUM, ENG_RESULT_SQRT, {3}, {0}},
                   {"max", 0, ENG_COMBINE_MAX, 0, {3}, {1}},
                   {"last", 1, ENG_COMBINE_LAST, 0, {3}, {}}};
  // Per rank: two rows of three terms and a value, then two values.
  std::vector<float> values{1, 10, 100, 4, 2, 20, 200, 5, -3, -9, 3, 30, 300, 6, 4, 40, 400, 7, 3, 8};
  const std::vector<double> sums = loss_sums(plan, values.data());
  CHECK(sums == std::vector<double>{10, 100, 1000});
  CHECK(weighted(plan, sums) == 60);
  CHECK(mean_loss(plan, sums, {4, 8}) == 15);
  const auto means = term_means(plan, sums, {4, 8});
  CHECK((means.size() == 3 && means[1].name == "b" && means[1].value == 25));
  plan.terms[1].per = ENG_PER_PAIR, plan.terms[2].per = ENG_PER_SEQUENCE;
  CHECK(mean_loss(plan, sums, {4, 8}) == 10 / 4.0 + 0.5 * 100 / 4.0);
  CHECK((term_means(plan, sums, {4, 16})[1].value == 12.5 && term_means(plan, sums, {4, 16})[2].value == 62.5));
  const auto seen = observed(plan, 0, values.data());
  REQUIRE(seen.size() == 2);
  CHECK(seen[0].value == std::sqrt(4.0 + 5 + 6 + 7 - 3 + 3));
  CHECK(seen[1].value == 8);
  CHECK(observed(plan, 1, values.data())[0].value == 5);  // of the first rank
  values[9] = NAN;
  CHECK(std::isnan(observed(plan, 0, values.data())[1].value));
}

TEST_CASE("metrics: every double reads back to the same bits; what is not finite is null", "[metrics][.slow]") {
  std::mt19937_64 random(3);
  for (int i = 0; i < 20000; ++i) {
    const uint64_t bits = random();
    double value;
    std::memcpy(&value, &bits, 8);
    if (i < 4) value = std::vector<double>{0.0, 5e-324, 1e300, 123456789}[size_t(i)];
    Metrics m;
    m.loss = value;
    const auto json = nlohmann::json::parse(metrics_line(m));
    if (std::isfinite(value)) {
      CHECK(json["loss"].get<double>() == value);
    } else {
      CHECK(json["loss"].is_null());
    }
  }
  Metrics m;
  m.loss = NAN;
  m.grad_norm = -std::numeric_limits<double>::infinity();
  CHECK(metrics_line(m).find(R"("loss":null,"grad_norm":null,)") != std::string::npos);
}

TEST_CASE("metrics: a resumed run writes the same file as an uninterrupted one", "[metrics]") {
  Scratch scratch;
  {
    MetricsFile whole(scratch / "whole", 0);
    for (int64_t k = 1; k <= 20; ++k) whole.append(sample(k));
    MetricsFile first(scratch / "parts", 0);
    for (int64_t k = 1; k <= 13; ++k) first.append(sample(k));
    first.sync();
  }
  // Killed while line 14 was written; the last checkpoint is of step 10.
  write_file(scratch / "parts", read_file(scratch / "parts") + metrics_line(sample(14)).substr(0, 30));
  {
    MetricsFile second(scratch / "parts", 10);
    for (int64_t k = 11; k <= 20; ++k) second.append(sample(k));
  }
  CHECK(read_file(scratch / "parts") == read_file(scratch / "whole"));
  // The twin: without the cut the file differs.
  {
    MetricsFile second(scratch / "parts", 20);
    second.append(sample(20));
  }
  CHECK(read_file(scratch / "parts") != read_file(scratch / "whole"));
}

TEST_CASE("metrics: incomplete or foreign lines are removed, complete ones kept", "[metrics]") {
  Scratch scratch;
  const std::string one = metrics_line(sample(1)), two = metrics_line(sample(2));
  const auto kept = [&](const std::string& before) {
    write_file(scratch / "m", before);
    const MetricsFile file(scratch / "m", 100);
    return read_file(scratch / "m");
  };
  CHECK(kept(one + two) == one + two);
  CHECK(kept(one + two.substr(0, two.size() - 1)) == one);
  CHECK(kept(one + "garbage\n" + two) == one);
  CHECK(kept(one + "[1]\n") == one);
  CHECK(kept(one + "{\"step\":\"2\"}\n") == one);
  CHECK(kept(one + std::string(1 << 20, '[') + "\n") == one);
  CHECK(kept("") == "");
}

TEST_CASE("metrics: a full disk is an error and leaves no incomplete line", "[metrics]") {
  Scratch scratch;
  MetricsFile file(scratch / "m", 0);
  file.append(sample(1));
  const FileCalls real = file_calls();
  file_calls().write = [](int fd, const void* data, size_t bytes) { return ::write(fd, data, bytes / 2); };
  const std::string text = refusal(Exit::disk, [&] { file.append(sample(2)); });
  file_calls().write = [](int, const void*, size_t) -> ssize_t { return errno = EIO, -1; };
  const std::string other = refusal(Exit::disk, [&] { file.append(sample(2)); });
  file_calls() = real;
  CHECK_THAT(text, Catch::Contains("No space left") && Catch::Contains((scratch / "m").string()));
  CHECK_THAT(other, Catch::Contains("Input/output error"));
  CHECK(read_file(scratch / "m") == metrics_line(sample(1)));
  file.append(sample(2));
  CHECK(read_file(scratch / "m") == metrics_line(sample(1)) + metrics_line(sample(2)));
}
