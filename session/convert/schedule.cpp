// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's scheduler, reproduced update by update; otherwise Hugging Face's.
#include <algorithm>
#include <cmath>

#include "session/config/foreign.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

const std::string params = "scheduler.params.";

struct Default {
  std::string key;
  Value value;  // none: nothing is written
};
// The keys that each kind reads, with DeepSpeed's defaults.
std::vector<Default> keys_of(const std::string& kind) {
  const Default steps{"warmup_num_steps", int64_t{1000}}, type{"warmup_type", std::string("log")},
      all{"total_num_steps", {}};
  if (kind == "WarmupCosineLR") return {all, {"warmup_min_ratio", 0.0}, steps, {"cos_min_ratio", 1e-4}, type};
  std::vector<Default> out = {{"warmup_min_lr", 0.0}, {"warmup_max_lr", {}}, steps, type};
  if (kind == "WarmupDecayLR") out[1].value = 0.001, out.insert(out.begin(), all);
  return out;
}

struct Planner {
  Job& job;
  Target& out = job.out;

  // A list with a value for each of the script's groups: one is meant if there is one.
  static Value single(const Value& value) {
    const auto* list = std::get_if<std::vector<double>>(&value);
    return list && list->size() == 1 ? Value(list->front()) : value;
  }

  // The run's steps, if somebody gave them.
  const Entry* max_steps() const {
    const Entry* steps = job.flat.find("max_steps");
    return steps && as_number(steps->value).value_or(0) > 0 ? steps : nullptr;
  }

  void length(const std::string& kind) {
    const std::string key = params + "total_num_steps";
    const bool there = job.deepspeed.all.count(key) > 0;  // also as "auto" that was not resolved
    if (const Entry* total = job.deepspeed.take(key)) {
      out.set("schedule.total_num_steps", total->value, *total);
    } else if (const Entry* steps = max_steps()) {
      out.set("schedule.total_num_steps", steps->value, *steps);
      if (!there) out.note(fmt::format("`{}` is missing; {} is taken", key, steps->origin));
    } else {
      out.leave("schedule.total_num_steps", "...", "the steps of the run: " + kind + " needs it");
      out.note(
          fmt::format("`{}` is {}: {} needs the number of steps, which is not known: set schedule.total_num_steps "
                      "and train.steps, or give --max_steps N in --args",
                      key, there ? "\"auto\"" : "missing", kind));
    }
  }

  void deepspeed() {
    const Entry* type = job.deepspeed.take("scheduler.type");
    if (!type) return out.problem("`scheduler.type` is missing; DeepSpeed refuses this too");
    const auto foreign = translation("deepspeed", "scheduler.type", type->value);
    if (!foreign || foreign->values.empty()) {
      job.refused.emplace_back("scheduler", fmt::format("`{}` = {}: there is no such schedule here (docs/schedule.md); "
                                                        "without it the rate is constant",
                                                        type->origin, shown(*type)));
      for (auto& [name, entry] : job.deepspeed.all) entry.used |= name.starts_with(params);
      return;
    }
    const std::string kind = as_text(foreign->values[0].second);
    out.set("schedule.kind", kind, *type);
    out.set("schedule.compatible", std::string("deepspeed"), "scheduler.type, update by update: docs/schedule.md");
    for (const Default& one : keys_of(kind)) {
      if (one.key == "total_num_steps") {
        length(kind);
      } else if (const Entry* given = job.deepspeed.take(params + one.key)) {
        out.set("schedule." + one.key, single(given->value), *given);
      } else if (one.value.index()) {
        out.set("schedule." + one.key, one.value, "DeepSpeed's default of " + one.key);
      }
    }
    own_maximum(kind);
    for (auto& [name, entry] : job.deepspeed.all) {
      if (!name.starts_with(params) || entry.used) continue;
      entry.used = true;
      if (name != params + "last_batch_iteration") out.note(fmt::format("`{}`: {} does not read it", name, kind));
    }
    for (const char* name : {"lr_scheduler_type", "warmup_ratio", "warmup_steps"})
      if (const Entry* argument = job.flat.take(name))
        out.note(fmt::format("`{}` is not used: DeepSpeed's scheduler counts", argument->origin));
  }

  // The trap of WarmupDecayLR: it does not take the optimizer's rate.
  void own_maximum(const std::string& kind) {
    const Value* rate = out.get("optimizer.learning_rate");
    const double mine = rate ? as_number(*rate).value_or(0.001) : 0.001;
    if (kind != "WarmupDecayLR" || job.deepspeed.has(params + "warmup_max_lr") || mine == 0.001) return;
    out.note(
        fmt::format("`scheduler.params.warmup_max_lr` is not given: WarmupDecayLR then rises to 0.001, not to the "
                    "optimizer's {}",
                    mine));
  }

