// SPDX-License-Identifier: Apache-2.0
// Frozen weights in 8 or 4 bits beside trained low-rank paths: the same bits with every strategy, recomputation and
// tier.
#include <catch2/catch.hpp>

#include <algorithm>

#include "all_equal.hpp"
#include "engine/ops.h"
#include "engine/packed.h"

namespace frozen_test {

using namespace equality;

namespace {

Group group_of(const std::string& model, const std::string& precision, const std::string& targets) {
  Group group;
  group.model = model, group.precision = precision, group.accumulate = 2;
  group.transforms = "[[transforms]]\nplugin = 'low_rank'\nrank = 4\ntargets = [" + targets + "]\n";
  return group;
}

const std::vector<Draw> draws = {
    {"none"},
    {"zero1", 32768, 1, true, 0, "", "master = 'host'\n"},
    {"zero2", 1, 1, true, 0, "every = 2", "parameters = 'shelf'\nmaster = 'shelf'\n"},
    {"zero3", 32768, 2, true, 1, "policy = 'full'"},
    {"two_level", 1, 0, false},
    {"zero3", 32768, 1, true, 0, "", "parameters = 'host'\nmaster = 'press'\noptimizer = 'host'\n"},
    {"zero3", 1, 1, true, 1.5, "policy = 'full'", "parameters = 'shelf'\nmaster = 'shelf'\n"}};

// The first of the values that have a name.
const std::vector<float>& values(const Result& result, const std::string& name) {
  const auto at =
      std::find_if(result.tensors.begin(), result.tensors.end(), [&](const auto& t) { return t.first == name; });
  if (at == result.tensors.end()) throw std::runtime_error(name);
  return at->second;
}

}  // namespace

TEST_CASE("frozen matrices are packed once, and keep their codes") {
  const auto [name, bytes] = GENERATE(table<std::string, uint64_t>({{"nf4", 2304}, {"nf4_double", 2116}}));
  CAPTURE(name);
  const uint64_t chunk_bytes = bytes;
  Group packed = group_of("llama", "fp32\nfrozen = '" + name + "'", "'*.q_proj'"), plain = packed;
  plain.precision = "fp32";
  const Planned planned = plan(packed, draws[0]);
  const Result result = train(packed, planned, {3}), before = train(plain, plan(plain, draws[0]), {3});
  REQUIRE(result.complaint == "");
  size_t matrices = 0;
  for (const eng::Tensor& t : planned.plans[0].tensors) {
    INFO(t.name);
    const bool path = t.name.find(".lora_") != std::string::npos, layer = t.name.find(".layers.") != std::string::npos;
    if (t.role != "parameter") continue;
    CHECK((t.packed != 0) == (layer && !path && t.desc.ndim == 2));
    if (!t.packed) continue;
    ++matrices;
    CHECK(t.desc.dtype == ENG_F32);
    std::vector<float> want = values(before, "parameter " + t.name);
    const size_t n = want.size();
    want.resize((n + eng::chunk - 1) / eng::chunk * eng::chunk);
    std::vector<uint8_t> chunk(eng_packed_bytes(t.packed));
    float levels[256];
    eng_packed_levels(t.packed, levels);
    for (size_t k = 0; k < want.size(); k += eng::chunk) {
      eng_pack(t.packed, &want[k], chunk.data());
      eng_unpack(t.packed, levels, chunk.data(), 0, ENG_PACKED_CHUNK, &want[k]);
    }
    want.resize(n);
    CHECK(values(result, "parameter " + t.name) == want);
  }
  CHECK(matrices == 14);
  // The plan counts codes and scales.
  for (const eng::Unit& unit : planned.plans[0].units)
    if (unit.flags & ENG_PARAM_FROZEN)
      CHECK(std::any_of(planned.plans[0].buffers.begin(), planned.plans[0].buffers.end(), [&](const eng::Buffer& b) {
        return b.name == "weight " + unit.name && b.persistent && b.bytes == unit.count / eng::chunk * chunk_bytes;
      }));
  // Ranks gather the codes.
  const Planned parts = plan(packed, draws[3]);
  CHECK(types(parts.plans[0], ENG_OP_ALL_GATHER, eng::Phase::gather).count({ENG_U8, ENG_U8}) == 1);
  CHECK(difference(result, train(packed, parts, {4, true})) == "");
}

TEST_CASE("packed weights of every model have the same bits with every strategy, recomputation and tier", "[.slow]") {
  struct Case {
    const char *model, *precision, *targets, *more = "";
  };
  for (const Case& c : {Case{"llama", "bf16\nfrozen = 'nf4'", "'*.q_proj', '*.v_proj', '*.down_proj'"},
                        Case{"llama", "bf16\nfrozen = 'nf4'", "'*.q_proj', '*.down_proj'", "dora = true\n"},
                        Case{"llama-tied", "fp16\nfrozen = 'e4m3'", "'*_proj'"},
                        Case{"opt", "fp32\nfrozen = 'int8'", "'*.fc1', '*.fc2', '*.out_proj'"},
                        Case{"mamba", "bf16_sr\nfrozen = 'nf4_double'", "'*.in_proj', '*.out_proj'"}}) {
    Group group = group_of(c.model, c.precision, c.targets);
    group.transforms += c.more;
    all_equal(group, draws);
    group.world = 3, group.reduce_per_step = true;
    all_equal(group, {draws[0], draws[3], draws[5]});
    group.world = 1;
    all_equal(group,
              {{"none"}, {"none", 32768, 2, true, 0, "policy = 'full'", "parameters = 'host'\nmaster = 'shelf'\n"}});
  }
}

TEST_CASE("packing without a frozen matrix is refused") {
  Group group;
  group.precision = "bf16\nfrozen = 'nf4'";
  CHECK_THROWS_WITH(plan(group, {}), Catch::Contains("packs frozen matrices of layers, and this model has none"));
  group.freeze = "'model.embed_tokens.weight'";
  CHECK_THROWS_WITH(plan(group, {}), Catch::Contains("this model has none"));
}

}  // namespace frozen_test
