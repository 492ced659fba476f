// SPDX-License-Identifier: Apache-2.0
// Plans of real models: reports, determinism, memory, the time it takes.
#include <catch2/catch.hpp>
#include <chrono>
#include <nlohmann/json.hpp>

#include "core/memory/layout.hpp"
#include "core/plan/waits.hpp"
#include "core/verify/verify.hpp"
#include "session/config/config.hpp"
#include "session/config/schemas.hpp"
#include "session/report/report.hpp"
#include "tests/plan/sketch.hpp"
#include "tests/plan/synthetic.hpp"
#include "tests/sanitized.hpp"

using namespace sketch;

namespace {

struct Llama {
  explicit Llama(const std::string& preset, int64_t b = 2, int64_t t = 64, uint32_t accumulate = 2)
      : config(
            eng::Config::parse("[model]\nplugin = 'llama'\npreset = '" + preset + "'\n[device]\nplugin = 'reference'\n",
                               "test.toml", ".", {}, schemas_of(registry()))),
        kernels(registry(), "reference", section("device")),
        precision(eng::make_precision("fp32", registry().table<eng_axis>(ENG_PRECISION_KIND, "fp32"),
                                      config.section("precision"))),
        optimizer(eng::make_optimizer("adamw", registry().table<eng_optimizer>(ENG_OPTIMIZER_KIND, "adamw"),
                                      config.section("optimizer"))),
        accumulate(accumulate) {
    trace(b, t);
  }
  void trace(int64_t b, int64_t t) {
    model = eng::trace_model("llama", registry().table<eng_model>(ENG_MODEL_KIND, "llama"), config.section("model"), b,
                             t, ENG_F32);
  }
  eng::Plan plan() const { return plan(&optimizer); }
  eng::Plan plan(const eng::Optimizer* update) const {
    eng::PlanRequest request{model, precision, update, "reference", {}};
    request.workspace = [this](const eng::Call& call) { return kernels.workspace(call); };
    request.accumulate = accumulate;
    return eng::make_plan(request);
  }
  eng::Config config;
  eng::Kernels kernels;
  eng::Precision precision;
  eng::Optimizer optimizer;
  uint32_t accumulate;
  eng::Model model;
};

size_t occurrences(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + what.size())) ++n;
  return n;
}

}  // namespace

TEST_CASE("two plans of one model are equal") {
  const Llama llama("tiny");
  const std::string dump = eng::plan_dump(llama.plan());
  CHECK(dump == eng::plan_dump(llama.plan()));
  CHECK(dump == eng::plan_dump(Llama("tiny").plan()));
  CHECK(dump != eng::plan_dump(Llama("tiny", 4).plan()));
}

TEST_CASE("the dump mentions every action, buffer and wait") {
  const eng::Plan plan = Llama("tiny").plan();
  const std::string dump = eng::plan_dump(plan);
  size_t actions = 0;
  std::map<std::string, size_t> ops;
  for (const eng::Program& program : plan.programs)
    for (const eng::Segment& segment : program.segments) {
      CHECK_THAT(dump, Catch::Contains(program.name + "/" + segment.name + " x" + std::to_string(segment.repeat) +
                                       ": " + std::to_string(segment.actions.size()) + " actions"));
      actions += segment.actions.size();
      for (const eng::Action& a : segment.actions) ++ops[plan.calls[a.call].op->id];
    }
  CHECK(actions > 400);
  CHECK(occurrences(dump, "\n        in ") == actions);
  for (const auto& [op, n] : ops) CHECK(occurrences(dump, " " + op + " (") == n);
  for (const char* program : {"init", "publish", "train", "eval"}) CHECK(plan.program(program).name == program);
  synthetic::Random random(1);
  eng::Plan waiting = synthetic::make(random, 3, 10);
  waiting.programs[0].segments[0].actions[7].waits = {3, 5};
  CHECK_THAT(eng::plan_dump(waiting), Catch::Contains(" wait 3 wait 5"));
}

