// SPDX-License-Identifier: Apache-2.0
// Documents side by side in a sample give the loss and the gradients of the documents alone.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <random>

#include "core/execute/executor.hpp"
#include "core/program/program.hpp"
#include "engine/ops.h"
#include "plugins.hpp"
#include "session/model/recompute.hpp"
#include "session/planning/setup.hpp"

using namespace eng;
using namespace fields_test;

namespace {

constexpr int64_t length = 40, vocabulary = 61;
constexpr double limit = 1e-6;  // max|a-b| / max|b| per tensor

const std::string models[] = {
    "plugin = 'llama'\nhidden_size = 64\nintermediate_size = 96\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
    "num_key_value_heads = 2\n",
    "plugin = 'opt'\nhidden_size = 64\nffn_dim = 96\nnum_hidden_layers = 2\nnum_attention_heads = 4\n"
    "max_position_embeddings = 48\ndropout = 0.0\n",
    "plugin = 'mamba'\nhidden_size = 32\nnum_hidden_layers = 2\nstate_size = 8\n",
    "plugin = 'mamba2'\nhidden_size = 32\nnum_hidden_layers = 2\nnum_heads = 8\nhead_dim = 8\nstate_size = 8\nn_groups "
    "= 2\n",
    "plugin = 'bamba'\nhidden_size = 32\nnum_hidden_layers = 2\nattn_layer_indices = [1]\nintermediate_size = 40\n"
    "num_attention_heads = 4\nnum_key_value_heads = 2\nmamba_n_heads = 8\nmamba_n_groups = 2\nmamba_d_state = 8\n"};

struct Passage {
  std::vector<int32_t> tokens;
};

// The fields of some samples.
struct Fields {
  std::vector<int32_t> tokens, labels, segments, positions;
  std::vector<float> weights = {};  // of the labels; none: 1
  double divisor = 0;               // with weights: their sum
  int64_t valid = 0;
  // Fills a sample of `length` with documents, one after the other, and padding.
  void sample(const std::vector<Passage>& documents) {
    int32_t segment = 0;
    int64_t used = 0;
    for (const Passage& d : documents) {
      const auto n = static_cast<int64_t>(d.tokens.size());
      for (int64_t t = 0; t < n; ++t) {
        tokens.push_back(d.tokens[static_cast<size_t>(t)]);
        labels.push_back(t + 1 < n ? d.tokens[static_cast<size_t>(t + 1)] : -100);
        segments.push_back(segment), positions.push_back(static_cast<int32_t>(t));
      }
      valid += n - 1, used += n, ++segment;
    }
    for (int64_t t = 0; used < length; ++used, ++t)
      tokens.push_back(0), labels.push_back(-100), segments.push_back(-1), positions.push_back(static_cast<int32_t>(t));
  }
};

// Loss and gradients of `rows` samples in each of `accumulate` micro-batches.
struct Result {
  double loss = 0;
  std::vector<std::pair<std::string, std::vector<float>>> gradients;
};

Result run(const std::string& model, const std::string& device, bool packed, int64_t rows, uint32_t accumulate,
           const Fields& fields, const std::string& recompute_key = "") {
  const Config config = config_of("[model]\n" + model + "vocab_size = " + std::to_string(vocabulary) +
                                  "\n[data]\nplugin = 'text'\npaths = ['none']\n[device]\nplugin = '" + device + "'\n");
  const Kernels kernels(registry(), device, config.section("device"));
  const Precision precision =
      make_precision("fp32", registry().table<eng_axis>(ENG_PRECISION_KIND, "fp32"), config.section("precision"));
  Offered offered;
  if (packed) offered.fields = {{"segments", ENG_I32}, {"positions", ENG_I32}};
  if (!fields.weights.empty()) offered.fields.push_back({"loss_weights", ENG_F32});
  const std::string& name = config.section("model").string("plugin");
  const auto table = registry().table<eng_model>(ENG_MODEL_KIND, name);
  load_ops(registry());
  Model traced = trace_model(name, table, config.section("model"), rows, length, ENG_F32, true, offered);
  if (!recompute_key.empty())
    recompute(traced, {recompute_key == "full" ? Recompute::Kind::full : Recompute::Kind::every, 2});
  PlanRequest request{traced, precision, nullptr, device, {}};
  request.workspace = [&](const Call& call) { return kernels.workspace(call); };
  request.accumulate = accumulate;
  const Plan plan = make_plan(request);
  Device on(registry(), device, config.section("device"));
  Executor executor(plan, on, kernels);
  executor.run("init");
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(plan.counters, counters);
  for (const Input& field : plan.fields) {
    if (field.name == "loss_weights") {
      executor.upload(field.view, fields.weights.data());
      continue;
    }
    const std::vector<int32_t>& values = field.name == "tokens"     ? fields.tokens
                                         : field.name == "labels"   ? fields.labels
                                         : field.name == "segments" ? fields.segments
                                                                    : fields.positions;
    REQUIRE(static_cast<int64_t>(values.size()) == count(field.view.desc));
    executor.upload(field.view, values.data());
  }
  const float inputs[8] = {
      1.0f / static_cast<float>(fields.weights.empty() ? static_cast<double>(fields.valid) : fields.divisor)};
  executor.upload(plan.inputs, inputs);
  executor.run("train");
  Result out;
  std::vector<float> losses(size_t{accumulate} * plan.row);  // terms that routers have stand behind the loss
  executor.download(losses.data(), plan.losses, 0, losses.size() * sizeof(float));
  for (size_t k = 0; k < losses.size(); k += plan.row) out.loss += double{losses[k]};
  for (const Tensor& tensor : plan.tensors) {
    if (tensor.role != "gradient") continue;
    out.gradients.emplace_back(tensor.name, std::vector<float>(static_cast<size_t>(count(tensor.desc))));
    executor.download(out.gradients.back().second.data(), tensor.whole());
  }
  REQUIRE(out.gradients.size() > 5);
  return out;
}

// The largest relative difference, of the loss and of any gradient.
double difference(const Result& a, const Result& b, std::string& worst) {
  double most = std::abs(a.loss / b.loss - 1), largest = 0;
  worst = "the loss";
  for (const auto& [name, values] : b.gradients)
    for (float x : values) largest = std::max(largest, std::abs(double{x}));
  for (size_t k = 0; k < a.gradients.size(); ++k) {
    double error = 0, size = 0;
    for (size_t i = 0; i < a.gradients[k].second.size(); ++i) {
      const double x = double{a.gradients[k].second[i]}, y = double{b.gradients[k].second[i]};
      error = std::max(error, std::abs(x - y)), size = std::max(size, std::abs(y));
    }
    // A number that is added to all keys changes no attention, so the gradient of their bias is nothing but rounding.
    if (a.gradients[k].first.ends_with("k_proj.bias")) size = largest;
    if (!(error <= most * size)) most = error / size, worst = a.gradients[k].first;
  }
  return most;
}

// Samples of several documents; the last one of each is padding, but for one sample that is full.
std::vector<std::vector<Passage>> samples() {
  std::mt19937_64 random(7);
  std::vector<std::vector<Passage>> out;
  for (const std::vector<int64_t>& lengths : {std::vector<int64_t>{3, 17, 2, 9, 6}, {25, 15}, {2, 2, 2, 30}, {40}}) {
    out.emplace_back();
    for (int64_t n : lengths) {
      out.back().emplace_back();
      for (int64_t t = 0; t < n; ++t) out.back().back().tokens.push_back(static_cast<int32_t>(random() % vocabulary));
    }
  }
  return out;
}

}  // namespace

