// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline: the bits of one rank where nothing is added in another order, and an order of exchanges in
// which no stage waits for ever.
#include <catch2/catch.hpp>

#include <cmath>

#include "all_equal.hpp"
#include "core/base/error.hpp"
#include "core/verify/verify.hpp"
#include "plugins.hpp"
#include "session/model/pipeline.hpp"

namespace pipeline_test {

using namespace equality;
using Catch::Contains;

namespace {

Group staged(const char* model, uint32_t stages, int64_t micro_batches, uint32_t world = 0) {
  Group group;
  group.model = model, group.pipeline = stages, group.world = world ? world : stages;
  group.accumulate = micro_batches;
  return group;
}
// The ranks of one stage, with the whole model.
Group whole(Group group) {
  group.world /= group.pipeline, group.pipeline = 1, group.cuts.clear();
  return group;
}
Result trained(const Group& group, const Draw& draw = {}) {
  return train(group, plan(group, draw), {11});
}
void same_as_whole(const Group& group, const Draw& draw = {}) {
  INFO(describe(group) << "; " << describe(draw));
  CHECK(difference(trained(whole(group), draw), trained(group, draw)) == "");
}

// Checks that two trainings differ by rounding, and that they differ. Their updates follow gradients in proportion, so
// that rounding stays rounding.
void near_whole(Group group) {
  group.optimizer = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";
  INFO(describe(group));
  const Result one = trained(whole(group)), two = trained(group);
  REQUIRE(one.complaint == "");
  REQUIRE(two.complaint == "");
  REQUIRE(one.tensors.size() == two.tensors.size());
  double all = 0;
  for (size_t t = 0; t < one.tensors.size(); ++t) {
    const auto& [name, values] = one.tensors[t];
    if (name == "losses" || name == "scales") continue;
    const std::vector<float>& theirs = two.tensors[t].second;
    REQUIRE(name == two.tensors[t].first);
    // All ranks of a stage tell the norm, and there are more stages.
    double most = 1e-6, apart = 0;
    for (size_t k = 0; k < values.size(); ++k) {
      const float other = name == "norms" ? theirs[k * theirs.size() / values.size()] : theirs[k];
      most = std::max(most, std::abs(double{values[k]}));
      apart = std::max(apart, std::abs(double{values[k]} - double{other}));
    }
    INFO(name << " " << apart << " of " << most);
    CHECK(apart <= 1e-4 * most);
    all = std::max(all, apart);
  }
  CHECK(all > 0);
}

std::string refusal(const Group& group, const Draw& draw = {}) {
  try {
    plan(group, draw);
  } catch (const eng::Error& e) {
    CHECK(e.exit() == eng::Exit::usage);
    return std::string(e.what()) + "; " + e.help();
  }
  return "";
}

// Stages that do one turn after the other, and meet at every exchange: true if all come to their end.
bool ends(const std::vector<std::vector<eng::StageTurn>>& turns) {
  std::vector<size_t> at(turns.size(), 0);
  const auto turn = [&](size_t s) { return at[s] < turns[s].size() ? &turns[s][at[s]] : nullptr; };
  // The turn of a neighbour at the same time.
  const auto partner = [](const eng::StageTurn& t) {
    using eng::StageTurn;
    return t.what == StageTurn::send           ? std::pair(1, StageTurn::receive)
           : t.what == StageTurn::receive      ? std::pair(-1, StageTurn::send)
           : t.what == StageTurn::send_back    ? std::pair(-1, StageTurn::receive_back)
           : t.what == StageTurn::receive_back ? std::pair(1, StageTurn::send_back)
                                               : std::pair(0, t.what);
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t s = 0; s < turns.size(); ++s) {
      if (!turn(s)) continue;
      const auto [step, what] = partner(*turn(s));
      const size_t other = s + static_cast<size_t>(step);
      if (step && (other >= turns.size() || !turn(other) || !(*turn(other) == eng::StageTurn{what, turn(s)->micro})))
        continue;
      ++at[s], moved = true;
      if (step) ++at[other];
    }
  }
  for (size_t s = 0; s < turns.size(); ++s)
    if (turn(s)) return false;
  return true;
}

}  // namespace

