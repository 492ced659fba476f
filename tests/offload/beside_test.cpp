// SPDX-License-Identifier: Apache-2.0
// The computation and updates on the host at the same time: copies that the host does not wait for, and
// [offload] update_late.
#include <catch2/catch.hpp>

#include <map>

#include "core/plan/waits.hpp"
#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/planning/estimate.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"
#include "session/report/context.hpp"

namespace {

eng::Registry& with_card() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file :
         {"cpu/reference", "cpu/cpu", "llama/llama", "optim/optim", "precision/precision", "zero/zero", "offload/host"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// For a described H200, whose copies have queues.
eng::Setup on_a_card(const std::vector<std::string>& keys) {
  const std::string text =
      "[model]\nplugin = 'llama'\nvocab_size = 8192\nhidden_size = 1024\nintermediate_size = 2816\n"
      "num_hidden_layers = 8\nnum_attention_heads = 8\n[device]\nplugin = 'reference'\ndescribe = 'h200'\n"
      "[host]\nmemory = '100GB'\nmemory_bandwidth = '90GB'\n"
      "[train]\nmicro_batch = 16\naccumulate = 2\nsequence_length = 1024\n"
      "[precision]\nplugin = 'bf16'\n[zero]\nbucket = '4MiB'\n[offload]\noptimizer = 'host'\n";
  return eng::make_plan_only(eng::Config::parse(text, "card.toml", ".", keys, schemas_of(with_card())), with_card());
}

// By the rates from which early blocks are chosen.
double planned_step(const eng::Setup& setup) {
  const eng::Config none =
      eng::Config::parse("[model]\nplugin = 'llama'\n", "none.toml", ".", {}, schemas_of(with_card()));
  eng::Machine machine = eng::nominal_machine(eng::machine_of(none.section("comm"), setup.target, setup.storage));
  machine.launch = 0;
  return eng::step_times(setup.plan, machine).step;
}

double step_of(const eng::Setup& setup) {
  eng::Machine machine = eng::nominal_machine({});
  machine.flops = machine.bf16 = 5e14, machine.memory_bandwidth = 4e12;
  machine.host_link = 5e10, machine.host_memory = 9e10;
  return eng::step_times(setup.plan, machine).step;
}

}  // namespace

TEST_CASE("what a device does comes right after what it waits for, so before what the host does meanwhile") {
  for (const char* more : {"offload.update=host", "offload.update=both", "offload.gradients=host"}) {
    const eng::Setup setup = on_a_card({more});
    size_t ahead = 0;  // actions that begin before what the host does, which precedes them in the list
    for (const eng::Segment& segment : setup.plan.program("train").segments) {
      using eng::Queue;
      const auto enqueued = [&](uint32_t a) {
        const Queue q = segment.actions[a].queue;
        return q == Queue::compute || q == Queue::h2d || q == Queue::d2h;
      };
      const std::vector<uint32_t> order = eng::enqueue_order(segment);
      REQUIRE(order.size() == segment.actions.size());
      std::vector<size_t> at(order.size(), SIZE_MAX);
      for (size_t k = 0; k < order.size(); ++k) at[order[k]] = k;
      REQUIRE(std::count(at.begin(), at.end(), SIZE_MAX) == 0);
      std::map<Queue, uint32_t> before;  // in the list
      std::vector<uint32_t> others;
      for (uint32_t a = 0; a < order.size(); ++a) {
        size_t needs = 0;  // the end of what comes before it
        for (uint32_t w : segment.actions[a].waits) needs = std::max(needs, at[w] + 1);
        if (before.count(segment.actions[a].queue)) needs = std::max(needs, at[before[segment.actions[a].queue]] + 1);
        before[segment.actions[a].queue] = a;
        REQUIRE(needs <= at[a]);
        // Between the two only what is ready, too.
        for (size_t k = needs; enqueued(a) && k < at[a]; ++k) REQUIRE(enqueued(order[k]));
        if (!enqueued(a)) others.push_back(order[at[a]]);
        bool overtakes = false;
        for (uint32_t h : others) overtakes = overtakes || at[h] > at[a];
        ahead += overtakes;
      }
      for (size_t k = 1; k < others.size(); ++k) REQUIRE(at[others[k - 1]] < at[others[k]]);
    }
    INFO(more);
    CHECK(ahead > 20);
  }
}

TEST_CASE("an update that the next step makes is estimated beside its forward, and keeps the gradients") {
  for (const char* update : {"host", "both"}) {
    const std::vector<std::string> keys = {std::string("offload.update=") + update, "offload.host_share=0.5"};
    const std::vector<std::string> mine(keys.begin(), keys.begin() + (update == std::string("both") ? 2 : 1));
    std::vector<std::string> late = mine;
    late.push_back("offload.update_late=true");
    const eng::Setup now = on_a_card(mine), then = on_a_card(late);
    INFO("update " << update << ": " << step_of(now) << " s and " << step_of(then) << " s");
    CHECK(step_of(then) < step_of(now));
    CHECK(now.plan.left.empty());
    CHECK(then.plan.left.size() == (update == std::string("both") ? 2 : 1));
    CHECK((then.host_update && then.host_update->late));
    // Nothing of the update is at the end of a step.
    const eng::Segment& last = then.plan.program("train").segments.back();
    CHECK(std::none_of(last.actions.begin(), last.actions.end(), [&](const eng::Action& a) {
      return then.plan.calls[a.call].op->id == std::string(ENG_OP_ADAMW);
    }));
    uint64_t kept = 0, elements = 0;
    for (const eng::Buffer& b : then.plan.buffers)
      if (b.persistent && b.line == eng::Line::gradients) kept += b.bytes;
    for (const eng::Unit& unit : then.plan.units) elements += unit.count;
    CHECK(kept == 4 * elements);
    // With several micro-batches they are there beside a forward anyway.
    CHECK(double(then.plan.arenas[0].total()) < 1.02 * double(now.plan.arenas[0].total()));
  }
}

TEST_CASE("an update that begins beside the last backward is estimated so, and as much of it as pays is chosen") {
  const eng::Setup now = on_a_card({}), chosen = on_a_card({"offload.update_early=true"});
  const uint32_t blocks = static_cast<uint32_t>(now.model.blocks.size());
  INFO("from block " << chosen.offload.early_from << " of " << blocks << ": " << step_of(chosen) << " s, else "
                     << step_of(now) << " s");
  CHECK(chosen.offload.early_from < blocks);
  CHECK(step_of(chosen) < step_of(now));
  for (const char* share : {"0.125", "0.25", "0.5", "0.75", "1.0"}) {
    const eng::Setup other = on_a_card({"offload.update_early=true", std::string("offload.early_share=") + share});
    INFO(share << ": " << planned_step(other) << " s, chosen " << planned_step(chosen) << " s");
    CHECK(planned_step(chosen) < 1.001 * planned_step(other));
  }
  const eng::Setup both = on_a_card({"offload.update_early=true", "offload.update_late=true"});
  CHECK(step_of(both) < step_of(chosen));
  CHECK(step_of(both) < step_of(on_a_card({"offload.update_late=true"})));
  uint64_t undo = 0;
  for (const eng::Buffer& b : chosen.plan.buffers) undo += b.line == eng::Line::undo ? b.bytes : 0;
  REQUIRE(chosen.host_update);
  CHECK(chosen.host_update->undo == undo);
  const uint64_t more = chosen.plan.arenas.back().total() - now.plan.arenas.back().total();
  CHECK((more >= undo && double(more) < 1.05 * double(undo)));  // each copy begins a page
  CHECK((chosen.host_update->early > 0.1 && chosen.host_update->early < 1));
  eng::ReportContext context;
  context.host_update = chosen.host_update;
  CHECK_THAT(eng::plan_text(chosen.plan, context), Catch::Contains("\n  update early      ") &&
                                                       Catch::Contains(" of the parameters, beside the last backward"));
}

TEST_CASE("early blocks are the last ones, and what stays is of the first ones") {
  const eng::Setup setup = on_a_card({"offload.update_early=true", "offload.early_share=0.4", "offload.ratio=0.5"});
  CHECK(eng::early_part(setup.model, setup.offload.early_from) == Approx(0.4).margin(0.06));
  std::map<bool, uint64_t> there;  // by whether they are early: bytes of the optimizer's states on the device
  for (const eng::Buffer& b : setup.plan.buffers)
    for (const eng::Unit& unit : setup.plan.units)
      if (b.persistent && b.line == eng::Line::optimizer && b.name.ends_with(" " + unit.name) && !b.arena)
        there[unit.block >= setup.offload.early_from] += b.bytes;
  uint64_t elements = 0;
  for (const eng::Unit& unit : setup.plan.units) elements += unit.count;
  CHECK(there[true] == 0);
  CHECK(double(there[false]) == Approx(0.5 * 8 * double(elements)).epsilon(0.03));
  // No more is early than is on the tier.
  const eng::Setup most = on_a_card({"offload.update_early=true", "offload.early_share=1.0", "offload.ratio=0.5"});
  CHECK(eng::early_part(most.model, most.offload.early_from) <= 0.5);
  CHECK(eng::early_part(most.model, most.offload.early_from) > 0.35);
}

TEST_CASE("an update that the next step makes is refused where something needs it in its own step") {
  eng::Offload late;
  late.update_late = true;
  CHECK_NOTHROW(eng::check_late(late, false, false));
  CHECK_NOTHROW(eng::check_late({}, true, true));
  CHECK_THROWS_WITH(eng::check_late(late, true, false), Catch::Contains("observers are shown each update"));
  CHECK_THROWS_WITH(on_a_card({"offload.update_late=true", "zero.live_limit=1GiB"}),
                    Catch::Contains("zero.live_limit cannot bound the leases"));
  CHECK_THROWS_WITH(on_a_card({"offload.update_early=true", "zero.live_limit=1GiB"}),
                    Catch::Contains("zero.live_limit cannot bound the leases of an update and of a backward"));
}
