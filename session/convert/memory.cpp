// SPDX-License-Identifier: Apache-2.0
// Number formats, ZeRO, recompute: what decides the memory.
#include "session/config/foreign.hpp"
#include "session/config/spelling.hpp"
#include "session/convert/job.hpp"

namespace eng::converter {
namespace {

// fp16's loss scale: the keys have DeepSpeed's names.
void loss_scale(Job& job) {
  const auto set = [&](const char* name, auto read, const char* kind) {
    const Entry* entry = job.deepspeed.take(std::string("fp16.") + name);
    if (!entry) return;
    if (const auto value = read(entry->value))
      job.out.set(std::string("precision.") + name, Value(*value), *entry);
    else
      job.out.problem(fmt::format("`{}` must be {}, not {}", entry->origin, kind, shown(*entry)));
  };
  for (const char* name : {"loss_scale", "min_loss_scale"}) set(name, as_number, "a number");
  for (const char* name : {"initial_scale_power", "loss_scale_window", "hysteresis"})
    set(name, as_whole, "a whole number");
  set("consecutive_hysteresis", as_flag, "true or false");
}

// The keys of a section that were not looked at.
std::vector<std::string> unused(Job& job, const std::string& above) {
  std::vector<std::string> out;
  for (auto& [name, entry] : job.deepspeed.all)
    if (name.starts_with(above) && !entry.used) out.push_back(name);
  return out;
}

const char* const without_masters =
    "weights there have no fp32 masters; bf16 here has them. precision.plugin = \"bf16_sr\" has none";

// The number format by other keys than fp16 and bf16.
void other_words(Job& job) {
  const auto set = [&](const Entry& entry, const std::string& word) {
    static const std::map<std::string, std::string> formats = {
        {"no", "fp32"},         {"none", "fp32"},         {"fp32", "fp32"},    {"float32", "fp32"},
        {"32", "fp32"},         {"fp16", "fp16"},         {"float16", "fp16"}, {"16-mixed", "fp16"},
        {"bf16", "bf16"},       {"bfloat16", "bf16"},     {"32-true", "fp32"}, {"torch.bfloat16", "bf16"},
        {"bf16-mixed", "bf16"}, {"torch.float16", "fp16"}};
    if (const auto found = formats.find(word); found != formats.end())
      return static_cast<void>(job.out.set("precision.plugin", found->second, entry));
    refuse(job, entry,
           word == "fp8" ? "products in fp8 are a transform here: set precision.plugin = \"bf16\" and add "
                           "[[transforms]] with plugin = \"fp8\" to the result (docs/precision.md)"
                         : "there is no such number format here: fp32, bf16, bf16_sr, fp16 (docs/precision.md)");
  };
  const auto flag = [&](const char* name) {
    const Entry* entry = job.flat.take(name);
    return entry && as_flag(entry->value).value_or(false) ? entry : nullptr;
  };
  const Entry* pure = flag("pure_bf16");
  if (!pure) pure = flag("bfloat16");
  if (pure) {
    set(*pure, "bf16");
    return job.out.note(fmt::format("`{}`: {}", pure->origin, without_masters));
  }
  if (const Entry* half = flag("float16")) return set(*half, "fp16");
  if (job.deepspeed.flag("torch_autocast.enabled").value_or(false)) {
    const Entry* type = job.deepspeed.take("torch_autocast.dtype");
    const Entry fallback{std::string("bfloat16"), "", "torch_autocast.enabled"};
    set(type ? *type : fallback, lower_case(as_text(type ? type->value : fallback.value)));
    for (const std::string& key : unused(job, "torch_autocast.")) job.deepspeed.take(key);
    return;
  }
  if (const Entry* word = job.flat.take("mixed_precision"))
    return set(*word, as_flag(word->value) == std::optional(false) ? "no" : lower_case(as_text(word->value)));
  for (const auto& [trainer, whose] : {std::pair("trl", "TRL"), {"axolotl", "axolotl"}}) {
    if (job.trainer != trainer || job.flat.has("bf16") || job.flat.has("fp16")) continue;
    job.out.set("precision.plugin", std::string("bf16"), fmt::format("{}'s default of bf16", whose));
    job.out.note(fmt::format("`bf16` is not given: new versions of {} train in bf16 then, older ones in fp32", whose));
  }
  if (job.trainer == "llamafactory" && !job.flat.has("bf16") && !job.flat.has("fp16"))
    job.out.note(
        "`bf16` is not given: LLaMA-Factory then computes in the 16 bits that the model's config.json and the card "
        "allow, and here it is fp32: set precision.plugin");
}

// The folder, the size and the number of the requests. False if the folder has no counterpart.
bool disks(Job& job, const Entry* folder) {
  const std::string path = folder ? as_text(folder->value) : "";
  if (!path.starts_with('/')) return false;
  if (!job.out.has("offload.nvme_paths"))
    job.out.set("offload.nvme_paths", std::vector<std::string>{path}, *folder);
  else if (*job.out.get("offload.nvme_paths") != Value(std::vector<std::string>{path}))
    job.out.note(fmt::format("`{}` is another folder than that of the other states: not converted", folder->origin));
  for (const auto& [theirs, ours] :
       {std::pair("aio.block_size", "offload.nvme_block"), {"aio.queue_depth", "offload.nvme_depth"}}) {
    const Entry* entry = job.deepspeed.take(theirs);
    if (!entry || job.out.has(ours)) continue;
    const auto number = as_whole(entry->value);
    const bool block = ours == std::string("offload.nvme_block");
    if (!number || *number < 1 || (block ? *number % 4096 != 0 : *number > 1024))
      job.out.note(fmt::format("`{}` = {}: {} has other limits; not converted", entry->origin, shown(*entry), ours));
    else
      job.out.set(ours, *number, *entry);
  }
  for (const std::string& key : unused(job, "aio.")) job.deepspeed.take(key);
  return true;
}

// zero_optimization.offload_optimizer and offload_param: their device has a counterpart, and the folder on disks.
void offload(Job& job, const std::string& what, const std::string& key, int64_t stage) {
  const std::string path = "zero_optimization." + what;
  if (!job.deepspeed.has_section(path) && !job.deepspeed.all.count(path)) return;
  const Entry* device = job.deepspeed.take(path + ".device");
  const std::string name = device ? as_text(device->value) : job.deepspeed.has_section(path) ? "none" : "";
  const Entry* folder = job.deepspeed.take(path + ".nvme_path");
  const bool optimizer = what == "offload_optimizer";
  const Entry* part = optimizer ? job.deepspeed.take(path + ".ratio") : nullptr;
  const Entry* early = optimizer ? job.deepspeed.take(path + ".super_offload") : nullptr;
  if (early && !as_flag(early->value).value_or(false)) early = nullptr;
  for (const std::string& other : unused(job, path)) job.deepspeed.take(other);
  if (name == "none" || (name.empty() && !device && !job.deepspeed.has(path))) return job.off.push_back(path);
  if (name != "cpu" && name != "nvme" && device)
    return job.out.problem(
        fmt::format("`{}` must be \"none\", \"cpu\" or \"nvme\", not {}", device->origin, shown(*device)));
  if (!device) return job.out.note(fmt::format("`{}`: set {} = \"host\" to have it in host memory", path, key));
  if (what == "offload_param" && stage != 3)
    return job.out.note(fmt::format("`{}` to {}: DeepSpeed reads it under stage 3 alone, this is {}; not converted",
                                    path, name, stage));
  for (const Entry* entry : {part, early})
    if (entry && stage != 3)
      job.out.note(
          fmt::format("`{}`: DeepSpeed reads it under stage 3 alone, this is {}; not converted", entry->origin, stage));
  if (name == "nvme" && stage != 3)
    job.out.note(fmt::format("`{}` to nvme: under stage {} DeepSpeed takes nvme for cpu", path, stage));
  if (const bool host = name == "cpu" || stage != 3; host || disks(job, folder)) {
    const bool old = !device->origin.ends_with(".device");  // cpu_offload = true
    if (old)
      job.out.set(key, std::string("host"), device->origin + " = true");
    else
      job.out.set(key, std::string(host ? "host" : "nvme"), *device);
    if (part && stage == 3) job.out.set("offload.ratio", as_number(part->value).value_or(-1), *part);
    if (early && stage == 3) job.out.set("offload.update_early", true, *early);
    return;
  }
  job.out.leave(key, toml_text(std::string("nvme")), device->origin + " = " + shown(*device));
  job.out.note(fmt::format("`{}` to nvme without an absolute `nvme_path`: set offload.nvme_paths as well", path));
}

// "cpu_offload": true is today's offload_optimizer to the cpu.
void old_spelling(Job& job, const std::string& old, const std::string& today) {
  const std::string above = "zero_optimization.";
  const Entry* given = job.deepspeed.take(above + old);
  if (!given) return;
  const auto on = as_flag(given->value);
  if (!on) return job.out.problem(fmt::format("`{}` must be true or false, not {}", given->origin, shown(*given)));
  if (!*on) return;
  const auto [place, fresh] = job.deepspeed.all.emplace(above + today + ".device", *given);
  if (fresh) place->second.value = std::string("cpu"), place->second.used = false;
}

int64_t stage_of(Job& job) {
  if (const Entry* old = job.deepspeed.take("zero_optimization")) {  // true meant stage 1
    const bool on = as_flag(old->value).value_or(false);
    job.out.set("zero.plugin", std::string(on ? "zero1" : "none"), *old);
    return on;
  }
  const Entry* stage = job.deepspeed.take("zero_optimization.stage");
  if (!stage) return 0;
  const auto number = as_whole(stage->value);
  const auto foreign = number ? translation("deepspeed", "zero_optimization.stage", *number) : std::nullopt;
  if (!foreign || foreign->values.empty()) {
    job.out.problem(fmt::format("`{}` must be 0, 1, 2 or 3, not {}", stage->origin, shown(*stage)));
    return 0;
  }
  if (job.out.exists("zero", foreign->plugin))
    job.out.set("zero.plugin", foreign->plugin, *stage);
  else
    refuse(job, *stage, foreign->not_yet());
  return *number;
}

// True for keys that DeepSpeed reads under stage 3 alone.
bool of_stage_3(const std::string& key) {
  return key.starts_with("stage3_") || key == "sub_group_size" || key == "memory_efficient_linear" ||
         key.starts_with("zero_hpz_") || key.starts_with("zero_quantized_") || key == "mics_shard_size";
}

// Hugging Face's `fsdp` is translated by `rest`; its file, and accelerate's flags, say it in parts.
void fsdp(Job& job) {
  const auto part = [&](const std::string& name) -> const Entry* {
    for (const std::string& known : {"fsdp_config.fsdp_" + name, "fsdp_" + name, "fsdp_config." + name})
      if (const Entry* entry = job.flat.take(known)) return entry;
    return nullptr;
  };
  const Entry* kind = job.flat.take("distributed_type");
  const Entry* use = job.flat.take("use_fsdp");
  const Entry *strategy = part("sharding_strategy"), *again = part("reshard_after_forward"),
              *host = part("offload_params"), *recomputed = part("activation_checkpointing");
  part("version");
  if (recomputed && as_flag(recomputed->value).value_or(false))
    job.out.set("recompute.policy", std::string("full"), *recomputed);
  const bool on =
      (kind && as_text(kind->value) == "FSDP") || (use && as_flag(use->value).value_or(false)) || job.flat.has("fsdp");
  if (!on || job.out.has("zero.plugin")) return;
  const bool accelerated = !job.flat.has("fsdp");
  if (host && as_flag(host->value).value_or(false)) {
    job.out.set("offload.parameters", std::string("host"), *host);
    job.out.set("offload.optimizer", std::string("host"), *host);
  }
  if (!accelerated) {
    const Value& words = job.flat.find("fsdp")->value;
    const auto* list = std::get_if<std::vector<std::string>>(&words);
    const std::string all = list ? fmt::format("{}", fmt::join(*list, " ")) : as_text(words);
    if (all.find("offload") != std::string::npos && !host) {
      job.out.set("offload.parameters", std::string("host"), *job.flat.find("fsdp"));
      job.out.set("offload.optimizer", std::string("host"), *job.flat.find("fsdp"));
    }
    return;
  }
  const Entry& from = strategy ? *strategy : again ? *again : kind ? *kind : *use;
  std::string word =
      strategy ? (as_whole(strategy->value) ? std::to_string(*as_whole(strategy->value)) : as_text(strategy->value))
      : again && as_flag(again->value) == std::optional(false) ? "SHARD_GRAD_OP"
                                                               : "FULL_SHARD";
  for (const auto& [theirs, number, ours] : {std::tuple("FULL_SHARD", "1", "zero3"),
                                             {"SHARD_GRAD_OP", "2", "zero2"},
                                             {"NO_SHARD", "3", "none"},
                                             {"HYBRID_SHARD", "4", "zero3"},
                                             {"HYBRID_SHARD_ZERO2", "5", "zero2"}})
    if (word == theirs || word == number) return static_cast<void>(job.out.set("zero.plugin", std::string(ours), from));
  job.out.problem(fmt::format("`{}` = {} is no strategy of FSDP", from.origin, shown(from)));
}

}  // namespace

void precision(Job& job) {
  const auto done = [&] {
    for (const char* section : {"fp16.", "bf16."})
      for (const std::string& key : unused(job, section))
        if (key.ends_with(".enabled") ||
            account_of("deepspeed", key, {}).value_or(Account{Fate::none}).fate == Fate::rule)
          job.deepspeed.take(key);
  };
  const auto half = pick(job, "fp16.enabled", "fp16"), brain = pick(job, "bf16.enabled", "bf16");
  const auto on = [&](const std::optional<Entry>& entry) {
    // On every card of today, bf16: auto is on; axolotl calls it full where there are no masters.
    if (entry && entry->trainer == "axolotl" && (as_text(entry->value) == "auto" || as_text(entry->value) == "full"))
      return true;
    const auto flag = entry ? as_flag(entry->value) : std::optional(false);
    if (!flag) job.out.problem(fmt::format("`{}` must be true or false, not {}", entry->origin, shown(*entry)));
    return flag.value_or(false);
  };
  const bool fp16 = on(half), bf16 = on(brain) && !(fp16 && as_text(brain->value) == "auto");
  if (fp16 && bf16)
    return job.out.problem(fmt::format("`{}` and `{}` are both on; DeepSpeed and Hugging Face refuse this too",
                                       half->origin, brain->origin));
  if (fp16 || bf16) {
    job.out.set("precision.plugin", std::string(fp16 ? "fp16" : "bf16"), fp16 ? *half : *brain);
    if (bf16 && as_text(brain->value) == "full") job.out.note(fmt::format("`{}`: {}", brain->origin, without_masters));
    if (fp16) loss_scale(job);
  } else {
    other_words(job);
  }
  done();
}

void zero(Job& job) {
  const int64_t stage = stage_of(job);
  old_spelling(job, "cpu_offload", "offload_optimizer");
  old_spelling(job, "cpu_offload_param", "offload_param");
  old_spelling(job, "cpu_offload_params", "offload_param");
  offload(job, "offload_optimizer", "offload.optimizer", stage);
  offload(job, "offload_param", "offload.parameters", stage);
  fsdp(job);
  std::vector<std::string> unread;
  for (const std::string& name : unused(job, "zero_optimization."))
    if (const std::string key = name.substr(name.find('.') + 1); stage != 3 && of_stage_3(key)) {
      job.deepspeed.take(name);
      unread.push_back(key);
    }
  if (!unread.empty())
    job.out.note(fmt::format("stage {} does not read {}; not converted", stage, fmt::join(unread, ", ")));
  if (stage == 3) compression(job);
  // A limit here, but not there.
  if (const std::string name = "zero_optimization.stage3_max_live_parameters"; stage == 3 && job.deepspeed.has(name)) {
    const Entry* live = job.deepspeed.take(name);
    const auto foreign = translation("deepspeed", name, live->value);
    if (foreign->values.empty()) {
      const bool said = live->value == Value(std::string("auto")) || as_number(live->value) == std::optional(0.0);
      const std::string text = fmt::format("`{}` must be a number of elements, not {}", live->origin, shown(*live));
      if (said)
        job.out.note(text + "; not converted");
      else
        job.out.problem(text);
    } else {
      job.out.leave("zero.live_limit", toml_text(foreign->values[0].second), live->origin + " = " + shown(*live));
      job.out.note(
          fmt::format("`{}` is no limit in DeepSpeed: it only shortens the prefetch. {}; the line is commented out",
                      live->origin, foreign->why));
    }
  }
  // Both sizes are one key here; that of the gradients counts.
  for (const char* key : {"reduce_bucket_size", "allgather_bucket_size"})
    if (const auto found = job.deepspeed.all.find(std::string("zero_optimization.") + key);
        found != job.deepspeed.all.end() && found->second.value.index())
      translate(job, found->first, found->second);
}

void recompute(Job& job) {
  const auto flag = job.flat.flag("gradient_checkpointing");
  if (const Entry* whole = job.flat.take("gradient_checkpointing"); whole && flag) {
    if (*flag) job.out.set("recompute.policy", std::string("full"), *whole);
  } else if (whole) {
    job.out.problem(fmt::format("`{}` must be true or false, not {}", whole->origin, shown(*whole)));
  }
  if (job.trainer == "llamafactory" && !job.out.has("recompute.policy") &&
      !job.flat.has("disable_gradient_checkpointing"))
    job.out.set("recompute.policy", std::string("full"), "LLaMA-Factory's default of disable_gradient_checkpointing");
  const Entry* blocks = job.deepspeed.take("activation_checkpointing.number_checkpoints");
  if (!blocks || as_flag(blocks->value) == std::optional(false)) return;
  if (job.out.has("recompute.policy"))
    return job.out.note(
        fmt::format("`{}` is not used: recompute.policy = \"full\" recomputes each layer", blocks->origin));
  if (job.out.set("recompute.blocks", blocks->value, *blocks))
    job.out.note(
        fmt::format("`{}`: DeepSpeed does nothing with it unless the model calls its checkpoint function; here "
                    "the layers are always recomputed in so many runs",
                    blocks->origin));
}

}  // namespace eng::converter
