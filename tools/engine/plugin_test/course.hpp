// SPDX-License-Identifier: Apache-2.0
// A short training run of several ranks in one process, whose every bit can be compared.
#pragma once

#include "core/rewrite/transform.hpp"
#include "tools/engine/plugin_test/sample.hpp"
#include "tools/engine/plugin_test/team.hpp"

namespace eng::plugin_test {

// A policy or an optimizer, and its options.
template <class Table>
struct Chosen {
  std::string name;
  Table table{};
  Section options;
};

// The trained model, and how its step is planned.
struct Course {
  Chosen<eng_model> model;
  Chosen<eng_axis> precision, zero;
  std::optional<Chosen<eng_optimizer>> optimizer;  // none: gradients can be read
  std::vector<Chosen<eng_observer>> observers = {};
  std::vector<Chosen<eng_transform>> transforms = {};
  std::optional<Chosen<eng_loss>> loss = {};  // none: the cross-entropy
  uint32_t ranks = 1;
  int64_t rows = 2, length = 16, steps = 3;
  uint32_t accumulate = 2;
  uint64_t bucket = 1 << 16, seed = 1;
  bool per_step = false, overlap = true, logits = false, generate = false;
  bool packed = false;  // samples hold several documents: segments and positions are offered
  int64_t prefetch = 1;
  int32_t dtype = 0;  // of activations; 0: as the precision says
};

// Names of a tensor: parameter.name, and that with a state's.
using Tensors = std::map<std::string, Array>;

class Training {
 public:
  // Makes and verifies the plans of all ranks. Throws Error if a policy or kernel refuses something.
  Training(const Course& course, Machine& machine);
  Team& team() { return team_; }
  const Model& model() const { return models_[0]; }
  void init();
  // One step. Returns the losses of all ranks and micro-batches, and then the norm.
  std::vector<float> step();
  // One micro-batch without an update: the sum of its losses.
  double loss();
  // The losses of the last step once more, with the same random numbers. Only without an optimizer.
  double again();
  void tokens(std::vector<int32_t> ids);  // of rank 0, for `loss`, "logits" and "decode"
  // Every parameter and state, whole. Throws Broken where ranks hold different bits of one element.
  Tensors tensors();
  void load(const Tensors& tensors, int64_t step, int64_t updates);
  int64_t steps() const { return step_; }
  const std::vector<float>& observed() const { return observed_; }  // by observers, in the last step
  void put(const std::string& name, const std::string& role, int64_t element, double value);
  Array read(const View& view);
  int64_t vocabulary() const { return models_[0].info.vocabulary; }

 private:
  std::vector<Plan> make_plans(Machine& machine);
  void stage(const std::vector<int32_t>& tokens, const std::vector<int32_t>& labels, size_t rank);
  void stage_documents(Random& random, size_t rank);
  void counters(int64_t step, int64_t updates);

  Course course_;
  std::vector<Precision> precisions_;
  std::vector<Sharding> shardings_;
  std::vector<Optimizer> optimizers_;
  std::vector<Model> models_;
  std::vector<Plan> plans_;
  Team team_;
  int64_t step_ = 0;
  std::vector<float> observed_;
};

// The results of a run: losses and norms of its steps, and its tensors.
struct Results {
  std::vector<std::vector<float>> numbers;
  Tensors tensors;
};
Results results_of(const Course& course, Machine& machine);
// The first difference of two runs: "the loss of step 2 ...", "parameter layers.0.up: element 7 is ...". "" if nowhere.
// `only`: the tensors compared; others may be missing.
std::string first_difference(const Results& a, const Results& b, const std::string& only = "");
// The largest relative distance of a loss from the plain one. Throws Broken, with `how`, where it is 0.1 or more.
double loss_distance(const Results& plain, const Results& theirs, const std::string& how);

}  // namespace eng::plugin_test
