// SPDX-License-Identifier: Apache-2.0
// Many cards: what crosses nodes, the ways in which ranks can divide a step, and the fastest settings for large models.
#include <catch2/catch.hpp>
#include <ctime>
#include <nlohmann/json.hpp>

#include "engine/ops_step.h"
#include "session/planning/fit/text.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/stages.hpp"
#include "tests/sanitized.hpp"
#include "tests/session/report/planned.hpp"

using Catch::Contains;

namespace scale_test {

using namespace planned;

namespace {

// With `opt`, and the tier `host`.
eng::Registry& large_plugins() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/cpu", "cpu/reference", "llama/llama", "loss/preference", "opt/opt", "offload/host",
                             "optim/optim", "precision/precision", "zero/zero"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

eng::Config config_for(const std::string& model, const std::string& card, Words words) {
  words.push_back("device.describe=" + card);
  return eng::Config::parse("[model]\n" + model + "[precision]\nplugin = 'bf16'\n[device]\nplugin = 'reference'\n",
                            "test.toml", ".", words, schemas_of(large_plugins()));
}

constexpr double page = 4096;  // bytes

struct Found {
  eng::Fit fit;
  double seconds = 0;  // of processor time
};
Found found(const std::string& model, uint32_t ranks, const Words& words, bool lossy = false, double most = 300) {
  const std::clock_t start = std::clock();
  eng::Config config = config_for(model, "a800-80g", words);
  const eng::World world = eng::planned_world(config, ranks);
  Found out{eng::find_fit(config, large_plugins(), world, most, lossy), 0};
  out.seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return out;
}

// Five settings, the fastest first, each of which fits, and is what a plan of it says.
void check_five(const Found& one, const std::string& model, uint32_t ranks, const Words& words) {
  INFO(eng::fit_text(one.fit) << one.seconds << " s");
  CHECK_FALSE(one.fit.cut);
  REQUIRE(one.fit.fastest.size() == 5);
  for (size_t k = 0; k < 5; ++k) {
    const eng::Tried& t = one.fit.fastest[k];
    CHECK(t.excess.bytes == 0);
    CHECK(t.peak.device <= one.fit.available.device);
    CHECK(t.seconds > 0);
    if (k) CHECK(one.fit.fastest[k - 1].seconds <= t.seconds);
  }
  eng::Config config = config_for(model, "a800-80g", words);
  const eng::World world = eng::planned_world(config, ranks);
  const eng::Tried& best = one.fit.fastest[0];
  const eng::Config with = eng::edited(config, large_plugins(), best.edits, ranks);
  const eng::Setup setup = eng::make_plan_only(with, large_plugins(), world);
  const eng::Machine machine = eng::machine_of(with.section("comm"), setup.target);
  uint64_t peak = eng::peak_of(setup.plan, eng::beside(setup)).device;
  const std::vector<eng::StagePlan> stages = eng::plan_stages(with, large_plugins(), setup, machine);
  for (const eng::StagePlan& stage : stages) peak = std::max(peak, stage.peak);
  // Tokens of further micro-batches take parts of pages.
  CHECK(static_cast<double>(best.peak.device) ==
        Approx(static_cast<double>(peak)).margin(stages.empty() ? 0 : 2 * page));
  if (!stages.empty())
    CHECK(eng::step_seconds(stages, eng::pipeline_of(setup.plan.ranks, setup.plan.accumulate)) ==
          Approx(best.seconds).epsilon(0.01));
  const std::string text = eng::fit_text(one.fit);
  CHECK_THAT(text, Contains("tokens/s") && Contains("bound by") && Contains("\n  5  "));
  const auto json = nlohmann::json::parse(eng::fit_json(one.fit));
  REQUIRE(json["fastest_settings"].size() == 5);
  CHECK(json["fastest_settings"][0]["tokens_per_second_estimate"].get<double>() ==
        Approx(static_cast<double>(one.fit.tokens) / best.seconds));
}

const std::string llama = "plugin = 'llama'\npreset = 'llama-2-70b'\n", opt = "plugin = 'opt'\npreset = '66b'\n";
const Words one_million = {"train.sequence_length=2048", "train.global_batch=512", "train.micro_batch=1"};

}  // namespace

TEST_CASE("a group within a node uses the link, and a gather over nodes crosses the network once") {
  const eng::Ranks ranks({0, 16, 0, 8});
  eng::Machine machine;
  machine.ranks_per_node = 8, machine.bandwidth = 1e9, machine.node_bandwidth = 1e10;
  const auto call = [&](const char* id) {
    eng::Call out;
    out.op = &eng::op(id);
    out.attrs.list = {{"group", 1, 0}, {"members", 16, 0}};
    out.out = {eng::make_desc(ENG_F32, {16000})};
    out.in = {id == std::string(ENG_OP_ALL_TO_ALL) ? out.out[0] : eng::make_desc(ENG_F32, {1000})};
    return out;
  };
  const eng::Topology topology(ranks, 8);
  REQUIRE(topology.groups.size() == 1);
  CHECK(topology.groups[0].near == 7);
  CHECK(topology.groups[0].far == 8);
  const eng::Call gather = call(ENG_OP_ALL_GATHER), exchange = call(ENG_OP_ALL_TO_ALL);
  // 8 messages of 4,000 bytes come from the other node.
  CHECK(eng::collective_seconds(topology, gather, machine) == Approx(8 * 4000 / 1e9));
  CHECK(eng::collective_seconds(topology, exchange, machine) == Approx(8 * 4000 / 1e9));
  machine.gathers_once = true;  // over the links of eight cards, and 7 within the node are the longer part then
  CHECK(eng::collective_seconds(topology, gather, machine) == Approx(std::max(4000 / 1e9, 7 * 4000 / 1e10)));
  CHECK(eng::collective_seconds(topology, exchange, machine) == Approx(8 * 4000 / 1e9));
  const eng::Topology inside(ranks, 16);
  CHECK(eng::collective_seconds(inside, gather, machine) == Approx(15 * 4000 / 1e10));
}

TEST_CASE("a described card says how large nodes are, and how fast their network is") {
  const eng::Card card = eng::find_card("a800-80g", ".", "x");
  CHECK(card.node == 8);
  CHECK(card.network == 25e9);
  CHECK(card.network_latency == Approx(9.6e-6));
  const eng::Config config = config_for(llama, "a800-80g", {});
  const eng::Target target = eng::make_target(config, large_plugins(), card, config.section("device"), nullptr, 16);
  const eng::Machine machine = eng::machine_of(config.section("comm"), target);
  CHECK(machine.ranks_per_node == 8);
  CHECK(machine.bandwidth == Approx(0.8 * 25e9));
  CHECK(machine.node_bandwidth == Approx(0.8 * 200e9));
  CHECK(machine.node_latency == Approx(3.4e-6));
  CHECK(machine.gathers_once);
  const eng::Config given = config_for(llama, "a800-80g", {"comm.describe={bandwidth='1GB', latency='1us'}"});
  CHECK(eng::machine_of(given.section("comm"), target).bandwidth == 1e9);
  CHECK(eng::machine_of(given.section("comm"), target).latency == Approx(1e-6));
}

TEST_CASE("ways to divide a step: degrees within a node, groups of nodes, and what is lossy only if asked") {
  const auto words = [](bool lossy, uint32_t ranks, const Words& more = {}) {
    Words all = one_million;
    all.insert(all.end(), more.begin(), more.end());
    eng::Config config = config_for(llama, "a800-80g", all);
    const eng::World world = eng::planned_world(config, ranks);
    std::vector<std::string> out;
    for (const eng::Way& way : eng::grid_of(config, large_plugins(), {}, world, lossy).ways) {
      out.push_back(eng::words_of(way.edits));
      CHECK((way.effect == "") == (way.edits.empty() || way.edits[0].section == "zero"));
    }
    return out;
  };
  const std::vector<std::string> node = words(false, 8), nodes = words(false, 64);
  const auto has = [](const std::vector<std::string>& all, const std::string& one) {
    return std::count(all.begin(), all.end(), one) == 1;
  };
  CHECK(node[0] == "");
  CHECK(has(node, "zero.plugin=zero3"));
  CHECK(has(node, "parallel.tensor=2 zero.plugin=zero3"));
  CHECK(has(node, "parallel.tensor=8"));  // no rank has the rows of another: nothing is left to divide
  CHECK_FALSE(has(node, "parallel.tensor=8 zero.plugin=zero3"));
  CHECK(has(node, "parallel.context=8 zero.plugin=zero3"));  // a strategy divides states over these ranks
  CHECK(has(node, "parallel.tensor=4 parallel.context=2"));
  CHECK_FALSE(has(node, "parallel.tensor=4 parallel.context=4"));
  // Stages may be on several nodes. They take the strategy that divides least of what each micro-batch reads.
  CHECK(has(nodes, "parallel.pipeline=16 zero.plugin=zero2"));
  CHECK(has(nodes, "parallel.tensor=8 parallel.pipeline=8"));
  CHECK(has(nodes,
            "parallel.tensor=4 parallel.pipeline=4 parallel.virtual_stages=2 zero.plugin=zero2 train.reduce=step"));
  CHECK(has(node, "parallel.tensor=4 parallel.sequence=true zero.plugin=zero3"));
  CHECK(has(node, "parallel.tensor=2 parallel.pipeline=4 parallel.sequence=true"));
  CHECK_FALSE(has(node, "parallel.sequence=true"));
  for (const std::string& one : nodes)
    if (one.find("parallel.pipeline") != std::string::npos) CHECK_THAT(one, !Contains("zero3") && !Contains("context"));
  for (const std::string& one : words(false, 8, {"loss.plugin=caller"}))
    CHECK_THAT(one, !Contains("pipeline"));  // which the rules of a pipeline refuse
  for (const std::string& one : node) CHECK_THAT(one, !Contains("group") && !Contains("hpz") && !Contains("int8"));
  CHECK(has(nodes, "zero.plugin=hpz zero.group=8"));
  CHECK(has(nodes, "parallel.tensor=2 zero.plugin=mics zero.group=4"));
  CHECK(has(nodes, "parallel.tensor=8 zero.plugin=zero3"));
  CHECK_FALSE(has(nodes, "parallel.tensor=16"));
  for (const std::string& one : nodes) CHECK_THAT(one, !Contains("sum=") && !Contains("gather="));
  eng::Config config = config_for(llama, "a800-80g", one_million);
  const eng::World world = eng::planned_world(config, 64);
  bool narrower = false;
  for (const eng::Way& way : eng::grid_of(config, large_plugins(), {}, world, true).ways)
    if (eng::words_of(way.edits) == "zero.plugin=zero3 zero.gather=int8") {
      narrower = true;
      CHECK_THAT(way.effect, Contains("zero.gather = \"int8\" rounds what ranks send"));
    }
  CHECK(narrower);
}

// A step of many micro-batches takes the memory of one with twice as many as stages, and its tokens.
TEST_CASE("stages are planned with few micro-batches as with all") {
  for (const Words& more : {Words{"parallel.pipeline=4"}, Words{"parallel.pipeline=2", "parallel.virtual_stages=2"},
                            Words{"parallel.pipeline=2", "parallel.virtual_stages=4"},
                            Words{"parallel.pipeline=4", "recompute.policy=full", "zero.plugin=zero2"},
                            Words{"parallel.pipeline=2", "zero.plugin=zero3", "train.reduce=step"}}) {
    Words words = {"train.sequence_length=64", "train.micro_batch=1", "train.accumulate=24",
                   "model.num_hidden_layers=8"};
    words.insert(words.end(), more.begin(), more.end());
    eng::Config config = config_for("plugin = 'llama'\npreset = 'tiny'\n", "a800-80g", words);
    eng::World world = eng::planned_world(config, 8);
    const eng::Setup first = eng::make_plan_only(config, large_plugins(), world);
    const eng::Machine machine = eng::machine_of(config.section("comm"), first.target);
    const std::vector<eng::StagePlan> few = eng::plan_stages(config, large_plugins(), first, machine);
    CHECK(eng::enough_micro_batches(eng::pipeline_of(first.plan.ranks, 24)) < 24);
    for (uint32_t s = 1; s < few.size(); ++s) {
      INFO(fmt::format("{} stage {}", fmt::join(more, " "), s));
      world.rank = world.local_rank = s * first.plan.ranks.stage_size();
      const eng::Setup all = eng::make_plan_only(config, large_plugins(), world);
      const eng::StagePlan whole = eng::stage_plan(all, config, machine);
      // With virtual stages the layouts of many micro-batches differ by what they leave free.
      const double margin = (first.plan.ranks.virtual_stages > 1 ? 8 : 2) * page;
      CHECK(static_cast<double>(few[s].arena) == Approx(static_cast<double>(whole.arena)).margin(margin));
      CHECK(static_cast<double>(few[s].peak) == Approx(static_cast<double>(whole.peak)).margin(margin));
      CHECK(few[s].seconds() == Approx(whole.seconds()).epsilon(0.03));
    }
  }
}

// Bounds are read off the first and the last stage of a few micro-batches. A reference keeps nothing for a backward.
TEST_CASE("what a stage needs at least, beside a reference and without one") {
  for (const bool reference : {false, true})
    for (const Words& more : {Words{}, Words{"parallel.virtual_stages=2"}}) {
      Words words = {"train.sequence_length=256", "train.micro_batch=8", "train.accumulate=16",
                     "model.num_hidden_layers=16", "parallel.pipeline=4"};
      words.insert(words.end(), more.begin(), more.end());
      if (reference) words.insert(words.end(), {"loss.plugin=preference", "loss.kind=dpo", "reference.from=start"});
      INFO(fmt::format("{}", fmt::join(words, " ")));
      const eng::Config config = config_for("plugin = 'llama'\npreset = 'tiny'\n", "a800-80g", words);
      eng::Trial trial(config, large_plugins());
      const eng::Tried least = trial.bound({}, {0, 4, 0, 4}), placed = trial.whole({}, {0, 4, 0, 4});
      REQUIRE(least.refused == "");
      REQUIRE(placed.refused == "");
      INFO(least.peak.arena << " of " << placed.peak.arena);
      CHECK(least.peak.arena <= placed.peak.arena);
      CHECK(double(least.peak.arena) > 0.97 * double(placed.peak.arena));
    }
}

TEST_CASE("a search that is out of time has the best of what it looked at") {
  const Words few = {"train.sequence_length=2048", "train.global_batch=64", "train.micro_batch=1"};
  const Found one = found("plugin = 'llama'\npreset = '7b'\n", 16, few, false, 0.25 * patience);
  INFO(eng::fit_text(one.fit) << one.seconds << " s");
  CHECK(one.fit.cut);
  REQUIRE_FALSE(one.fit.fastest.empty());
  for (const eng::Tried& t : one.fit.fastest) CHECK((t.placed && t.excess.bytes == 0 && t.seconds > 0));
  for (const auto* told : {&one.fit.same, &one.fit.best, &one.fit.second, &one.fit.own_format})
    if (*told) CHECK((*told)->peak.machine > 0);
  CHECK_FALSE(eng::proposals(one.fit).empty());
  CHECK_THAT(eng::cut_text(one.fit), Contains(fmt::format("processor time and {} plans", one.fit.plans)));
  const Found none = found("plugin = 'llama'\npreset = '7b'\n", 16, few, false, 0);
  CHECK(none.fit.cut);
  CHECK(eng::proposals(none.fit).empty());
  CHECK_THAT(eng::cut_text(none.fit), Contains("the search found nothing in") && Contains(" 0 plans"));
  CHECK_THAT(eng::fit_text(none.fit), Contains("the time ended first") && !Contains("no smaller model"));
}

TEST_CASE("five settings for a LLaMA of 7 billion parameters on two nodes, in seconds") {
  const std::string small = "plugin = 'llama'\npreset = '7b'\n";
  const Words few = {"train.sequence_length=2048", "train.global_batch=64", "train.micro_batch=1"};
  const Found one = found(small, 16, few);
  check_five(one, small, 16, few);
  CHECK(one.seconds < 20 * patience);
}

TEST_CASE("five settings for large models on 8, 16 and 64 cards, in seconds", "[.slow]") {
  for (const std::string& model : {llama, opt})
    for (const uint32_t ranks : {8u, 16u, 64u}) {
      INFO(model << " on " << ranks);
      const Found one = found(model, ranks, one_million);
      check_five(one, model, ranks, one_million);
      CHECK(one.seconds < 60 * patience);
    }
}

TEST_CASE("a plan of 65,536 ranks with degrees and groups, in seconds", "[.slow]") {
  const Words words = {"train.sequence_length=2048", "parallel.tensor=8", "zero.plugin=mics", "zero.group=2"};
  const std::clock_t start = std::clock();
  eng::Config config = config_for(llama, "a800-80g", words);
  const eng::World world = eng::planned_world(config, 65536);
  const eng::Setup setup = eng::make_plan_only(config, large_plugins(), world);
  const eng::Machine machine = eng::machine_of(config.section("comm"), setup.target);
  CHECK(eng::step_times(setup.plan, machine).step > 0);
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 10 * patience);
}

}  // namespace scale_test
