// SPDX-License-Identifier: Apache-2.0
#include "session/train/epochs.hpp"

#include <algorithm>
#include <cmath>

#include "session/data/data.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {
namespace {

constexpr double most_steps = 1e9;  // as train.steps in session/config/schema.toml

double steps_exactly(double epochs, uint64_t samples, uint64_t per_step) {
  const double exact = epochs * static_cast<double>(samples) / static_cast<double>(per_step);
  const double whole = std::round(exact);
  // 0.07 x 100 is 7.000000000000001 in binary.
  return std::max(1.0, std::abs(exact - whole) <= 1e-9 * whole ? whole : std::ceil(exact));
}

}  // namespace

bool by_epochs(const Config& config) {
  return config.section("train").has("epochs");
}

int64_t steps_of(double epochs, uint64_t samples, uint64_t per_step) {
  const double steps = steps_exactly(epochs, samples, per_step);
  if (steps <= most_steps) return static_cast<int64_t>(steps);
  throw Error(Exit::usage,
              fmt::format("train.epochs = {:g} of {} samples, {} in a step, are {:.3g} steps; at most 10^9 are allowed",
                          epochs, samples, per_step, steps),
              "lower train.epochs");
}

uint64_t samples_per_step(const Config& config, uint32_t ranks) {
  const Section& train = config.section("train");
  return static_cast<uint64_t>(train.integer("micro_batch") * train.integer("accumulate")) * data_ranks(config, ranks);
}

std::string count_steps(Config& config, Registry& registry, uint32_t ranks) {
  if (!by_epochs(config)) return "";
  std::vector<Field> fields = Model().fields;  // with all that the source provides: packed data need their fields
  for (const Field& field : offered_fields(config, registry, false).fields) fields.push_back(field);
  const Data data(registry, config, model_vocabulary(config, registry), fields);
  Section& train = config.section("train");
  if (!data.info().train_samples)
    throw Error(Exit::data, "there is nothing to train on: data.validation is 1", "set data.validation to 0.5 or less");
  train.set("steps", steps_of(train.number("epochs"), data.info().train_samples, samples_per_step(config, ranks)),
            "derived");
  return epochs_text(config, data.info().train_samples, ranks);
}

std::string try_count_steps(Config& config, Registry& registry, uint32_t ranks) {
  if (!by_epochs(config)) return "";
  std::string why = "there is no [data]";
  try {
    config.require("data");
    return count_steps(config, registry, ranks);
  } catch (const ConfigError&) {
  } catch (const Error& e) {
    if (e.exit() != Exit::data) throw;
    why = e.what();
  }
  return fmt::format("the steps of train.epochs are not known here, and {} are planned: {}",
                     config.section("train").integer("steps"), why);
}

std::string epochs_text(const Config& config, uint64_t samples, uint32_t ranks) {
  const Section& train = config.section("train");
  return fmt::format("{:g} epoch{} of {} samples, {} in a step: {} steps", train.number("epochs"),
                     train.number("epochs") == 1 ? "" : "s", samples, samples_per_step(config, ranks),
                     train.integer("steps"));
}

void check_epochs(const Config& config, uint64_t samples, int64_t step, uint64_t taken, uint32_t ranks) {
  const uint64_t now = samples_per_step(config, ranks);
  if (!by_epochs(config) || taken == static_cast<uint64_t>(step) * now) return;
  const double all = config.section("train").number("epochs") * static_cast<double>(samples);
  const double left = std::max(0.0, (all - static_cast<double>(taken)) / static_cast<double>(now));
  throw Error(
      Exit::usage,
      fmt::format("train.epochs counts steps of {} samples, but the {} steps so far took {} samples", now, step, taken),
      fmt::format("keep the batch of before (train.global_batch), or, for what is left of the {:g} epochs: "
                  "train.steps={:.0f} --unset train.epochs",
                  config.section("train").number("epochs"), static_cast<double>(step) + std::ceil(left)));
}

}  // namespace eng
