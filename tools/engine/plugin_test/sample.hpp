// SPDX-License-Identifier: Apache-2.0
// The surroundings in which policies and optimizers are tried: a small model of random sizes, and policies that do the
// plain thing.
#pragma once

#include "core/plan/request.hpp"
#include "tools/engine/plugin_test/arrays.hpp"

namespace eng::plugin_test {

// embedding, layers of x + down(silu(gate(norm x)) * up(norm x)), norm and head. Sizes are keys of `sample_options`.
extern const eng_model sample_model;
Section sample_options(Random& random);

// Everything in f32.
extern const eng_axis plain_precision;
// Everything in f64, for differences of a loss.
extern const eng_axis f64_precision;
// Everything whole on every rank; gradients of all ranks are gathered and folded.
extern const eng_axis plain_zero;

}  // namespace eng::plugin_test
