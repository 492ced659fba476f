// SPDX-License-Identifier: Apache-2.0
#include "session/convert/convert.hpp"

#include <algorithm>
#include <filesystem>

#include "core/base/text.hpp"
#include "session/convert/job.hpp"
#include "session/foreign.hpp"

namespace eng {
namespace converter {
namespace {

// Names that only one of the two has.
const char* const of_huggingface[] = {"output_dir",
                                      "per_device_train_batch_size",
                                      "num_train_epochs",
                                      "max_steps",
                                      "lr_scheduler_type",
                                      "max_grad_norm",
                                      "adam_epsilon",
                                      "warmup_ratio",
                                      "model_name_or_path",
                                      "learning_rate",
                                      "gradient_checkpointing"};
const char* const of_deepspeed[] = {"zero_optimization",
                                    "train_micro_batch_size_per_gpu",
                                    "train_batch_size",
                                    "optimizer",
                                    "scheduler",
                                    "steps_per_print",
                                    "fp16",
                                    "bf16",
                                    "gradient_clipping",
                                    "gradient_accumulation_steps"};

template <class Names>
bool has_any(const Json& json, const Names& names) {
  return std::any_of(std::begin(names), std::end(names), [&](const char* name) { return json.contains(name); });
}

void must_be_utf8(const std::string& text, const std::string& name) {
  try {
    Json(text).dump();
  } catch (const JsonError&) {
    throw Error(Exit::usage, printable(name) + " is not UTF-8");
  }
}

void must_fit(const std::string& text, const std::string& name) {
  if (text.size() > max_bytes) throw Error(Exit::usage, printable(name) + " is larger than 1 MiB");
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) throw Error(Exit::usage, printable(name) + " is empty");
  must_be_utf8(text, name);
}

void take_deepspeed(const Json& json, Job& job) {
  job.has_deepspeed = true;
  flatten(json, "", job.deepspeed);
}

void take_arguments(Json json, Job& job) {
  if (const Json* inner = json.find("deepspeed"); inner && inner->is_object()) {
    take_deepspeed(*inner, job);
    json.erase("deepspeed");
  }
  flatten(json, "", job.flat);
}

// The file: what it is follows from its names.
void take_file(const ForeignRun& run, Job& job) {
  const std::string name = printable(run.name);
  must_fit(run.text, run.name);
  if (run.name.ends_with(".toml"))
    throw Error(Exit::usage, name + " is TOML already", "engine check " + name + " says whether it is a configuration");
  if (run.text[run.text.find_first_not_of(" \t\r\n")] != '{') {
    job.flat = read_yaml(run.text, run.name);
    return;
  }
  Json json = read_json(run.text, run.name);
  if (json.contains("model_type") && json.contains("architectures"))
    throw Error(Exit::usage, name + " describes a model, not a run",
                "its directory is [model] from = \"DIR\"; `engine eval DIR` and `engine generate DIR` read it too");
  if (has_any(json, of_huggingface)) return take_arguments(std::move(json), job);
  if (!has_any(json, of_deepspeed))
    throw Error(Exit::usage, name + " has no key of a DeepSpeed file or of Hugging Face's training arguments",
                "a DeepSpeed file has train_micro_batch_size_per_gpu or zero_optimization; training arguments have "
                "per_device_train_batch_size or output_dir");
  take_deepspeed(json, job);
}

void take_launch(const ForeignRun& run, Job& job) {
  must_be_utf8(run.arguments, "--args");
  const Launch launch = read_launch(run.arguments);
  for (const auto& one : launch.flags.all) job.flat.all[one.first] = one.second;
  job.ranks = launch.ranks;
  job.ranks_from = launch.ranks_from;
  if (!launch.left.empty())
    job.out.note(fmt::format("of the launch line, not converted: {}; how ranks are started: docs/ranks.md",
                             fmt::join(launch.left, " ")));
}

// A path in a launch line is relative to the working directory, and so trainers read one in a file of arguments. If it
// is not there, it may lie beside that file.
std::pair<std::string, std::string> read_named(const ForeignRun& run, const std::string& path, bool launch) {
  const std::filesystem::path beside = std::filesystem::path(run.name).parent_path() / path;
  try {
    return {run.read(path), path};
  } catch (const Error& here) {
    if (launch || path.starts_with('/') || beside == path) throw;
    try {
      return {run.read(beside.string()), beside.string()};
    } catch (const Error&) {
      throw Error(here.exit(), here.what(),
                  fmt::format("it was looked for in the working directory and beside {}", printable(run.name)));
    }
  }
}

// --deepspeed FILE, --deepspeed_config FILE; also as keys of the arguments.
void take_named_file(const ForeignRun& run, Job& job) {
  for (const char* key : {"deepspeed", "deepspeed_config"}) {
    const Entry* named = job.flat.take(key);
    const std::string path = named ? as_text(named->value) : "";
    if (path.empty()) continue;  // a flag alone, or none
    if (job.has_deepspeed) {
      const auto base = [](const std::string& whole) { return whole.substr(whole.rfind('/') + 1); };
      if (base(path) != base(run.name))
        job.out.note(fmt::format("`{}` names {}; {} is read instead", named->origin, path, run.name));
    } else if (run.read) {
      const auto [text, from] = read_named(run, path, named->origin.starts_with("--"));
      must_fit(text, from);
      take_deepspeed(read_json(text, from), job);
    }
  }
}

bool trains_with_huggingface(const Job& job) {
  for (const char* name : of_huggingface)
    if (job.flat.has(name)) return true;
  return std::any_of(job.deepspeed.all.begin(), job.deepspeed.all.end(),
                     [](const auto& one) { return one.second.value == Value(std::string("auto")); });
}

std::string header(const ForeignRun& run, const Job& job) {
  std::string from = run.name.empty() ? "a launch line" : printable(run.name);
  if (!run.name.empty() && !run.arguments.empty()) from += " and a launch line";
  return fmt::format(
      "# Converted from {1}. Each line says where its value comes from.\n"
      "# engine check FILE{0}; engine run FILE{0}\n",
      job.ranks > 1 ? fmt::format(" --ranks {}", job.ranks) : "", from);
}

// The text must be a configuration, but for what is commented out.
void check(const std::string& text, const Job& job, const SchemaSource& plugins) {
  std::vector<std::string> filled;
  const auto models = plugins.names("eng.model/1");
  if (!job.out.has("model.plugin") && !job.out.has("model.from") && !models.empty()) {
    filled = {"model.plugin=" + models.front()};
    // Its sizes have no defaults in every plugin.
    if (const auto* model = plugins.find("eng.model/1", models.front()); model && !model->presets.empty())
      filled.push_back("model.preset=" + toml_text(model->presets.begin()->first));
  }
  const Value* kind = job.out.get("schedule.kind");
  if (kind && as_text(*kind).starts_with("Warmup") && *kind != Value(std::string("WarmupLR")) &&
      !job.out.has("schedule.total_num_steps"))
    filled.push_back("schedule.total_num_steps=1000");
  Config::parse(text, "the converted configuration", std::filesystem::current_path(), filled, plugins);
}

Converted convert(const ForeignRun& from, const SchemaSource& plugins) {
  Job job{plugins, Target(plugins)};
  if (!from.name.empty()) take_file(from, job);
  take_launch(from, job);
  take_named_file(from, job);
  if (job.deepspeed.all.empty() && job.flat.all.empty())
    throw Error(Exit::usage, "there is nothing to convert: no key and no flag was given",
                "engine config convert ds_config.json --args \"--num_gpus 4 --preset 7b\"");
  job.huggingface = trains_with_huggingface(job);
  model(job);
  resolve_auto(job);
  batch(job);
  optimizer(job);
  schedule(job);
  precision(job);
  zero(job);
  recompute(job);
  run(job);
  rest(job);
  open_ends(job);
  if (const auto& wrong = job.out.problems(); !wrong.empty())
    throw Error(Exit::usage, fmt::format("{}", fmt::join(wrong, "\nerror: ")));
  Converted out{header(from, job) + job.out.text(), job.out.notes(), job.ranks};
  check(out.text, job, plugins);
  return out;
}

}  // namespace
}  // namespace converter

Converted convert_run(const ForeignRun& run, const SchemaSource& plugins) {
  return converter::convert(run, plugins);
}

}  // namespace eng