TEST_CASE("no stage waits for ever, and none holds more micro-batches than it must") {
  for (uint32_t stages = 2; stages <= 8; ++stages)
    for (uint32_t n = 1; n <= 16; ++n) {
      INFO(stages << " stages, " << n << " micro-batches");
      std::vector<std::vector<eng::StageTurn>> all;
      for (uint32_t s = 0; s < stages; ++s) {
        all.push_back(eng::turns_of(s, stages, n));
        uint32_t forward = 0, backward = 0, most = 0;
        for (const eng::StageTurn& turn : all.back()) {
          if (turn.what == eng::StageTurn::forward) REQUIRE(turn.micro == forward++);
          if (turn.what == eng::StageTurn::backward) REQUIRE(turn.micro == backward++);
          REQUIRE(forward >= backward);
          most = std::max(most, forward - backward);
        }
        CHECK(forward == n);
        CHECK(backward == n);
        CHECK(most == std::min(n, stages - s));
      }
      CHECK(ends(all));
      // Only the time of filling and of emptying is lost.
      const std::vector<eng::StageTime> times(stages, {1, 2});
      CHECK(eng::pipeline_seconds(times, n, 0) == Approx(3.0 * (n + stages - 1)));
      // Two exchanges in the wrong order wait for each other.
      if (n < stages || stages < 3) continue;
      auto wrong = all;
      const auto send = std::find_if(wrong[0].begin(), wrong[0].end(), [&](const eng::StageTurn& t) {
        return t == eng::StageTurn{eng::StageTurn::send, stages - 1};
      });
      if (send == wrong[0].end()) continue;
      std::iter_swap(send, send - 1);
      CHECK_FALSE(ends(wrong));
    }
}

TEST_CASE("stages train what one rank trains, bit for bit") {
  same_as_whole(staged("llama", 2, 3));
  near_whole(staged("opt", 2, 2));  // its head is its embedding: the sum of both has another order
}

TEST_CASE("stages of other models, numbers and strategies", "[.slow]") {
  const char* mamba =
      "plugin = 'mamba'\nhidden_size = 32\nnum_hidden_layers = 2\nstate_size = 4\ntime_step_rank = 4\n"
      "tie_word_embeddings = false\n";
  for (const char* model : {"llama", mamba, "mamba2", "moe", "odd"})
    for (const int64_t n : {1, 2, 5}) same_as_whole(staged(model, 2, n));
  for (const int64_t n : {1, 2, 3, 6}) same_as_whole(staged("llama", 4, n));
  same_as_whole(staged("llama", 3, 4));
  near_whole(staged("odd-tied", 2, 3));
  for (const char* model : {"llama-tied", "opt", "mamba", "gemma3"})
    for (const uint32_t stages : {2u, 4u}) near_whole(staged(model, stages, 3));
  // Data ranks, and the parts of their states.
  Group group = staged("llama", 2, 3, 4);
  same_as_whole(group);
  all_equal(group, {{"none"}, {"zero1", 65536}, {"zero2", 65536}, {"zero1", 1, 1, false}});
  group.reduce_per_step = true;
  same_as_whole(group, {"zero2", 65536});
  for (const char* model : {"llama-tied", "opt"}) {
    group = staged(model, 2, 3, 4);
    all_equal(group, {{"none"}, {"zero1", 65536}, {"zero2", 65536}, {"zero2", 1, 1, false}});
  }
}

TEST_CASE("stages recompute, and keep their optimizer's states on tiers", "[.slow]") {
  const std::vector<Draw> draws = {
      {"none"},
      {"zero1", 65536, 1, true, 0, "policy = 'full'"},
      {"zero2", 65536, 1, true, 0, "blocks = 1"},
      {"zero1", 65536, 1, true, 0, "", "optimizer = 'host'\nmaster = 'host'\n"},
      {"zero1", 65536, 1, true, 0, "every = 2", "optimizer = 'host'\nmaster = 'host'\nupdate = 'device'\n"}};
  for (const char* model : {"llama", "opt"}) all_equal(staged(model, 2, 3, 4), draws);
  all_equal(staged("mamba", 2, 2), draws);
}

