// SPDX-License-Identifier: Apache-2.0
// The model, the data and the length of the run, as far as arguments say them.
#include <algorithm>

#include "session/convert/job.hpp"
#include "session/foreign.hpp"
#include "session/init.hpp"

namespace eng::converter {
namespace {

const char* const model_names[] = {"model_name_or_path", "model_name", "model_path",   "pretrained_model_name_or_path",
                                   "base_model",         "preset",     "model_preset", "model"};

bool is_directory(const std::string& path) {
  std::error_code none;
  return path.find('\0') == std::string::npos && std::filesystem::is_directory(path, none);
}

// A preset by any name that people use; nothing if there is none.
std::optional<ModelChoice> known_model(const Job& job, const std::string& name) {
  try {
    return choose_model(job.plugins, {name});
  } catch (const Error&) {
    return std::nullopt;
  }
}

void no_model(Job& job, const std::string& why) {
  job.out.leave("model.plugin", "\"llama\"", "or opt, mamba: engine plugins ls");
  job.out.leave("model.preset", "\"7b\"", "or from = \"DIR\", a Hugging Face directory: engine plugins info llama");
  job.out.note(why + ": set [model] plugin, and preset or from");
}

// "steps", "epoch" or "no": whether something happens every so many steps. `every`: the argument with their number.
void rhythm(Job& job, std::initializer_list<const char*> kinds, const char* every, const char* key, bool by_default) {
  std::optional<Entry> kind;
  for (const char* name : kinds)
    if (const Entry* given = job.flat.take(name); given && !kind) kind = *given;
  const std::string word = !kind ? "" : as_flag(kind->value) == std::optional(false) ? "no" : as_text(kind->value);
  if (word == "no" || (!kind && !by_default)) {
    if (const Entry* given = job.flat.take(every); given && as_number(given->value).value_or(1) != 0)
      job.out.note(
          fmt::format("`{}` has no effect without {} = \"steps\"; not converted", given->origin, *kinds.begin()));
    if (word == "no" && std::string(key) != "log.every") job.out.set(key, int64_t{0}, *kind);
  } else if (word == "epoch") {
    job.out.note(fmt::format("`{}` = \"epoch\": here {} counts steps", kind->origin, key));
  } else if (const Entry* given = job.flat.take(every)) {
    const auto number = as_number(given->value);
    const Entry* steps = job.flat.find("max_steps");
    const auto all = steps ? as_whole(steps->value).value_or(0) : 0;
    if (!number || *number >= 1 || *number <= 0)
      job.out.set(key, given->value, *given);
    else if (all > 0)
      job.out.set(key, std::max<int64_t>(1, static_cast<int64_t>(*number * static_cast<double>(all) + 0.999999)),
                  *given);
    else
      job.out.note(fmt::format("`{}` = {} of the steps, which are not known: set {}", given->origin, *number, key));
  }
}

void steps(Job& job) {
  const Entry* most = job.flat.take("max_steps");
  const Entry* total = job.deepspeed.find("scheduler.params.total_num_steps");
  if (most && as_number(most->value).value_or(1) > 0) {
    job.out.set("train.steps", most->value, *most);
  } else if (total && as_whole(total->value)) {
    job.out.set("train.steps", total->value, total->origin + ": the run's own length is not known");
  } else {
    for (const char* name : {"train_iters", "steps", "num_steps", "total_steps"})
      if (job.flat.has(name)) return;  // `rest` writes it
    std::string why = "not known";
    for (const char* name : {"num_train_epochs", "num_epochs", "epochs"})
      if (const Entry* epochs = job.flat.take(name)) {
        why = fmt::format("{} = {}", epochs->origin, shown(*epochs));
        const auto foreign = foreign_name("", name, epochs->value);
        job.out.note(fmt::format("`{}`: here it is `{}`, but {}", epochs->origin, foreign->here, foreign->why));
        if (as_number(epochs->value).value_or(0) > 0)
          job.out.leave("train.epochs", shown(*epochs), "instead of steps: the run may have a few steps fewer");
      }
    job.out.leave("train.steps", "1000", why + ": the steps of the run");
    if (why == "not known") job.out.note("the length of the run is not known: set train.steps");
  }
}

// Hugging Face takes the output directory's path if there is none.
void name(Job& job) {
  const Entry* given = job.flat.take("run_name");
  if (!given) return;
  const std::string word = as_text(given->value);
  if (is_run_name(word))
    job.out.set("run.name", word, *given);
  else
    job.out.note(fmt::format("`{}` = {} is not the name of a directory: the run gets the name of its file",
                             given->origin, shown(*given)));
}

}  // namespace

void model(Job& job) {
  const Entry* name = nullptr;
  for (const char* key : model_names)
    if (const Entry* given = job.flat.take(key); given && !name) name = given;
  if (!name) return no_model(job, "the model is not known");
  const std::string word = as_text(name->value);
  if (word.empty()) {
    const auto number = as_whole(name->value);  // --preset 7
    return no_model(
        job, fmt::format("`{}` = {} names no model", name->origin, number ? std::to_string(*number) : shown(*name)));
  }
  if (is_directory(word)) {
    job.out.set("model.from", word, *name);
    return;
  }
  const auto choice = known_model(job, word);
  if (!choice)
    return no_model(job, fmt::format("`{}` = {}: there is no preset of this name", name->origin, shown(*name)));
  job.out.set("model.plugin", choice->plugin, *name);
  job.out.set("model.preset", choice->preset, *name);
  if (!choice->others.empty())
    job.out.note(fmt::format("`{}` is also a preset of {}; this one is {}'s", choice->preset,
                             fmt::join(choice->others, ", "), choice->plugin));
  const bool pretrained = name->origin.find("preset") == std::string::npos;
  if (!pretrained) return;
  job.out.leave("model.from", "\"DIR\"", "instead of plugin and preset: the directory of the published weights");
  job.out.note(
      fmt::format("`{}` = {}: new weights of this size are written; to start from the published ones, download "
                  "their directory and set model.from instead of plugin and preset",
                  name->origin, shown(*name)));
}

void run(Job& job) {
  steps(job);
  name(job);
  if (job.huggingface || job.flat.has("eval_strategy") || job.flat.has("evaluation_strategy"))
    rhythm(job, {"eval_strategy", "evaluation_strategy"}, "eval_steps", "train.eval_every", false);
  rhythm(job, {"save_strategy"}, "save_steps", "checkpoint.every", true);
  rhythm(job, {"logging_strategy"}, "logging_steps", "log.every", true);
}

// What only a person can fill in; after `rest`, which may have found it.
void open_ends(Job& job) {
  if (!job.out.has("data.paths")) {
    job.out.leave("data.paths", "[\"data/*.txt\"]", "the data are not known: files or patterns, relative to this file");
    job.out.note("the data are not known: set data.paths (docs/data.md)");
  }
  const auto vocabulary = job.out.of_model("vocab_size");
  if (vocabulary && *vocabulary > 256 && !job.out.has("data.tokenizer") && !job.out.has("model.from")) {
    job.out.leave("data.tokenizer", "\"tokenizer.json\"",
                  fmt::format("a file or a folder, of ids below {}: docs/data.md", *vocabulary));
    job.out.note("the tokenizer is not known: set data.tokenizer (docs/data.md)");
  }
  if (!job.out.has("train.sequence_length")) {
    job.out.leave("train.sequence_length", "1024", "not known: tokens per sequence");
    job.out.note("the length of a sequence is not known: set train.sequence_length");
  }
}

}  // namespace eng::converter
