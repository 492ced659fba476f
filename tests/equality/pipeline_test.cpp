// SPDX-License-Identifier: Apache-2.0
// Stages of a pipeline: the bits of one rank where nothing is added in another order, and an order of exchanges in
// which no stage waits for ever.
#include "session/model/pipeline.hpp"
#include "core/verify/verify.hpp"
#include "stages.hpp"

namespace pipeline_test {

using namespace equality::stages;
using Catch::Contains;

namespace {

// Ranks that do one turn after the other, and meet at every exchange: true if all come to their end.
bool ends(const std::vector<std::vector<eng::StageTurn>>& turns) {
  const auto ranks = static_cast<uint32_t>(turns.size());
  std::vector<size_t> at(ranks, 0);
  const auto turn = [&](size_t r) { return at[r] < turns[r].size() ? &turns[r][at[r]] : nullptr; };
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < ranks; ++r) {
      using eng::StageTurn;
      const StageTurn* mine = turn(r);
      if (!mine || mine->what == StageTurn::receive || mine->what == StageTurn::receive_back) continue;
      const bool down = mine->what == StageTurn::send, up = mine->what == StageTurn::send_back;
      const uint32_t stage = mine->part * ranks + r + down - up, other = stage % ranks;
      if (down || up) {
        const StageTurn its{down ? StageTurn::receive : StageTurn::receive_back, mine->micro, stage / ranks};
        if (!turn(other) || !(*turn(other) == its)) continue;
        ++at[other];
      }
      ++at[r], moved = true;
    }
  }
  for (size_t r = 0; r < ranks; ++r)
    if (turn(r)) return false;
  return true;
}

// The turns of a rank: every value arrives before its pass and leaves after it, each direction has every micro-batch
// once, in its order. Returns the most passes at a time between their forward and their backward.
uint32_t most_held(const std::vector<eng::StageTurn>& turns, const eng::Pipeline& p, uint32_t rank) {
  using eng::StageTurn;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<StageTurn::What>> of;  // micro-batch, part
  std::vector<uint32_t> forwards(p.parts, 0), backwards(p.parts, 0);
  uint32_t held = 0, most = 0;
  for (const StageTurn& turn : turns) {
    of[{turn.micro, turn.part}].push_back(turn.what);
    if (turn.what == StageTurn::forward) REQUIRE(turn.micro == forwards.at(turn.part)++);
    if (turn.what == StageTurn::backward) REQUIRE(turn.micro == backwards.at(turn.part)++);
    if (turn.part < p.reference) continue;
    held += turn.what == StageTurn::forward, held -= turn.what == StageTurn::backward;
    most = std::max(most, held);
  }
  REQUIRE(of.size() == size_t{p.parts} * p.micro_batches);
  const auto back = [](StageTurn::What what) { return what >= StageTurn::receive_back; };
  for (const auto& [which, whats] : of) {
    const uint32_t part = which.second, stage = p.stage(rank, part);
    std::vector<StageTurn::What> all = {StageTurn::receive,      StageTurn::forward,  StageTurn::send,
                                        StageTurn::receive_back, StageTurn::backward, StageTurn::send_back};
    std::erase_if(all, [&](StageTurn::What what) {
      if (back(what) && part < p.reference) return true;
      const bool before = what == (back(what) ? StageTurn::send_back : StageTurn::receive);
      const bool behind = what == StageTurn::send || what == StageTurn::receive_back;
      const uint32_t first = back(what) ? p.reference * p.ranks : 0;
      return (before && stage == first) || (behind && stage + 1 == p.stages());
    });
    REQUIRE(whats == all);
  }
  return most;
}

}  // namespace

