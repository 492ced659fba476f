// SPDX-License-Identifier: Apache-2.0
#include "session/planning/schedule.hpp"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <numbers>

#include "engine/schedule.h"

namespace eng {

class PluginSchedule {
 public:
  PluginSchedule(Registry& registry, const Section& section, const eng_schedule_run& run)
      : name_(section.string("kind")), peak_(run.peak), table_(registry.table<eng_schedule>(ENG_SCHEDULE_KIND, name_)) {
    Options options(section);
    Sink sink;
    sink.check(table_.create(options.get(), &run, &self_, sink.get()), Exit::usage, "[schedule] " + name_);
  }
  PluginSchedule(const PluginSchedule&) = delete;
  PluginSchedule& operator=(const PluginSchedule&) = delete;
  ~PluginSchedule() { table_.destroy(self_); }

  double at(int64_t k) const {
    Sink sink;
    double rate = NAN;
    const auto where = [&] { return fmt::format("[schedule] {}, update {}", name_, k); };
    sink.check(table_.rate(self_, static_cast<uint64_t>(k), &rate, sink.get()), Exit::environment, where);
    const double most = std::min(peak_ * (1 + 1e-9), double{FLT_MAX});  // the step has it as an f32
    if (rate >= 0 && rate <= most) return rate;                         // not if it is NaN
    throw Error(Exit::environment,
                fmt::format("{}: the learning rate is {}; it must be a number from 0 to optimizer.learning_rate = {}",
                            where(), rate, peak_),
                "the plugin is at fault; another schedule.kind does without it");
  }

 private:
  std::string name_;
  double peak_;
  eng_schedule table_;
  void* self_ = nullptr;
};

namespace {

// 1 at t = 0, 0 at t = 1.
double wave(double t) {
  return 0.5 * (1 + std::cos(std::numbers::pi * t));
}

double at_deepspeed(const Schedule& s, int64_t k) {
  const bool cosine = s.kind == "WarmupCosineLR";
  if (k == 1) return cosine ? 0.0 : s.least;
  const auto i = double(k - 2), n = double(std::max<int64_t>(2, s.warmup)), total = double(s.steps);
  if (i < n) {
    const double w = s.log_warmup ? std::log(i + 1) / std::log(n) : i / n;
    return cosine ? s.peak * (s.warmup_ratio + (1 - s.warmup_ratio) * w) : s.least + (s.peak - s.least) * w;
  }
  const double span = std::max(1.0, total - n);
  if (s.kind == "WarmupLR") return s.peak;
  if (!cosine) return s.least + (s.peak - s.least) * std::max(0.0, (total - i) / span);
  return s.peak * std::max(0.0, s.cosine_ratio + (1 - s.cosine_ratio) * wave(std::min(1.0, (i - n + 1) / span)));
}

}  // namespace

double Schedule::at(int64_t k) const {
  if (k < 1) throw Error(Exit::bug, "a learning rate was asked for before update 1");
  if (plugin) return plugin->at(k);
  if (kind.rfind("Warmup", 0) == 0) return at_deepspeed(*this, k);
  if (k < warmup)
    return peak * (log_warmup ? std::log(double(k) + 1) / std::log(double(warmup) + 1) : double(k) / double(warmup));
  if (k == warmup || kind == "constant") return peak;
  if (k >= steps) return least;
  const double t = double(k - warmup) / double(steps - warmup);
  return kind == "linear" ? peak + (least - peak) * t : least + (peak - least) * wave(t);
}

// The rules of the configuration have checked every number of the built-in kinds.
Schedule make_schedule(const Config& config, Registry& registry) {
  const Section& s = config.section("schedule");
  Schedule out;
  out.kind = s.string("kind");
  out.steps = config.section("train").integer("steps");
  out.peak = config.section("optimizer").number("learning_rate");
  if (!s.settings().count("compatible")) {
    const eng_schedule_run run{sizeof(run), 0, out.steps, out.peak};
    out.plugin = std::make_shared<PluginSchedule>(registry, s, run);
    return out;
  }
  if (out.kind.rfind("Warmup", 0) != 0) {
    out.log_warmup = s.string("warmup") == "log";
    out.warmup = s.integer("warmup_steps");
    out.least = s.number("min_learning_rate");
    return out;
  }
  out.log_warmup = s.string("warmup_type") == "log";
  out.warmup = s.integer("warmup_num_steps");
  if (s.has("total_num_steps")) out.steps = s.integer("total_num_steps");
  if (out.kind != "WarmupCosineLR") out.peak = s.number("warmup_max_lr");
  out.least = s.number("warmup_min_lr");
  out.warmup_ratio = s.number("warmup_min_ratio");
  out.cosine_ratio = s.number("cos_min_ratio");
  return out;
}

}  // namespace eng