TEST_CASE("the step of a model runs on any queues in any order", "[.slow]") {
  Llama llama("tiny", 1, 16);
  for (const auto& [key, value] : std::map<std::string, int64_t>{{"vocab_size", 32},
                                                                 {"hidden_size", 16},
                                                                 {"intermediate_size", 32},
                                                                 {"num_hidden_layers", 2},
                                                                 {"num_attention_heads", 2}})
    llama.config.section("model").set(key, value, "test");
  llama.trace(1, 16);
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    eng::Plan plan = llama.plan();
    synthetic::Random random(seed);
    size_t waits = 0;
    for (eng::Program& program : plan.programs)
      for (eng::Segment& segment : program.segments)
        for (eng::Action& action : segment.actions) action.queue = static_cast<eng::Queue>(synthetic::below(random, 3));
    CHECK_FALSE(eng::problems(plan).empty());  // still the waits of one queue
    eng::place_waits(plan);
    eng::place_buffers(plan);
    CHECK(eng::problems(plan).empty());
    CHECK(synthetic::agrees(plan, seed, 2, 4));
    for (const eng::Segment& segment : plan.program("train").segments)
      for (const eng::Action& action : segment.actions) waits += action.waits.size();
    CHECK(waits > 50);
  }
}

TEST_CASE("host and device are counted apart, in one sum for report and fit") {
  eng::Plan plan;
  plan.arenas = {{"gpu", "device", 1000, 200, 30}, {"gpu", "host", 4000, 500, 0}};
  plan.labels.push_back({});
  plan.calls.push_back({&eng::op(ENG_OP_ADD), {}, {}, {}, 0, 0, 0});
  plan.programs = {{"train", {{"first", 1, {{}}}}}};
  plan.buffers = {{"weights", eng::Line::weights, 0, 5000, 0, true, true},
                  {"masters", eng::Line::optimizer, 1, 9000, 0, true, true}};
  eng::ReportContext c;
  c.overhead = 7, c.staging = 20, c.snapshot = 100, c.local_ranks = 3;
  // In host memory both arenas are the process's, and the ranks of a machine share it.
  eng::Peak peak = eng::peak_of(plan, c);
  CHECK(peak.device == 1230);
  CHECK(peak.host == 1230 + 4500 + 127);
  CHECK(peak.rank == peak.host);
  CHECK(peak.machine == 3 * peak.host);
  // A device with separate memory: what is in host memory does not count against it.
  c.host_arenas = false, c.device_total = 1230;
  peak = eng::peak_of(plan, c);
  CHECK(peak.device == 1230);
  CHECK(peak.host == 4500 + 127);
  CHECK(peak.rank == 1230);
  CHECK(peak.machine == 1230);
  auto json = nlohmann::json::parse(eng::plan_json(plan, c));
  CHECK(json["fits"] == true);
  CHECK(json["ranks"][0]["device_peak_bytes"] == 1230);
  CHECK(json["ranks"][0]["host_peak_bytes"] == 4627);
  c.device_total = 1229;
  json = nlohmann::json::parse(eng::plan_json(plan, c));
  CHECK(json["fits"] == false);
  // Each arena lists its own buffers.
  const std::string text = eng::plan_text(plan, c);
  const size_t device = text.find("arena gpu (device)"), host = text.find("arena gpu (host)");
  REQUIRE(device < host);
  REQUIRE(host != std::string::npos);
  CHECK(text.find("weights ", device) < host);
  CHECK(text.find("weights ", host) == std::string::npos);
  CHECK(text.find("optimizer ", device) > host);
}