TEST_CASE("packed documents give the loss and the gradients of the documents alone", "[packed]") {
  Fields packed, alone;
  uint32_t documents = 0;
  for (const auto& sample : samples()) {
    packed.sample(sample);
    for (const Passage& d : sample) alone.sample({d}), ++documents;
  }
  REQUIRE(packed.valid == alone.valid);
  for (const std::string& model : models)
    for (const char* device : {"reference", "cpu"}) {
      CAPTURE(model, device);
      std::string worst;
      const Result reference = run(model, device, false, 1, documents, alone);
      const Result together = run(model, device, true, 2, 2, packed);
      const double error = difference(together, reference, worst);
      CAPTURE(error, worst);
      CHECK(error < limit);
      // The bits are the same if the forward runs again.
      for (const char* key : {"full", "every"}) {
        const Result again = run(model, device, true, 2, 2, packed, key);
        CHECK(again.loss == together.loss);
        CHECK(again.gradients == together.gradients);
      }
      // The check finds a mask that is ignored, and one border that is missing.
      Fields blind = packed, merged = packed;
      std::fill(blind.segments.begin(), blind.segments.end(), 0);
      CHECK(difference(run(model, device, true, 2, 2, blind), reference, worst) > 1e-2);
      std::replace(merged.segments.begin(), merged.segments.begin() + 20, 1, 0);
      CHECK(difference(run(model, device, true, 2, 2, merged), reference, worst) > 100 * limit);
      // Rotations differ only by rounding where all positions of a document are shifted; rows of a table do not.
      if (model.find("'opt'") == std::string::npos) continue;
      Fields shifted = packed;
      for (size_t t = 0; t < 20; ++t) shifted.positions[t] = static_cast<int32_t>(t);
      CHECK(difference(run(model, device, true, 2, 2, shifted), reference, worst) > 1e-2);
    }
}

