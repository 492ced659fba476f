// SPDX-License-Identifier: Apache-2.0
// Compositions drawn at random: models x ranks x tensor x context x stages x strategies x tiers x recomputation x
// formats x sums in fewer bits x adapters, against ranks that divide neither layers nor sequences, and against another
// plan of the same group. EQUALITY_DRAW is text that chooses them, which tools/run-tests sets to the commit;
// EQUALITY_COMPOSED is their number.
#include <catch2/catch.hpp>

#include <cstdlib>
#include <iostream>
#include <map>

#include "core/base/error.hpp"
#include "degrees.hpp"

namespace composed_test {

using namespace equality;

namespace {

constexpr const char* sgd = "plugin = 'sgd'\nlearning_rate = 0.1\nmomentum = 0.9\n";

struct Composition {
  Group group;
  Draw draw;
  bool exact = true;  // its numbers are those of one rank but for the rounding of f32
  // Another plan of the same numbers.
  Draw plain() const {
    Draw out;
    out.zero = draw.zero;
    return out;
  }
};

uint32_t divisor(Random& random, uint32_t n) {
  uint32_t out = 0;
  do out = 1u << below(random, 4);
  while (n % out);
  return out;
}

std::string draw_model(Random& random) {
  static const std::string small = "hidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\n",
                           heads = "num_attention_heads = 4\nnum_key_value_heads = 2\n",
                           mixers = "mamba_n_heads = 8\nmamba_d_state = 4\n",
                           mamba2 =
                               "plugin = 'mamba2'\nhidden_size = 32\nnum_hidden_layers = 2\nnum_heads = 8\n"
                               "head_dim = 8\nstate_size = 4\n";
  static const std::string models[] = {
      "llama",
      "llama-tied",
      "llama-heads",
      "qwen2",
      "qwen3",
      "gemma3",
      "mistral",
      "opt",
      "opt-still",
      "mamba",
      "mamba2",
      "hybrid",
      "moe",
      "moe-dense",
      "moe-hybrid",
      "moe-jamba",
      "plugin = 'olmo2'\n" + small + heads,
      "plugin = 'gpt2'\npreset = 'tiny'\nnum_hidden_layers = 2\n",
      "plugin = 'gpt_neox'\npreset = 'tiny'\nnum_hidden_layers = 2\n",
      "plugin = 'falcon_h1'\n" + small + heads + mixers + "mamba_d_ssm = 64\nmamba_n_groups = 1\n",
      "plugin = 'granitemoehybrid'\n" + small + heads + mixers +
          "shared_intermediate_size = 16\nlayer_types = ['mamba', 'attention']\nnum_local_experts = 4\n"
          "num_experts_per_tok = 2\n",
      mamba2 + "n_groups = 1\n",
      mamba2 + "n_groups = 4\n"};
  return models[below(random, std::size(models))];
}

Composition compose(Random& random) {
  Composition out;
  Group& g = out.group;
  g.model = draw_model(random);
  g.world = 2u << below(random, 3);
  do g.tensor = divisor(random, g.world), g.context = divisor(random, g.world / g.tensor);
  while (g.same_rows() == 1 && chance(random, 0.8));
  if (g.world / g.same_rows() > 1 && chance(random, 0.5))
    g.pipeline = 2, g.virtual_stages = 1 + static_cast<uint32_t>(below(random, 2));
  g.sequence = g.tensor > 1 && chance(random, 0.5);
  g.length = 8, g.steps = 2, g.optimizer = sgd;
  g.accumulate = 1 + static_cast<int64_t>(below(random, 2)), g.reduce_per_step = chance(random, 0.3);
  const auto is_of = [&](const char* name) { return g.model.find(name) != std::string::npos; };
  g.packed = !is_of("gemma") && !is_of("granite") && chance(random, 0.3);
  if (!is_of("moe") && chance(random, 0.2)) g.z_loss = 0.01;
  if (chance(random, 0.3)) {
    static const char* formats[] = {"bf16", "fp16", "bf16_sr"};
    g.precision = formats[below(random, 3)], out.exact = false;
  }
  if (chance(random, 0.3)) {
    g.transforms = "[[transforms]]\nplugin = 'lora'\nrank = 4\ntargets = ['all-linear']\n";
    if (chance(random, 0.4)) g.transforms += "dora = true\n";
    if (chance(random, 0.5)) g.transforms += "dropout = 0.2\n";
  }
  if (!g.transforms.empty() && g.precision != "bf16_sr" && chance(random, 0.3))
    g.precision += "\nfrozen = 'int8'", out.exact = false;
  if (chance(random, 0.15)) {
    g.transforms += "[[transforms]]\nplugin = 'fp8'\n", out.exact = false;
    if (chance(random, 0.5)) g.transforms += "recipe = 'delayed'\n";
  }
  if (!g.packed && g.z_loss == 0 && chance(random, 0.15))
    g.transforms += "[loss]\nplugin = 'preference'\n[reference]\nfrom = 'start'\n", out.exact = false;
  out.draw = draw(random, g);
  out.draw.observe = out.draw.observe && g.tensor == 1, out.draw.pad_vocabulary = 1;
  static const char* without_groups[] = {"none", "zero1", "zero2", "zero3"};
  if (g.world / g.tensor / g.pipeline > 1 && g.precision.rfind("fp16", 0) != 0 && chance(random, 0.2))
    out.draw.strategy = without_groups[below(random, 4)], out.draw.zero = "sum = 'int8'\n", out.exact = false;
  if (g.pipeline > 1 && out.draw.offload.find("update = 'host'") != std::string::npos && chance(random, 0.7))
    out.draw.observe = false, out.draw.live_limit = 0,
    out.draw.offload += chance(random, 0.5) ? "update_late = true\n" : "update_early = true\nearly_share = 0.5\n";
  return out;
}

// "" or why it is refused: a fault of the settings, never of the program.
std::string refusal(const Composition& c) {
  try {
    plan(c.group, c.draw), plan(c.group, c.plain());
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::usage) throw;
    return e.what();
  }
  return "";
}

void compare(const Composition& c) {
  INFO(describe(c.group) << "; " << describe(c.draw));
  std::cout << "  " << describe(c.group) << "; " << describe(c.draw) << "\n";
  const Result result = all_equal(c.group, {c.plain(), c.draw});
  if (c.group.same_rows() == 1) return;
  const Group whole = degrees::undivided(c.group);
  const Result alone = degrees::trained(whole);
  if (c.exact) return degrees::near(whole, alone, c.group, result, 1e-4);
  REQUIRE(alone.complaint == "");
  CHECK(degrees::steps(c.group, result).losses[0] == Approx(degrees::steps(whole, alone).losses[0]).epsilon(0.01));
}

uint64_t seed_of(const std::string& text) {  // FNV-1a
  uint64_t out = 14695981039346656037u;
  for (const char c : text) out = (out ^ static_cast<uint8_t>(c)) * 1099511628211u;
  return out;
}

void draw_and_compare(int number) {
  const char* given = std::getenv("EQUALITY_DRAW");
  const std::string text = given ? given : "1";
  std::cout << "EQUALITY_DRAW=" << text << "\n";
  Random random(seed_of(text));
  std::map<std::string, int> refused;
  int tries = 0;
  for (int done = 0; done < number; ++tries) {
    REQUIRE(tries < 40 * number + 100);
    const Composition c = compose(random);
    INFO(describe(c.group) << "; " << describe(c.draw));
    if (const std::string why = refusal(c); !why.empty())
      ++refused[why];
    else
      compare(c), ++done;
  }
  for (const auto& [why, times] : refused) std::cout << "  refused " << times << ": " << why << "\n";
}

}  // namespace

TEST_CASE("drawn compositions train what ranks with whole models and sequences train", "[.slow]") {
  const char* number = std::getenv("EQUALITY_COMPOSED");
  draw_and_compare(number ? std::atoi(number) : 12);
}

}  // namespace composed_test