TEST_CASE("formats, losses and optimizers of stages are those of one rank", "[.slow]") {
  for (const char* precision : {"bf16", "bf16_sr", "fp16\ninitial_scale_power = 30"}) {
    Group group = staged("llama", 2, 3);
    group.precision = precision;
    same_as_whole(group);
  }
  Group group = staged("llama", 2, 3);
  group.optimizer = "plugin = 'muon'\nlearning_rate = 1e-2\n";
  same_as_whole(group);
  group = staged("llama", 2, 2);
  group.z_loss = 0.01, group.packed = true;
  same_as_whole(group);
  group = staged("llama", 2, 2);
  group.freeze = "'model.layers.0.*', 'model.embed_tokens.*'";
  same_as_whole(group);
  group = staged("llama", 2, 2);
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
  same_as_whole(group);
}

TEST_CASE("ranks divide layers, sequences and the model at once", "[.slow]") {
  Group group = staged("llama", 2, 2, 4);
  group.tensor = 2;
  same_as_whole(group);
  group = staged("llama", 2, 2, 4);
  group.context = 2, group.length = 8;
  same_as_whole(group);
  group = staged("llama", 2, 2, 8);
  group.tensor = 2;
  all_equal(group, {{"none"}, {"zero1", 65536}});
}

TEST_CASE("a stage has its blocks, and its activations do not grow with the micro-batches") {
  Group group = staged("llama", 2, 4);
  group.cuts = "'layers.1'";
  const Planned four = plan(group, {});
  group.accumulate = 8;
  const Planned eight = plan(group, {});
  for (uint32_t s = 0; s < 2; ++s) {
    const eng::Plan& p = four.plans[s];
    CHECK(p.find("model.layers.0.mlp.down_proj.weight", "parameter")->ranges.size() == 1 - s);
    CHECK(p.find("model.layers.1.mlp.down_proj.weight", "parameter")->ranges.size() == s);
    // Some rows of the batch and counters are all that is more.
    CHECK(eight.plans[s].arenas[0].total() < p.arenas[0].total() + 16384);
  }
}

TEST_CASE("a plan of a stage without one of its waits is not valid") {
  Planned planned = plan(staged("llama", 2, 3), {});
  for (eng::Plan& p : planned.plans) {
    REQUIRE(eng::problems(p).empty());
    size_t tried = 0;
    REQUIRE(p.programs[2].name == "train");
    for (eng::Action& action : p.programs[2].segments[0].actions) {
      if (action.waits.empty()) continue;
      const std::vector<uint32_t> before = std::exchange(action.waits, {});
      CHECK_FALSE(eng::problems(p, 1).empty());
      action.waits = before;
      ++tried;
    }
    CHECK(tried >= 6);
  }
}

TEST_CASE("what stages cannot do is refused with the reason") {
  CHECK_THAT(refusal(staged("llama", 2, 2, 3)), Contains("parallel.pipeline = 2 does not divide 3 ranks"));
  CHECK_THAT(refusal(staged("llama", 5, 2)), Contains("model llama has 4 blocks"));
  CHECK_THAT(refusal(staged("odd", 4, 2)), Contains("layers.0 and layers.1 share shared, and are in stages 1 and 2"));
  Group group = staged("llama", 2, 2);
  group.cuts = "'layers.7'";
  CHECK_THAT(refusal(group), Contains("parallel.cuts: `layers.7` is no block"));
  group.cuts = "'layers.0', 'layers.1'";
  CHECK_THAT(refusal(group), Contains("parallel.cuts has 2 blocks, and 2 stages begin with 1"));
  CHECK_THAT(refusal(staged("llama", 2, 2, 4), {"zero3"}), Contains("choose zero1 or zero2"));
  CHECK_THAT(refusal(staged("llama", 2, 257)), Contains("raise train.micro_batch"));
  Draw draw;
  draw.observe = true;
  CHECK_THAT(refusal(staged("llama", 2, 2), draw), Contains("does not work with [[observers]]"));
  draw = {};
  draw.offload = "activations = 'host'\n";
  CHECK_THAT(refusal(staged("llama", 2, 2), draw), Contains("offload.activations"));
}

}  // namespace pipeline_test
