// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/trial.hpp"

#include <algorithm>
#include <cmath>
#include <tuple>

#include "session/model/recompute.hpp"
#include "session/planning/fits.hpp"
#include "session/planning/live.hpp"

namespace eng {
namespace {

constexpr int64_t few = 8;    // layers
constexpr int64_t many = 64;  // layers

int64_t layers_of(const Config& config, const Edits& edits) {
  const Section& model = config.section("model");
  int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  for (const Edit& e : edits)
    if (e.key == "num_hidden_layers") layers = std::get<int64_t>(e.value);
  return layers;
}

// The three largest parts of the memory that is too small. `transient`: how much of an arena's transients counts.
template <class Transient>
std::string largest_of(const Plan& plan, bool host, const char* transients, Transient transient) {
  std::map<std::string, uint64_t> parts;
  std::string name;
  for (uint32_t a = 0; a < plan.arenas.size(); ++a) {
    const Arena& arena = plan.arenas[a];
    if ((arena.kind == "device") == host || arena.kind == "storage") continue;
    if (name.empty()) name = fmt::format("arena {}", arena.device);
    for (const Buffer& b : plan.buffers)
      if (b.persistent && b.arena == a) parts[to_string(b.line)] += b.bytes;
    parts[transients] += transient(a);
    parts["workspace"] += arena.workspace;
  }
  std::vector<std::pair<uint64_t, std::string>> sorted;
  for (const auto& [part, bytes] : parts) sorted.emplace_back(bytes, part);
  std::sort(sorted.rbegin(), sorted.rend());
  std::string out;
  for (size_t k = 0; k < std::min<size_t>(sorted.size(), 3); ++k)
    out += fmt::format("{}{} {}", k ? ", " : name + ": ", sorted[k].second,
                       format_bytes(static_cast<double>(sorted[k].first)));
  return out;
}

std::string key_of(const Edits& edits, const World& world) {
  return fmt::format("{} {} {}", world.size, world.local_size, words_of(edits));
}

// The value at `layers` of the line through those at `few` and twice as many.
uint64_t on_line(uint64_t one, uint64_t two, int64_t layers) {
  const double each = (static_cast<double>(two) - static_cast<double>(one)) / few;
  return static_cast<uint64_t>(std::max(0.0, static_cast<double>(one) + each * static_cast<double>(layers - few)));
}

double processor_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

Trial::Trial(const Config& config, Registry& registry, double most_seconds, bool several)
    : config_(config),
      registry_(registry),
      last_(processor_seconds() + most_seconds),
      end_(last_),
      most_layers_(several ? 3 * few : many) {}

void Trial::allow(double share) {
  const double now = processor_seconds();
  end_ = std::isinf(last_) ? last_ : now + share * (last_ - now);
}

bool fits(const Tried& tried) {
  return tried.refused.empty() && tried.excess.bytes == 0;
}

bool better(const Tried& a, const Tried& b) {
  const auto key = [](const Tried& t) { return std::tuple(t.seconds, t.edits.size(), !t.effect.same_numbers); };
  return key(a) < key(b);
}

Tried only_fixed(Tried tried, Edits edits, uint64_t available) {
  tried.edits = std::move(edits);
  tried.peak.rank = tried.peak.machine = tried.fixed;
  tried.excess = {tried.fixed - available, false};
  tried.largest = tried.fixed_parts;
  return tried;
}

Machine rates_of(const Setup& setup, const Config& config) {
  const Machine machine = machine_of(config.section("comm"), setup.target, setup.storage);
  return timed(setup.plan, machine) ? machine : nominal_machine(machine);
}

Tried Trial::measured(const Setup& setup, const Config& config, const Edits& edits) {
  Tried out;
  out.edits = edits;
  out.ranks = setup.plan.ranks.world.size;
  out.micro = config.section("train").integer("micro_batch");
  out.peak = peak_of(setup.plan, beside(setup));
  available_ = available(setup);
  out.excess = excess(out.peak, available_);
  const bool host = setup.target.host_memory();
  // In the update all gradients are there, and nothing that [recompute] keeps.
  const std::vector<uint64_t> update = live_in(setup.plan, "update");
  for (uint32_t a = 0; a < setup.plan.arenas.size(); ++a)
    if (const Arena& arena = setup.plan.arenas[a]; (host && arena.kind != "storage") || arena.kind == "device")
      out.fixed += arena.persistent + update[a];
  out.fixed = host ? out.fixed * setup.plan.ranks.world.local_size
                   : out.fixed + setup.target.workspace + setup.target.info.device_overhead_bytes;
  out.fixed_parts = largest_of(setup.plan, false, "gradients", [&](uint32_t a) { return update[a]; });
  const StepTimes times = step_times(setup.plan, rates_of(setup, config));
  out.seconds = times.step, out.bound = times.bound();
  out.computing = times.flops + times.memory + times.launches, out.memory = times.memory;
  out.pass = (times.step - times.bubble - times.update) / setup.plan.accumulate;
  if (out.excess.bytes)
    out.largest = largest_of(setup.plan, out.excess.host, "transients",
                             [&](uint32_t a) { return setup.plan.arenas[a].transient; });
  return out;
}

// A setting that has no plan is no error: other settings may have one.
Tried Trial::guarded(const Edits& edits, const World& world, const std::function<Tried()>& plan) {
  if (processor_seconds() > end_) throw Spent{};
  try {
    ++plans_;
    return plan();
  } catch (const Error& e) {
    if (e.exit() == Exit::bug) throw;
    Tried out;
    out.edits = edits, out.ranks = world.size;
    out.excess.bytes = UINT64_MAX;
    out.refused = e.what();
    return out;
  }
}

Tried Trial::sketch(const Edits& edits, const World& world, int64_t layers) {
  return guarded(edits, world, [&] {
    Config with = edited(config_, registry_, edits, world.size);
    if (layers) with.section("model").set("num_hidden_layers", layers, "edit");
    return measured(make_sketch(with, registry_, world), with, edits);
  });
}

bool Trial::deep() const {
  return layers_of(config_, {}) > (most_layers_ < many ? many - 1 : many);
}

bool Trial::on_few(const Edits& edits) const {
  if (layers_of(config_, edits) <= most_layers_) return false;
  // Bytes of all layers, and runs of layers, say another thing of few.
  Config with = config_;
  for (const Edit& e : edits)
    if (e.section == "recompute") with.section(e.section).set(e.key, e.value, e.value.index() ? "edit" : "default");
  const Section& recompute = with.section("recompute");
  return !recompute.given("budget") && !recompute.given("blocks");
}

Tried Trial::bound(const Edits& edits, const World& world) {
  const std::string key = key_of(edits, world);
  if (const auto known = bounds_.find(key); known != bounds_.end()) return known->second;
  return bounds_[key] = new_bound(edits, world);
}

Tried Trial::new_bound(const Edits& edits, const World& world) {
  if (degree_with(config_, edits, "pipeline") > 1) return staged(edits, world, false);
  if (!on_few(edits)) return sketch(edits, world, 0);
  const int64_t layers = layers_of(config_, edits);
  Tried one = sketch(edits, world, few);
  const Tried two = sketch(edits, world, 2 * few);
  if (!one.refused.empty() || !two.refused.empty()) return two.refused.empty() ? one : two;
  for (double Tried::*time : {&Tried::seconds, &Tried::computing, &Tried::memory, &Tried::pass})
    one.*time += (two.*time - one.*time) / few * static_cast<double>(layers - few);
  for (uint64_t Peak::*part : {&Peak::host, &Peak::device, &Peak::rank, &Peak::machine, &Peak::hosts, &Peak::arena})
    one.peak.*part = on_line(one.peak.*part, two.peak.*part, layers);
  one.fixed = on_line(one.fixed, two.fixed, layers);
  one.largest = two.largest, one.fixed_parts = two.fixed_parts;
  one.excess = excess(one.peak, available_);
  return one;
}

Tried Trial::whole(const Edits& edits, const World& world) {
  const std::string key = key_of(edits, world);
  if (const auto known = wholes_.find(key); known != wholes_.end()) return known->second;
  return wholes_[key] = new_whole(edits, world);
}

Tried Trial::new_whole(const Edits& edits, const World& world) {
  if (degree_with(config_, edits, "pipeline") > 1) return staged(edits, world, true);
  return guarded(edits, world, [&] {
    const Config with = edited(config_, registry_, edits, world.size);
    const Setup setup = make_plan_only(with, registry_, world);
    Tried out = measured(setup, with, edits);
    out.placed = true;
    return out;
  });
}

uint64_t Trial::row_bytes(const Edits& format, const World& world) {
  Edits edits = format;
  edits.push_back({"train", "micro_batch", int64_t{1}});
  for (Edit& e : recompute_edits(config_, "policy", std::string("none"))) edits.push_back(std::move(e));
  uint64_t bytes = 0;
  guarded(edits, world, [&] {
    Config with = edited(config_, registry_, edits, world.size);
    bytes = kept(make_sketch(with, registry_, world).model).bytes;
    return Tried();
  });
  return bytes;
}

}  // namespace eng
