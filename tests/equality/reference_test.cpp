// SPDX-License-Identifier: Apache-2.0
// A frozen reference beside the model that is trained: the same bits over the strategies, recomputation and tiers.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"

namespace reference_test {

using namespace equality;

namespace {

std::string preference(const std::string& from, const std::string& keys = "kind = 'dpo'\n") {
  return "[loss]\nplugin = 'preference'\n" + keys + "[reference]\nfrom = '" + from + "'\n";
}
const std::string path = "[[transforms]]\nplugin = 'low_rank'\nrank = 4\ntargets = ['*.q_proj', '*.down_proj']\n";

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 65536},
    {"zero2", 65536, 1, true, 0, "every = 2"},
    {"zero3", 65536, 2, true, 0, "policy = 'full'"},
    {"zero3", 65536, 1, true, 1, "blocks = 1"},
    {"two_level", 1},
    {"zero3", 65536, 1, true, 0, "", "optimizer = 'host'\ngradients = 'host'\nparameters = 'host'\n"},
    {"zero2", 65536, 1, true, 0, "blocks = 1", "optimizer = 'shelf'\nmaster = 'shelf'\nactivations = 'host'\n"},
    {"zero2", 65536, 1, true, 0, "policy = 'full'", "parameters = 'shelf'\nactivations = 'host'\n"}};

const std::string own = "parameter ", other = "parameter reference.";

}  // namespace

TEST_CASE("a model with a reference has the same bits however it is trained, and the reference stays as it was") {
  Group group;
  group.accumulate = 2, group.transforms = preference("start", "kind = 'dpo'\nbeta = 0.5\n");
  const Result result = all_equal(group, {draws[0], draws[3], draws[6]});
  group.steps = 1;
  const Result before = train(group, plan(group, draws[0]), {3});
  size_t seen = 0;
  for (const auto& [name, values] : before.tensors) {
    INFO(name);
    const bool frozen = name.rfind(other, 0) == 0;
    seen += frozen;
    if (frozen) CHECK(numbers(result, name) == values);
    if (name.find("reference.") != std::string::npos) CHECK(name.rfind(own, 0) == 0);  // no states
    if (name.rfind(own, 0) == 0 && !frozen) CHECK(numbers(result, name) != values);
  }
  CHECK(seen == 21);
  // At first both are the same model: no reward, and log 2 for each pair.
  const std::vector<float>& losses = numbers(before, "losses");
  CHECK(losses[0] == Approx(std::log(2.0)));
  for (size_t term = 2; term < 6; ++term) CHECK(losses[term] == 0);
}

TEST_CASE("a reference that shares the frozen weights of the model gives the bits of one with copies of them") {
  Group group;
  group.transforms = path + preference("start");
  const Result copies = train(group, plan(group, draws[0]), {3});
  group.transforms = path + preference("base");
  const Result shared = all_equal(group, {draws[0], draws[3], draws[4], draws[6]});
  for (const auto& [name, values] : shared.tensors) {
    INFO(name);
    CHECK(values == numbers(copies, name));
  }
  CHECK(copies.tensors.size() == shared.tensors.size() + 21);
}

TEST_CASE("models with a reference have the same bits with every strategy, recomputation and tier", "[.slow]") {
  struct Case {
    const char *model, *precision;
    std::string text;
  };
  for (const Case& c :
       {Case{"llama", "bf16", preference("start", "kind = 'ipo'\n")},
        Case{"llama-tied", "fp16", preference("start", "nll = 0.5\n")}, Case{"opt", "fp32", preference("start")},
        Case{"mamba", "bf16", preference("start")}, Case{"llama", "bf16_sr", path + preference("base")},
        Case{"llama-tied", "bf16", "[loss]\nplugin = 'preference'\nkind = 'orpo'\n"}}) {
    Group group;
    group.model = c.model, group.precision = c.precision, group.accumulate = 2, group.transforms = c.text;
    all_equal(group, draws);
    group.world = 3, group.reduce_per_step = true;
    all_equal(group, {draws[0], draws[3]});
  }
}

TEST_CASE("the memory of a reference is a line of the plan, divided by zero3 as other weights are") {
  Group group;
  const auto held = [&](const Draw& draw, eng::Line line) {
    uint64_t bytes = 0;
    const Planned planned = plan(group, draw);
    for (const eng::Buffer& b : planned.plans[0].buffers) bytes += b.persistent && b.line == line ? b.bytes : 0;
    return bytes;
  };
  const uint64_t weights = held(draws[0], eng::Line::weights);
  CHECK(held(draws[0], eng::Line::reference) == 0);
  group.transforms = preference("start");
  CHECK(held(draws[0], eng::Line::weights) == weights);
  CHECK(held(draws[0], eng::Line::reference) == weights);
  CHECK(held({"zero3", 65536}, eng::Line::reference) == weights / 2);
  group.transforms = path + preference("base");
  CHECK(held(draws[0], eng::Line::reference) == 0);
}

TEST_CASE("a reference without use, and one that would be trained, are refused") {
  Group group;
  const auto fault = [&](const std::string& text) {
    group.transforms = text;
    try {
      plan(group, draws[0]);
    } catch (const eng::Error& e) {
      return std::string(e.what()) + "; " + e.help();
    }
    return std::string();
  };
  CHECK(fault("[reference]\nfrom = 'start'\n").find("[reference] has no effect") != std::string::npos);
  CHECK(fault(preference("start", "kind = 'simpo'\n")).find("[reference] has no effect") != std::string::npos);
  CHECK(fault(preference("base")).find("but model.embed_tokens.weight is trained") != std::string::npos);
  CHECK(fault("[loss]\nplugin = 'preference'\n").find("name a reference model") != std::string::npos);
}

}  // namespace reference_test
