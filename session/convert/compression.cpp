// SPDX-License-Identifier: Apache-2.0
// MiCS and ZeRO++: groups of ranks, and what moves between ranks in fewer bits.
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

const Entry* take(Job& job, const std::string& key) {
  return job.deepspeed.take("zero_optimization." + key);
}

// The ranks of a group; none if there are no groups, or `entry` is no number.
std::optional<int64_t> group_of(Job& job, const Entry* entry, int64_t least) {
  if (!entry) return {};
  const auto n = as_whole(entry->value);
  if (!n) job.out.problem(fmt::format("`{}` must be a whole number, not {}", entry->origin, shown(*entry)));
  if (n && *n < least) job.off.push_back(entry->origin);
  return n && *n >= least ? n : std::nullopt;
}

// True if the flag is on.
bool is_on(Job& job, const Entry* entry) {
  if (!entry) return false;
  const auto on = as_flag(entry->value);
  if (!on) job.out.problem(fmt::format("`{}` must be true or false, not {}", entry->origin, shown(*entry)));
  if (on && !*on) job.off.push_back(entry->origin);
  return on.value_or(false);
}

void strategy(Job& job, const char* name, int64_t ranks, const Entry& from) {
  job.out.change("zero.plugin", std::string(name), from.origin);
  job.out.set("zero.group", ranks, from);
}

}  // namespace

void compression(Job& job) {
  const Entry *hpz = take(job, "zero_hpz_partition_size"), *mics = take(job, "mics_shard_size"),
              *weights = take(job, "zero_quantized_weights"), *gradients = take(job, "zero_quantized_gradients");
  const auto second = group_of(job, hpz, 2), shards = group_of(job, mics, 1);
  if (second && shards)
    return refuse(
        job, *hpz,
        fmt::format("`{}` asks for another strategy, mics: here [zero] has one; remove one of the two", mics->origin));
  if (second) {
    strategy(job, "hpz", *second, *hpz);
    job.out.note(
        fmt::format("`{}`: every forward there gathers from all ranks; here the weights of a group are made "
                    "once per step, and every use gathers them within it",
                    hpz->origin));
  }
  if (shards) strategy(job, "mics", *shards, *mics);
  if (is_on(job, weights)) {
    job.out.set("zero.gather", std::string("int8"), *weights);
    job.out.note(fmt::format("`{}`: here 64 elements share a scale{}; masters and checkpoints are exact",
                             weights->origin, second ? ", and only what crosses groups has 8 bits" : ""));
  }
  if (!is_on(job, gradients)) return;
  const Value* precision = job.out.get("precision.plugin");
  if (precision && *precision == Value(std::string("fp16")))
    return job.out.note(
        fmt::format("`{}` is not converted: zero.sum adds what it rounds off to the next sum, whose "
                    "loss scale may be another; with precision.plugin = \"bf16\", set it to \"int8\"",
                    gradients->origin));
  job.out.set("zero.sum", std::string("int8"), *gradients);
  job.out.note(
      fmt::format("`{}`: there 4 bits, and what is rounded off is lost; here 8 bits, and it is added to the "
                  "next sum{}",
                  gradients->origin, second || shards ? "; within a group sums are exact" : ""));
}

}  // namespace eng::converter