TEST_CASE("packed documents of hybrids with experts give the loss and the gradients of the documents alone",
          "[packed][.slow]") {
  const std::string sizes =
      "hidden_size = 32\nnum_attention_heads = 4\nnum_key_value_heads = 2\nnum_experts_per_tok = 2\n";
  const std::string hybrids[] = {
      "plugin = 'granitemoehybrid'\nnum_hidden_layers = 2\nlayer_types = ['mamba', 'attention']\n"
      "shared_intermediate_size = 40\nnum_local_experts = 4\nintermediate_size = 24\nmamba_n_heads = 8\n"
      "mamba_d_state = 8\n",
      "plugin = 'nemotron_h'\nhybrid_override_pattern = 'ME*E'\nhead_dim = 8\nmamba_num_heads = 4\nmamba_head_dim = 8\n"
      "ssm_state_size = 8\nn_groups = 2\nn_routed_experts = 4\nmoe_intermediate_size = 24\n"
      "moe_shared_expert_intermediate_size = 16\n",
      "plugin = 'jamba'\nnum_hidden_layers = 3\nattn_layer_period = 3\nattn_layer_offset = 1\nintermediate_size = 24\n"
      "num_experts = 4\nmamba_d_state = 8\n"};
  Fields packed, alone, mixed;
  uint32_t documents = 0;
  for (const auto& sample : samples()) {
    packed.sample(sample);
    for (const Passage& d : sample) alone.sample({d}), ++documents;
  }
  mixed = packed;
  std::fill(mixed.segments.begin(), mixed.segments.end(), 0);
  for (const std::string& model : hybrids)
    for (const char* device : {"reference", "cpu"}) {
      CAPTURE(model, device);
      std::string worst;
      const Result reference = run(model + sizes, device, false, 1, documents, alone);
      const double error = difference(run(model + sizes, device, true, 2, 2, packed), reference, worst);
      CAPTURE(error, worst);
      CHECK(error < limit);
      CHECK(difference(run(model + sizes, device, true, 2, 2, mixed), reference, worst) > limit);
    }
}

TEST_CASE("one document that fills a sample has the bits of a sample without documents", "[packed]") {
  Fields fields;
  for (const auto& sample : samples())
    if (sample.size() == 1) fields.sample(sample);
  for (const std::string& model : models)
    for (const char* device : {"reference", "cpu"}) {
      CAPTURE(model, device);
      const Result with = run(model, device, true, 1, 1, fields), without = run(model, device, false, 1, 1, fields);
      CHECK(with.loss == without.loss);
      CHECK(with.gradients == without.gradients);
    }
}

