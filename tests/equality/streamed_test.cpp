// SPDX-License-Identifier: Apache-2.0
// Frozen weights are kept once: on the device or on a tier, in 16 bits or packed; the same bits each time.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

#include "all_equal.hpp"
#include "session/checkpoint/convert.hpp"

namespace streamed_test {

using namespace equality;

namespace {

Group adapted(const std::string& model, const std::string& precision, const std::string& targets) {
  Group group;
  group.model = model, group.precision = precision, group.accumulate = 2;
  group.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = [" + targets + "]\n";
  return group;
}

bool path(const std::string& name) {
  return name.find(".lora_") != std::string::npos;
}

// The buffers that hold frozen parameters.
std::set<eng::Id> frozen_buffers(const eng::Plan& plan) {
  std::set<eng::Id> out;
  for (const eng::Tensor& t : plan.tensors)
    if (t.role == "parameter" && !path(t.name))
      for (const eng::HeldRange& range : t.ranges) out.insert(range.view.buffer);
  return out;
}

}  // namespace

TEST_CASE("frozen weights are kept once, in the type that compute reads") {
  const std::vector<Draw> draws = {
      {"none"},
      {"zero1", 32768, 1, true, 0, "", "optimizer = 'host'\n"},
      {"zero2", 1, 1, true, 0, "every = 2", "master = 'host'\n"},
      {"zero3", 32768, 2, true, 0, "policy = 'full'"},
      {"two_level", 1},
      {"two_level", 32768, 1, true, 0, "", "optimizer = 'host'\nratio = 0.5\nparameters = 'shelf'\n"},
      {"zero3", 32768, 1, true, 0, "", "parameters = 'host'\nmaster = 'press'\noptimizer = 'host'\n"}};
  for (const auto& [format, type] : {std::pair("bf16", ENG_BF16), {"fp16", ENG_F16}}) {
    const Group group = adapted("llama", format, "'*.q_proj', '*.down_proj'");
    all_equal(group, draws);
    for (const Draw& draw : draws) {
      INFO(describe(group) << "; " << describe(draw));
      const eng::Plan plan = std::move(equality::plan(group, draw).plans[0]);
      const bool away = draw.offload.find("parameters") != std::string::npos;
      for (const eng::Tensor& t : plan.tensors)
        if (t.role == "parameter") CHECK(t.desc.dtype == (path(t.name) ? ENG_F32 : type));
      for (const eng::Id id : frozen_buffers(plan)) {
        CHECK(plan.buffer(id).name.starts_with("weight "));
        CHECK((plan.buffer(id).arena != 0) == away);
      }
    }
  }
}

TEST_CASE("weights without a master give the losses that they give with one") {
  for (const char* format : {"bf16", "fp16\nloss_scale = 1024.0"}) {
    // Rates of 0 keep the masters as they are. The norm that clips is over the gradients that there are.
    Group kept = adapted("llama", format, "'*.q_proj'"), frozen = kept;
    kept.transforms += "freeze = false\n", kept.grad_clip = frozen.grad_clip = 0;
    const std::string adamw = "plugin = 'adamw'\nlearning_rate = 1e-2\nweight_decay = 0.1\n";
    kept.optimizer = adamw +
                     "groups = [{match = ['*.lora_*'], learning_rate_scale = 1}, "
                     "{match = ['*'], learning_rate_scale = 0}]\n";
    const Result a = train(frozen, plan(frozen, {}), {3}), b = train(kept, plan(kept, {"zero3"}), {4});
    REQUIRE(a.complaint == "");
    REQUIRE(b.complaint == "");
    size_t rounded = 0;
    for (const auto& [name, values] : a.tensors) {
      if (name == "norms") continue;
      INFO(format << " " << name);
      std::vector<float> other = numbers(b, name);
      REQUIRE(values.size() == other.size());
      if (name.rfind("parameter ", 0) == 0 && !path(name)) {
        const int32_t type = format[0] == 'b' ? ENG_BF16 : ENG_F16;
        std::vector<uint16_t> narrow(other.size());
        eng::convert(ENG_F32, other.data(), type, narrow.data(), other.size());
        eng::convert(type, narrow.data(), ENG_F32, other.data(), other.size());
        ++rounded;
      }
      CHECK(std::memcmp(values.data(), other.data(), values.size() * sizeof(float)) == 0);
    }
    CHECK(rounded == 21);
  }
}

TEST_CASE("frozen weights of a tier are read once for a forward and once for a backward, and never written") {
  for (const char* format : {"bf16", "bf16\nfrozen = 'nf4'"})
    for (const char* tier : {"host", "drawer"}) {
      const Group group = adapted("llama", format, "'*.q_proj', '*.v_proj'");
      const Draw draw{"zero3", 32768, 1, true, 0, "policy = 'full'", std::string("parameters = '") + tier + "'\n"};
      INFO(describe(group) << "; " << describe(draw));
      const eng::Plan plan = std::move(equality::plan(group, draw).plans[0]);
      const std::set<eng::Id> frozen = frozen_buffers(plan);
      size_t twice = 0;
      for (const eng::Segment& segment : plan.program("train").segments) {
        std::map<std::pair<eng::Id, uint64_t>, int> reads;
        for (const eng::Action& action : segment.actions) {
          for (const eng::View& out : action.out) CHECK(frozen.count(out.buffer) == 0);
          for (const eng::View& in : action.in)
            if (frozen.count(in.buffer)) ++reads[{in.buffer, in.offset}];
        }
        for (const auto& [at, n] : reads) {
          CHECK(n <= 2);
          twice += n == 2;
        }
      }
      CHECK(twice > 0);
    }
}

TEST_CASE("random compositions of adapters, packed and streamed weights give one result") {
  struct Model {
    const char *name, *targets;
  };
  static const Model models[] = {{"llama", "'all-linear'"},
                                 {"llama-tied", "'*.q_proj', '*.down_proj'"},
                                 {"opt", "'*.fc1', '*.out_proj'"},
                                 {"mamba", "'*.in_proj', '*.x_proj', '*.out_proj'"}};
  static const char* formats[] = {"bf16", "fp16", "bf16_sr", "fp32"};
  static const char* packings[] = {"", "", "nf4", "nf4_double", "int8", "e4m3"};
  static const char* tiers[] = {"host", "shelf", "drawer", "press"};
  Random random(39);
  for (int k = 0; k < 16; ++k) {
    const Model& model = models[k % 4];
    const std::string packing = packings[below(random, 6)];
    Group group = adapted(
        model.name, formats[below(random, 4)] + (packing.empty() ? "" : "\nfrozen = '" + packing + "'"), model.targets);
    group.world = 1 + static_cast<uint32_t>(below(random, 3));
    group.accumulate = 1 + static_cast<int64_t>(below(random, 2));
    std::vector<Draw> draws(1);
    for (int n = 0; n < 3; ++n) {
      Draw drawn = draw(random, group);
      if (drawn.offload.find("parameters") == std::string::npos)
        drawn.offload += std::string("parameters = '") + tiers[below(random, 4)] + "'\n";
      draws.push_back(drawn);
    }
    all_equal(group, draws);
  }
}

}  // namespace streamed_test
