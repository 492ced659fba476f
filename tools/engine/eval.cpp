// SPDX-License-Identifier: Apache-2.0
// engine eval.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/base/error.hpp"
#include "session/config/mixture.hpp"
#include "session/data/tokenizer.hpp"
#include "session/huggingface/download.hpp"
#include "session/json.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/report/progress.hpp"
#include "session/run/run_dir.hpp"
#include "session/run/waiting.hpp"
#include "session/train/trainer.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

struct EvalFlags {
  std::string target, data;
  std::vector<std::string> overrides;
  int64_t batches = 0;
  bool json = false, all = false;
};

bool gives_key(const std::vector<std::string>& overrides, const std::string& key) {
  return std::any_of(overrides.begin(), overrides.end(), [&](const std::string& o) { return o.rfind(key, 0) == 0; });
}

// True if all data is evaluated: with --all, or if data.paths is overridden without a key that holds data out.
bool evaluates_all(const EvalFlags& flags) {
  return flags.all || (gives_key(flags.overrides, "data.paths=") && !gives_key(flags.overrides, "data.validation"));
}

// Removes a key of each of [[data.sources]].
void remove_from_sources(Section& data, const std::string& key) {
  Tables sources = data.as<Tables>("sources");
  for (Table& one : sources) one.values.erase(key);
  data.set("sources", std::move(sources), "engine eval");
}

void evaluate_all(Config& config) {
  Section& data = config.section("data");
  if (is_mixture(data)) remove_from_sources(data, "validation");
  if (!data.settings().count("validation"))
    throw Error(Exit::usage,
                fmt::format("data plugin {} cannot provide all of its data for evaluation", data.string("plugin")),
                "it has no key `validation`; remove --all to evaluate its held-out data");
  data.set("validation", 1.0, "--all");
}

// Counts the bytes of text in the labels of micro-batches; tokens that end a text have no bytes.
class TextBytes {
 public:
  explicit TextBytes(const Tokenizer& tokenizer)
      : tokenizer_(tokenizer), known_(static_cast<size_t>(tokenizer.info().vocabulary), -1) {}

  void add(const Batch& batch) {
    const eng_tokenizer_info& info = tokenizer_.info();
    for (const int32_t label : batch.labels) {
      if (label < 0 || label >= info.vocabulary || label == info.bos || label == info.eos || label == info.eot)
        continue;
      int64_t& size = known_[static_cast<size_t>(label)];
      if (size < 0) size = static_cast<int64_t>(tokenizer_.decode(label).size());
      bytes_ += static_cast<uint64_t>(size);
    }
  }
  uint64_t bytes() const { return bytes_; }

 private:
  const Tokenizer& tokenizer_;
  std::vector<int64_t> known_;  // bytes of each token; -1: not known yet
  uint64_t bytes_ = 0;
};

void make_absolute(const std::string& key, Value& value, const std::filesystem::path& folder) {
  if (auto* paths = std::get_if<std::vector<std::string>>(&value);
      paths && (key == "paths" || key == "validation_paths"))
    for (std::string& path : *paths) path = (folder / path).string();
  if (auto* path = std::get_if<std::string>(&value);
      path && (key == "cache" || (key == "tokenizer" && *path != "bytes")))
    *path = (folder / *path).string();
}

// [data] and [train] of a configuration, as overrides; relative paths become absolute.
std::vector<std::string> data_of(const std::filesystem::path& file) {
  const Document document = read_document(file);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  std::vector<std::string> out;
  for (const char* section : {"data", "train"}) {
    const Document::Part* part = document.find(section);
    for (const auto& [key, given] : part ? part->keys : std::map<std::string, Given>{}) {
      Value value = given.value;
      make_absolute(key, value, folder);
      if (auto* sources = std::get_if<Tables>(&value))
        for (Table& source : *sources)
          for (auto& [inner, of_source] : source.values) make_absolute(inner, of_source, folder);
      out.push_back(fmt::format("{}.{}={}", section, key, toml_text(value)));
    }
  }
  return out;
}

