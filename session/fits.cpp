// SPDX-License-Identifier: Apache-2.0
#include "session/fits.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <set>

#include "core/base/error.hpp"
#include "session/report/bookkeeping.hpp"

namespace eng {

static constexpr int64_t most_accumulate = 1'000'000'000;  // as the schema says

Beside beside(const Setup& setup) {
  const eng_device_info& info = setup.kernels->info();
  Beside b;
  b.overhead = info.overhead_bytes + setup.comm_overhead;
  b.bookkeeping = bookkeeping_bytes(setup.plan, setup.model, setup.stored);
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

static size_t actions_of(const Plan& plan) {
  size_t actions = 0;
  for (const Program& program : plan.programs)
    for (const Segment& segment : program.segments) actions += segment.actions.size();
  return actions;
}

std::vector<std::string> edits_that_fit(const Config& config, Registry& registry, const Setup& setup, uint64_t limit) {
  struct Edit {
    const char *section, *key;
    Value value;
  };
  using Edits = std::vector<Edit>;
  const World world = setup.plan.ranks.world;
  std::vector<std::string> found;
  const Section &train = config.section("train"), &model = config.section("model");
  const int64_t layers = model.has("num_hidden_layers") ? model.integer("num_hidden_layers") : 0;
  const size_t actions = actions_of(setup.plan);
  size_t left = std::max<size_t>(actions, 300'000);  // actions to plan: plans of many layers take seconds
  // The peak with these edits, and with `only` layers if given; UINT64_MAX if there is no such plan, or if it is not
  // tried.
  const auto peak_with = [&](const Edits& edits, int64_t only = 0) {
    if (left == 0) return UINT64_MAX;
    Config other = config;
    for (const Edit& e : edits) other.section(e.section).set(e.key, e.value, "edit");
    if (only) other.section("model").set("num_hidden_layers", only, "edit");
    try {
      const Setup with = make_setup(other, registry, 0, world);
      left -= std::min(left, std::max<size_t>(actions_of(with.plan), 1));
      return machine_peak(with);
    } catch (const Error&) {
      --left;
      return UINT64_MAX;
    }
  };
  // About what peak_with gives: the line through the peaks of a few layers.
  constexpr int64_t few = 16;
  const auto about = [&](const Edits& edits) {
    int64_t all = layers;
    for (const Edit& e : edits)
      if (e.key == std::string("num_hidden_layers")) all = std::get<int64_t>(e.value);
    const uint64_t one = peak_with(edits, few), two = peak_with(edits, 2 * few);
    if (one == UINT64_MAX || two == UINT64_MAX) return 1e19;
    const double each = (static_cast<double>(two) - static_cast<double>(one)) / few;
    return std::max(0.0, static_cast<double>(one) + each * static_cast<double>(all - few));
  };
  // Only what seems to fit is planned, if that tells the peak of this plan.
  const auto known = static_cast<double>(machine_peak(setup));
  const bool deep = actions > 30'000 && layers > 4 * few && std::abs(about({}) - known) < 0.01 * known;
  const auto tell = [&](const Edits& edits, const char* note, uint64_t peak) {
    std::string text;
    for (const Edit& e : edits) {
      // With train.global_batch, accumulate is derived, so the user must not set it.
      if (e.key == std::string("accumulate") && train.given("global_batch")) continue;
      const auto* word = std::get_if<std::string>(&e.value);
      text += fmt::format("{}.{}={} ", e.section, e.key, word ? *word : toml_text(e.value));
    }
    found.push_back(fmt::format("{}{}: {}", text, note, format_bytes(static_cast<double>(peak))));
  };
  const auto fits = [&](const Edits& edits, const char* note) {
    if (deep && about(edits) > static_cast<double>(limit)) return false;
    const uint64_t peak = peak_with(edits);
    if (peak <= limit) tell(edits, note, peak);
    return peak <= limit;
  };
  // Of edits that need less and less, tells the first that fits; makes few plans, however many edits there are.
  const auto first_that_fits = [&](const std::vector<Edits>& all, const char* note) {
    size_t from = 0, to = all.size();  // it is in [from, to]
    uint64_t peak = UINT64_MAX;        // of all[to]
    for (size_t at = to - 1; from < to; at = from + (to - from) / 2) {
      const uint64_t here = deep ? static_cast<uint64_t>(about(all[at])) : peak_with(all[at]);
      if (here <= limit)
        to = at, peak = here;
      else
        from = at + 1;
    }
    if (deep)
      while (to < all.size() && (peak = peak_with(all[to])) > limit) ++to;
    if (to < all.size()) tell(all[to], note, peak);
  };
  const int64_t batch = train.integer("micro_batch"), accumulate = train.integer("accumulate");
  const auto less_at_a_time = [&](const Edits& with) {
    std::set<int64_t> divisors;  // of the batch, but 1
    for (int64_t n = 1; n * n <= batch; ++n)
      if (batch % n == 0) divisors.insert({n, batch / n});
    divisors.erase(1);
    std::vector<Edits> smaller, shorter;
    for (int64_t n : divisors) {
      if (accumulate > most_accumulate / n) break;
      const Edits less = {{"train", "micro_batch", batch / n}, {"train", "accumulate", accumulate * n}};
      smaller.push_back(with);
      smaller.back().insert(smaller.back().end(), less.begin(), less.end());
    }
    for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2) {
      const Edits less = {{"train", "sequence_length", t}};
      shorter.push_back(with);
      shorter.back().insert(shorter.back().end(), less.begin(), less.end());
    }
    first_that_fits(smaller, "(the same tokens per step)");
    first_that_fits(shorter, "(less context)");
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
  std::vector<Edits> fewer;
  for (int64_t n = layers - 1; n >= 1; n = n > 8 ? n * 3 / 4 : n - 1)
    fewer.push_back({{"model", "num_hidden_layers", n}});
  first_that_fits(fewer, "(another model)");
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

uint64_t check_disk(const Config& config, const Plan& plan, const std::filesystem::path& directory, int64_t from,
                    size_t present) {
  std::error_code none;
  std::filesystem::path at = std::filesystem::absolute(directory, none);
  struct statvfs system {};
  int failed = 0;
  while ((failed = statvfs(at.c_str(), &system)) != 0)
    if (errno == ENOENT && at.has_relative_path())
      at = at.parent_path();
    else if (errno != EINTR)
      break;
  if (failed || !system.f_blocks) return UINT64_MAX;
  const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
  // Without a limit (keep = 0) only the newest one is counted. While one is saved there is one more.
  const Section& checkpoint = config.section("checkpoint");
  const int64_t left = std::max<int64_t>(config.section("train").integer("steps") - from, 0),
                every = checkpoint.integer("every"), keep = std::max<int64_t>(checkpoint.integer("keep"), 1);
  const int64_t saves = every ? (left + every - 1) / every : std::min<int64_t>(left, 1);
  const auto more = static_cast<uint64_t>(
      std::min(saves, std::max<int64_t>(keep + 1 - static_cast<int64_t>(std::min<size_t>(present, 1u << 30)), 1)));
  const uint64_t each = checkpoint_bytes(saved_tensors(plan));
  if (each && more > free / each) {
    const uint64_t need = more > UINT64_MAX / each ? UINT64_MAX : more * each;
    throw Error(Exit::disk,
                fmt::format("{} checkpoints of {} need {} ({} bytes), but {} has {} ({} bytes) free", more,
                            format_bytes(double(each)), format_bytes(double(need)), need, at.string(),
                            format_bytes(double(free)), free),
                "lower checkpoint.keep, or choose another run.out");
  }
  return free;
}

}  // namespace eng
