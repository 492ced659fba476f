// SPDX-License-Identifier: Apache-2.0
// The schedules of nanoGPT and Megatron-LM.
#include "session/convert/job.hpp"

namespace eng::converter {

// A cosine whose end need not be that of the run.
void nanogpt_schedule(Job& job) {
  Target& out = job.out;
  const Entry* decays = job.flat.take("decay_lr");
  const auto up = pick(job, "", "warmup_steps"), down = pick(job, "", "lr_decay_iters"),
             least = pick(job, "", "min_lr"), all = pick(job, "", "max_steps");
  if (decays && as_flag(decays->value) == std::optional(false)) {
    out.set("schedule.kind", std::string("constant"), *decays);
    return;
  }
  if (!up || !down || !least) {
    out.note("the schedule is not known: give --warmup_iters, --lr_decay_iters, --min_lr and --max_iters");
    return out.leave("schedule.kind", "\"cosine\"", "nanoGPT's, to min_learning_rate at lr_decay_iters");
  }
  const Value* rate = out.get("optimizer.learning_rate");
  const auto peak = rate ? as_number(*rate) : std::nullopt;
  const auto lowest = as_number(least->value);
  if (!peak || !lowest || *lowest < 0 || *lowest > *peak)
    return out.problem(fmt::format("`{}` = {} must lie between 0 and the learning rate", least->origin, shown(*least)));
  const int64_t end = as_whole(down->value).value_or(0), steps = all ? as_whole(all->value).value_or(0) : 0;
  if (end > 0 && steps > 0 && end != steps) {
    out.set("schedule.kind", std::string("WarmupCosineLR"), "the decay ends at lr_decay_iters, not with the run");
    out.set("schedule.compatible", std::string("deepspeed"), "the schedule whose end is given: docs/schedule.md");
    out.set("schedule.total_num_steps", down->value, *down);
    out.set("schedule.warmup_num_steps", up->value, *up);
    out.set("schedule.warmup_type", std::string("linear"), "nanoGPT");
    out.set("schedule.cos_min_ratio", *lowest / *peak, fmt::format("{} / learning_rate", least->origin));
    out.note("[schedule]: the curve is nanoGPT's, two updates later");
    return;
  }
  out.set("schedule.kind", std::string("cosine"), "nanoGPT");
  out.set("schedule.warmup_steps", up->value, *up);
  out.set("schedule.min_learning_rate", least->value, *least);
  out.note("[schedule]: the curve is nanoGPT's, one update earlier");
}

void megatron_schedule(Job& job) {
  Target& out = job.out;
  const Entry *style = job.flat.take("lr_decay_style"), *up = job.flat.take("lr_warmup_iters"),
              *part = job.flat.take("lr_warmup_fraction"), *down = job.flat.take("lr_decay_iters"),
              *least = job.flat.take("min_lr"), *all = job.flat.find("max_steps");
  const std::string word = style ? as_text(style->value) : "linear";
  const Entry fallback{std::string("linear"), "", "Megatron's default of lr_decay_style"};
  const Entry& from = style ? *style : fallback;
  const bool root = word == "inverse-square-root";
  if (word != "linear" && word != "cosine" && word != "constant" && !root)
    return refuse(job, from, "there is no such schedule here (docs/schedule.md)");
  const int64_t end = down ? as_whole(down->value).value_or(-1) : 0, steps = all ? as_whole(all->value).value_or(0) : 0;
  if ((word == "linear" || word == "cosine") && end && end != steps)
    refuse(job, *down, "the decay ends with the run here: give the number of --train-iters");
  out.set("schedule.kind", root ? std::string("inverse_sqrt") : word, from);
  if (up && as_number(up->value).value_or(1) != 0) out.set("schedule.warmup_steps", up->value, *up);
  if (part && !up && as_number(part->value).value_or(1) != 0) {
    const double share = as_number(part->value).value_or(-1);
    if (share > 0 && share <= 1 && steps > 0)
      out.set("schedule.warmup_steps", static_cast<int64_t>(share * static_cast<double>(steps)), *part);
    else
      out.problem(fmt::format("`{}` = {} needs --train-iters, and lies between 0 and 1", part->origin, shown(*part)));
  }
  if (least && (word == "linear" || word == "cosine")) out.set("schedule.min_learning_rate", least->value, *least);
  if (least && (word == "constant" || root) && as_number(least->value).value_or(0) != 0)
    refuse(job, *least, fmt::format("`{}` has no least rate here", word));
}

}  // namespace eng::converter