  void warmup() {
    const Entry *steps = job.flat.take("warmup_steps"), *part = job.flat.take("warmup_ratio");
    const Entry axolotl{0.03, "", "axolotl's default of warmup_ratio"};
    if (!steps && !part && job.trainer == "axolotl") part = &axolotl;
    double share = part ? as_number(part->value).value_or(-1) : 0;
    const Entry* from = part;
    if (steps) {
      const double number = as_number(steps->value).value_or(-1);
      if (number >= 1 || number < 0 || (number == 0 && !part)) {  // newer versions take a part of the steps here too
        if (number == 1 && job.trainer == "axolotl")
          out.set("schedule.warmup_steps", int64_t{2}, "axolotl makes two of one step of warm-up");
        else if (number != 0)
          out.set("schedule.warmup_steps", steps->value, *steps);
        return;
      }
      if (number > 0) share = number, from = steps;
    }
    if (share == 0) return;
    if (share < 0 || share > 1)
      return out.problem(fmt::format("`{}` must lie between 0 and 1, not {}", from->origin, shown(*from)));
    const Entry* all = max_steps();
    const int64_t total = all ? as_whole(all->value).value_or(0) : 0;
    if (total <= 0) {
      out.note(
          fmt::format("`{}` = {} of the steps, which are not known: set schedule.warmup_steps", from->origin, share));
      return out.leave("schedule.warmup_steps", "...", fmt::format("{} = {} x train.steps", from->origin, share));
    }
    auto count = static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
    if (job.trainer == "axolotl" && from == part) {  // rounds down, and makes two of one
      count = static_cast<int64_t>(share * static_cast<double>(total));
      if (from == &axolotl) count = std::min<int64_t>(100, count);
      if (count == 1) count = 2;
    }
    if (count) out.set("schedule.warmup_steps", count, fmt::format("{} = {} x {}", from->origin, share, total));
  }

  const Entry* argument(const std::string& name) { return job.flat.take("lr_scheduler_kwargs." + name); }

  // The decay of warmup_stable_decay. There it may end before the run does, and here it ends with the run.
  void decay() {
    if (const Entry* steps = argument("num_decay_steps"))
      out.set("schedule.decay_steps", steps->value, *steps);
    else
      out.problem(
          "`lr_scheduler_kwargs.num_decay_steps` is missing: warmup_stable_decay needs it, and Hugging Face refuses "
          "the "
          "arguments too");
    Entry shape{std::string("cosine"), "", "Hugging Face's default of lr_scheduler_kwargs.decay_type"};
    if (const Entry* given = argument("decay_type")) shape = *given;
    out.set("schedule.decay", shape.value, shape);
    if (const Entry* rise = argument("warmup_type"); rise && rise->value != Value(std::string("linear")))
      out.note(fmt::format("`{}` = {}: no equivalent; the warm-up is linear", rise->origin, shown(*rise)));
    if (const Entry* waves = argument("num_cycles"); waves && as_number(waves->value).value_or(0) != 0.5)
      out.note(fmt::format("`{}` = {}: no equivalent; the decay is half a wave, 0.5", waves->origin, shown(*waves)));
    least();
    const Entry *stable = argument("num_stable_steps"), *all = max_steps();
    const Value *down = out.get("schedule.decay_steps"), *up = out.get("schedule.warmup_steps");
    if (!stable || !all || !down) return;
    const double end =
        as_number(stable->value).value_or(0) + as_number(*down).value_or(0) + (up ? as_number(*up).value_or(0) : 0);
    if (end != as_number(all->value).value_or(0))
      out.note(
          fmt::format("`{}` = {}: there the decay ends at step {}; here it ends with the run, at step {}: see "
                      "[schedule] in docs/schedule.md",
                      stable->origin, shown(*stable), end, shown(*all)));
  }

  // min_lr_ratio, a part of the learning rate.
  void least() {
    const Entry* ratio = argument("min_lr_ratio");
    if (!ratio || !share_of_rate(*ratio)) return;
    if (out.has("schedule.warmup_steps"))
      out.note(fmt::format("`{}`: there the warm-up begins at that rate too, here at 0", ratio->origin));
  }

  // The least rate as a part of the highest one. Whether it is above 0.
  bool share_of_rate(const Entry& ratio) {
    const double part = as_number(ratio.value).value_or(-1);
    if (part == 0) return false;
    if (part < 0 || part > 1) {
      out.problem(fmt::format("`{}` must lie between 0 and 1, not {}", ratio.origin, shown(ratio)));
      return false;
    }
    const Value* rate = out.get("optimizer.learning_rate");
    const auto peak = rate ? as_number(*rate) : std::nullopt;
    if (peak)
      out.set("schedule.min_learning_rate", part * *peak, fmt::format("{} = {} x {}", ratio.origin, part, *peak));
    else
      out.leave("schedule.min_learning_rate", "...", fmt::format("{} = {} x the rate", ratio.origin, part));
    return true;
  }

