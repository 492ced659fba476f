// SPDX-License-Identifier: Apache-2.0
#include "session/planning/needs.hpp"

#include "session/data/fields.hpp"

namespace eng {

void need_labels(const Model& model, const Config& config, Registry& registry) {
  if (has_weighted_mean(config, registry))
    throw Error(Exit::usage, "[data]: the loss is a mean over weights of tokens; a job needs one over labels",
                "take data without weights: data.weights = false");
  for (const Term& term : model.templates.at(model.blocks.back().tmpl).terms)
    if (term.weight != 0 && term.per)
      throw Error(Exit::usage,
                  fmt::format("term `{}` of the loss is divided by {}; a job needs losses per label", term.name,
                              term.per == ENG_PER_PAIR ? "pairs" : "sequences"),
                  "choose another [loss]");
}

void need_divisible(const Model& model, const Job* job) {
  for (const Parameter& p : model.params)
    if (p.packed && p.cut.count > 1)
      throw Error(Exit::usage, fmt::format("parallel.tensor divides {}, which precision.frozen packs", p.name),
                  "remove one of the two");
  if (job) throw Error(Exit::usage, "jobs do not work with parallel.tensor yet", "parallel.tensor=1");
}

void need_one_scale(const Precision& precision, const Sharding& sharding) {
  if (!(sharding.table.flags & ENG_AXIS_RESIDUAL) || !precision.table.begin) return;
  throw Error(Exit::usage,
              fmt::format("precision.plugin = \"{}\" scales the loss, and zero.plugin = \"{}\" adds what a sum of "
                          "gradients left out to the next one, whose scale may be another",
                          precision.name, sharding.name),
              "leave zero.sum out, or set precision.plugin to one without a loss scale, such as \"bf16\"");
}

}  // namespace eng
