// SPDX-License-Identifier: Apache-2.0
#include "session/fits.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/error.hpp"

namespace eng {

Beside beside(const Setup& setup) {
  const eng_device_info& info = setup.kernels->info();
  Beside b;
  b.overhead = info.overhead_bytes + setup.comm_overhead;
  b.staging = 2 * (bytes(setup.plan.tokens.desc) + bytes(setup.plan.labels_in.desc));
  b.snapshot = setup.snapshot;
  b.host_arenas = setup.kernels->host_memory();
  b.device_overhead = info.device_overhead_bytes;
  b.local_ranks = setup.plan.ranks.world.local_size;
  return b;
}

uint64_t planned_peak(const Setup& setup) {
  return peak_of(setup.plan, beside(setup)).rank;
}

uint64_t machine_peak(const Setup& setup) {
  return peak_of(setup.plan, beside(setup)).machine;
}

std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, const Setup& setup, uint64_t limit) {
  struct Edit {
    const char *section, *key;
    Value value;
  };
  using Edits = std::vector<Edit>;
  const World world = setup.plan.ranks.world;
  std::vector<std::string> found;
  auto fits = [&](const Edits& edits, const char* note) {
    Config other = config;
    std::string text;
    for (const Edit& e : edits) {
      other.section(e.section).set(e.key, e.value, "edit");
      // With train.global_batch, accumulate is derived, so the user must not set it.
      if (e.key == std::string("accumulate") && config.section("train").given("global_batch")) continue;
      const auto* word = std::get_if<std::string>(&e.value);
      text += fmt::format("{}.{}={} ", e.section, e.key, word ? *word : toml_text(e.value));
    }
    try {
      uint64_t peak = machine_peak(make_setup(other, registry, 0, world));
      if (peak <= limit) found.push_back(fmt::format("{}{}: {}", text, note, format_bytes(static_cast<double>(peak))));
      return peak <= limit;
    } catch (const Error&) {
      return false;
    }
  };
  const Section &train = config.section("train"), &model = config.section("model");
  const int64_t batch = train.integer("micro_batch"), accumulate = train.integer("accumulate");
  const auto less_at_a_time = [&](const Edits& with) {
    for (int64_t n = 2; n <= batch; ++n) {
      Edits edits = with;
      const Edit less{"train", "micro_batch", batch / n}, more{"train", "accumulate", accumulate * n};
      edits.insert(edits.end(), {less, more});
      if (batch % n == 0 && fits(edits, "(the same tokens per step)")) break;
    }
    for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2) {
      Edits edits = with;
      const Edit shorter{"train", "sequence_length", t};
      edits.push_back(shorter);
      if (fits(edits, "(less context)")) break;
    }
  };
  // The strategy with less traffic comes first.
  const Edits parts = {{"zero", "plugin", std::string("zero2")}, {"zero", "plugin", std::string("zero3")}};
  const std::string now = setup.sharding ? setup.sharding->name : "zero3";  // one rank cannot shard
  for (const Edit& stage : parts)
    if (now != "zero3" && Value(now) != stage.value && fits({stage}, "(the same numbers)")) break;
  const Section& recompute = config.section("recompute");
  if (std::none_of(recompute.settings().begin(), recompute.settings().end(),
                   [](const auto& s) { return s.second.given; }))
    fits({{"recompute", "policy", std::string("full")}}, "(the same numbers; the forward of layers runs twice)");
  less_at_a_time({});
  if (found.empty() && now != "zero3") less_at_a_time({parts.back()});
  int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  for (int64_t n = layers - 1; n >= 1; n = n > 8 ? n * 3 / 4 : n - 1)
    if (fits({{"model", "num_hidden_layers", n}}, "(another model)")) break;
  return found;
}

static void refuse_plan(const Setup& setup, uint64_t peak, uint64_t limit, const std::string& what,
                        const std::string& help) {
  const bool host = setup.kernels->host_memory();
  const auto text = [](uint64_t n) { return format_bytes(static_cast<double>(n)); };
  throw Error(host ? Exit::host_memory : Exit::device_memory,
              fmt::format("{} needs {}, device {} has {}: {} too much", what, text(peak), setup.kernels->device(),
                          text(limit), text(peak - limit)),
              help);
}

void check_fits(const Config& config, Registry& registry, const Setup& setup) {
  uint64_t limit = setup.kernels->info().total_bytes, peak = machine_peak(setup);
  if (!limit || peak <= limit) return;
  std::string help;
  auto edits = edits_that_fit(config, registry, setup, limit);
  if (edits.empty()) help = "no smaller batch or sequence fits either: use a smaller model";
  for (const auto& e : edits) help += (help.empty() ? "any one of these fits:\n  " : "\n  ") + e;
  const bool host = setup.kernels->host_memory();
  const uint32_t local = setup.plan.ranks.world.local_size;
  const bool several = host && local > 1;
  refuse_plan(setup, peak, limit, several ? fmt::format("the plan of {} ranks on this machine", local) : "the plan",
              help);
}

void check_evaluation_fits(const Config& config, Registry& registry, const Setup& setup) {
  const uint64_t limit = setup.kernels->info().total_bytes, peak = machine_peak(setup);
  if (!limit || peak <= limit) return;
  std::string help = "no smaller batch or sequence fits either: this machine has too little memory for the weights";
  const auto fits = [&](const char* key, int64_t value, const char* note) {
    Config other = config;
    other.section("train").set(key, value, "edit");
    const uint64_t less = machine_peak(make_evaluation(other, registry));
    if (less <= limit)
      help = fmt::format("train.{}={}{}: {}", key, value, note, format_bytes(static_cast<double>(less)));
    return less <= limit;
  };
  const Section& train = config.section("train");
  for (int64_t n = train.integer("micro_batch") / 2; n >= 1; n /= 2)
    if (fits("micro_batch", n, "")) break;
  if (help.starts_with("no"))
    for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2)
      if (fits("sequence_length", t, " (less context)")) break;
  refuse_plan(setup, peak, limit, "evaluating", help);
}

}  // namespace eng
