// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/ways.hpp"

#include <algorithm>
#include <map>
#include <numeric>

#include "engine/policy.h"
#include "session/model/pipeline.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

// Keys of [parallel] whose ranks exchange activations within each layer.
constexpr const char* degree_keys[] = {"tensor", "context"};
constexpr int64_t most_degree = 16;  // as [parallel] allows
constexpr int64_t most_stages = 16;
constexpr int64_t most_parts = 4;   // of the model on each stage
constexpr uint32_t most_nodes = 8;  // of a group

void append_effect(std::string& text, const std::string& more) {
  if (!more.empty()) text += (text.empty() ? "" : "; ") + more;
}

std::vector<int64_t> divisors(int64_t n, int64_t most) {
  std::vector<int64_t> out;
  for (int64_t k = 1; k * k <= n; ++k)
    if (n % k == 0)
      for (const int64_t d : {k, n / k})
        if (d <= most) out.push_back(d);
  std::sort(out.rbegin(), out.rend());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

// The ranks that read the same sequences, with these edits; 0 if they do not divide `ranks`.
uint32_t ranks_with_rows(const Config& config, const Edits& degrees, uint32_t ranks) {
  Config with = config;
  for (const Edit& e : degrees) with.section(e.section).set(e.key, e.value, "edit");
  try {
    return data_ranks(with, ranks);
  } catch (const Error&) {
    return 0;
  }
}

// Edits for another number of stages, with another number of parts on each. Blocks that are named for one number are
// none for another.
Edits stage_edits(const Config& config, int64_t stages, int64_t parts) {
  const Section& parallel = config.section("parallel");
  Edits out;
  if (stages != parallel.integer("pipeline")) out.push_back({"parallel", "pipeline", stages});
  if (parts != parallel.integer("virtual_stages")) out.push_back({"parallel", "virtual_stages", parts});
  if (!out.empty() && parallel.given("cuts")) out.push_back({"parallel", "cuts", std::vector<std::string>{}});
  return out;
}

// Edits for all other numbers. None with stages if the rules of a pipeline refuse the configuration.
std::vector<Edits> stages_of(const Config& config, const World& world) {
  const Section& model = config.section("model");
  const int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : most_stages;
  Config with = config;
  with.section("parallel").set("pipeline", int64_t{2}, "edit");
  with.section("train").set("accumulate", int64_t{1}, "edit");  // ways have others
  bool refused = false;
  try {
    check_pipeline(with, false);
  } catch (const Error&) {
    refused = true;
  }
  std::vector<Edits> out;
  std::vector<int64_t> all = divisors(world.size, std::min(most_stages, layers));
  std::reverse(all.begin(), all.end());
  for (const int64_t stages : all)
    for (int64_t parts = 1; parts == 1 || (stages > 1 && parts <= most_parts && stages * parts <= layers); parts *= 2)
      if (Edits edits = stage_edits(config, stages, parts); !edits.empty() && !(refused && stages > 1))
        out.push_back(std::move(edits));
  return out;
}

// Edits for each set of degrees, none first.
std::vector<Edits> degrees_of(const Config& config, const World& world) {
  std::vector<Edits> out = {{}};
  const Section& parallel = config.section("parallel");
  for (const char* key : degree_keys) {
    std::vector<int64_t> all = divisors(world.local_size, most_degree);
    std::reverse(all.begin(), all.end());
    const size_t before = out.size();
    for (const int64_t degree : all)
      for (size_t k = 0; k < before && degree != parallel.integer(key); ++k) {
        Edits edits = out[k];
        edits.push_back({"parallel", key, degree});
        out.push_back(std::move(edits));
      }
  }
  std::erase_if(out, [&](const Edits& edits) {
    int64_t all = 1;
    for (const char* key : degree_keys) all *= degree_with(config, edits, key);
    return !edits.empty() && world.local_size % all != 0;
  });
  // Both stages and divided positions between maps are for what is too large; so is another `context`.
  const auto same_context = [](const Edits& edits) {
    return std::none_of(edits.begin(), edits.end(), [](const Edit& e) { return e.key == "context"; });
  };
  const std::vector<Edits> stages = stages_of(config, world);
  for (size_t k = 0, before = out.size(); k < before; ++k)
    for (const Edits& more : stages)
      if (Edits edits = out[k]; same_context(edits)) {
        edits.insert(edits.end(), more.begin(), more.end());
        out.push_back(std::move(edits));
      }
  for (size_t k = 0, before = out.size(); k < before && !parallel.boolean("sequence"); ++k)
    if (same_context(out[k]) && degree_with(config, out[k], "tensor") > 1) {
      out.push_back(out[k]);
      out.back().push_back({"parallel", "sequence", true});
    }
  return out;
}

const char* effect_of_degree(const std::string& key) {
  return key == "tensor"     ? "sums within layers in another order"
         : key == "context"  ? "sums over positions in another order"
         : key == "pipeline" ? "sums over ranks and micro-batches in another order"
         : key == "sequence" ? "gradients of norms summed in another order"
                             : "";
}

// The values of a strategy's group: its ranks of one node, and of 2, 4, 8 nodes.
std::vector<int64_t> groups_of(uint32_t data, const World& world) {
  std::vector<int64_t> out;
  if (world.local_size < 2 || world.size <= world.local_size) return out;
  const uint32_t inside = std::max<uint32_t>(1, data / (world.size / world.local_size));
  for (uint32_t nodes = 1; nodes <= most_nodes; nodes *= 2)
    if (const uint32_t group = nodes * inside; group > 1 && group < data && data % group == 0) out.push_back(group);
  return out;
}

// Every choice of the options that change values, none first: of each key one value at most.
std::vector<Edits> lossy_edits(const Offer& strategy) {
  std::map<std::string, std::vector<std::string>> values;
  for (const std::string& one : strategy.lossy)
    if (const size_t at = one.find('='); at != std::string::npos)
      values[one.substr(0, at)].push_back(one.substr(at + 1));
  std::vector<Edits> out = {{}};
  for (const auto& [key, list] : values)
    for (size_t k = 0, before = out.size(); k < before; ++k)
      for (const std::string& value : list) {
        out.push_back(out[k]);
        out.back().push_back({"zero", key, value});
      }
  return out;
}

class Ways {
 public:
  Ways(const Config& config, const Offers& strategies, const World& world, bool lossy)
      : config_(config), own_(strategies[0]), world_(world), lossy_(lossy) {
    const Section& train = config.section("train");
    for (const Offer& one : strategies)
      if (const bool divides = one.order > 0 && one.group.empty();
          divides && (stage_strategies_.empty() || stage_strategies_[0] == &own_))
        stage_strategies_.push_back(&one);
    if (stage_strategies_.empty()) stage_strategies_ = {&own_};
    all_rows_ = train.integer("micro_batch") * train.integer("accumulate") * data_ranks(config, world.size);
    add({strategies[0]});
    if (world.size == 1) return;
    for (const Edits& degrees : degrees_of(config, world)) {
      const uint32_t rows = ranks_with_rows(config, degrees, world.size);
      if (!rows || all_rows_ % rows) continue;
      // A strategy divides states over the ranks of a context group, too.
      const uint32_t data = rows * static_cast<uint32_t>(degree_with(config, degrees, "context"));
      if (data == 1)  // nothing is left for a strategy
        add_with(own_, degrees, {}, {});
      else
        for (const Offer& one : strategies) add_strategy(one, degrees, data);
    }
  }
  std::vector<Way> ways() { return std::move(ways_); }

 private:
  void add_strategy(const Offer& strategy, const Edits& degrees, uint32_t data) {
    Edits plugin;
    if (strategy.name != own_.name) plugin.push_back({"zero", "plugin", strategy.name});
    if (degree_with(config_, degrees, "pipeline") > 1) return add_stages(strategy, degrees, plugin);
    for (const Edits& lossy : lossy_ ? lossy_edits(strategy) : std::vector<Edits>{{}}) {
      if (strategy.group.empty() || &strategy == &own_) add_with(strategy, degrees, plugin, lossy);
      if (strategy.group.empty()) continue;
      for (const int64_t group : groups_of(data, world_)) {
        Edits edits = plugin;
        edits.push_back({"zero", strategy.group, group});
        add_with(strategy, degrees, edits, lossy);
      }
    }
  }
  // Each micro-batch uses the weights of a stage, and its gradients are summed; a sum of a step is one.
  void add_stages(const Offer& strategy, const Edits& degrees, const Edits& plugin) {
    const bool own = degrees.empty() && &strategy == &own_;
    if (!own && !std::count(stage_strategies_.begin(), stage_strategies_.end(), &strategy)) return;
    add_with(strategy, degrees, plugin, {});
    if (config_.section("train").string("reduce") == "step") return;
    Edits edits = plugin;
    edits.push_back({"train", "reduce", std::string("step")});
    add_with(strategy, degrees, edits, {});
  }
  void add_with(const Offer& strategy, const Edits& degrees, const Edits& zero, const Edits& lossy) {
    Way way{strategy, degrees, degrees};
    for (const Edits* more : {&zero, &lossy}) way.edits.insert(way.edits.end(), more->begin(), more->end());
    for (const Edit& e : degrees) append_effect(way.effect, effect_of_degree(e.key));
    // With the library's own order of sums no strategy keeps the bits of another.
    if (!zero.empty() && config_.section("comm").string("reduce") == "fast")
      append_effect(way.effect, "sums over ranks in another order");
    append_effect(way.effect, effect_between(own_, strategy));
    for (const Edit& e : zero) {
      if (e.key == "reduce") append_effect(way.effect, "sums over micro-batches before those over ranks");
      if (const auto* n = std::get_if<int64_t>(&e.value); n && (*n & (*n - 1)))
        append_effect(way.effect, "sums over groups in another order");
    }
    for (const Edit& e : lossy)
      append_effect(way.effect,
                    fmt::format("zero.{} = \"{}\" rounds what ranks send", e.key, std::get<std::string>(e.value)));
    add(std::move(way));
  }
  // Another key of the same step is no other way.
  void add(Way way) {
    if (!known_.insert(words_of(way.edits)).second) return;
    way.rows = all_rows_ / ranks_with_rows(config_, way.degrees, world_.size);
    const int64_t most = (int64_t{1} << 40) / config_.section("train").integer("sequence_length");
    way.micro = divisors(way.rows, most);  // as the rules of [train] have it
    way.stages = degree_with(config_, way.degrees, "pipeline");
    way.parts = degree_with(config_, way.degrees, "virtual_stages");
    // A pipeline of fewer micro-batches than stages never has work for all of them. Virtual stages take groups of as
    // many micro-batches as there are stages.
    if (way.stages > 1 && !way.degrees.empty())
      std::erase_if(way.micro, [&](int64_t micro) {
        const int64_t n = way.rows / micro;
        return n < way.stages || n > most_micro_batches || (way.parts > 1 && n % way.stages != 0);
      });
    if (way.micro.empty()) return;
    ways_.push_back(std::move(way));
  }

  const Config& config_;
  const Offer& own_;
  const World& world_;
  const bool lossy_;
  int64_t all_rows_ = 0;
  std::vector<const Offer*> stage_strategies_;  // for stages: the own one if it divides states, and the first other
  std::set<std::string> known_;
  std::vector<Way> ways_;
};

}  // namespace

