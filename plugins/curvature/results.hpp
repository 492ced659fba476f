// SPDX-License-Identifier: Apache-2.0
// The results of an analysis as plain data: the job fills it, report/ writes it.
//
// A number that was not measured, or is not finite, is `none`; it becomes null, an empty field or a dash. Counts are
// exact. "Share" is a number from 0 to 1.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace curvature {

inline constexpr double none = std::numeric_limits<double>::quiet_NaN();

// A mean and the interval around it, of the level Results::confidence.
struct Interval {
  double mean = none, low = none, high = none;
};

// The class of a tensor or a row in the partition.
enum class Class { functional, sensitive, both };
inline constexpr Class classes[] = {Class::functional, Class::sensitive, Class::both};

// The measures of a tensor, or of one row of it. H is the diagonal of the Hessian of the mean loss of a token; with
// "fisher", that of the empirical Fisher matrix.
struct Measures {
  Interval hessian;         // the mean of H over the measured elements
  double magnitude = none;  // the mean of |H| over them: the x axis of the phase diagram is its log10
  uint64_t elements = 0;    // how many elements were measured
  double zeros = none;      // share of exact zeros of the units it belongs to; none: it belongs to no measured units
  double below = none;      // share of |x| <= the threshold of these units: what "sparsity" means everywhere
  double gradient_norm = none;
  double weight_norm = none;
  Class kind = Class::both;
};

struct Row {
  uint64_t index = 0;  // of the first dimension
  Measures measures;
};

struct Tensor {
  std::string name;
  std::vector<int64_t> shape;
  std::string block;          // "layers.3"
  uint32_t block_number = 0;  // in the order of the model, from 0
  uint64_t rows = 0;          // of the whole tensor
  Measures measures;
  std::vector<Row> measured_rows;  // none, all, or a sample of them; ascending
};

// An activation whose outputs were counted.
struct Site {
  struct Unit {
    double zeros = none, below = none;  // shares over all tokens
  };
  std::string block;
  uint32_t block_number = 0;
  std::string op;  // "eng.activation/1"
  uint64_t tokens = 0;
  double zeros = none, below = none;  // shares over all units and tokens
  std::vector<Unit> units;            // all, or none if only the sums were kept
};

// functional: mean |H| > functional_hessian and sparsity < functional_sparsity.
// sensitive: mean |H| < sensitive_hessian and sparsity > sensitive_sparsity.  both: all others.
struct Partition {
  struct Threshold {
    double value = none;
    double quantile = none;  // of the measured values, from which `value` was chosen; none: `value` was given
  };
  std::string by = "tensor";  // or "row"
  Threshold functional_hessian, functional_sparsity, sensitive_hessian, sensitive_sparsity;
  uint64_t functional = 0, sensitive = 0, both = 0;  // parameters: Wfunc, Wsens, Wboth
};

// Noise was added to the parameters of one class; the loss was measured; the parameters were put back.
struct Response {
  struct Trial {
    uint64_t seed = 0;
    double perplexity_change = none;  // with noise minus without
    double auc = none;                // with noise
  };
  Class kind = Class::both;
  double sigma = 0;
  Interval perplexity_change, auc;  // over the trials
  std::vector<Trial> trials;
};

struct ResponseMap {
  bool relative = false;          // sigma is multiplied by the standard deviation of each tensor
  double base_perplexity = none;  // without noise, on the held-out windows
  double base_auc = none;         // of telling training windows from held-out windows by their loss
  std::vector<Response> responses;
};

struct Embedding {
  struct Point {
    uint32_t tensor = 0;  // in Results::tensors
    int64_t row = -1;     // its index; -1: the tensor
    double x = none, y = none;
    int32_t cluster = -1;  // from 0; -1: in no cluster
  };
  std::string method;                 // "umap" or "pca"; "": there is no embedding
  std::vector<std::string> features;  // "log10_hessian", "sparsity", "gradient_norm", "weight_norm"
  std::vector<Point> points;
  double dbscan_radius = none;
  uint64_t dbscan_points = 0;
  double silhouette = none;
  std::string silhouette_reason;  // why there is none
};

struct Results {
  // The engine's facts about the run, a JSON object (eng_job_api.facts): timestamp, version, commit, device, precision,
  // ranks, model {plugin, hash, parameters, layers}, data {hash, windows}, memory {planned, measured}.
  std::string facts = "{}";
  std::vector<std::pair<std::string, std::string>>
      settings;                       // every option and seed, as text, in the order of the schema
  std::string method = "hutchinson";  // or "fisher"
  uint64_t probes = 0;
  double step = none;  // of the central difference, in units of the parameters; none with "fisher"
  double confidence = 0.95;
  double activation_threshold = none;  // |x| <= it counts as "below"
  std::vector<Tensor> tensors;         // in the order of the model
  std::vector<Site> sites;
  Partition partition;
  ResponseMap response_map;
  Embedding embedding;
};

}  // namespace curvature
