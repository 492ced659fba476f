// SPDX-License-Identifier: Apache-2.0
// DeepSpeed's three batch sizes: train_batch_size = micro-batch x accumulation x ranks. Two of them give the third, one
// of the first two is enough, and all are checked.
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

const char* const micro_key = "train_micro_batch_size_per_gpu";
const char* const steps_key = "gradient_accumulation_steps";

struct Count {
  std::optional<Entry> from;
  std::optional<int64_t> value;  // none also if it is no count
};

struct Batch {
  Job& job;
  Count train = {}, micro = {}, steps = {};
  bool wrong = false;

  Count count(std::optional<Entry> entry) {
    if (!entry) return {};
    const auto value = as_whole(entry->value);
    if (value && *value >= 1 && *value <= 1'000'000'000) return {entry, value};
    wrong = true;
    job.out.problem(fmt::format("`{}` must be a whole number of at least 1, not {}", entry->origin, shown(*entry)));
    return {};
  }

  void refuse(const std::string& sum) {
    wrong = true;
    job.out.problem(fmt::format("the batch sizes contradict each other: {}; DeepSpeed refuses this too", sum));
  }

  // Ranks that share a sample have one micro-batch together.
  void sharing() {
    for (const char* name : {"sequence_parallel_size", "tensor_parallel.autotp_size", "tensor_model_parallel_size",
                             "pipeline_model_parallel_size", "context_parallel_size", "tensor_parallel_size"}) {
      const Entry* entry = job.deepspeed.take(name);
      if (!entry) entry = job.flat.take(name);
      const auto ways = entry ? as_whole(entry->value) : std::nullopt;
      if (!entry || (ways && *ways <= 1)) continue;
      if (!ways || (job.ranks && job.ranks % *ways)) {
        job.out.problem(fmt::format("`{}` = {} does not divide the ranks", entry->origin, shown(*entry)));
        continue;
      }
      const std::string_view key = name;
      const char* own = key.starts_with("tensor_") ? "tensor" : key.starts_with("pipeline_") ? "pipeline" : "context";
      job.out.note(
          fmt::format("`{}` = {}: no equivalent; here every rank has its own samples, so the ranks here are the "
                      "groups of {} there; or {} times as many ranks with parallel.{} = {}",
                      entry->origin, *ways, *ways, *ways, own, *ways));
      job.ranks /= *ways;
    }
  }

  std::string world() const {
    return job.ranks_from.empty() ? fmt::format("{} ranks", job.ranks)
                                  : fmt::format("{} ranks ({})", job.ranks, job.ranks_from);
  }

  // Without the number of ranks, the samples of a step are all that is known.
  void whole_alone() {
    job.out.set("train.global_batch", *train.value, *train.from);
    job.out.leave("train.micro_batch", "1", "train_batch_size / accumulation / ranks, which are not known");
    job.out.note(
        "the number of ranks is not known, so that train.micro_batch is left open: a step has the same samples with "
        "any; "
        "give the launch line with --args, for example --args \"--num_gpus 4\"");
  }

  void write_micro() { job.out.set("train.micro_batch", *micro.value, *micro.from); }
  void write_steps() { job.out.set("train.accumulate", *steps.value, *steps.from); }

  void all_or_two() {
    const int64_t each = *micro.value * *steps.value;
    if (train.value) {
      const int64_t whole = *train.value;
      if (job.ranks && each * job.ranks != whole)
        return refuse(fmt::format("{} (micro-batch) x {} (accumulation) x {} = {}, not train_batch_size = {}",
                                  *micro.value, *steps.value, world(), each * job.ranks, whole));
      if (whole % each)
        return refuse(fmt::format("train_batch_size = {} is not a multiple of {} (micro-batch) x {} (accumulation)",
                                  whole, *micro.value, *steps.value));
      if (!job.ranks) job.ranks = whole / each, job.ranks_from = "train_batch_size";
    }
    write_micro();
    write_steps();
  }

  // The engine derives the accumulation as DeepSpeed does.
  void train_and_micro() {
    const int64_t whole = *train.value, step = *micro.value * std::max<int64_t>(job.ranks, 1);
    if (whole % step) {
      const int64_t floor = whole / step;
      return refuse(fmt::format("train_batch_size = {} needs {} micro-batches of {} on {}, which make {}", whole, floor,
                                *micro.value, job.ranks ? world() : "each rank", floor * step));
    }
    write_micro();
    job.out.set("train.global_batch", whole, *train.from);
  }

  void train_and_steps() {
    if (!job.ranks) return whole_alone();
    const int64_t whole = *train.value, parts = *steps.value * job.ranks;
    if (whole % parts)
      return refuse(fmt::format("train_batch_size = {} is not a multiple of {} (accumulation) x {}", whole,
                                *steps.value, world()));
    job.out.set("train.micro_batch", whole / parts,
                fmt::format("train_batch_size = {} / {} / {}", whole, *steps.value, world()));
    write_steps();
  }

  void train_only() {
    if (!job.ranks) return whole_alone();
    const int64_t whole = *train.value;
    if (whole % job.ranks) return refuse(fmt::format("train_batch_size = {} is not a multiple of {}", whole, world()));
    job.out.set("train.micro_batch", whole / job.ranks,
                fmt::format("train_batch_size = {} / {}; DeepSpeed does not accumulate then", whole, world()));
    job.out.set("train.accumulate", int64_t{1}, "DeepSpeed's default with train_batch_size alone");
  }

  // nanoGPT's accumulation counts the micro-batches of all ranks.
  void nanogpt() {
    micro = count(pick(job, "", "per_device_train_batch_size"));
    steps = count(pick(job, "", steps_key));
    if (micro.value) write_micro();
    if (!steps.value) return;
    if (job.ranks && *steps.value % job.ranks)
      return refuse(
          fmt::format("gradient_accumulation_steps = {} counts the micro-batches of all ranks, and is not a "
                      "multiple of {}",
                      *steps.value, world()));
    if (job.ranks)
      job.out.set("train.accumulate", *steps.value / job.ranks,
                  fmt::format("{} = {} of all ranks / {}", steps.from->origin, *steps.value, world()));
    else if (micro.value)
      job.out.set("train.global_batch", *steps.value * *micro.value,
                  fmt::format("{} = {} of all ranks x {}", steps.from->origin, *steps.value, *micro.value));
    else
      job.out.leave("train.accumulate", fmt::format("{} / ranks", *steps.value), steps.from->origin + ": of all ranks");
  }

  void make() {
    if (job.trainer == "nanogpt") return nanogpt();
    sharing();
    const bool any = job.deepspeed.has("train_batch_size") || job.deepspeed.has(micro_key) ||
                     (job.has_deepspeed && job.deepspeed.has(steps_key));
    const auto get = [&](const char* theirs, const char* argument) -> std::optional<Entry> {
      // A default of Hugging Face does not complete what DeepSpeed's file says.
      if (any && !job.deepspeed.has(theirs) && !job.flat.has(argument)) return std::nullopt;
      // Another trainer's global batch is train.global_batch, which `rest` writes.
      if (job.flat.has("global_batch_size") && std::string(argument) == steps_key && !job.flat.has(argument))
        return std::nullopt;
      return pick(job, theirs, argument);
    };
    train = count(get("train_batch_size", ""));
    micro = count(get(micro_key, "per_device_train_batch_size"));
    steps = count(get(steps_key, steps_key));
    if (wrong) return;
    if (micro.value && steps.value) return all_or_two();
    if (train.value && micro.value) return train_and_micro();
    if (train.value && steps.value) return train_and_steps();
    if (train.value) return train_only();
    if (micro.value) {
      write_micro();
      if (job.has_deepspeed) job.out.set("train.accumulate", int64_t{1}, "DeepSpeed's default");
      return;
    }
    if (job.deepspeed.flag("elasticity.enabled").value_or(false))
      return job.out.note(
          "elasticity chooses the batch when the ranks are known: set train.micro_batch and "
          "train.accumulate");
    if (job.has_deepspeed && !job.flat.has("batch_size"))
      return job.out.problem(
          "neither `train_batch_size` nor `train_micro_batch_size_per_gpu` is given; DeepSpeed refuses this too");
    if (steps.value) write_steps();
  }
};

}  // namespace

void batch(Job& job) {
  Batch{job}.make();
}

}  // namespace eng::converter
