// SPDX-License-Identifier: Apache-2.0
// The model, the data and the length of the run, as far as arguments say them.
#include <algorithm>

#include "core/base/text.hpp"
#include "session/config/foreign.hpp"
#include "session/config/init.hpp"
#include "session/config/spelling.hpp"
#include "session/convert/job.hpp"

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

void epochs(Job& job, const Entry& number, const std::string& named) {
  if (job.out.set("train.epochs", number.value, number))
    job.out.note(
        fmt::format("`{}`: here it is `train.epochs`, but its steps are epochs x training samples / samples per "
                    "step, rounded up once; others round up each epoch, so that their run has at most {} steps "
                    "more",
                    named, std::max<int64_t>(1, static_cast<int64_t>(as_number(number.value).value_or(1)))));
}

void steps(Job& job) {
  const Entry* most = job.flat.take("max_steps");
  const Entry* total = job.deepspeed.find("scheduler.params.total_num_steps");
  if (most && as_number(most->value).value_or(1) > 0)
    return static_cast<void>(job.out.set("train.steps", most->value, *most));
  for (const char* name : {"steps", "num_steps", "total_steps"})
    if (const Entry* given = job.flat.take(name))
      return static_cast<void>(job.out.set("train.steps", given->value, *given));
  for (const char* name : {"num_train_epochs", "num_epochs", "epochs"})
    if (const Entry* given = job.flat.take(name); given && as_number(given->value).value_or(1) > 0)
      return epochs(job, *given, given->origin);
  if (total && as_whole(total->value))
    return static_cast<void>(
        job.out.set("train.steps", total->value, total->origin + ": the run's own length is not known"));
  // The files set no length, so the default of their trainer counts.
  if (job.defaults && !job.flat.all.empty()) {
    if (const auto fallback = default_of(job, "max_steps"))
      return static_cast<void>(job.out.set("train.steps", fallback->value, *fallback));
    if (const auto fallback = default_of(job, "num_train_epochs")) return epochs(job, *fallback, "num_train_epochs");
  }
  job.out.leave("train.steps", "1000", "not known: the steps of the run");
  job.out.note("the length of the run is not known: set train.steps");
}

// axolotl's list of datasets: files of text become data.paths; all others are for a person.
void datasets(Job& job) {
  std::vector<std::string> paths;
  const Entry* from = nullptr;
  for (const std::string list : {"datasets", "pretraining_dataset"})
    for (int k = -1; k < 1000; ++k) {
      const std::string above = k < 0 ? list : list + "." + std::to_string(k);
      const Entry* path = job.flat.take(above + ".path");
      if (!path && k < 0) path = job.flat.take(above);
      if (!path && k >= 0) break;
      if (!path) continue;
      const std::string word = as_text(path->value);
      const Entry *type = job.flat.take(above + ".type"), *files = job.flat.take(above + ".data_files");
      const Entry *field = job.flat.take(above + ".field"), *column = job.flat.take(above + ".text_column");
      const std::string kind = type ? as_text(type->value) : list == "datasets" ? "" : "pretrain";
      const bool plain = kind == "completion" || kind == "pretrain" || kind.starts_with("completion:");
      const bool chat = kind == "chat_template" && chat_rows(job, above);
      std::vector<std::string> left;
      for (auto& [name, entry] : job.flat.all)
        if (name.starts_with(above + ".")) {
          if (!entry.used && entry.value.index() && name != above + ".split") left.push_back(entry.origin);
          entry.used = true;
        }
      if (!left.empty())
        job.out.note(fmt::format("{}: no such setting of a dataset here; not converted", fmt::join(left, ", ")));
      const std::string file = files && !as_text(files->value).empty() ? as_text(files->value) : word;
      const auto ends = [&](const char* end) { return file.ends_with(end); };
      const bool local =
          ends(".jsonl") || ends(".json") || ends(".txt") || ends(".gz") || ends(".zst") || ends(".ndjson");
      if (!plain && !chat)
        job.out.note(
            fmt::format("`{}` = {} of type \"{}\": chats and instructions are read by data.plugin = \"chat\", in the "
                        "words of the model's chat template (docs/data.md)",
                        path->origin, shown(*path), printable(kind, 80)));
      else if (!local)
        job.out.note(
            fmt::format("`{}` = {}: data.paths takes files: text or JSON Lines, which tools/export-dataset makes of a "
                        "dataset (docs/data.md)",
                        path->origin, shown(*path)));
      else
        paths.push_back(file), from = path;
      const Entry* name = field ? field : column;
      if (plain && name && !job.out.has("data.field")) job.out.set("data.field", name->value, *name);
    }
  if (from) job.out.set("data.paths", paths, Entry{paths, "", from->origin});
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

// `model_type`, `--arch`: a model plugin's name, whose sizes other keys give.
bool named_type(Job& job) {
  for (const char* key : {"model_type", "arch", "architecture"}) {
    const Entry* given = job.flat.find(key);
    if (!given || !account_of(job.trainer, key, {}) || account_of(job.trainer, key, {})->fate != Fate::rule) continue;
    job.flat.take(key);
    std::string word = lower_case(as_text(given->value));
    if (word.ends_with("forcausallm")) word.resize(word.size() - std::string("forcausallm").size());
    if (job.out.exists("model", word)) return job.out.set("model.plugin", word, *given);
    no_model(job, fmt::format("`{}` = {}: there is no such model here", given->origin, shown(*given)));
    return true;
  }
  return false;
}

}  // namespace

