// SPDX-License-Identifier: Apache-2.0
// A mixture of experts under every strategy, with states in tiers, and with layers that are computed again: one result,
// bit for bit. So the terms of its routers do not depend on how a batch is divided.
#include <catch2/catch.hpp>

#include "draw.hpp"

using namespace equality;

namespace {

Result trained_experts(const Group& group, const Draw& draw) {
  return train(group, plan(group, draw), {7, true});
}

const char* const everything = "optimizer = 'host'\nmaster = 'host'\nparameters = 'host'\nactivations = 'host'\n";

std::vector<Draw> draws() {
  std::vector<Draw> out;
  for (const char* strategy : {"none", "zero1", "zero2", "zero3"})
    for (const auto& [offload, recompute] : {std::pair("", "policy = 'full'"), std::pair(everything, ""),
                                             std::pair("optimizer = 'host'\nupdate = 'host'\n", "blocks = 1")}) {
      Draw d;
      d.strategy = strategy, d.offload = offload, d.recompute = recompute;
      out.push_back(d);
    }
  return out;
}

}  // namespace

TEST_CASE("a mixture of experts: zero, tiers and recomputation change no bit", "[.slow]") {
  const std::string model = GENERATE("moe", "moe-dense", "moe-hybrid", "moe-jamba");
  Group groups[3];
  groups[0].world = 1, groups[0].accumulate = 2;
  groups[1].precision = "bf16";
  groups[2].packed = true;
  for (Group& group : groups) {
    group.model = model, group.steps = 2;
    const Result first = trained_experts(group, Draw());
    for (const Draw& draw : draws()) {
      INFO(describe(group) << "; " << describe(draw));
      CHECK(difference(first, trained_experts(group, draw)) == "");
    }
  }
}

TEST_CASE("a mixture of experts: two ranks, or twice as many micro-batches of one, change no bit") {
  const std::string model = GENERATE("moe", "moe-dense", "moe-hybrid");
  Group one, two;
  one.model = two.model = model;
  one.steps = two.steps = 2;
  one.world = 1, one.accumulate = 2, two.world = 2, two.accumulate = 1;
  const Result alone = trained_experts(one, Draw());
  for (const char* strategy : {"none", "zero3"}) {
    Draw draw;
    draw.strategy = strategy;
    const Result both = trained_experts(two, draw);
    REQUIRE(both.complaint.empty());
    size_t compared = 0;
    for (const auto& [name, values] : alone.tensors)
      for (const auto& [other, theirs] : both.tensors)
        if (name == other && name.starts_with("parameter ")) {
          INFO(model << ", " << strategy << ", " << name);
          CHECK(values == theirs);
          ++compared;
        }
    CHECK(compared > 20);
  }
}

TEST_CASE("a mixture of experts: documents of a sample do not see each other") {
  Group apart, together;
  apart.model = together.model = "moe";
  apart.packed = true;
  CHECK(difference(trained_experts(apart, Draw()), trained_experts(together, Draw())) != "");
}