TEST_CASE("no stage waits for ever, and none holds more micro-batches than it must") {
  for (uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (uint32_t parts = 1; parts <= 4; ++parts)
      for (uint32_t n = 1; n <= 16; ++n) {
        INFO(ranks << " stages, " << parts << " virtual stages of each, " << n << " micro-batches");
        const eng::Pipeline p{ranks, parts, n};
        const std::vector<std::vector<eng::StageTurn>> all = eng::turns_of(p);
        const uint32_t groups = std::max(n / ranks, 1U), group = (n + groups - 1) / groups;
        for (uint32_t r = 0; r < ranks; ++r) {
          const uint32_t behind = ranks - 1 - r, ahead = parts == 1 ? behind : (parts - 1) * group + 2 * behind;
          CHECK(most_held(all[r], p, r) == std::min(n * parts, ahead + 1));
        }
        CHECK(ends(all));
        // Only the time of filling and of emptying is lost, and of this a part as long as a part of a rank's blocks.
        const std::vector<std::vector<eng::StageTime>> times(ranks, std::vector<eng::StageTime>(parts, {1, 2}));
        const double seconds = eng::pipeline_seconds(p, times, 0);
        if (n >= ranks || parts == 1) CHECK(seconds == Approx(3.0 * (n * parts + ranks - 1)));
        CHECK(eng::equal_bubble(p) == Approx(1 - 3.0 * n * parts / seconds));
        CHECK(eng::pipeline_seconds(p, times, 0.25) > seconds);
        // Two exchanges of neighbours in two orders wait for each other.
        auto wrong = all;
        const auto sends = [](const eng::StageTurn& t) { return t.what == eng::StageTurn::send; };
        const auto one = std::find_if(wrong[0].begin(), wrong[0].end(), sends);
        const auto next = std::find_if(one + 1, wrong[0].end(), sends);
        if (next == wrong[0].end()) continue;
        std::iter_swap(one, next);
        CHECK_FALSE(ends(wrong));
      }
}

TEST_CASE("nothing goes back through a reference, which makes no stage wait or hold more") {
  for (uint32_t ranks = 2; ranks <= 8; ++ranks)
    for (uint32_t parts = 1; parts <= 3; ++parts)
      for (uint32_t n = 1; n <= 16; n += 1 + n / 4) {
        INFO(ranks << " stages, " << parts << " virtual stages of each, " << n << " micro-batches");
        const eng::Pipeline p{ranks, 2 * parts, n, parts}, alone{ranks, parts, n};
        const std::vector<std::vector<eng::StageTurn>> all = eng::turns_of(p), less = eng::turns_of(alone);
        for (uint32_t r = 0; r < ranks; ++r) CHECK(most_held(all[r], p, r) == most_held(less[r], alone, r));
        CHECK(ends(all));
        // Its forwards are a third of the other passes.
        const double busy = 4.0 * n * parts;
        if (n >= ranks) CHECK(eng::equal_bubble(p) == Approx(1 - busy / (busy + 3 * (ranks - 1))));
      }
}

TEST_CASE("stages train what one rank trains, bit for bit") {
  same_as_whole(staged("llama", 2, 3));
  same_as_whole(staged("llama", 2, 3, 2, 2));
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

TEST_CASE("virtual stages train what one rank trains, bit for bit", "[.slow]") {
  const std::string six = layered("llama", 6), eight = layered("llama", 8), twelve = layered("llama", 12);
  for (const int64_t n : {1, 2, 3, 5}) same_as_whole(staged(six.c_str(), 2, n, 2, 3));
  for (const int64_t n : {2, 4, 6}) same_as_whole(staged(eight.c_str(), 4, n, 4, 2));
  same_as_whole(staged(twelve.c_str(), 3, 6, 3, 4));
  same_as_whole(staged(twelve.c_str(), 2, 4, 2, 2));
  for (const char* model : {"mamba2", "moe"}) {
    Group group = staged(model, 2, 2, 2, 2);
    same_as_whole(group);
  }
  const std::string tied = eight + "tie_word_embeddings = true\n";
  for (const uint32_t stages : {2u, 4u}) near_whole(staged(tied.c_str(), stages, 4, stages, 2));
  // Data ranks, the parts of their states, recomputation and tiers.
  for (const std::string& model : {eight, tied}) {
    Group group = staged(model.c_str(), 2, 4, 4, 3);
    group.cuts = "'layers.0', 'layers.2', 'layers.3', 'layers.4', 'layers.5'";
    all_equal(group, {{"none"},
                      {"zero1", 65536},
                      {"zero2", 65536, 1, false},
                      {"zero1", 65536, 1, true, 0, "policy = 'full'"},
                      {"zero2", 65536, 1, true, 0, "blocks = 2"},
                      {"zero1", 65536, 1, true, 0, "", "optimizer = 'host'\nmaster = 'host'\n"}});
  }
  Group group = staged(eight.c_str(), 2, 3, 4, 2);
  group.tensor = 2;
  same_as_whole(group);
  group = staged(eight.c_str(), 2, 3, 4, 2);
  group.context = 2, group.length = 8, group.precision = "bf16";
  same_as_whole(group);
  group = staged(eight.c_str(), 2, 4, 2, 2);
  group.freeze = "'model.layers.0.*', 'model.embed_tokens.*'";
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
  same_as_whole(group);
  group.transforms.clear(), group.freeze.clear(), group.packed = true, group.reduce_per_step = true;
  group.optimizer = "plugin = 'muon'\nlearning_rate = 1e-2\n";
  same_as_whole(group);
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

TEST_CASE("stages gather weights for each use, and keep all that they train on tiers", "[.slow]") {
  const std::vector<Draw> draws = {
      {"none"},
      {"zero3", 65536},
      {"zero3", 1, 2, false},
      {"zero3", 65536, 1, true, 2, "policy = 'full'"},
      {"two_level", 65536, 0},
      {"zero3", 65536, 1, true, 0, "blocks = 1", "parameters = 'host'\noptimizer = 'host'\ngradients = 'host'\n"},
      {"zero2", 65536, 1, true, 0, "", "gradients = 'drawer'\n"},
      {"zero1", 65536, 2, true, 1, "", "parameters = 'drawer'\noptimizer = 'drawer'\n"}};
  for (const char* model : {"llama", "opt"}) all_equal(staged(model, 2, 3, 4), draws);
  const std::string eight = layered("llama", 8);
  all_equal(staged(eight.c_str(), 2, 4, 4, 2), draws);
  all_equal(staged("mamba", 2, 2), {{"none"}, {"none", 65536, 1, true, 0, "", "parameters = 'host'\n"}});
  Group group = staged(eight.c_str(), 2, 3, 2, 3);
  group.precision = "bf16\nfrozen = 'nf4'";
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
  same_as_whole(group);
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

TEST_CASE("observers see the blocks of all stages, and change nothing", "[.slow]") {
  Draw observed;
  observed.observe = true;
  const std::string eight = layered("llama", 8);
  for (const char* strategy : {"none", "zero3"})
    for (Group group : {staged(eight.c_str(), 2, 3, 4), staged(eight.c_str(), 2, 3, 4, 3), staged("opt", 2, 2, 4, 2)}) {
      group.optimizer = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";  // rounding stays rounding
      observed.strategy = strategy;
      INFO(describe(group) << "; " << describe(observed));
      const Result one = trained(whole(group), observed), result = trained(group, observed);
      CHECK(difference(trained(group, {strategy}), result) == "");
      REQUIRE(one.observed.size() > 20);
      REQUIRE(result.observed.size() == one.observed.size());
      for (size_t k = 0; k < one.observed.size(); ++k) {
        INFO(one.observed[k].name);
        CHECK(result.observed[k].name == one.observed[k].name);
        CHECK(result.observed[k].value == Approx(one.observed[k].value).epsilon(1e-4));
      }
    }
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
  CHECK_THAT(refusal(staged("odd", 4, 2)),
             Contains("layers.0 and layers.1 share shared, and are in stages 2 and 3 of 4"));
  Group group = staged("llama", 2, 2);
  group.cuts = "'layers.7'";
  CHECK_THAT(refusal(group), Contains("parallel.cuts: `layers.7` is no block"));
  group.cuts = "'layers.0', 'layers.1'";
  CHECK_THAT(refusal(group), Contains("parallel.cuts has 2 blocks, and 2 stages begin with 1"));
  group.virtual_stages = 2;
  CHECK_THAT(refusal(group), Contains("parallel.cuts has 2 blocks, and 4 stages begin with 3"));
  CHECK_THAT(refusal(staged("llama", 2, 2, 2, 3)), Contains("parallel.pipeline x virtual_stages = 6, but model llama"));
  CHECK_THAT(refusal(staged("llama", 1, 2, 2, 2)), Contains("parallel.virtual_stages = 2 needs stages of ranks"));
  CHECK_THAT(refusal(staged("llama", 2, 257)), Contains("raise train.micro_batch"));
}

}  // namespace pipeline_test
