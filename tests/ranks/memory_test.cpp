// SPDX-License-Identifier: Apache-2.0
// What the plan says of a rank's memory is what its process takes, within 1 %, whatever the strategy.
#include <algorithm>
#include <cmath>

#include "../cli/harness.hpp"
#include "../sanitized.hpp"

#ifndef SANITIZED  // a sanitizer's own memory is in no plan
using namespace cli;

TEST_CASE("peak memory of ranks", "[ranks][.slow]") {
  double before = 0;
  for (const std::string strategy : {"none", "zero2", "zero3"}) {
    Scratch scratch;
    scratch.config();
    Args run = {"run", "config.toml", "--out", "run", "--ranks", "2"},
         plan = {"plan", "config.toml", "--json", "--ranks", "2"};
    for (Args* args : {&run, &plan})
      for (const char* word :
           {"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512", "model.intermediate_size=1376",
            "model.num_attention_heads=8", "model.num_hidden_layers=8", "train.steps=2", "train.sequence_length=64"})
        args->push_back(word);
    for (Args* args : {&run, &plan}) args->push_back("zero.plugin=" + strategy);
    const double promise = Json::parse(engine(scratch, plan).out).at("ranks").at(0).at("host_peak_bytes").get<double>();
    const Result result = engine(scratch, run, {300, 0});
    INFO(strategy << "\n" << result.err);
    REQUIRE(result.exit == 0);
    const std::string all = read(scratch / "run/metrics.jsonl"), last = all.substr(all.rfind('\n', all.size() - 2) + 1);
    const double peak = Json::parse(last).at("host_peak_bytes").get<double>();
    WARN(strategy << ": planned " << promise << ", measured " << peak << " (" << (peak / promise - 1) * 100 << " %)");
    CHECK(std::abs(peak / promise - 1) < 0.01);
    if (before > 0) CHECK(peak < before);
    before = peak;
  }
}
#endif
