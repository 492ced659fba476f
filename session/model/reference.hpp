// SPDX-License-Identifier: Apache-2.0
// A second model in the same program, which is not trained: [reference].
#pragma once

#include <optional>

#include "core/plan/request.hpp"
#include "session/config/config.hpp"

namespace eng {

struct Reference {
  Model model;           // as trace_forward traced it; the output of its last block, (B, T), is its result
  std::string field;     // of the batch, as which blocks of the first model read the result
  bool shares = false;   // it has no weights of its own, but those that the first model had before its transforms
  bool training = true;  // else nothing is trained, and what it shares need not be frozen
};

// The second model of [reference]; none if the section names none. Its result are the log-probabilities of the labels,
// the field `reference_logprobs`, which `offered` gets. If they are stored, `offered` gets the field `reference_sums`,
// and there is no second model. Throws Error(Exit::usage) if the data provide this field.
std::optional<Reference> trace_reference(const Config& config, const eng_model& table, const Precision& precision,
                                         bool runs, Offered& offered);

// The cross-entropy, beside an op that computes the log-probability of each label, (B, T).
Loss logprobs_loss();

// [reference] store: throws Error(Exit::usage) if nothing in the model reads the stored values.
void need_stored(const Model& model, const Config& config);

// Puts the blocks of the reference before those of the model, each called "reference.NAME", as its parameters are. The
// result goes from block to block. It has no gradient, and nothing is random in it. Throws Error(Exit::usage) if
// nothing reads the result, or if shared parameters are trained.
void add_reference(Model& model, const Reference& reference);

// The line of a plan about the reference: its parameters, and where they come from. "" if there is none.
std::string reference_line(const Model& model, const Config& config);

}  // namespace eng