int eval(const Common& common, const EvalFlags& flags) {
  std::vector<std::string> overrides;
  std::filesystem::path place;
  if (!flags.data.empty()) {
    overrides = data_of(flags.data);
    place = std::filesystem::absolute(flags.data).parent_path();
  }
  overrides.insert(overrides.end(), flags.overrides.begin(), flags.overrides.end());
  if (!std::filesystem::is_directory(flags.target))
    throw Error(Exit::usage, flags.target + " is not a directory",
                !download_line(flags.target).empty()
                    ? download_line(flags.target)
                    : "engine eval takes a run, such as runs/NAME/ID, or a Hugging Face directory");
  auto [registry, config] = load_config(common, flags.target, overrides, place);
  try {
    config.require("data");
  } catch (const ConfigError&) {
    throw Error(Exit::usage, "evaluating the weights of " + flags.target + " needs [data]",
                "give --data CONFIG, or 'data.paths=[\"text.txt\"]'");
  }
  // The run's own validation_paths do not belong to other texts.
  Section& texts = config.section("data");
  if (gives_key(overrides, "data.paths=") && !gives_key(overrides, "data.validation_paths=") &&
      texts.settings().count("validation_paths"))
    texts.set("validation_paths", std::vector<std::string>(), "data.paths");
  if (evaluates_all(flags)) evaluate_all(config);
  const bool run = RunDir::is_run(flags.target);
  Readable readable;
  if (!run) readable.traced = weights_check(config, *registry);
  Setup setup = make_evaluation(config, *registry, readable);
  print_notes(setup);
  std::filesystem::path weights = weights_source(config);
  int64_t step = 0;
  setup.stored = setup.plan.tensors.size();
  if (run) {
    const Found found = newest_checkpoint(own_folder(flags.target, checkpoints_folder));
    if (!found.path) throw Error(Exit::checkpoint, flags.target + " has no usable checkpoint");
    weights = *found.path;
    step = checkpoint_step(weights).value_or(0);
    setup.stored = found.tensors;
  }
  load_weights(find_weights(weights), pretrained_table(config, *registry), parameters(setup.plan),
               {});  // checks only shapes
  check_evaluation_fits(config, *registry, setup);
  build_data(config, *registry, setup.model.info.vocabulary, true);
  Data data(*registry, config, setup.model.info.vocabulary, setup.model.fields);
  count_data(setup, data);
  if (!data.info().validation_samples)
    throw Error(Exit::data, "nothing is held out: data.validation is 0",
                "set data.validation, for example 0.05, or data.validation_paths; --all evaluates all data");
  if (setup.kernels->host_memory()) check_threads(setup.kernels->info().parallel);
  release_freed_memory();  // of planning
  Trainer trainer(config, *registry, setup, data, nullptr, run ? choices_of(weights) : "");
  auto [reference, hash] = reference_weights(config, *registry);
  trainer.set_reference(std::move(reference), std::move(hash));
  if (run && overrides.empty() && !evaluates_all(flags))
    trainer.load(weights);  // its own data: must be unchanged since training
  else
    trainer.initialise(
        weights_of(weights, config, *registry, run ? WeightsProgress() : weights_progress(flags.target)));
  release_freed_memory();  // of reading a checkpoint
  const int64_t batches = flags.batches > 0 ? flags.batches : INT64_MAX;
  std::optional<Tokenizer> tokenizer;
  std::optional<TextBytes> text;
  if (const Section& section = config.section("data"); section.has("tokenizer"))
    text.emplace(tokenizer.emplace(*registry, section.string("tokenizer"), config.base_dir()));
  const auto seen = [&](const Batch& batch) {
    if (text) text->add(batch);
  };
  const Evaluation e = trainer.evaluate(batches, seen);
  if (!e.tokens)
    throw Error(Exit::data, fmt::format("{}: none of the labels counts, so there is no loss", flags.target),
                "evaluate other data: data.validation_paths, or --all");
  if (!std::isfinite(e.loss))
    throw Error(Exit::numerics, fmt::format("{}: the loss over {} tokens is not finite", flags.target, e.tokens),
                "the weights contain values that are not finite, or too large for fp32");
  std::optional<double> bits_per_byte;
  if (text && text->bytes())
    bits_per_byte = e.of_text() * static_cast<double>(e.tokens) / std::log(2.0) / static_cast<double>(text->bytes());
  if (flags.json) {
    Json out = Json::ordered({{"step", step},
                              {"loss", e.loss},
                              {"perplexity", std::exp(e.of_text())},
                              {"tokens", e.tokens},
                              {"seconds", e.seconds},
                              {"planned_peak_bytes", planned_peak(setup)}});
    if (bits_per_byte) out["bits_per_byte"] = *bits_per_byte;
    for (const auto& [key, values] : {std::pair("terms", &e.terms), std::pair("sources", &e.sources)}) {
      if (values->empty()) continue;
      Json all = Json::ordered({});
      for (const Named& one : *values) all[one.name] = one.value;
      out[key] = std::move(all);
    }
    print_out("{}\n", out.dump());
  } else {
    print_out("{}{}\n", eval_text(step, e), bits_per_byte ? fmt::format("  {:.4f} bits per byte", *bits_per_byte) : "");
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("eval", "print loss and perplexity of a run or of a Hugging Face directory");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("target", flags->target, "a run directory, or one with config.json and weights")->required();
  add_overrides(*command, flags->overrides, "section.key=value ..., for example data.paths=[\"text.txt\"]");
  command->add_option("--data", flags->data, "a configuration whose [data] and [train] are used");
  command->add_option("--batches", flags->batches, "micro-batches to evaluate; all by default");
  command->add_flag("--all", flags->all,
                    "evaluate all data that [data] names, every token once, not only the held-out part");
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->callback([&common, flags] { common.exit = eval(common, *flags); });
}

}  // namespace eng