void model(Job& job) {
  const Entry* name = nullptr;
  for (const char* key : model_names)
    if (const Entry* given = job.flat.take(key); given && !name) name = given;
  if (!name && named_type(job)) return;
  if (!name) return no_model(job, "the model is not known");
  for (const char* key : {"model_type", "arch", "architecture"}) job.flat.take(key);
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
  // A path is no name of a hub, whose sizes are known.
  if (word[0] == '.' || word[0] == '/' || word[0] == '~' || word[0] == '$' ||
      std::count(word.begin(), word.end(), '/') > 1) {
    job.out.leave("model.from", toml_text(word), name->origin + ": this directory is not here");
    return no_model(job, fmt::format("`{}` = {} is no directory here", name->origin, shown(*name)));
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
  if (trains_adapter(job) || trains_on_pairs(job)) return;  // which says so itself
  job.out.note(
      fmt::format("`{}` = {}: new weights of this size are written; to start from the published ones, download "
                  "their directory and set model.from instead of plugin and preset",
                  name->origin, shown(*name)));
}

void run(Job& job) {
  // A number beyond every run is how people say that nothing is to be printed.
  if (const Entry* print = job.deepspeed.find("steps_per_print"); print && as_number(print->value).value_or(0) > 1e9)
    job.out.set("log.every", int64_t{1'000'000'000}, job.deepspeed.take("steps_per_print")->origin);
  steps(job);
  name(job);
  datasets(job);
  if (job.huggingface || job.flat.has("eval_strategy") || job.flat.has("evaluation_strategy"))
    rhythm(job, {"eval_strategy", "evaluation_strategy"}, "eval_steps", "train.eval_every", false);
  rhythm(job, {"save_strategy"}, "save_steps", "checkpoint.every", true);
  rhythm(job, {"logging_strategy"}, "logging_steps", "log.every", true);
}

namespace {

// The length that the trainer takes if nobody says one.
std::optional<Entry> length_of(const Job& job) {
  if (is_null(job.flat, "max_length")) return std::nullopt;
  if (const auto length = default_of(job, "max_length")) return length;
  return default_of(job, "block_size");
}

}  // namespace

// Writes the values that only a person can fill in; after `rest`, which may have found them.
void open_ends(Job& job) {
  if (job.out.has("model.plugin") && !job.out.has("model.preset") && !job.out.has("model.from") &&
      !job.out.has("model.hidden_size"))
    job.out.leave("model.preset", "\"...\"", "or sizes: engine plugins info " + as_text(*job.out.get("model.plugin")));
  for (const auto& [trainer, whose] : {std::pair("axolotl", "axolotl's default of val_set_size"),
                                       {"llamafactory", "LLaMA-Factory's default of val_size"}})
    if (job.trainer == trainer && !job.out.has("data.validation")) job.out.set("data.validation", 0.0, whose);
  if (!job.out.has("data.paths")) {
    job.out.comment_out("data");
    job.out.leave("data.paths", "[\"data/*.txt\"]", "the data are not known: files or patterns, relative to this file");
    job.out.note("the data are not known: set data.paths (docs/data.md)");
  }
  const auto vocabulary = job.out.of_model("vocab_size");
  if (vocabulary && *vocabulary > 256 && !job.out.has("data.tokenizer") && !job.out.has("model.from")) {
    job.out.leave("data.tokenizer", "\"tokenizer.json\"",
                  fmt::format("a file or a folder, of ids below {}: docs/data.md", *vocabulary));
    job.out.note("the tokenizer is not known: set data.tokenizer (docs/data.md)");
  }
  if (const auto fallback = job.defaults ? length_of(job) : std::nullopt;
      fallback && !job.out.has("train.sequence_length"))
    job.out.set("train.sequence_length", fallback->value, *fallback);
  if (!job.out.has("train.sequence_length")) {
    job.out.leave("train.sequence_length", "1024", "not known: tokens per sequence");
    job.out.note("the length of a sequence is not known: set train.sequence_length");
  }
}

}  // namespace eng::converter
