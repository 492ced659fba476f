// SPDX-License-Identifier: Apache-2.0
// Every plugin that is shipped passes, and what cannot be tried says why.
#include "tests/paths.hpp"
#include "tried.hpp"

namespace plugin_test {
namespace {

// untested: words of the checks that cannot be tried, or of the reasons.
void passes(const std::string& name, const Args& more = {}, const Args& untested = {}) {
  const Scratch place;
  const Tried tried = try_plugin(place, fs::path(ENGINE_PLUGIN_DIR) / (name + ".eng.so"), more);
  INFO(name << "\n" << tried.text());
  CHECK(tried.result.exit == 0);
  CHECK(tried.verdicts.size() > 15);
  for (const Json& v : tried.verdicts) {
    if (v.at("verdict") != "not tested") continue;
    INFO(v.dump());
    const std::string text = v.at("text"), check = v.at("check");
    CHECK_FALSE(text.empty());
    CHECK(std::any_of(untested.begin(), untested.end(),
                      [&](const std::string& one) { return has(text, one) || has(check, one); }));
  }
}

}  // namespace

TEST_CASE("the shipped plugins pass their test", "[plugin_test][.slow]") {
  for (const char* name :
       {"zero/zero", "optim/optim", "optim/muon", "llama/llama", "opt/opt", "offload/host", "observe/stats"})
    passes(name);
  passes("cpu/cpu", {}, {"it is synchronous"});
  passes("cpu/reference", {}, {"it is synchronous"});
}

TEST_CASE("the shipped plugins whose test takes longer pass it", "[plugin_test][.slow]") {
  passes("precision/precision");
  passes("optim/adamw8bit");
  // Ranks that divide a norm alone have its parts.
  passes("mamba/mamba", {}, {"it fills parameters", "eng.mamba.gated_norm_part", "eng.mamba.gated_squares"});
  passes("moe/moe");
  passes("mpi/mpi", {}, {"they are collectives"});
}

TEST_CASE("the low-rank transform passes on a small model", "[plugin_test]") {
  const Scratch place;
  const Tried tried = try_plugin(place, fs::path(ENGINE_PLUGIN_DIR) / "transform/low_rank.eng.so", {"rank=3"});
  INFO(tried.text());
  CHECK(tried.result.exit == 0);
  size_t passed = 0;
  for (const Json& v : tried.verdicts) passed += v.at("of") == "eng.transform/1 low_rank" && v.at("verdict") == "pass";
  CHECK(passed == 4);
}

namespace {

void fp8_passes(const Args& options) {
  const Scratch place;
  const Tried tried = try_plugin(place, fs::path(ENGINE_PLUGIN_DIR) / "transform/fp8.eng.so", options);
  INFO(tried.text());
  CHECK(tried.result.exit == 0);
  size_t passed = 0;
  for (const Json& v : tried.verdicts) {
    passed += v.at("of") == "eng.transform/1 fp8" && v.at("verdict") == "pass";
    CHECK(v.at("verdict") != "not tested");  // the ops of its scales included
  }
  CHECK(passed == 4);
}

}  // namespace

TEST_CASE("the transform to products of 8 bits passes on a small model", "[plugin_test]") {
  fp8_passes({});
}

TEST_CASE("delayed scaling passes on a small model", "[plugin_test][.slow]") {
  fp8_passes({"recipe=\"delayed\"", "history=2"});
}

TEST_CASE("those that need options pass with them", "[plugin_test]") {
  const Scratch place;
  fs::create_directory(place / "disk");
  passes("schedule/schedule", {"warmup_steps=100"});
  const Args other_kind = {"nothing that this file provides uses it on a device",
                           "nothing that brings ops uses this one"};
  passes("loss/preference", {"kind=orpo", "nll=0.3"}, other_kind);
  passes("offload/nvme", {"nvme_paths=['" + (place / "disk").string() + "']"});
  const fs::path text = place / "text.txt";
  const Args needs = {"not a file of tokens", "there is no such file", "give file=PATH",
                      "not valid JSON",       "is not JSON Lines",     "chat_template must name a file"};
  passes("data/data", {"paths=['" + text.string() + "']", "validation=0.2", "file=" + text.string()}, needs);
  CHECK(has(try_plugin(place, fs::path(ENGINE_PLUGIN_DIR) / "data/data.eng.so").result.out, "give KEY=VALUE"));
}

}  // namespace plugin_test
