// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/ways.hpp"

#include <algorithm>
#include <set>

#include "engine/policy.h"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

// Keys of [parallel] whose ranks exchange activations within each layer.
constexpr const char* degree_keys[] = {"tensor", "context"};
constexpr int64_t most_degree = 16;  // as [parallel] allows
constexpr uint32_t most_nodes = 8;   // of a group

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
  return out;
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
  void add_with(const Offer& strategy, const Edits& degrees, const Edits& zero, const Edits& lossy) {
    Way way{strategy, degrees, degrees};
    for (const Edits* more : {&zero, &lossy}) way.edits.insert(way.edits.end(), more->begin(), more->end());
    for (const Edit& e : degrees)
      append_effect(way.effect,
                    e.key == "tensor" ? "sums within layers in another order" : "sums over positions in another order");
    // With the library's own order of sums no strategy keeps the bits of another.
    if (!zero.empty() && config_.section("comm").string("reduce") == "fast")
      append_effect(way.effect, "sums over ranks in another order");
    append_effect(way.effect, effect_between(own_, strategy));
    for (const Edit& e : zero)
      if (const auto* n = std::get_if<int64_t>(&e.value); n && (*n & (*n - 1)))
        append_effect(way.effect, "sums over groups in another order");
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
    ways_.push_back(std::move(way));
  }

  const Config& config_;
  const Offer& own_;
  const World& world_;
  const bool lossy_;
  int64_t all_rows_ = 0;
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

std::vector<Way> ways_of(const Config& config, const Offers& strategies, const World& world, bool lossy) {
  return Ways(config, strategies, world, lossy).ways();
}

}  // namespace eng
