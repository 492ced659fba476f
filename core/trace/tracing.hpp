// SPDX-License-Identifier: Apache-2.0
// Shared by the trace of a template and by the subgraphs of transforms: new parameters, and the builder of a block.
#pragma once

#include <set>

#include "core/trace/model.hpp"

namespace eng {

// Adds parameters to a model.
class Parameters {
 public:
  explicit Parameters(Model& model);
  // Returns its index. Throws Error for one that no model may have.
  uint32_t add(Parameter p);

 private:
  Model& model_;
  int64_t elements_ = 0;
  std::set<std::string> names_;
};

// A parameter's desc in the dtype in which compute reads it.
eng_desc as_computed(const Parameter& parameter, int32_t dtype);

// True if eng.cross_entropy/1 makes the value.
bool is_cross_entropy(const Graph& graph, Id value);

// Every token id below the model's stated vocabulary must have a row in its tables. Limits the fields that index them.
void check_tables(Model& model);

// The circumstances of a trace: trace_forward.
struct TraceFor {
  int32_t dtype;  // of activations
  bool runs;
  const Offered& offered;
  const Loss& loss;
  int32_t stream = 0;  // trace_forward
};

// Builds the forward of a block.
class Tracing : public Builder {
 public:
  Tracing(Model& model, Template& block, const TraceFor& how, bool last)
      : model_(model), block_(block), how_(how), last_(last) {}
  eng_desc shape(Id value) override;
  Id batch(const std::string& name) override;
  bool offers(const std::string& name) override;
  Id constant(const eng_desc& desc, const void* data) override;
  void term(Id value, std::string name, double weight, uint32_t per) override;
  Id loss(Id hidden, Id weight) override;
  bool asked_loss() const { return asked_loss_; }
  std::vector<Id> emit(const Op& op, std::vector<Id> in, std::vector<Id> out, Attrs attrs) override;

 protected:
  virtual size_t site() const;  // of the next random op: the number of the op in the block
  Model& model_;
  Template& block_;
  const TraceFor how_;

 private:
  [[noreturn]] void refuse_field(const std::string& name) const;
  bool last_, asked_loss_ = false;
  Id loss_ = 0;                     // the result of `loss` if nobody has named it
  std::map<uint32_t, Id> batches_;  // by field
};

}  // namespace eng
