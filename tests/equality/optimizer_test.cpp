// SPDX-License-Identifier: Apache-2.0
// Optimizers that see what they update, groups and frozen parameters: every strategy gives the same bits, and the
// weights move, or stay, as they should.
#include <catch2/catch.hpp>

#include <cstring>
#include <set>

#include "draw.hpp"
#include "engine/ops.h"
#include "tests/sanitized.hpp"

namespace optimizer_test {

using namespace equality;

namespace {

#ifdef SANITIZED  // it does not look for wrong bits, and takes minutes for all of them
const char* const strategies[] = {"zero2", "zero3"};
#else
const char* const strategies[] = {"none", "zero1", "zero2", "zero3", "two_level"};
#endif

Result trained(const Group& group, const std::string& strategy, uint64_t bucket = uint64_t{64} << 20,
               bool overlap = true) {
  Draw draw;
  draw.strategy = strategy, draw.bucket = bucket, draw.overlap = overlap;
  return train(group, plan(group, draw), {7, true});
}

const std::vector<float>& values(const Result& result, const std::string& name) {
  for (const auto& [key, list] : result.tensors)
    if (key == name) return list;
  FAIL("no " << name);
  return result.tensors[0].second;
}

bool has(const Result& result, const std::string& name) {
  for (const auto& entry : result.tensors)
    if (entry.first == name) return true;
  return false;
}

// All strategies give what `none` gives; with `pieces` in small pieces, too.
Result alike(const Group& group, bool pieces = true) {
#ifdef SANITIZED
  pieces = false;  // a sanitizer takes minutes for them
#endif
  const Result first = trained(group, "none");
  REQUIRE(first.complaint == "");
  for (const char* strategy : strategies) {
    INFO(describe(group) << " " << strategy);
    CHECK(difference(first, trained(group, strategy)) == "");
    if (pieces) CHECK(difference(first, trained(group, strategy, 2 * 4096 * 4, strategy[4] != '2')) == "");
  }
  return first;
}

Group on(uint32_t world, const std::string& optimizer, const std::string& freeze = "") {
  Group group;
  group.world = world, group.optimizer = optimizer, group.freeze = freeze;
  return group;
}

const std::string matrix = "parameter model.layers.0.mlp.up_proj.weight", norm = "parameter model.norm.weight";

}  // namespace

TEST_CASE("muon gives the same bits with every strategy, and its matrices move", "[.slow]") {
#ifdef SANITIZED
  const std::vector<uint32_t> worlds = {2};
#else
  const std::vector<uint32_t> worlds = {2, 3};
#endif
  for (uint32_t world : worlds) {
    const Result all = alike(on(world, "plugin = 'muon'\nlearning_rate = 1e-2\n"), world == 2);
    CHECK(has(all, "momentum_buffer model.layers.0.mlp.up_proj.weight"));
    CHECK_FALSE(has(all, "exp_avg model.layers.0.mlp.up_proj.weight"));
    CHECK(has(all, "exp_avg model.embed_tokens.weight"));
    CHECK_FALSE(has(all, "momentum_buffer model.norm.weight"));
    const Result still =
        trained(on(world, "plugin = 'muon'\nlearning_rate = 1e-2\nmatrix_rate = 0.0\nweight_decay = 0.0\n"), "none");
    CHECK(values(all, matrix) != values(still, matrix));
  }
}

TEST_CASE("normuon gives the same bits with every strategy, and its rows have sizes", "[.slow]") {
  const Result all = alike(on(2, "plugin = 'normuon'\nlearning_rate = 1e-2\n"), true);
  CHECK(has(all, "momentum_buffer model.layers.0.mlp.up_proj.weight"));
  CHECK_FALSE(has(all, "neuron_sq model.norm.weight"));
  const auto sizes = values(all, "neuron_sq model.layers.0.mlp.up_proj.weight");
  CHECK(sizes.size() == 160);
  CHECK(*std::min_element(sizes.begin(), sizes.end()) > 0);
  const Result plain = trained(on(2, "plugin = 'muon'\nlearning_rate = 1e-2\n"), "none");
  CHECK(values(all, matrix) != values(plain, matrix));
}

TEST_CASE("adamw8bit gives the same bits with every strategy, and its bytes change", "[.slow]") {
  const std::string optimizer = "plugin = 'adamw8bit'\nlearning_rate = 1e-2\n";
#ifdef SANITIZED
  const std::vector<uint32_t> worlds = {2};
#else
  const std::vector<uint32_t> worlds = {2, 3};
#endif
  for (uint32_t world : worlds) {
    const Result all = alike(on(world, optimizer), world == 2);
    const auto size = [&](const std::string& state) {
      return values(all, state + " model.layers.0.mlp.up_proj.weight").size();
    };
    CHECK(size("exp_avg_codes") == 64 * 160);
    CHECK(size("exp_avg_scales") == 64 * 160 / 256);
    for (const char* state : {"exp_avg_codes", "exp_avg_sq_codes"}) {
      const auto& codes = values(all, std::string(state) + " model.layers.0.mlp.up_proj.weight");
      CHECK(std::set<float>(codes.begin(), codes.end()).size() > 50);
    }
    CHECK_FALSE(has(all, "exp_avg model.layers.0.mlp.up_proj.weight"));
    for (const char* name :
         {"model.embed_tokens.weight", "model.norm.weight", "model.layers.0.self_attn.k_proj.weight"}) {
      CHECK(has(all, std::string("exp_avg_sq ") + name));
      CHECK_FALSE(has(all, std::string("exp_avg_sq_codes ") + name));
    }
  }
  // The choice of parameters that have bytes is a setting.
  const Result chosen = alike(on(2, optimizer + "min_8bit_size = 1000000\n"
                                                "groups = [{match = ['*norm*', '*embed*'], moments = '8bit'}]\n"),
                              false);
  CHECK_FALSE(has(chosen, "exp_avg_codes model.layers.0.mlp.up_proj.weight"));
  CHECK(values(chosen, "exp_avg_scales model.norm.weight").size() == 1);
  CHECK(has(chosen, "exp_avg_codes model.embed_tokens.weight"));
  // With all moments in f32 it is AdamW.
  const Result wide = trained(on(2, optimizer + "groups = [{match = ['*'], moments = 'f32'}]\n"), "zero2"),
               adamw = trained(on(2, "plugin = 'adamw'\nlearning_rate = 1e-2\n"), "zero2");
  CHECK(difference(wide, adamw) == "");
}

TEST_CASE("states per row and per block give the same bits with every strategy") {
  const Result all = alike(on(2, "plugin = 'rows'\nlearning_rate = 1e-2\n"));
  CHECK(values(all, "row_mean model.layers.0.mlp.up_proj.weight").size() == 160);
  CHECK(values(all, "block_max model.norm.weight").size() == 1);
  for (const char* name : {"row_mean model.layers.0.mlp.up_proj.weight", "block_max model.norm.weight"})
    for (float x : values(all, name)) CHECK(x > 0);
  alike(on(3, "plugin = 'rows'\nlearning_rate = 1e-2\ngroups = [{match = ['*mlp*'], decay = 0.5}]\n"));
}

TEST_CASE("groups change what they match and nothing else, with every strategy") {
  const std::string plain = "plugin = 'sgd'\nlearning_rate = 0.1\n";
  const auto with = [&](const std::string& groups) { return plain + "groups = [" + groups + "]\n"; };
  const Result base = trained(on(2, plain), "none"),
               all = alike(on(2, with("{match = ['*.mlp.*'], learning_rate_scale = 0.5}")));
  CHECK(values(all, matrix) != values(base, matrix));
  // The first group that fits counts.
  const Result first = trained(on(2, with("{match = ['*.mlp.*'], learning_rate_scale = 0.5}, {match = ['*'], "
                                          "learning_rate_scale = 1.0}")),
                               "zero2");
  CHECK(difference(all, first) == "");
  // A rate of 0 leaves a parameter alone, weight decay included.
  const Result none = alike(on(2, with("{match = ['*'], learning_rate_scale = 0}")));
  const Result decayed =
      trained(on(2,
                 "plugin = 'sgd'\nlearning_rate = 0.1\nweight_decay = 0.5\ngroups = [{match = ['*'], "
                 "weight_decay = 0}]\n"),
              "zero3");
  CHECK(difference(base, decayed) == "");
  CHECK(values(none, matrix) != values(base, matrix));
}

TEST_CASE("frozen parameters keep their values, and the others the bits that they have beside a rate of 0", "[.slow]") {
  for (const char* freeze : {"'model.layers.0.*', 'model.embed_tokens.*'", "'*.mlp.*'", "'lm_head.weight', '*norm*'"}) {
    for (const char* optimizer : {"plugin = 'sgd'\nmomentum = 0.9\nlearning_rate = 0.1\n",
                                  "plugin = 'muon'\nlearning_rate = 1e-2\nweight_decay = 0.0\n"}) {
      const bool muon = std::strstr(optimizer, "muon");  // slow: one of the patterns is enough for it
      if (muon && !std::strstr(freeze, "*.mlp.*")) continue;
      const Result all = alike(on(2, optimizer, freeze), !muon);
      Group ignored =
          on(2, std::string(optimizer) + "groups = [{match = [" + freeze + "], learning_rate_scale = 0}]\n");
      // The norm that clips is over the gradients that there are.
      ignored.grad_clip = 0;
      Group frozen = on(2, optimizer, freeze);
      frozen.grad_clip = 0;
      const Result a = trained(frozen, "zero3"), b = trained(ignored, "zero3");
      REQUIRE(a.complaint == "");
      size_t compared = 0;
      for (const auto& [name, list] : a.tensors) {
        if (name == "norms") continue;
        INFO(freeze << " " << name);
        const auto& other = values(b, name);
        REQUIRE(list.size() == other.size());
        CHECK(std::memcmp(list.data(), other.data(), list.size() * sizeof(float)) == 0);
        ++compared;
      }
      CHECK(compared > 20);
      CHECK(a.tensors.size() < b.tensors.size());  // no states
    }
  }
}

TEST_CASE("what is frozen has no gradient, no state and no traffic") {
  const std::string adamw = "plugin = 'adamw'\nlearning_rate = 1e-2\n";
  Draw draw;
  draw.strategy = "zero2";
  const auto planned = [&](const std::string& freeze) { return plan(on(2, adamw, freeze), draw).plans[0]; };
  const auto sum = [](const eng::Plan& p, eng::Line line) {
    uint64_t bytes = 0;
    for (const eng::Buffer& b : p.buffers)
      if (b.persistent && b.line == line) bytes += b.bytes;
    return bytes;
  };
  const eng::Plan all = planned(""), some = planned("'model.layers.*'"), head = planned("'model.*'");
  CHECK(all.frozen.parameters == 0);
  CHECK(some.frozen.parameters > 0);
  CHECK(some.frozen.gradients == 4 * some.frozen.parameters);
  CHECK(some.frozen.states == 8 * some.frozen.parameters);
  CHECK(sum(some, eng::Line::optimizer) < sum(all, eng::Line::optimizer));
  CHECK(sum(some, eng::Line::weights) == sum(all, eng::Line::weights));
  // With all of the model frozen but the head there is no backward but the head's.
  for (const auto& p : head.programs)
    for (const auto& s : p.segments)
      for (const auto& a : s.actions) {
        const std::string label = head.labels[a.label].text();
        if (label.ends_with(" backward")) CHECK(label == "head backward");
      }
  CHECK(head.flops_per_step < 0.7 * all.flops_per_step);
  // The loss makes no gradient of a frozen head.
  for (const bool freeze_head : {false, true}) {
    const eng::Plan p = planned(freeze_head ? "'lm_head.weight'" : "");
    size_t found = 0;
    for (const eng::Call& call : p.calls)
      if (call.op->id == std::string(ENG_OP_CROSS_ENTROPY_GRAD)) {
        ++found;
        CHECK(call.out.size() == (freeze_head ? 2 : 3));
      }
    CHECK(found == 1);
  }
  CHECK_THROWS_WITH(planned("'*'"), Catch::Contains("train.freeze leaves no parameter to train"));
  try {
    planned("'model.layers.*.mlp.up_poj.weight'");
    FAIL("not refused");
  } catch (const eng::Error& e) {
    CHECK(std::string(e.what()) == "train.freeze: `model.layers.*.mlp.up_poj.weight` matches no parameter of llama");
    CHECK_THAT(e.help(), Catch::StartsWith("the nearest names: model.layers.0.mlp.up_proj.weight, "));
  }
  CHECK_THROWS_WITH(plan(on(2, adamw + "groups = [{match = ['*.bias'], weight_decay = 0}]\n"), draw),
                    Catch::Contains("group 1 of optimizer.groups: `*.bias` matches no parameter of llama"));
}

}  // namespace optimizer_test
