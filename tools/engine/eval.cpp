// SPDX-License-Identifier: Apache-2.0
// engine eval.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/error.hpp"
#include "core/train/trainer.hpp"
#include "tools/engine/command.hpp"
#include "tools/engine/progress.hpp"

namespace eng {
namespace {

int eval(const Common& common, const std::string& target, int64_t batches, bool json) {
  auto [registry, config] = load_config(common, target, {});
  if (!std::filesystem::is_directory(target))
    throw Error(Exit::usage, target + " is not a run directory", "engine eval takes a run: engine eval runs/NAME/ID");
  Setup setup = make_setup(config, *registry);
  check_fits(config, *registry, setup);
  Data data(*registry, config, setup.model.info.vocabulary);
  if (!data.info().validation_samples)
    throw Error(Exit::data, "nothing is held out: data.validation is 0", "set data.validation, for example 0.05");
  Found found = newest_checkpoint(std::filesystem::path(target) / "checkpoints");
  if (!found.path) throw Error(Exit::checkpoint, target + " has no usable checkpoint");
  Trainer trainer(config, *registry, setup, data);
  trainer.load(*found.path);
  Evaluation e = trainer.evaluate(batches > 0 ? batches : INT64_MAX);
  if (json) {
    nlohmann::ordered_json out = {{"step", trainer.step()},
                                  {"loss", e.loss},
                                  {"perplexity", std::exp(e.loss)},
                                  {"tokens", e.tokens},
                                  {"seconds", e.seconds}};
    fmt::print("{}\n", out.dump());
  } else {
    fmt::print("{}\n", eval_text(trainer.step(), e));
  }
  return 0;
}

}  // namespace

void add_eval(CLI::App& app, Common& common) {
  auto* command = app.add_subcommand("eval", "loss and perplexity of a run on its held-out data");
  auto target = std::make_shared<std::string>();
  auto batches = std::make_shared<int64_t>(0);
  auto json = std::make_shared<bool>(false);
  command->add_option("run", *target, "a run directory")->required();
  command->add_option("--batches", *batches, "micro-batches to evaluate; all by default");
  command->add_flag("--json", *json, "one JSON object on stdout");
  command->callback([&common, target, batches, json] { common.exit = eval(common, *target, *batches, *json); });
}

}  // namespace eng