  // The least rate of a cosine, and its waves.
  void cosine(const std::string& type) {
    const bool restarts = type == "cosine_with_restarts";
    const Entry *waves = argument("num_cycles"), *least = argument("min_lr"), *part = argument("min_lr_rate");
    if (waves && as_number(waves->value).value_or(0) != (restarts ? 1 : 0.5))
      refuse(job, *waves, "the decay here is half a wave, from the highest rate to the least");
    if (least && part)
      return out.problem(fmt::format("`{}` and `{}` are the same setting", least->origin, part->origin));
    if (least) out.set("schedule.min_learning_rate", least->value, *least);
    if (!part) part = job.flat.take("cosine_min_lr_ratio");
    if (part) share_of_rate(*part);
    if (type == "cosine_with_min_lr" && !least && !part)
      out.problem(
          "`lr_scheduler_kwargs` has neither min_lr nor min_lr_rate: cosine_with_min_lr needs one, and Hugging "
          "Face refuses the arguments too");
  }

  void polynomial() {
    const Entry *power = argument("power"), *end = argument("lr_end");
    if (power && as_number(power->value).value_or(0) != 1)
      refuse(job, *power, "the decay here is a straight line, of power 1");
    if (end)
      out.set("schedule.min_learning_rate", end->value, *end);
    else
      out.set("schedule.min_learning_rate", 1e-7, "Hugging Face's default of lr_end");
  }

  void timescale() {
    const auto asked = [&](const char* name) {
      const Entry* entry = job.flat.find(name);
      return entry && as_number(entry->value).value_or(0) != 0;
    };
    if (const Entry* given = argument("timescale"))
      out.set("schedule.timescale", given->value, *given);
    else if (!asked("warmup_steps") && !asked("warmup_ratio"))
      out.set("schedule.timescale", int64_t{10000}, "Hugging Face's default of timescale without a warm-up");
  }

  void huggingface() {
    // On a command line the arguments of a schedule are one word of JSON.
    if (const Entry* word = job.flat.take("lr_scheduler_kwargs"))
      if (const Json given = Json::parse_or_null(as_text(word->value)); given.is_object())
        flatten(given, "lr_scheduler_kwargs", job.flat);
    const auto given = pick(job, "", "lr_scheduler_type");
    if (!given) return;
    const Entry& type = *given;
    const auto foreign = translation(job.trainer, "lr_scheduler_type", type.value);
    const std::string word = as_text(type.value);
    if (!foreign || foreign->values.empty()) {
      refuse(job, type, "there is no such schedule here (docs/schedule.md); --lr_scheduler_type names another");
      for (const char* name : {"warmup_steps", "warmup_ratio"}) job.flat.take(name);
      for (auto& [name, entry] : job.flat.all) entry.used |= name.starts_with("lr_scheduler_kwargs.");
      return;
    }
    out.set("schedule.kind", foreign->values[0].second, type);
    if (word == "constant") {
      for (const char* name : {"warmup_steps", "warmup_ratio"})
        if (const Entry* warm = job.flat.take(name); warm && as_number(warm->value).value_or(1) != 0)
          out.note(fmt::format("`{}`: `constant` has no warm-up there; not converted", warm->origin));
    } else {
      warmup();
    }
    if (word == "warmup_stable_decay") decay();
    if (word == "inverse_sqrt") timescale();
    if (word.starts_with("cosine")) cosine(word);
    if (word == "polynomial") polynomial();
    // Unused keys would change the curve.
    for (auto& [name, entry] : job.flat.all)
      if (name.starts_with("lr_scheduler_kwargs.") && !entry.used && entry.value.index()) {
        entry.used = true;
        refuse(job, entry, fmt::format("`{}` has no such key here", word));
      }
    if (word != "constant" && job.huggingface && job.refused.empty())
      out.note(
          "[schedule]: the curve is the same, one update earlier: Hugging Face's update k + 1 has the rate of update k "
          "here, and its first update with a warm-up has rate 0");
  }
};

}  // namespace

void schedule(Job& job) {
  Planner planner{job};
  if (job.deepspeed.has_section("scheduler"))
    planner.deepspeed();
  else if (job.trainer == "nanogpt")
    nanogpt_schedule(job);
  else if (job.trainer == "megatron")
    megatron_schedule(job);
  else if (job.huggingface || job.flat.has("lr_scheduler_type"))
    planner.huggingface();
}

}  // namespace eng::converter