TEST_CASE("the report as JSON and as text adds up") {
  const eng::Plan plan = Llama("tiny").plan();
  eng::ReportContext context;
  context.title = "tiny", context.overhead = 1000, context.staging = 500, context.device_total = uint64_t{1} << 40;
  const auto json = nlohmann::json::parse(eng::plan_json(plan, context));
  CHECK(json["parameters"] == plan.parameters);
  CHECK(json["fits"] == true);
  const auto& arena = json["ranks"][0]["arenas"][0];
  const uint64_t total = arena["total"];
  CHECK(arena["persistent"].get<uint64_t>() + arena["transient"].get<uint64_t>() + arena["workspace"].get<uint64_t>() ==
        total);
  CHECK(json["ranks"][0]["device_peak_bytes"] == total);
  CHECK(json["ranks"][0]["host_peak_bytes"] == total + 1500);
  // Nothing lies outside, and the arena is no larger than what lies in it.
  uint64_t top = 0, persistent = 0;
  for (const eng::Buffer& b : plan.buffers) {
    top = std::max(top, b.offset + b.bytes);
    if (b.persistent) persistent = std::max(persistent, b.offset + b.bytes);
    CHECK(b.offset % 256 == 0);
  }
  CHECK(top <= total);
  CHECK(total - top < 256);
  CHECK(plan.arenas[0].persistent - persistent < 4096);
  // Weights and two states of fp32 are most of what persists.
  CHECK(persistent >= 12 * static_cast<uint64_t>(plan.parameters));
  context.device_total = total;
  CHECK(nlohmann::json::parse(eng::plan_json(plan, context))["fits"] == false);
  const std::string text = eng::plan_text(plan, context);
  CHECK_THAT(text, Catch::Contains(std::to_string(total)) && Catch::Contains("DOES NOT FIT"));
  for (const char* line : {"weights", "gradients", "optimizer", "constants", "batch", "step"})
    CHECK_THAT(text, Catch::Contains(std::string("    ") + line));
}

TEST_CASE("the plan of a model is close to the least memory it can have") {
  const eng::Plan plan = Llama("tiny").plan();
  const double values =
      static_cast<double>(plan.arenas[0].transient) / static_cast<double>(synthetic::most_live(plan, false));
  const double all = static_cast<double>(plan.arenas[0].transient + plan.arenas[0].workspace) /
                     static_cast<double>(synthetic::most_live(plan, true));
  INFO("transients " << values << " of the bound, with scratch " << all);
  CHECK(values >= 1.0);
  CHECK(values < 1.1);
  CHECK(all >= 1.0);
  CHECK(all < 1.1);
}

TEST_CASE("gradients take bytes that the backward no longer needs") {
  auto transient = [](uint32_t accumulate, bool update) {
    const Llama llama("tiny", 8, 128, accumulate);
    return update ? llama.plan().arenas[0].transient : llama.plan(nullptr).arenas[0].transient;
  };
  uint64_t gradients = 0;
  for (const eng::Unit& unit : Llama("tiny").plan().units) gradients += unit.count * sizeof(float);
  CHECK(transient(1, true) < transient(1, false) + gradients / 2);
  CHECK(transient(4, true) >= transient(4, false) + gradients);  // here they outlast every backward but the last
}

TEST_CASE("a plan without an optimizer keeps its gradients and has no update") {
  const Llama llama("tiny");
  eng::PlanRequest request{llama.model, llama.precision, nullptr, "reference", {}};
  eng::Plan plan = eng::make_plan(request);
  CHECK(plan.program("train").segments.size() == 1);
  CHECK(plan.find("model.norm.weight", "gradient"));
  CHECK_FALSE(llama.plan().find("model.norm.weight", "gradient"));
  CHECK_FALSE(plan.find("model.norm.weight", "exp_avg"));
  request.train = false;
  plan = eng::make_plan(request);
  CHECK_THROWS(plan.program("train"));
  CHECK_FALSE(plan.find("model.norm.weight", "gradient"));
  CHECK(plan.program("eval").segments.size() == 1);
}

TEST_CASE("a model of seven billion parameters is planned in two seconds") {
  Llama llama("7b", 1, 16, 1);
  const auto start = std::chrono::steady_clock::now();
  llama.trace(1, 2048);
  const auto traced = std::chrono::steady_clock::now();
  const eng::Plan plan = llama.plan();
  const std::chrono::duration<double> trace = traced - start, all = std::chrono::steady_clock::now() - start;
  INFO("traced in " << trace.count() << " s, all in " << all.count() << " s");
  CHECK(plan.parameters == 6738415616);
#ifndef SANITIZED  // a claim about the engine as people build it
  CHECK(all.count() < 2.0);
#endif
}