namespace {

// A batch as `ranks` ranks take it, each `accumulate` micro-batches of `rows` samples.
struct Split {
  int64_t ranks, rows, accumulate;
};

// The sum of the weights of the labels that count.
double sum_of_weights(const Fields& batch) {
  double sum = 0;
  for (size_t t = 0; t < batch.weights.size(); ++t) sum += batch.labels[t] != -100 ? double{batch.weights[t]} : 0.0;
  return sum;
}

// The samples of one rank, in the order in which it takes them (engine/data.h).
Fields of_rank(const Fields& batch, const Split& split, int64_t rank) {
  Fields out;
  for (int64_t a = 0; a < split.accumulate; ++a)
    for (int64_t i = 0; i < split.rows; ++i) {
      const int64_t sample = (a * split.ranks + rank) * split.rows + i;
      for (const auto values : {&Fields::tokens, &Fields::labels, &Fields::segments, &Fields::positions}) {
        const auto first = (batch.*values).begin() + sample * length;
        (out.*values).insert((out.*values).end(), first, first + length);
      }
      if (batch.weights.empty()) continue;
      const auto first = batch.weights.begin() + sample * length;
      out.weights.insert(out.weights.end(), first, first + length);
    }
  out.valid = length * split.rows * split.accumulate - std::count(out.labels.begin(), out.labels.end(), -100);
  out.divisor = sum_of_weights(out);
  return out;
}

// The sums over the ranks. `whole`: each divides by the labels of the whole batch, and not by its own.
Result together(const std::string& model, const std::string& device, bool packed, const Fields& batch,
                const Split& split, bool whole = true) {
  Result out;
  for (int64_t r = 0; r < split.ranks; ++r) {
    Fields mine = of_rank(batch, split, r);
    if (whole) mine.valid = batch.valid, mine.divisor = batch.divisor;
    const Result one = run(model, device, packed, split.rows, static_cast<uint32_t>(split.accumulate), mine);
    out.loss += one.loss;
    if (out.gradients.empty()) {
      out.gradients = one.gradients;
      continue;
    }
    for (size_t k = 0; k < one.gradients.size(); ++k)
      for (size_t i = 0; i < one.gradients[k].second.size(); ++i)
        out.gradients[k].second[i] += one.gradients[k].second[i];
  }
  return out;
}

}  // namespace

TEST_CASE("every split of a batch has the same loss and gradients, though labels are unevenly masked", "[packed]") {
  Fields batch;
  for (int k = 0; k < 3; ++k)
    for (const auto& sample : samples()) batch.sample(sample);
  std::mt19937_64 random(9);
  for (auto& token : batch.tokens) token = static_cast<int32_t>(random() % vocabulary);
  for (size_t t = 0; t < batch.labels.size(); ++t) {  // sample 5 trains nothing, sample 2 nearly nothing
    const size_t sample = t / length;
    const bool masked = sample == 5 || (sample == 2 && t % length > 2) || (sample % 3 == 0 && random() % 4);
    if (masked) batch.labels[t] = -100;
  }
  const auto all = static_cast<int64_t>(batch.labels.size());
  batch.valid = all - std::count(batch.labels.begin(), batch.labels.end(), -100);
  for (const bool weighs : {false, true}) {
    if (weighs) {  // some samples a thousand times as much as others
      for (size_t t = 0; t < batch.labels.size(); ++t)
        batch.weights.push_back(t / length % 4 == 1 ? 0.002F : static_cast<float>(random() % 8) / 4);
      batch.divisor = sum_of_weights(batch);
    }
    for (const std::string& model : models)
      for (const bool packed : {false, true})
        for (const std::string device : {"reference", "cpu"}) {
          const Result one = together(model, device, packed, batch, {1, 12, 1});
          std::string worst;
          for (const Split& split : {Split{1, 1, 12}, {1, 4, 3}, {2, 2, 3}, {3, 1, 4}, {4, 3, 1}}) {
            CAPTURE(model, device, packed, weighs, split.ranks, split.rows, split.accumulate);
            const double error = difference(together(model, device, packed, batch, split), one, worst);
            CAPTURE(error, worst);
            CHECK(error < limit);
          }
          // The mean of the ranks' means is another loss.
          CHECK(difference(together(model, device, packed, batch, {4, 3, 1}, false), one, worst) > 1e-2);
        }
  }
}
