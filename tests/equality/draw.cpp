// SPDX-License-Identifier: Apache-2.0
#include "draw.hpp"
#include "session/config/schemas.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/error.hpp"
#include "engine/ops.h"
#include "engine/packed.h"
#include "plugins.hpp"
#include "session/checkpoint/convert.hpp"
#include "together.hpp"

namespace equality {
namespace {

constexpr int64_t rows = 2, vocabulary = 48;

std::string model_text(const std::string& model) {
  if (model.find('=') != std::string::npos) return model;  // the section itself
  if (model == "opt" || model == "opt-still")
    return fmt::format(
        "plugin = 'opt'\nhidden_size = 32\nffn_dim = 64\nnum_hidden_layers = 2\nnum_attention_heads = 2\n"
        "max_position_embeddings = 16\ndropout = {}\n",
        model == "opt" ? 0.1 : 0.0);
  if (model == "gemma3" || model == "mistral")
    return fmt::format(
        "plugin = '{}'\nhidden_size = 32\nintermediate_size = 48\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
        "num_key_value_heads = 1\nhead_dim = 8\nsliding_window = 3\n",
        model);
  if (model == "mamba")
    return "plugin = 'mamba'\nhidden_size = 32\nnum_hidden_layers = 2\nstate_size = 4\ntime_step_rank = 4\n";
  if (model == "mamba2")
    return "plugin = 'mamba2'\nhidden_size = 32\nnum_hidden_layers = 2\nnum_heads = 8\nhead_dim = 8\nstate_size = 4\n"
           "n_groups = 2\n";
  if (model == "hybrid")
    return "plugin = 'bamba'\nhidden_size = 32\nintermediate_size = 24\nnum_hidden_layers = 2\n"
           "num_attention_heads = 2\nnum_key_value_heads = 1\nattn_layer_indices = [1]\nmamba_n_heads = 8\n"
           "mamba_n_groups = 2\nmamba_d_state = 4\n";
  if (model == "moe")
    return "plugin = 'qwen3_moe'\nhidden_size = 32\nmoe_intermediate_size = 24\nnum_hidden_layers = 2\n"
           "num_attention_heads = 4\nnum_key_value_heads = 2\nnum_experts = 5\nnum_experts_per_tok = 2\n"
           "output_router_logits = true\nrouter_aux_loss_coef = 0.2\nrouter_z_loss_coef = 0.05\n";
  if (model == "moe-dense")
    return "plugin = 'qwen2_moe'\nhidden_size = 32\nintermediate_size = 40\nmoe_intermediate_size = 24\n"
           "shared_expert_intermediate_size = 16\nnum_hidden_layers = 3\nmlp_only_layers = [1]\n"
           "num_attention_heads = 4\nnum_key_value_heads = 2\nnum_experts = 5\nnum_experts_per_tok = 2\n"
           "output_router_logits = true\nrouter_aux_loss_coef = 0.2\n";
  if (model == "moe-hybrid")
    return "plugin = 'nemotron_h'\nhybrid_override_pattern = 'ME*'\nhidden_size = 32\nhead_dim = 8\n"
           "num_attention_heads = 4\nnum_key_value_heads = 2\nmamba_num_heads = 4\nmamba_head_dim = 8\n"
           "ssm_state_size = 4\nn_groups = 2\nn_routed_experts = 5\nmoe_intermediate_size = 24\n"
           "moe_shared_expert_intermediate_size = 16\nmoe_latent_size = 16\n";
  if (model == "moe-jamba")
    return "plugin = 'jamba'\nhidden_size = 32\nintermediate_size = 24\nnum_hidden_layers = 3\n"
           "num_attention_heads = 4\nnum_key_value_heads = 2\nattn_layer_period = 3\nattn_layer_offset = 1\n"
           "num_experts = 5\nmamba_d_state = 4\nmamba_dt_rank = 4\noutput_router_logits = true\n"
           "router_aux_loss_coef = 0.2\n";
  if (model.rfind("odd", 0) == 0)
    return fmt::format("plugin = 'odd'\ntie_word_embeddings = {}\nplain = {}\n", model == "odd-tied",
                       model == "odd-plain");
  const bool decoder = model == "qwen2" || model == "qwen3";
  return fmt::format(
      "plugin = '{}'\nhidden_size = 64\nintermediate_size = 160\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
      "num_key_value_heads = {}\ntie_word_embeddings = {}\n",
      decoder ? model : "llama", model == "llama-heads" ? 4 : 2, model == "llama-tied");
}

// The plugin's name in quotes, then the rest.
std::string precision_text(const std::string& precision) {
  const size_t end = std::min(precision.find('\n'), precision.size());
  return "'" + precision.substr(0, end) + "'" + precision.substr(end);
}

eng::Config config(const Group& g, const Draw& d, uint64_t live_limit) {
  std::string text = fmt::format(
      "[model]\n{}vocab_size = {}\n{}[device]\nplugin = 'reference'\npad_vocabulary = {}\n"
      "[train]\nsteps = {}\nmicro_batch = {}\nsequence_length = {}\naccumulate = {}\ngrad_clip = {}\n"
      "reduce = '{}'\nfreeze = [{}]\n[optimizer]\n{}"
      "[precision]\nplugin = {}\n[zero]\nplugin = '{}'\nbucket = '{}B'\nprefetch = {}\noverlap = {}\n",
      model_text(g.model), vocabulary, g.z_loss > 0 ? fmt::format("z_loss = {}\n", g.z_loss) : "", d.pad_vocabulary,
      std::max(g.steps, 1), rows, g.length, g.accumulate, g.grad_clip, g.reduce_per_step ? "step" : "micro_batch",
      g.freeze, g.optimizer, precision_text(g.precision), d.strategy, d.bucket, d.prefetch, d.overlap);
  if (live_limit) text += fmt::format("live_limit = '{}B'\n", live_limit);
  if (g.packed) text = "[data]\nplugin = 'scored'\nprovides = ['segments', 'positions', 'loss_weights']\n" + text;
  text += d.zero;
  const uint32_t data = g.world / g.tensor / g.pipeline;
  if (d.strategy == "two_level") text += fmt::format("ranks_per_node = {}\n", data % 2 ? data : 2);
  if (g.same_rows() * g.pipeline * g.virtual_stages > 1)
    text += fmt::format(
        "[parallel]\ntensor = {}\ncontext = {}\nsequence = {}\npipeline = {}\nvirtual_stages = {}\ncuts = [{}]\n",
        g.tensor, g.context, g.sequence, g.pipeline, g.virtual_stages, g.cuts);
  if (!d.offload.empty()) text += "[offload]\n" + d.offload;
  if (!d.recompute.empty()) text += fmt::format("[recompute]\n{}\n", d.recompute);
  text += g.transforms;
  if (d.observe) text += "[[observers]]\nplugin = 'stats'\nparameters = true\n";
  return eng::Config::parse(text, "drawn.toml", ".", {}, schemas_of(registry()));
}

// The least live_limit, as the refusal of a smaller one says.
uint64_t least_live_limit(const Group& g, const Draw& d) {
  try {
    eng::make_setup(config(g, d, 1), registry(), 0, {0, g.world, 0, g.world});
  } catch (const eng::Error& e) {
    unsigned long long least = 0;
    if (std::sscanf(e.help().c_str(), "raise it to %llu bytes", &least) == 1) return least;
    throw;
  }
  return 0;  // nothing is leased
}

// False of models without attention, and of those whose attention has no positions.
bool reads_positions(const std::string& model) {
  return model.rfind("mamba", 0) != 0 && model.rfind("plugin = 'mamba", 0) != 0 && model != "moe-hybrid" &&
         model != "moe-jamba";
}

// The elements of a range that lies packed.
std::vector<float> unpacked(const Fleet& fleet, size_t rank, const eng::HeldRange& held, int32_t packed) {
  const std::vector<uint8_t> bytes = fleet.download<uint8_t>(rank, held.view);
  const size_t size = eng_packed_bytes(packed);
  float levels[256];
  eng_packed_levels(packed, levels);
  std::vector<float> out(bytes.size() / size * eng::chunk);
  for (size_t k = 0; k < bytes.size() / size; ++k)
    eng_unpack(packed, levels, &bytes[k * size], 0, ENG_PACKED_CHUNK, &out[k * eng::chunk]);
  out.resize(held.count);
  return out;
}

// The elements of a tensor, f32, bf16, f16 or u8.
std::vector<float> numbers(const Fleet& fleet, size_t rank, const eng::View& view) {
  if (view.desc.dtype == ENG_BF16 || view.desc.dtype == ENG_F16) {
    const std::vector<uint16_t> stored = fleet.download<uint16_t>(rank, view);
    std::vector<float> out(stored.size());
    eng::convert(view.desc.dtype, stored.data(), ENG_F32, out.data(), out.size());
    return out;
  }
  if (view.desc.dtype != ENG_U8) return fleet.download<float>(rank, view);
  const std::vector<uint8_t> bytes = fleet.download<uint8_t>(rank, view);
  return {bytes.begin(), bytes.end()};
}

// The terms of the losses of some ranks, without what is observed.
void add_losses(const eng::Plan& plan, const std::vector<float>& values, std::vector<float>& losses) {
  const size_t terms = std::max<size_t>(plan.terms.size(), 1), stride = size_t{plan.accumulate} * plan.row + plan.once;
  for (size_t first = 0; first < values.size(); first += stride)
    for (size_t a = 0; a < plan.accumulate; ++a)
      for (size_t k = 0; k < terms; ++k) losses.push_back(values[first + a * plan.row + k]);
}

}  // namespace

std::string describe(const Group& g) {
  return fmt::format("{} on {} ranks{}, {}, {} micro-batches, reduced {}, {}{}{}{}", g.model, g.world,
                     g.same_rows() * g.pipeline > 1
                         ? fmt::format(" (tensor {}{}, context {}, pipeline {} x {})", g.tensor,
                                       g.sequence ? " with positions" : "", g.context, g.pipeline, g.virtual_stages)
                         : "",
                     g.precision, g.accumulate, g.reduce_per_step ? "once per step" : "after each", g.optimizer,
                     g.freeze.empty() ? "" : "frozen ", g.freeze, g.z_loss > 0 ? "; z loss" : "") +
         (g.packed ? "; packed" : "") + (g.transforms.empty() ? "" : "; " + g.transforms);
}

std::string describe(const Draw& d) {
  return fmt::format(
      "{}{}{}, bucket {}, prefetch {}, overlap {}, live_limit {} times the least, recompute {}, offload: {}{}{}",
      d.strategy, d.zero.empty() ? "" : ", ", d.zero, d.bucket, d.prefetch, d.overlap, d.live_limit,
      d.recompute.empty() ? "none" : d.recompute, d.offload.empty() ? "nothing" : d.offload,
      d.observe ? ", observed" : "",
      d.pad_vocabulary > 1 ? fmt::format(", rows of heads in {}s", d.pad_vocabulary) : "");
}

Group draw_group(Random& random) {
  static const char* models[] = {"llama", "llama-tied", "opt", "mamba", "odd", "odd-tied"};
  Group g;
  g.model = models[below(random, 6)];
  g.world = chance(random, 0.1) ? 1 : 2 + static_cast<uint32_t>(below(random, 3));
  g.accumulate = 1 + static_cast<int64_t>(below(random, 3));
  g.reduce_per_step = g.accumulate > 1 && chance(random, 0.4);
  static const char* precisions[] = {
      "half-bf16", "bf16", "fp16", "fp16\ninitial_scale_power = 30", "bf16_sr", "bf16_sr\ngradients = 'bf16'"};
  if (chance(random, 0.5)) g.precision = precisions[below(random, 6)];
  const bool rounded = g.precision.starts_with("bf16_sr");  // which has optimizers of its own
  if (rounded && chance(random, 0.3)) g.optimizer = "plugin = 'sgd'\nlearning_rate = 1e-2\nmomentum = 0.9\n";
  if (!rounded && chance(random, 0.2)) g.optimizer = "plugin = 'adamw8bit'\nlearning_rate = 1e-2\nweight_decay = 0.1\n";
  if (g.model.rfind("odd", 0) != 0 && chance(random, 0.4)) g.z_loss = 0.01;
  return g;
}

Draw draw(Random& random, const Group& g) {
  static const char* strategies[] = {"none", "zero1", "zero2", "zero3", "zero3", "two_level", "hpz", "mics"};
  Draw d;
  d.strategy = strategies[below(random, 8)];
  const uint64_t least = g.world * eng::chunk * 4;  // one chunk for each rank
  d.bucket = chance(random, 0.3) ? uint64_t{64} << 20 : chance(random, 0.3) ? 1 : least * (1 + below(random, 4));
  d.prefetch = static_cast<int64_t>(below(random, 3));
  d.overlap = chance(random, 0.7);
  if (chance(random, 0.5)) d.live_limit = 1.0 + static_cast<double>(below(random, 7)) / 3.0;
  static const char* recompute[] = {"policy = 'full'", "every = 2", "blocks = 1", "blocks = 2"};
  if (chance(random, 0.5)) d.recompute = recompute[below(random, 4)];
  if (chance(random, 0.6)) d.offload = draw_offload(random);
  d.observe = chance(random, 0.3);
  static const int64_t multiples[] = {32, 64, 100, 500};
  if (chance(random, 0.4)) d.pad_vocabulary = multiples[below(random, 4)];
  return d;
}

std::string draw_offload(Random& random) {
  static const char* tiers[] = {"host", "host", "host", "drawer", "press", "shelf", "none"};
  std::string out;
  for (const char* state : {"optimizer", "master", "gradients", "parameters", "activations"})
    if (chance(random, 0.5)) out += fmt::format("{} = '{}'\n", state, tiers[below(random, std::size(tiers))]);
  if (out.find("optimizer = '") != std::string::npos && out.find("optimizer = 'none'") == std::string::npos &&
      chance(random, 0.7))
    out += fmt::format("update = '{}'\n", chance(random, 0.5) ? "host" : "device");
  else if (out.find("optimizer = '") != std::string::npos && out.find("optimizer = 'none'") == std::string::npos)
    out += fmt::format("update = 'both'\nhost_share = 0.{}\n", below(random, 10));
  if (out.find("update") != std::string::npos && chance(random, 0.3))
    out += fmt::format("ratio = 0.{}\n", 1 + below(random, 9));
  return out;
}

Planned plan(const Group& g, const Draw& d) {
  uint64_t limit = 0;
  if (d.live_limit > 0 && g.world > 1)
    limit = static_cast<uint64_t>(std::ceil(d.live_limit * static_cast<double>(least_live_limit(g, d))));
  const eng::Config c = config(g, d, limit);
  Planned out;
  out.live_limit = limit;
  for (uint32_t r = 0; r < g.world; ++r) {
    eng::Setup setup = eng::make_setup(c, registry(), 0, {r, g.world, r, g.world});  // verifies it
    if (out.table.empty())
      for (uint64_t k = 1; k <= static_cast<uint64_t>(std::max(g.steps, 1)); ++k) {
        out.table.push_back({0.01f / static_cast<float>(k)});
        for (float x : setup.optimizer.scalars(k)) out.table.back().push_back(x);
      }
    out.plans.push_back(std::move(setup.plan));
  }
  const auto wrong = disagreements(out.plans);
  if (!wrong.empty()) throw eng::Error(eng::Exit::bug, wrong[0]);
  return out;
}

// Also of what is not a number.
static bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

Result train(const Group& g, const Planned& planned, const Schedule& schedule, const Fault& fault) {
  Result result;
  Fleet fleet(planned.plans, reference(), fault, &registry());
  const uint32_t world = g.world, stage = world / g.pipeline, data_world = stage / g.tensor, same = g.same_rows(),
                 samplers = stage / same;
  Schedule now = schedule;
  const auto run = [&](const char* program) {
    now.seed = now.seed * 6364136223846793005u + 1442695040888963407u;
    return fleet.run(program, now);
  };
  run("init");
  for (uint32_t r = 0; r < world; ++r) result.sent.push_back(fleet.sent(r));
  for (uint32_t r = 0; r < world; ++r) {
    int64_t counters[ENG_C_COUNT] = {};
    if (samplers > 1) counters[ENG_C_RANK] = r % stage / same, counters[ENG_C_WORLD] = samplers;
    fleet.upload(r, planned.plans[r].counters, counters);
    std::vector<float> table;
    for (const auto& row : planned.table) table.insert(table.end(), row.begin(), row.end());
    fleet.upload(r, planned.plans[r].table, table.data());
  }
  Random data(1234), borders(99), drains(schedule.seed);  // the same batches for every plan of a group
  std::vector<float> losses, norms, scales;
  std::vector<std::vector<float>> of_stage(stage);  // the losses of each rank of the first one
  for (int step = 0; step < g.steps; ++step) {
    const size_t n = static_cast<size_t>(g.accumulate * rows * g.length);
    std::vector<std::vector<int32_t>> tokens(samplers), labels(samplers), segments(samplers), positions(samplers);
    std::vector<std::vector<float>> weights(samplers);
    float valid = 0;
    for (uint32_t r = 0; r < samplers; ++r)
      for (size_t k = 0; k < n; ++k) {
        tokens[r].push_back(static_cast<int32_t>(below(data, vocabulary)));
        labels[r].push_back(chance(data, 0.1) ? -100 : static_cast<int32_t>(below(data, vocabulary)));
        valid += labels[r].back() >= 0;
        if (!g.packed) continue;
        const bool first = k % g.length == 0, next = !first && chance(borders, 0.4);
        segments[r].push_back(first ? 0 : segments[r].back() + next);
        positions[r].push_back(first || next ? 0 : positions[r].back() + 1);
        weights[r].push_back(static_cast<float>(below(borders, 5)) / 4);
      }
    for (uint32_t r = 0; r < world; ++r) {
      const float inputs[8] = {1.0f / valid};
      const uint32_t d = r % stage / same;  // its number among those with rows of their own
      fleet.upload(r, planned.plans[r].field("tokens"), tokens[d].data());
      fleet.upload(r, planned.plans[r].field("labels"), labels[d].data());
      if (g.packed) {
        fleet.upload(r, planned.plans[r].field("segments"), segments[d].data());
        if (reads_positions(g.model)) fleet.upload(r, planned.plans[r].field("positions"), positions[d].data());
        fleet.upload(r, planned.plans[r].field("loss_weights"), weights[d].data());
      }
      fleet.upload(r, planned.plans[r].inputs, inputs);
    }
    const auto overflow = g.overflows.find(step);
    fleet.overflow(overflow == g.overflows.end() ? std::nullopt : std::optional(overflow->second));
    if (!run("train")) break;
    if (planned.plans[0].assumed.buffer) {
      bool again = false;
      for (uint32_t r = 0; r < world; ++r) {
        const bool mine = eng::assumed_wrongly(fleet.download<float>(r, planned.plans[r].assumed).data(),
                                               fleet.download<float>(r, planned.plans[r].scalars).data());
        if (r && mine != again) result.complaint = fmt::format("step {}: only some ranks update again", step);
        again = mine;
      }
      if (again && ++result.again) run(eng::update_again);
    }
    const bool drain = step + 1 == g.steps || chance(drains, 0.4);
    if (drain && !planned.plans[0].left.empty()) run(eng::late_update);
    for (uint32_t r = 0; r < world; ++r) {
      const eng::Plan& plan = planned.plans[r];
      const std::vector<float> mine = fleet.download<float>(r, plan.losses);
      const std::vector<float> scalars = fleet.download<float>(r, planned.plans[r].scalars);
      const uint32_t leader = r % stage / g.tensor * g.tensor;
      if (r != leader) {  // it must have what that one has
        std::vector<float> same;
        add_losses(plan, mine, same);
        const bool equal = same_bits({scalars[ENG_S_NORM]}, {norms.back()}) && same_bits(same, of_stage[leader]);
        if (!equal && result.complaint.empty())
          result.complaint = fmt::format("step {}: rank {} has another loss or norm than rank {}", step, r, leader);
        continue;
      }
      of_stage[r].clear();
      add_losses(plan, mine, of_stage[r]);
      losses.insert(losses.end(), of_stage[r].begin(), of_stage[r].end());
      const std::vector<float> everybodys = data_world > 1 ? fleet.download<float>(r, plan.all_losses) : mine;
      if (r == 0 && !plan.observed.empty()) result.observed = eng::observed(plan, 0, everybodys.data());
      norms.push_back(scalars[ENG_S_NORM]), scales.push_back(scalars[ENG_S_LOSS_SCALE]);
      if (data_world > 1) add_losses(plan, everybodys, losses);
    }
  }
  if (!fleet.complaint().empty()) result.complaint = fleet.complaint();
  for (uint32_t r = 0; r < world; ++r) {
    result.sent[r] = fleet.sent(r) - result.sent[r];
    result.most_live = std::max(result.most_live, fleet.most_live(r));
  }
  if (planned.live_limit && result.most_live > planned.live_limit && result.complaint.empty())
    result.complaint =
        fmt::format("{} bytes of leases and fresh gradients were in use at a time, with a live_limit of {}",
                    result.most_live, planned.live_limit);
  if (!result.complaint.empty()) return result;
  result.tensors = {{"norms", norms}, {"scales", scales}, {"losses", losses}};
  for (size_t t = 0; t < planned.plans[0].tensors.size(); ++t) {
    const eng::Tensor& first = planned.plans[0].tensors[t];
    std::vector<float> values(static_cast<size_t>(eng::count(first.desc)));
    std::vector<char> filled(values.size(), 0);
    for (uint32_t r = 0; r < world; ++r)
      for (const eng::HeldRange& e : planned.plans[r].tensors[t].ranges) {
        const std::vector<float> part = first.packed ? unpacked(fleet, r, e, first.packed) : numbers(fleet, r, e.view);
        for (size_t k = 0; k < part.size(); ++k) {
          const size_t at = e.first + k;
          if (filled[at] && std::memcmp(&values[at], &part[k], sizeof(float)) != 0 && result.complaint.empty())
            result.complaint = fmt::format("{} {} [{}] is {} on a rank before, {} on rank {}", first.role, first.name,
                                           at, values[at], part[k], r);
          values[at] = part[k], filled[at] = 1;
        }
      }
    const auto hole = std::find(filled.begin(), filled.end(), 0);
    if (hole != filled.end() && result.complaint.empty())
      result.complaint = fmt::format("{} {} [{}] is on no rank", first.role, first.name, hole - filled.begin());
    result.tensors.emplace_back(first.role + " " + first.name, std::move(values));
  }
  return result;
}

std::string difference(const Result& a, const Result& b) {
  for (const Result* one : {&a, &b})
    if (!one->complaint.empty()) return one->complaint;
  if (a.tensors.size() != b.tensors.size()) return "not the same tensors";
  for (size_t t = 0; t < a.tensors.size(); ++t) {
    const auto& [name, x] = a.tensors[t];
    const auto& y = b.tensors[t].second;
    if (name != b.tensors[t].first || x.size() != y.size()) return "not the same tensors: " + name;
    for (size_t k = 0; k < x.size(); ++k)
      if (std::memcmp(&x[k], &y[k], sizeof(float)) != 0)
        return fmt::format("{}, element {}: {:.9g} and {:.9g}", name, k, x[k], y[k]);
  }
  return "";
}

Types types(const eng::Plan& plan, const char* op, eng::Phase phase, const char* program) {
  Types out;
  for (const eng::Segment& segment : plan.program(program).segments)
    for (const eng::Action& action : segment.actions)
      if (const eng::Call& call = plan.calls[action.call];
          call.op->id == std::string(op) && plan.labels[action.label].phase == phase)
        out.insert({call.in[0].dtype, call.out[0].dtype});
  return out;
}

}  // namespace equality
