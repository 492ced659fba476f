// SPDX-License-Identifier: Apache-2.0
// The fields of the batch: what the data source provides, what the model reads, and what each may hold.
#pragma once

#include <span>

#include "core/trace/model.hpp"
#include "session/data/sources.hpp"

namespace eng {

// The fields that a source provides beside tokens and labels; it is not opened. Throws Error(Exit::environment) for an
// answer that is wrong in itself, and Error(Exit::usage) that begins with `by` if the source refuses its options.
std::vector<Field> provided_fields(const DataSource& source, const std::string& by);
// The fields that [data] provides. `generate`: those that a generated text has. Of several sources, all must provide
// the same, but loss_weights; throws Error(Exit::usage) if they do not.
Offered offered_fields(const Config& config, Registry& registry, bool generate);
// A field of f32: the weight of the pair of samples 2k and 2k + 1 at the first label of 2k, and 0 elsewhere.
constexpr const char* pair_weights = "pair_weights";
// True if the mean of the loss is one over the values of this field: loss_weights, pair_weights.
bool is_weight(const std::string& field);
// True if a source provides weights and has a mean over them (DataSource::weighted_mean).
bool has_weighted_mean(const Config& config, Registry& registry);

// Adds fields that the caller's own batches bring. Throws Error(Exit::usage) for another name than those that have a
// meaning of their own and a neutral value.
void add_fields(Offered& offered, const std::vector<std::string>& asked);
// Throws Error(Exit::usage) if the model does not read one of these.
void need_fields(const std::vector<std::string>& asked, const Model& model);

// Writes the neutral values of a field for one sample: a factor of 1, one document, positions that follow from
// `segments` (null: one document).
using Neutral = void (*)(int64_t length, const int32_t* segments, void* values);
// nullptr if the field has none. That of `reference_sums` stands for what Data fills in.
Neutral neutral(const std::string& field);

// Refuses documents that would see each other. Appends a note for each field that nobody reads.
void compare_fields(const Offered& offered, const Model& model, const Config& config, std::vector<std::string>& notes);

// Checks the T values of each field of one sample; `values` are in the order of `fields`; `source`: the plugin, or ""
// for a batch from elsewhere. Kernels use ids as indices without checks. Throws Error(Exit::data) that begins with
// `where`.
class FieldCheck {
 public:
  FieldCheck(std::vector<Field> fields, int64_t length, int64_t vocabulary);
  // Allocates nothing, unless it throws.
  void check(std::span<void* const> values, const std::string& source, uint64_t position) const;
  // Positions of the sample that hold no token; 0 where documents are not packed.
  int64_t padding(std::span<void* const> values) const;
  bool packed() const { return segments_ < fields_.size(); }
  // This check for samples of another length.
  FieldCheck of_length(int64_t length) const {
    FieldCheck out = *this;
    out.length_ = length;
    return out;
  }

 private:
  std::vector<Field> fields_;
  int64_t length_, vocabulary_;
  size_t segments_, positions_;  // indices; fields_.size(): not read
};

}  // namespace eng
