// SPDX-License-Identifier: Apache-2.0
// Parts of a configuration that do not go together, as far as only the traced model or a made policy tells.
#pragma once

#include "core/plan/request.hpp"
#include "core/trace/model.hpp"
#include "session/config/config.hpp"

namespace eng {

// Each throws Error(Exit::usage).

// A job adds up losses of windows and divides them by labels.
void need_labels(const Model& model, const Config& config, Registry& registry);
// A model whose layers the ranks divide ([parallel] tensor), and what runs beside it.
void need_divisible(const Model& model, const Job* job);
// A strategy that adds what a sum left out to the next one needs the same scale of the loss in both.
void need_one_scale(const Precision& precision, const Sharding& sharding);

}  // namespace eng
