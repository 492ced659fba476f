// SPDX-License-Identifier: Apache-2.0
// [device] attention_workspace: its default, and "free".
#include <catch2/catch.hpp>
#include <fstream>
#include <sstream>

#include "core/trace/op.hpp"
#include "engine/ops_attention.h"
#include "session/config/config_text.hpp"
#include "session/planning/cost.hpp"
#include "session/planning/fit/remedies.hpp"
#include "session/planning/fit/text.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/free_workspace.hpp"
#include "session/report/context.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace workspace_test {

using namespace eng;
using Words = planned::Words;

namespace {

constexpr uint64_t mib = uint64_t{1} << 20, gib = uint64_t{1} << 30;

// With the device of fixture_scratch.c.
Registry& plugins() {
  static const std::unique_ptr<Registry> all = [] {
    PluginSearch search;
    search.extra.push_back(FIXTURE_SCRATCH);
    for (const char* file : {"cpu/reference", "llama/llama", "optim/optim", "precision/precision", "zero/zero"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return find_plugins(search);
  }();
  return *all;
}

// Two layers. That of one has its peak in the head, by the logits of 128,000 ids; of two, beside the activations.
const std::string text =
    "[model]\nplugin = 'llama'\npreset = 'tinyllama'\nnum_hidden_layers = 2\nvocab_size = 128000\n"
    "[device]\nplugin = 'cuda'\n[train]\nsequence_length = 2048\nmicro_batch = 4\n";
Config config_of(const Words& more) {
  return Config::parse(text, "test.toml", ".", more, schemas_of(plugins()));
}
Config free_with(uint64_t scratch, Words more = {}) {
  more.insert(more.begin(), {"device.attention_workspace=free", fmt::format("device.scratch={}", scratch)});
  return config_of(more);
}
uint64_t peak(const Config& config, const World& world = {}) {
  const Setup setup = make_plan_only(config, plugins(), world);
  return peak_of(setup.plan, beside(setup)).device;
}
uint64_t peak_with(Config config, uint64_t cap, const World& world = {}) {
  set_workspace(config.section("device"), cap, "test");
  return peak(config, world);
}

}  // namespace

TEST_CASE("the scratch of attention by default follows from the memory of a card alone") {
  CHECK(usual_workspace(0) == 512 * mib);
  CHECK(usual_workspace(24 * gib) == 512 * mib);
  for (const auto& [card, bytes] : std::map<std::string, uint64_t>{{"a100-40g", 512 * mib},
                                                                   {"a800-80g", 1280 * mib},
                                                                   {"h100-80g", 1280 * mib},
                                                                   {"h200", 2304 * mib},
                                                                   {"b200", 2816 * mib}})
    CHECK(usual_workspace(find_card(card, ".", "x").memory) == bytes);
  // A card that is here may report some 100 MiB more or less than its description says.
  for (const std::string& name : card_names()) {
    const uint64_t memory = find_card(name, ".", "x").memory;
    INFO(name);
    CHECK(usual_workspace(memory - 512 * mib) == usual_workspace(memory));
    CHECK(usual_workspace(memory + 512 * mib) == usual_workspace(memory));
  }
  const auto taken = [](const Words& more) { return make_plan_only(config_of(more), plugins()).device; };
  CHECK(workspace_of(taken({})) == 512 * mib);
  CHECK(workspace_of(taken({"device.total=139.8GiB"})) == 2304 * mib);
  CHECK(workspace_of(taken({"device.total=139.8GiB", "recompute.policy=full"})) == 2304 * mib);
  CHECK(workspace_of(taken({"device.describe=139.72GiB"})) == 2304 * mib);
  CHECK(workspace_of(taken({"device.total=139.8GiB", "device.attention_workspace=64MiB"})) == 64 * mib);
  // The plugin takes the same where no session gives it a number.
  std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/plugins/cuda/attention_choice.hpp");
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  CHECK(source.find("uint64_t cap = uint64_t{512} << 20;") != source.npos);
}

TEST_CASE("free scratch of attention is what does not raise the planned peak") {
  const Words one = {"model.num_hidden_layers=1"};
  const uint64_t fits = 600 * mib, grows = 700 * mib;
  Config config = free_with(fits, one);
  const uint64_t usual = peak_with(config, 512 * mib);
  REQUIRE(peak_with(config, fits) == usual);                                           // it is really there,
  REQUIRE(peak_with(free_with(grows, one), grows) > usual);                            // and this is not
  REQUIRE(make_plan_only(config, plugins()).target.attention_workspace == 512 * mib);  // as long as it is not settled
  const auto found = planned_workspace(config, plugins(), {});
  REQUIRE(found);
  CHECK(found->bytes == fits);
  settle(config, found);
  CHECK(peak(config) == usual);
  const Setup setup = make_plan_only(config, plugins());
  CHECK(workspace_of(setup.device) == fits);
  CHECK_THAT(plan_json(setup.plan, report_context(setup, config)),
             Contains(fmt::format("\"attention_workspace\": {}", fits)));
  CHECK_THAT(plan_text(setup.plan, report_context(setup, config)),
             Contains("attention scratch 600.0 MiB, free: 88.0 MiB more than by default, the planned peak of a device "
                      "does not grow"));
  // More than that is refused, and the number by default stays.
  const auto refused = planned_workspace(free_with(grows, one), plugins(), {});
  REQUIRE(refused);
  CHECK(refused->bytes == 512 * mib);
  CHECK_THAT(refused->origin, Contains("the planned peak of a device would grow"));
  CHECK_THAT(planned_workspace(free_with(1 * mib, one), plugins(), {})->origin,
             Contains("no call of attention takes more"));
  CHECK_THROWS_WITH(planned_workspace(free_with(fits, {"device.attention=cudnn"}), plugins(), {}),
                    Contains("device.attention = \"cudnn\" has none"));
  // Other numbers of ranks are planned with the word, not with this number.
  Config unsettled = config;
  unsettle(unsettled.section("device"));
  CHECK(planned_workspace(unsettled, plugins(), {})->bytes == fits);
  // A number stays; a run goes on with the one that was taken, also where the plan would give another.
  CHECK_FALSE(planned_workspace(config_of({"device.attention_workspace=650MiB"}), plugins(), {}));
  const Config again = Config::parse(resolved_text(config), "config.resolved.toml", ".", {}, schemas_of(plugins()));
  CHECK_FALSE(planned_workspace(again, plugins(), {}));
  CHECK(workspace_of(again.section("device")) == fits);
}

TEST_CASE("free scratch of attention is free on all stages of a pipeline, and the same on all ranks") {
  // Only the second stage has the head, beside whose logits there is room.
  const Words stages = {"parallel.pipeline=2", "train.accumulate=2"};
  const Config config = free_with(700 * mib, stages);
  const auto on = [](uint32_t rank) { return World{rank, 2, rank, 2}; };
  REQUIRE(peak_with(config, 700 * mib, on(1)) == peak_with(config, 512 * mib, on(1)));
  REQUIRE(peak_with(config, 700 * mib, on(0)) > peak_with(config, 512 * mib, on(0)));
  for (const uint32_t rank : {0, 1}) CHECK(planned_workspace(config, plugins(), on(rank))->bytes == 512 * mib);
}

TEST_CASE("a word in place of an amount is checked like any value") {
  CHECK_THROWS_WITH(config_of({"device.attention_workspace=fre"}), Contains("or \"free\", not string \"fre\""));
  CHECK_THROWS_WITH(config_of({"device.scratch=free"}), Contains("`scratch` must be of type size"));
}

TEST_CASE("a plan that a smaller attention_workspace makes fit is told so") {
  const Words more = {fmt::format("device.scratch={}", 2 * gib)};
  Config config = config_of(more);
  const uint64_t least = peak_with(config, 512 * mib), most = peak_with(config, 2 * gib);
  REQUIRE(most > least + mib);
  config = config_of({more[0], fmt::format("device.total={}", (least + most) / 2), "device.attention_workspace=2GiB"});
  Fit fit;
  Trial trial(config, plugins());
  find_smaller_workspace(config, {}, trial, fit);
  const auto edits = proposals(fit);
  CHECK_THAT(fmt::format("{}", fmt::join(edits, "\n")),
             Contains("device.attention_workspace=536870912 (attention by other kernels, which are slower; the last "
                      "bits differ)"));
}

// The estimate's formula, which is the plugin's but for small parts, against the same table as that.
TEST_CASE("the estimate's scratch of cuDNN's gradient is what cuDNN answers") {
  const std::map<std::string, uint32_t> archs = {{"A100", 80}, {"H100", 90}, {"H200", 90}, {"B200", 100}};
  std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/tests/cuda/cudnn/answers-9.19.0.txt");
  size_t lines = 0, refused = 0, large = 0;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("#")) continue;
    std::istringstream words(line);
    std::string gpu, type, pass, answer;
    int64_t batch = 0, length = 0, heads = 0, kv_heads = 0, size = 0;
    words >> gpu >> batch >> length >> heads >> kv_heads >> size >> type >> pass >> answer;
    const bool backward = pass == "backward";
    const int32_t dtype = type == "f16" ? ENG_F16 : ENG_BF16;
    const eng_desc q = make_desc(dtype, {batch, length, heads * size}),
                   k = make_desc(dtype, {batch, length, kv_heads * size});
    Call call;
    call.op = &op(backward ? ENG_OP_ATTENTION_GRAD : ENG_OP_ATTENTION);
    call.in = backward ? std::vector{q, q, k, k, q, make_desc(ENG_F32, {batch, heads, length})} : std::vector{q, k, k};
    call.attrs = {{{"heads", heads, 0}, {"kv_heads", kv_heads, 0}, {"scale", 0, 0.125}}};
    const auto bytes = attention_scratch(call, archs.at(gpu));
    INFO(line << ", formula: " << (bytes ? std::to_string(*bytes) : "refused"));
    ++lines;
    if (answer == "refused") {
      // A single position has no gradient in cuDNN, and takes no time anyway.
      CHECK((!bytes || (backward && length == 1)));
      ++refused;
      continue;
    }
    REQUIRE(bytes);
    const auto wanted = std::stod(answer);
    CHECK(static_cast<double>(*bytes) == Approx(wanted).margin(1024));
    large += wanted > 1e8;
  }
  CHECK(lines > 300);
  CHECK(refused > 15);
  CHECK(large > 30);
}

}  // namespace workspace_test
