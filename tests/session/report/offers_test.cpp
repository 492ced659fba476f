// SPDX-License-Identifier: Apache-2.0
// Plugins from outside that `engine plan --fit` finds by their descriptions alone.
#include "session/planning/fit/offers.hpp"

#include <unistd.h>

#include <catch2/catch.hpp>
#include <fstream>
#include <memory>

#include "engine/policy.h"
#include "session/planning/fit/text.hpp"
#include "session/planning/fits.hpp"
#include "session/plugins/plugin_file.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace offers_test {

using namespace planned;

namespace {

// With a number format and a tier of which the engine knows nothing.
eng::Registry& with_outside() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/cpu", "cpu/reference", "llama/llama", "optim/optim", "precision/precision", "zero/zero"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.extra.push_back(FIXTURE_HALF);
    search.extra.push_back(FIXTURE_SHELF);
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// A device with memory of its own.
std::string card(uint64_t bytes) {
  static const std::string file = (std::filesystem::temp_directory_path() / fmt::format("offers-{}.toml", ::getpid()));
  static const std::shared_ptr<void> removed(nullptr, [](void*) { std::filesystem::remove(file); });
  std::ofstream(file) << "plugin = 'cuda'\nmemory = " << bytes << "\nreserve = 0\nworkspace = 1\n";
  return "device.describe=" + file;
}

eng::Config on_card(uint64_t bytes, Words more = {}) {
  Words words = {"train.micro_batch=1", "train.accumulate=1", "model.num_hidden_layers=2", card(bytes)};
  words.insert(words.end(), more.begin(), more.end());
  return config_of("tiny", "none", words, with_outside());
}

eng::Fit fit_in(uint64_t bytes) {
  return eng::find_fit(on_card(bytes), with_outside(), {0, 1, 0, 1});
}

uint64_t peak(const Words& more) {
  return eng::machine_peak(eng::make_plan_only(on_card(uint64_t{1} << 40, more), with_outside(), {0, 1, 0, 1}));
}

std::vector<std::string> names(const eng::Offers& offers) {
  std::vector<std::string> out;
  for (const eng::Offer& one : offers) out.push_back(one.name);
  return out;
}

std::string refusal(const std::string& entry) {
  eng::Description out;
  return eng::parse_description(
      "[plugin]\nid = 'org.example.a'\nname = 'A'\nversion = '1'\nlicense = 'MIT'\n[[provides]]\n" + entry, out);
}

}  // namespace

TEST_CASE("the formats and strategies of --fit are those that descriptions offer, in their order") {
  const eng::Registry& all = with_outside();
  using Names = std::vector<std::string>;
  CHECK(names(eng::offers(plugins(), ENG_PRECISION_KIND, "fp32")) == Names{"fp32", "bf16", "bf16_sr", "fp16"});
  CHECK(names(eng::offers(all, ENG_PRECISION_KIND, "bf16")) == Names{"bf16", "half-bf16", "fp32", "bf16_sr", "fp16"});
  // half-f16 has no [provides.fit]: it is kept where it is, and never proposed.
  CHECK(names(eng::offers(all, ENG_PRECISION_KIND, "half-f16")).front() == "half-f16");
  CHECK(names(eng::offers(all, ENG_ZERO_KIND, "none")) == Names{"none", "zero2", "hpz", "mics", "zero3"});
  CHECK(names(eng::offers(all, ENG_ZERO_KIND, "zero1")) == Names{"zero1", "none", "hpz", "mics", "zero3"});
  CHECK(eng::replacements(all, "adamw").empty());  // adamw8bit is not among these plugins
}

TEST_CASE("a number format from outside is tried, with the effect that its description states") {
  const eng::Offers all = eng::offers(with_outside(), ENG_PRECISION_KIND, "fp32");
  const auto half = std::find_if(all.begin(), all.end(), [](const eng::Offer& one) { return one.name == "half-bf16"; });
  REQUIRE(half != all.end());
  CHECK(eng::effect_between(all.front(), *half) == "weights in bf16");
  // Without it, this search makes fewer plans.
  const uint64_t memory = uint64_t{1} << 30;
  const eng::Config config =
      config_of("tiny", "none",
                {"train.micro_batch=1", "train.accumulate=1", "model.num_hidden_layers=2", card(memory)}, plugins());
  CHECK(fit_in(memory).plans > eng::find_fit(config, plugins(), {0, 1, 0, 1}).plans);
}

TEST_CASE("a tier from outside is found where nothing fits without one") {
  const Words full = {"recompute.policy=full"}, away = {"recompute.policy=full", "offload.optimizer=shelf"};
  REQUIRE(peak(away) < peak(full));
  const eng::Fit fit = fit_in(peak(away));
  REQUIRE(fit.same);
  CHECK_THAT(eng::words_of(fit.same->edits), Contains("offload.optimizer=shelf"));
  CHECK(fit.same->effect.text == "the same numbers");
  CHECK_THAT(eng::fit_text(fit), Contains("[offload]\noptimizer = \"shelf\"\n"));
}

TEST_CASE("another plugin's effect, and the loss of it, are said") {
  const eng::Offer exact{"exact", 0, "", false}, rough{"rough", 0, "gradients in 8 bits", false};
  CHECK(eng::effect_between(exact, rough) == "gradients in 8 bits");
  CHECK(eng::effect_between(rough, exact) == "without rough: gradients in 8 bits");
  CHECK(eng::effect_between(rough, rough) == "");
}

TEST_CASE("a [provides.fit] that is wrong is refused with the reason") {
  const std::string zero = "kind = '" ENG_ZERO_DRAFT "'\nname = 'a'\n",
                    tier = "kind = '" ENG_TIER_DRAFT "'\nname = 'a'\n",
                    optimizer = "kind = '" ENG_OPTIMIZER_DRAFT "'\nname = 'a'\n";
  CHECK(refusal(zero + "fit = { order = 1, same_as = ['b'], effect = 'x' }\n") == "");
  CHECK(refusal(tier + "fit = { order = 1, discrete = true }\n") == "");
  CHECK(refusal(optimizer + "fit = { order = 1, instead_of = ['adamw'], effect = 'x' }\n") == "");
  CHECK_THAT(refusal(zero + "fit = {}\n"), Contains("'fit'") && Contains("order"));
  CHECK_THAT(refusal(zero + "fit = { order = -1 }\n"), Contains("order"));
  CHECK_THAT(refusal(zero + "fit = { order = 1, discrete = true }\n"), Contains("unknown key 'discrete'"));
  CHECK_THAT(refusal(optimizer + "fit = { order = 1, instead_of = ['adamw'] }\n"), Contains("effect"));
  CHECK_THAT(refusal(optimizer + "fit = { order = 1, effect = 'x' }\n"), Contains("instead_of"));
  CHECK_THAT(refusal("kind = 'eng.data/1'\nname = 'a'\nfit = { order = 1 }\n"),
             Contains("--fit chooses only number formats, strategies, tiers and optimizers"));
}

}  // namespace offers_test
