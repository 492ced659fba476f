// SPDX-License-Identifier: Apache-2.0
// The families of decoders as one structure: a new family fills it in from its options, and writes no op.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "../model.hpp"
#include "rope.hpp"

namespace decoder {

// A linear map of a layer. Its parameters are NAME.weight and, where it has a bias, NAME.bias.
struct Map {
  const char* name = nullptr;  // below that of the layer; nullptr: the layer has no such map
  bool bias = false;
};
constexpr size_t map_count = 7;
enum : size_t { q, k, v, o, gate, up, down };  // of Config::maps

// The place of the norms of a layer: before its sublayers, behind each residual sum, between a sublayer and the sum, so
// that the sublayer reads the residual stream itself, or both before a sublayer and between it and the sum.
enum class Norms { before, behind_sum, behind_sublayer, around };

struct Config {
  int64_t vocabulary, hidden, ffn, layers, heads, kv_heads, head_dim, max_positions;
  int64_t word_width;  // width of the embeddings; if it differs from `hidden` they are projected
  bool tied;           // the head uses the embeddings

  const char* body = "model.";         // what the names of all tensors but that of the head begin with
  const char* layer = "layers";        // before the number of a layer in the names of its tensors, below the body
  const char* words = "embed_tokens";  // the embeddings: a name below the body
  const char* head = "lm_head";
  // q, k, v, output, gate, up, down: the order of their parameters in a layer. Without a gate, the feed-forward layer
  // is plain: an activation between `up` and `down`. Without k and v, q makes all three: of each key and value head
  // first its query heads, then its key, then its value.
  std::array<Map, map_count> maps;
  int64_t act;  // ENG_ACT_*

  // Norms of width `hidden`: RMS norms, which have a weight, or layer norms, which also have a bias.
  const char *attention_norm, *ffn_norm;                                    // names below that of the layer
  const char *behind_attention_norm = nullptr, *behind_ffn_norm = nullptr;  // with Norms::around
  const char* final_norm;                                                   // before the head; nullptr: there is none
  bool layer_norm = false;
  bool affine = true;     // false: the norms have no parameters
  bool plus_one = false;  // RMS norms, those of queries and keys too, multiply by 1 + weight
  Norms norms = Norms::before;
  // For each layer: whether it has the family's own feed-forward layer (Model::declare_own) in place of the maps gate,
  // up and down. Empty: all layers have the same, the own one if these maps have no names.
  std::vector<bool> own = {};
  bool parallel = false;  // with Norms::before: both sublayers read the residual stream before the layer
  double eps;
  // RMS norms of queries and keys, before these are turned; nullptr: there are none. Each head is normed by itself,
  // with one weight for all heads of a layer, or all heads together.
  const char *query_norm = nullptr, *key_norm = nullptr;
  bool norm_by_head = false;

  // A table of learned positions, in which position p is row p + position_offset; nullptr: rotary embedding.
  const char* positions = nullptr;
  int64_t position_offset = 0;
  Rope rope;
  int64_t turned = 0;            // channels of a head that are turned, its first ones
  std::vector<bool> turns = {};  // of each layer: whether it turns queries and keys; empty: all do
  int64_t window = 0;  // a query sees itself and window - 1 positions before it; 0: all. Not together with `turns`
  std::vector<bool> windowed = {};       // of each layer: whether it has the window; empty: all have it
  std::optional<Rope> window_rope = {};  // of the layers with the window; absent: `rope`
  double score_cap = 0.0;                // scores of attention become cap tanh(score / cap); 0: they stay
  double logit_cap = 0.0;                // the same of logits: the model then has a loss of its own
  double attention_scale = 0.0;          // of the products of queries and keys; 0: 1 / sqrt(head_dim)
  bool scale_query = false;              // before the product with the keys, not after it
  // Factors of the embeddings, of what each sublayer adds to the residual stream, and of the logits.
  double embedding_scale = 1.0, residual_scale = 1.0, logit_scale = 1.0;
  bool embedding_scale_rounded = false;  // to the type of the embeddings

  double embedding_dropout = 0.0;  // behind the embeddings
  double dropout = 0.0;            // after attention and after the feed-forward layer
  double init_std, init_out_std;   // init_out_std: of the matrices that write to the residual stream

  bool rotary() const { return positions == nullptr; }
  bool has_window(int64_t layer) const {
    return window > 0 && (windowed.empty() || windowed[static_cast<size_t>(layer)]);
  }
  // True if the layer has the map.
  bool has(size_t map, bool own_layer) const {
    return maps[map].name != nullptr && !(map >= gate && own_layer && !own.empty());
  }
  bool projected() const { return word_width != hidden; }
  bool gated() const { return maps[4].name != nullptr; }
  bool fused() const { return maps[1].name == nullptr; }
};

struct Shape {
  int64_t rows, columns;  // out, in
};
// The sizes of Config::maps.
std::array<Shape, map_count> map_shapes(const Config& c);

// The options that nearly every config.json spells alike, checked; `ffn` is the key of the width of the feed-forward
// layers; nullptr: the caller sets it. Each query head has its own key and value head. Throws
// model::Failure(ENG_INVALID) that names the key and what to change, as do the functions below.
Config read_sizes(const model::Reader& in, const char* ffn);
// num_key_value_heads, of which each serves several query heads, and head_dim; both may be absent. `head_dim`,
// `kv_heads`: their values then; 0: hidden_size / num_attention_heads, num_attention_heads.
void read_grouped_heads(const model::Reader& in, Config& c, int64_t head_dim = 0, int64_t kv_heads = 0);
// rms_norm_eps.
void read_rms_norm(const model::Reader& in, Config& c);
// The options of DECODER_ROPE_OPTIONS (options.hpp). `c` has its sizes and heads. `share`: the part of each head that
// is turned, as Hugging Face's partial_rotary_factor.
void read_rope(const model::Reader& in, Config& c, double share = 1.0);
// sliding_window, which may be absent (`window`: its value then; 0: none), and layer_types if `by_layer`: with that
// list, the layers called sliding_attention have the window; without it, those of which `usual` says so, all if it is
// empty.
void read_window(const model::Reader& in, Config& c, int64_t window = 0, bool by_layer = false,
                 std::vector<bool> usual = {});
// initializer_range and init_depth_scale.
void read_init(const model::Reader& in, Config& c);

// All that LLaMA's relatives have in common: the above, hidden_act, LLaMA's names of the norms, and a gated
// feed-forward layer. `share`: see read_rope; `head_dim`, `kv_heads`: see read_grouped_heads; `ffn`: see read_sizes.
Config read_relative(const model::Reader& in, double share = 1.0, int64_t head_dim = 0, int64_t kv_heads = 0,
                     const char* ffn = "intermediate_size");
// LLaMA's names of the maps.
void name_maps(Config& c, bool qkv_bias, bool o_bias, bool mlp_bias);

}  // namespace decoder
