// SPDX-License-Identifier: Apache-2.0
// [offload] ratio: so much of the model has its masters and optimizer states on the tier, to within a piece, and is
// updated there.
#include <fmt/format.h>

#include <catch2/catch.hpp>
#include <set>

#include "engine/ops.h"
#include "session/config/schemas.hpp"
#include "session/planning/estimate.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"

namespace {

eng::Registry& with_host() {
  static const std::unique_ptr<eng::Registry> all = [] {
    eng::PluginSearch search;
    for (const char* file : {"cpu/reference", "cpu/cpu", "llama/llama", "optim/optim", "optim/muon", "optim/adamw8bit",
                             "precision/precision", "zero/zero", "offload/host"})
      search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
    search.environment = false;
    return eng::find_plugins(search);
  }();
  return *all;
}

// In bf16, so that every element has a master; pieces of `piece` elements. The embedding is a third of the model.
eng::Plan planned(double ratio, const std::vector<std::string>& more = {}, uint64_t piece = 8192, uint32_t world = 1) {
  const std::string text = fmt::format(
      "[model]\nplugin = 'llama'\nvocab_size = 1024\nhidden_size = 64\nintermediate_size = 160\nnum_hidden_layers = 1\n"
      "num_attention_heads = 4\nnum_key_value_heads = 2\n[device]\nplugin = 'reference'\n"
      "[train]\nmicro_batch = 1\nsequence_length = 8\n[precision]\nplugin = 'bf16'\n"
      "[zero]\nbucket = '{}B'\n[offload]\noptimizer = 'host'\nratio = {}\n",
      4 * piece, ratio);
  const eng::Config config = eng::Config::parse(text, "ratio.toml", ".", more, schemas_of(with_host()));
  return std::move(eng::make_setup(config, with_host(), 0, {0, world, 0, world}).plan);
}

// Elements of persistent buffers of a size per element, whose names begin so.
double elements(const eng::Plan& plan, const std::string& what, uint32_t arena) {
  double out = 0;
  for (const eng::Buffer& b : plan.buffers)
    if (b.persistent && b.arena == arena && b.name.starts_with(what + " ")) out += static_cast<double>(b.bytes) / 4;
  return out;
}

std::set<std::string> names(const eng::Plan& plan, const std::string& what, uint32_t arena) {
  std::set<std::string> out;
  for (const eng::Buffer& b : plan.buffers)
    if (b.persistent && b.arena == arena && b.name.starts_with(what + " ")) out.insert(b.name);
  return out;
}

size_t cut(const eng::Plan& plan, const std::string& what) {
  size_t out = 0;
  for (const std::string& name : names(plan, what, 0)) out += names(plan, what, 1).count(name);
  return out;
}

const double ratios[] = {0, 0.1, 0.3, 0.5, 0.77, 1};

}  // namespace

TEST_CASE("the part on the tier is the ratio, to within a piece, for every optimizer and strategy") {
  for (const char* optimizer : {"adamw", "adamw8bit", "sgd"})
    for (const char* strategy : {"none", "zero1", "zero3"})
      for (const double ratio : ratios) {
        const uint32_t world = strategy == std::string("none") ? 1 : 2;
        const eng::Plan plan = planned(ratio,
                                       {std::string("optimizer.plugin=") + optimizer,
                                        "zero.plugin=" + std::string(world == 1 ? "none" : strategy)},
                                       8192, world);
        INFO(optimizer << ", " << strategy << ", ratio " << ratio);
        const double here = elements(plan, "master", 0) * world, there = elements(plan, "master", 1) * world;
        double all = 0;
        for (const eng::Unit& unit : plan.units) all += static_cast<double>(unit.count);
        CHECK(here + there == all);
        CHECK(std::abs(there - ratio * all) <= 8192);
        CHECK((cut(plan, "master") > 0) == (ratio > 0 && ratio < 1));
      }
}

TEST_CASE("a parameter that the optimizer needs whole is not cut") {
  for (const double ratio : ratios) {
    const eng::Plan plan = planned(ratio, {"optimizer.plugin=muon"});
    INFO("ratio " << ratio);
    double all = 0, largest = 0;
    for (const eng::Unit& unit : plan.units)
      all += static_cast<double>(unit.count), largest = std::max(largest, static_cast<double>(unit.count));
    CHECK(elements(plan, "master", 0) + elements(plan, "master", 1) == all);
    CHECK(std::abs(elements(plan, "master", 1) - ratio * all) <= largest / 2);
    // That of the one layer.
    CHECK(names(plan, "momentum_buffer", 0).size() + names(plan, "momentum_buffer", 1).size() == 1);
  }
}

TEST_CASE("each piece is updated where its states are") {
  for (const char* update : {"host", "device"})
    for (const double ratio : ratios) {
      const eng::Plan plan = planned(ratio, {std::string("offload.update=") + update});
      double host = 0, device = 0;
      for (const eng::Segment& segment : plan.program("train").segments)
        for (const eng::Action& action : segment.actions)
          if (const eng::Call& call = plan.calls[action.call]; call.op->id == std::string(ENG_OP_ADAMW))
            (call.on_host ? host : device) += static_cast<double>(eng::count(call.in[0]));
      INFO(update << ", ratio " << ratio);
      const double here = elements(plan, "master", 0), there = elements(plan, "master", 1);
      CHECK(host == (update == std::string("host") ? there : 0));
      CHECK(host + device == here + there);
    }
}

