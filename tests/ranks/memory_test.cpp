// SPDX-License-Identifier: Apache-2.0
// What the plan says of a rank's memory is what its process takes, within 1 %, whatever the strategy.
#include <algorithm>
#include <cmath>

#include "../cli/harness.hpp"
#include "../sanitized.hpp"

#ifndef SANITIZED  // a sanitizer's own memory is in no plan
using namespace cli;

namespace {

struct Peak {
  double promise = 0, measured = 0;  // bytes of a rank's process
};

// Of two ranks that train two steps.
Peak peak_of(const Args& words) {
  Scratch scratch;
  scratch.config();
  Args run = {"run", "config.toml", "--out", "run", "--ranks", "2"},
       plan = {"plan", "config.toml", "--json", "--ranks", "2"};
  for (Args* args : {&run, &plan}) {
    for (const char* word :
         {"model.preset=bench", "model.vocab_size=8000", "model.hidden_size=512", "model.intermediate_size=1376",
          "model.num_attention_heads=8", "model.num_hidden_layers=8", "train.steps=2", "train.sequence_length=64"})
      args->push_back(word);
    args->insert(args->end(), words.begin(), words.end());
  }
  Peak out;
  out.promise = Json::parse(engine(scratch, plan).out).at("ranks").at(0).at("host_peak_bytes").get<double>();
  const Result result = engine(scratch, run, {300, 0});
  INFO(result.err);
  REQUIRE(result.exit == 0);
  const std::string all = read(scratch / "run/metrics.jsonl"), last = all.substr(all.rfind('\n', all.size() - 2) + 1);
  out.measured = Json::parse(last).at("host_peak_bytes").get<double>();
  std::string text;
  for (const std::string& word : words) text += word + " ";
  WARN(text << "planned " << out.promise << ", measured " << out.measured << " ("
            << (out.measured / out.promise - 1) * 100 << " %)");
  CHECK(std::abs(out.measured / out.promise - 1) < 0.01);
  return out;
}

}  // namespace

TEST_CASE("peak memory of ranks", "[ranks][.slow]") {
  double before = 0;
  for (const std::string strategy : {"none", "zero2", "zero3"}) {
    const double peak = peak_of({"zero.plugin=" + strategy}).measured;
    if (before > 0) CHECK(peak < before);
    before = peak;
  }
}

TEST_CASE("peak memory of ranks with live_limit", "[ranks][.slow]") {
  // Eight layers of 12.7 MB, embedding and head of 16.4. Gathered that far ahead, all layers are there at once.
  const Args ahead = {"zero.plugin=zero3", "zero.prefetch=8"};
  Args capped = ahead;
  capped.push_back("zero.live_limit=64MiB");
  const Peak free = peak_of(ahead), limited = peak_of(capped);
  CHECK(limited.measured < free.measured - 32e6);
}
#endif
