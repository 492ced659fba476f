// SPDX-License-Identifier: Apache-2.0
// A precision policy from outside that keeps a tensor of its own, from step to step and in checkpoints.
#include <algorithm>

#include "harness.hpp"

using namespace cli;

namespace {

Result run(const Scratch& scratch, const std::string& what, Args more) {
  Args args{"--plugin-path", ODD_DIR, "run", what, "device.plugin=reference", "schedule.kind=constant"};
  args.insert(args.end(), more.begin(), more.end());
  return engine(scratch, args);
}

void good(const Result& result) {
  INFO(result.err);
  REQUIRE(result.exit == 0);
}

bool keeps_count(const fs::path& run, int64_t step) {
  const Json manifest = Json::parse(read(checkpoint(run, step) / "manifest.json"));
  const Json& all = manifest.at("tensors");
  return std::any_of(all.begin(), all.end(), [](const Json& t) {
    return t.at("name") == "precision.dither.count" && t.at("role") == "policy";
  });
}

}  // namespace

TEST_CASE("a checkpoint holds what a policy keeps, and a run goes on with it", "[cli]") {
  Scratch scratch;
  scratch.config();
  const std::string dither = "precision.plugin=dither";
  good(run(scratch, "config.toml", {"--out", "whole", dither}));
  CHECK(keeps_count(scratch / "whole", 8));
  good(run(scratch, "config.toml", {"--out", "halves", dither, "train.steps=4"}));
  good(run(scratch, "halves", {"train.steps=8"}));
  CHECK(numbers(scratch / "whole") == numbers(scratch / "halves"));
  CHECK((tensors(scratch / "whole", 8) == tensors(scratch / "halves", 8)));

  // An evaluation reads the weights as training did: they are rounded at the threshold of the checkpoint's step.
  good(engine(scratch, {"ckpt", "verify", "whole"}));
  std::string text = read(scratch / "whole" / "metrics.jsonl");
  text.pop_back();
  const Json last = Json::parse(text.substr(text.rfind('\n') + 1));
  const Result again = engine(scratch, {"eval", "whole", "--batches", "2", "--json"});
  good(again);
  CHECK(Json::parse(again.out).at("loss") == last.at("eval_loss"));

  // With another policy the run goes on without it; and with it again, from nothing.
  good(run(scratch, "halves", {"train.steps=10", "precision.plugin=fp32"}));
  CHECK(!keeps_count(scratch / "halves", 10));
  good(run(scratch, "halves", {"train.steps=12", dither}));
  CHECK(keeps_count(scratch / "halves", 12));
}