TEST_CASE("the host updates its share of what is on the tier, to within a piece, in turn with the device") {
  for (const double share : ratios)
    for (const double ratio : {0.5, 1.0}) {
      const eng::Plan plan = planned(ratio, {"offload.update=both", fmt::format("offload.host_share={}", share)});
      double host = 0, device = 0;
      int turns = 0;
      bool before = false;
      for (const eng::Segment& segment : plan.program("train").segments)
        for (const eng::Action& action : segment.actions)
          if (const eng::Call& call = plan.calls[action.call]; call.op->id == std::string(ENG_OP_ADAMW)) {
            (call.on_host ? host : device) += static_cast<double>(eng::count(call.in[0]));
            turns += std::exchange(before, call.on_host) != call.on_host;
          }
      INFO("share " << share << ", ratio " << ratio);
      const double here = elements(plan, "master", 0), there = elements(plan, "master", 1);
      CHECK(std::abs(host - share * there) <= 8192);
      CHECK(host + device == here + there);
      if (ratio == 1 && share == 0.5) CHECK(turns > 8);
    }
}

TEST_CASE("a share that is not given makes the estimated update shorter than either place does") {
  const auto seconds = [](const char* update, const char* bandwidth, double* share = nullptr) {
    const std::string text = fmt::format(
        "[model]\nplugin = 'llama'\nvocab_size = 8192\nhidden_size = 1024\nintermediate_size = 2816\n"
        "num_hidden_layers = 8\nnum_attention_heads = 8\n[device]\nplugin = 'reference'\ndescribe = 'h200'\n"
        "[host]\nmemory = '100GB'\nmemory_bandwidth = '{}'\n[train]\nmicro_batch = 1\nsequence_length = 8\n"
        "[precision]\nplugin = 'bf16'\n[zero]\nbucket = '4MiB'\n[offload]\noptimizer = 'host'\nupdate = '{}'\n",
        bandwidth, update);
    const eng::Config config = eng::Config::parse(text, "share.toml", ".", {}, schemas_of(with_host()));
    const eng::Setup setup = eng::make_plan_only(config, with_host());
    if (share) *share = setup.offload.device_share;
    return eng::step_times(setup.plan, eng::machine_of(config.section("comm"), setup.target, setup.storage)).step;
  };
  double fast = 0, slow = 0;
  for (double* share : {&fast, &slow}) {
    const char* const bandwidth = share == &fast ? "90GB" : "60GB";
    const double both = seconds("both", bandwidth, share);
    CHECK(both < 0.9 * std::min(seconds("host", bandwidth), seconds("device", bandwidth)));
  }
  CHECK(fast > 0.1);
  CHECK(slow > fast);
  CHECK(slow < 1);
}

TEST_CASE("an update writes the 16-bit weight that is made of it, wherever that goes: nothing is cast afterwards") {
  for (const char* optimizer : {"adamw", "adamw8bit", "sgd", "muon"})
    for (const char* strategy : {"none", "zero1", "zero3"})
      for (const char* update : {"host", "device"}) {
        const uint32_t world = strategy == std::string("none") ? 1 : 2;
        const eng::Plan plan =
            planned(0.5,
                    {std::string("optimizer.plugin=") + optimizer, std::string("offload.update=") + update,
                     "zero.plugin=" + std::string(strategy)},
                    8192, world);
        int casts = 0;
        double written = 0;  // elements, on the host and on the device
        for (const eng::Segment& segment : plan.program("train").segments)
          for (const eng::Action& action : segment.actions) {
            const eng::Phase phase = plan.labels[action.label].phase;
            const eng::Call& call = plan.calls[action.call];
            if (phase != eng::Phase::update && phase != eng::Phase::publish) continue;
            casts += call.op->id == std::string(ENG_OP_CAST);
            if (call.op->id != std::string(ENG_OP_COPY) && !call.op->collective && call.out.back().dtype == ENG_BF16)
              written += static_cast<double>(eng::count(call.out.back()));
          }
        INFO(optimizer << ", " << strategy << ", updated on the " << update);
        CHECK(casts == 0);
        // A rank need not write what lies between parameters and a multiple of its ranks.
        CHECK(written * world >= static_cast<double>(plan.parameters));
      }
}

TEST_CASE("what is cut is each element of its tensor once") {
  const eng::Plan plan = planned(0.5);
  size_t several = 0;
  for (const eng::Tensor& t : plan.tensors) {
    uint64_t next = 0;
    for (const eng::HeldRange& r : t.ranges) {
      CHECK(r.first == next);
      CHECK(r.count == static_cast<uint64_t>(eng::count(r.view.desc)));
      next = r.first + r.count;
    }
    INFO(t.role << " " << t.name);
    CHECK(next == static_cast<uint64_t>(eng::count(t.desc)));
    several += t.ranges.size() > 1;
  }
  CHECK(several > 0);
  // A checkpoint has it in one.
  for (const eng::TensorShare& share : eng::saved_tensors(plan)) CHECK(share.ranges.size() <= 1);
}
