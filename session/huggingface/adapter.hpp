// SPDX-License-Identifier: Apache-2.0
// The trained paths of the transform `lora`: which maps of a run have one, in checkpoints, in directories of PEFT, and
// added to the weights of their maps.
#pragma once

#include "session/checkpoint/checkpoint.hpp"
#include "session/config/config.hpp"
#include "session/huggingface/arrangement.hpp"
#include "session/json.hpp"

namespace eng {

// A linear map y = W x with a path beside it: y + scale * B A x, A (rank, inputs), B (outputs, rank). With DoRA, row i
// of W + scale * B A is scaled to the length m[i]. Of stacked experts, W (experts, outputs, inputs), each has its own:
// A (experts * rank, inputs) and B (outputs, rank * experts), as in PEFT's target_parameters.
struct Adapter {
  std::string map;  // "model.layers.0.self_attn.q_proj"
  std::string weight;
  int64_t rank = 0;
  int64_t experts = 0;    // 0: W is a matrix
  std::string peft = {};  // the name of the map in PEFT, which wraps the parameters of a module in each other
  // The matrix of the files that W is, or a part of: see place_in_files.
  bool transposed = false;                  // it is (inputs, outputs): fan_in_fan_out
  int64_t rows = 0, first = 0, length = 0;  // its outputs, and those of W; rows 0: W is all of it
  bool alone = true;                        // false: W is made of several of them
  double alpha = 0, dropout = 0;
  bool root = false;  // scale is alpha / sqrt(rank) instead of alpha / rank
  bool dora = false;
  double scale() const;
  std::string a() const { return map + ".lora_A.weight"; }
  std::string b() const { return map + ".lora_B.weight"; }
  std::string m() const { return map + ".lora_magnitude_vector"; }
  std::vector<std::string> parameters() const;  // those that it has of these three
};
// True if it is one of these parameters.
bool is_of_path(const std::vector<Adapter>& adapters, const std::string& parameter);

// The paths among the parameters of a model, in their order, with what [[transforms]] says of them. Throws
// Error(Exit::usage) if one is of no entry there.
std::vector<Adapter> adapters_of(const Config& config, const std::vector<TensorSpec>& parameters);

// Says of each path which matrix of the files its W is: PEFT has the maps of those. `arranged` is of `model`.
void place_in_files(std::vector<Adapter>& adapters, const std::vector<TensorShape>& model, const Arrangement& arranged);

// The adapters of PEFT for paths that are placed: a matrix of the files that several maps are in has one adapter, whose
// rank is the sum of theirs. `parts`: the paths of each. Throws Error(Exit::usage) where PEFT has none.
struct PeftAdapter {
  Adapter adapter;
  std::vector<Adapter> parts;
};
std::vector<PeftAdapter> peft_adapters(const std::vector<Adapter>& adapters);
// The values of a parameter of such an adapter, of `size` bytes each. `read`: those of a parameter of the model.
std::vector<char> peft_values(const PeftAdapter& made, const std::string& parameter, uint64_t size,
                              const std::function<std::vector<char>(const std::string&)>& read);

// adapter_config.json as PEFT writes it. `parameters`: all of the files; `base`: the model's directory, or "".
Json peft_config(const std::vector<Adapter>& adapters, const std::vector<TensorSpec>& parameters,
                 const std::string& base);
// The name of a parameter of the adapter in adapter_model.safetensors.
std::string peft_name(const Adapter& adapter, const std::string& parameter);
// Throws Error(Exit::usage) for a path beside experts to which PEFT gives another name than the model here.
void need_peft_name(const Adapter& adapter);

// [model] adapter: a directory as PEFT writes it, "" if there is none. Throws Error(Exit::usage) without [model] from.
std::filesystem::path adapter_source(const Config& config);
// Fills exactly the given paths among `parameters` from the directory, which must have all of them, no others, and
// scale them as [[transforms]] does. Maps that are one matrix in the files (`pretrained`) each get its A, and their
// rows of its B. Without `fill`, checks only what needs no data. Throws Error(Exit::usage or checkpoint).
void load_adapter(const std::filesystem::path& directory, const Config& config, const Pretrained& pretrained,
                  const std::vector<TensorShare>& parameters, const Fill& fill);

// The numbers of a path. Sums are made in f64, in the order of the rank.
struct LowRankPath {
  uint64_t rank, columns;
  double scale;
  std::vector<float> a, b;
  uint64_t experts = 1;  // rows of W count through all of them
  // out[j] = (B A)[row, first + j]
  void sums(uint64_t row, uint64_t first, std::span<double> out) const;
  // The length of this row of W + scale * B A, as the transform computes it. `w`: the row of W.
  double length(uint64_t row, const float* w, std::vector<double>& scratch) const;
};

// W + scale * B A, with DoRA diag(m / lengths of rows) (W + scale * B A), for the weights W of a checkpoint.
class Merged {
 public:
  // Reads all paths, and with DoRA their weights W. Borrows nothing.
  Merged(const OpenCheckpoint& checkpoint, const std::vector<Adapter>& adapters);
  // Adds to elements [first, first + values.size()) of a parameter, if it has a path.
  void add(const std::string& parameter, uint64_t first, std::span<float> values) const;
  bool has(const std::string& parameter) const { return paths_.count(parameter) != 0; }

 private:
  struct Path : LowRankPath {
    std::vector<double> factors;  // m / length for each row; none without DoRA
  };
  std::map<std::string, Path> paths_;  // by the name of W
};

}  // namespace eng
