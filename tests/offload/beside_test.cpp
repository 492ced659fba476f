// SPDX-License-Identifier: Apache-2.0
// The computation and updates on the host at the same time: the order in which one thread enqueues.
#include <catch2/catch.hpp>

#include <map>

#include "core/plan/waits.hpp"
#include "session/config/schemas.hpp"
#include "session/planning/setup.hpp"
#include "session/plugins/search.hpp"

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