// A strategy that changes values on purpose has an effect, whether its description says so or not. One that cannot be
// loaded is refused when it is planned.
Offers strategies_of(const Config& config, Registry& registry) {
  Offers out = offers(registry, ENG_ZERO_KIND, config.section("zero").string("plugin"));
  for (Offer& one : out) try {
      if (one.effect.empty() && registry.find(ENG_ZERO_KIND, one.name) &&
          (registry.table<eng_axis>(ENG_ZERO_KIND, one.name).flags & ENG_AXIS_LOSSY))
        one.effect = fmt::format("{} changes values that it moves", one.name);
    } catch (const Error&) {
    }
  return out;
}

int64_t degree_with(const Config& config, const Edits& degrees, const std::string& key) {
  for (const Edit& e : degrees)
    if (e.section == "parallel" && e.key == key) return std::get<int64_t>(e.value);
  return config.section("parallel").integer(key);
}

Edits without_stages(const Config& config, const Edits& degrees) {
  Edits out = stage_edits(config, 1, 1);
  for (const Edit& e : degrees)
    if (e.key != "pipeline" && e.key != "virtual_stages" && e.key != "cuts") out.push_back(e);
  return out;
}

std::optional<Edits> with_less_context(const Config& config, const Edits& degrees) {
  const int64_t now = degree_with(config, degrees, "context");
  if (now == 1) return std::nullopt;
  int64_t less = now - 1;
  while (now % less) --less;
  Edits out;
  for (const Edit& e : degrees)
    if (e.key != "context") out.push_back(e);
  if (less != config.section("parallel").integer("context")) out.push_back({"parallel", "context", less});
  return out;
}

std::vector<size_t> by_memory(const std::vector<Way>& ways) {
  std::vector<size_t> out(ways.size());
  std::iota(out.begin(), out.end(), 0);
  const auto place = [](const Way& w) {
    return std::pair(words_of(w.degrees), w.degrees.empty() ? 0 : -w.strategy.order);
  };
  std::stable_sort(out.begin(), out.end(), [&](size_t a, size_t b) { return place(ways[a]) < place(ways[b]); });
  return out;
}

std::vector<size_t> without(const std::vector<Way>& ways, const std::set<std::string>& keys) {
  std::map<std::string, size_t> known;
  for (size_t w = 0; w < ways.size(); ++w) known[words_of(ways[w].edits)] = w;
  std::vector<size_t> out;
  for (size_t w = 0; w < ways.size(); ++w) {
    Edits edits = ways[w].edits;
    std::erase_if(edits, [&](const Edit& e) { return keys.count(e.key) > 0; });
    const auto at = known.find(words_of(edits));
    out.push_back(at == known.end() ? w : at->second);
  }
  return out;
}

std::vector<Way> ways_of(const Config& config, const Offers& strategies, const World& world, bool lossy) {
  return Ways(config, strategies, world, lossy).ways();
}

}  // namespace eng
