// SPDX-License-Identifier: Apache-2.0
// The families of decoders as one structure: a new family fills it in from its options, and writes no op.
#pragma once

#include <array>
#include <cstdint>

#include "../model.hpp"
#include "rope.hpp"

namespace decoder {

// A linear map of a layer. Its parameters are NAME.weight and, where it has a bias, NAME.bias.
struct Map {
  const char* name = nullptr;  // below that of the layer; nullptr: the layer has no such map
  bool bias = false;
};
constexpr size_t map_count = 7;

struct Config {
  int64_t vocabulary, hidden, ffn, layers, heads, kv_heads, head_dim, max_positions;
  int64_t word_width;  // width of the embeddings; if it differs from `hidden` they are projected
  bool tied;           // the head uses the embeddings

  const char* body = "model.";  // what the names of all tensors but lm_head.weight begin with
  // q, k, v, output, gate, up, down: the order of their parameters in a layer. Without a gate, the feed-forward layer
  // is plain: an activation between `up` and `down`.
  std::array<Map, map_count> maps;
  int64_t act;  // ENG_ACT_*

  // Norms of width `hidden`: RMS norms, which have a weight, or layer norms, which also have a bias.
  const char *attention_norm, *ffn_norm;  // names below that of the layer
  const char* final_norm;                 // before the head; nullptr: there is none
  bool layer_norm = false;
  bool affine = true;       // false: the norms have no parameters
  bool norm_before = true;  // false: after each residual sum
  double eps;

  // A table of learned positions, in which position p is row p + position_offset; nullptr: rotary embedding.
  const char* positions = nullptr;
  int64_t position_offset = 0;
  Rope rope;
  bool scale_query = false;  // before the product with the keys, not after it

  double dropout = 0.0;           // after attention and after the feed-forward layer
  double init_std, init_out_std;  // init_out_std: of the matrices that write to the residual stream

  bool rotary() const { return positions == nullptr; }
  bool projected() const { return word_width != hidden; }
  bool gated() const { return maps[4].name != nullptr; }
};

// The options that nearly every config.json spells alike, checked; `ffn` is the key of the width of the feed-forward
// layers. Each query head has its own key and value head. Throws model::Failure(ENG_INVALID) that names the key and
// what to change, as do the functions below.
Config read_sizes(const model::Reader& in, const char* ffn);
// num_key_value_heads, of which each serves several query heads, and head_dim; both may be absent.
void read_grouped_heads(const model::Reader& in, Config& c);
// rms_norm_eps.
void read_rms_norm(const model::Reader& in, Config& c);
// The options of DECODER_ROPE_OPTIONS (options.hpp). `c` has its sizes and heads.
void read_rope(const model::Reader& in, Config& c);
// initializer_range and init_depth_scale.
void read_init(const model::Reader& in, Config& c);

}  // namespace decoder
