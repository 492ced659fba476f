// SPDX-License-Identifier: Apache-2.0
// engine eval.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/config/source.hpp"
#include "core/train/trainer.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/progress.hpp"
#include "tools/engine/run_dir.hpp"

namespace eng {
namespace {

struct EvalFlags {
  std::string target, data;
  std::vector<std::string> overrides;
  int64_t batches = 0;
  bool json = false;
};

// [data] and [train] of a configuration, as overrides; relative paths become absolute.
std::vector<std::string> data_of(const std::filesystem::path& file) {
  const Document document = read_document(file);
  const std::filesystem::path folder = std::filesystem::absolute(file).parent_path();
  std::vector<std::string> out;
  for (const char* section : {"data", "train"}) {
    const Document::Part* part = document.find(section);
    for (const auto& [key, given] : part ? part->keys : std::map<std::string, Given>{}) {
      Value value = given.value;
      if (auto* paths = std::get_if<std::vector<std::string>>(&value); paths && key == "paths")
        for (std::string& path : *paths) path = (folder / path).string();
      if (auto* path = std::get_if<std::string>(&value);
          path && (key == "cache" || (key == "tokenizer" && *path != "bytes")))
        *path = (folder / *path).string();
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
    throw Error(Exit::usage, flags.target + " is no directory",
                "engine eval takes a run, such as runs/NAME/ID, or a Hugging Face directory");
  auto [registry, config] = load_config(common, flags.target, overrides, place);
  try {
    config.require("data");
  } catch (const ConfigError&) {
    throw Error(Exit::usage, "to evaluate the weights of " + flags.target + " there must be [data]",
                "name some: --data CONFIG, or 'data.paths=[\"text.txt\"]' data.validation=0.5");
  }
  Setup setup = make_setup(config, *registry);
  check_fits(config, *registry, setup);
  if (!RunDir::is_run(flags.target)) check_weights(config, *registry, setup);
  build_data(config, *registry, setup.model.info.vocabulary, true);
  Data data(*registry, config, setup.model.info.vocabulary);
  if (!data.info().validation_samples)
    throw Error(Exit::data, "nothing is held out: data.validation is 0", "set data.validation, for example 0.05");
  Trainer trainer(config, *registry, setup, data);
  int64_t step = 0;
  if (RunDir::is_run(flags.target)) {
    const Found found = newest_checkpoint(std::filesystem::path(flags.target) / "checkpoints");
    if (!found.path) throw Error(Exit::checkpoint, flags.target + " has no usable checkpoint");
    step = checkpoint_step(*found.path).value_or(0);
    if (overrides.empty())
      trainer.load(*found.path);  // its own data: they must be those that it was trained beside
    else
      trainer.initialise(weights_of(*found.path, config, *registry));
  } else {
    trainer.initialise(weights_of(weights_source(config), config, *registry, weights_progress(flags.target)));
  }
  const Evaluation e = trainer.evaluate(flags.batches > 0 ? flags.batches : INT64_MAX);
  if (!std::isfinite(e.loss))
    throw Error(Exit::numerics, fmt::format("{}: the loss over {} tokens is not finite", flags.target, e.tokens),
                "the weights hold what is no finite number, or numbers too large for fp32");
  if (flags.json) {
    nlohmann::ordered_json out = {{"step", step},
                                  {"loss", e.loss},
                                  {"perplexity", std::exp(e.loss)},
                                  {"tokens", e.tokens},
                                  {"seconds", e.seconds}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\n", eval_text(step, e));
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("eval", "loss and perplexity of a run or of a Hugging Face directory");
  auto flags = std::make_shared<EvalFlags>();
  command->add_option("target", flags->target, "a run directory, or one with config.json and safetensors files")
      ->required();
  command->add_option("overrides", flags->overrides, "section.key=value ..., for example data.paths=[\"text.txt\"]");
  command->add_option("--data", flags->data, "a configuration whose [data] and [train] are used");
  command->add_option("--batches", flags->batches, "micro-batches to evaluate; all by default");
  command->add_flag("--json", flags->json, "one JSON object on stdout");
  command->callback([&common, flags] { common.exit = eval(common, *flags); });
}

}  // namespace eng
