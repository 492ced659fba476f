// SPDX-License-Identifier: Apache-2.0
// The spelling of a model's options and tensors in the files of llama.cpp (GGUF): [provides.gguf] of a model plugin
// (engine/plugin.h).
#pragma once

#include "core/config/value.hpp"
#include "session/plugins/pretrained.hpp"

namespace eng {

// A number or boolean: a constant, an option, or computed of others.
struct GgufTerm {
  // product and quotient are whole numbers: a product is cut off, a quotient rounded up; ratio and root are real.
  // length counts the entries of an option that is a list, or its letters; entry is a number of a list.
  enum class Kind { constant, option, product, quotient, ratio, root, least, length, entry } kind = Kind::constant;
  Value constant;                      // of a constant
  std::string option;                  // of an option, a length or an entry: its name
  int64_t place = 0;                   // of an entry, counted from 0
  std::vector<GgufTerm> factors;       // of the others: two of a quotient or ratio, one of a root
  std::map<std::string, Value> where;  // options that must have these values; otherwise the term has none
};
using GgufValue = std::vector<GgufTerm>;  // the first one that has a value: all of its options have one

// A list with an entry for each layer that llama.cpp knows only in one form: each layer with a number that `every`
// divides, counted from 1, has the entry `there`, the others have `others`.
struct GgufLayers {
  GgufValue every;
  Value there, others;
};

// A key with a value for each layer: `is` where the layer's entry in the first of the options that has a value is one
// of `entries`, and `others` elsewhere. An entry is a text of a list, or a letter of a text. A list of numbers is one
// of the layers that have `is`, counted from 0. Without options, layers with a number that leaves `from` when it is
// divided by `every` have `is`.
struct GgufByLayer {
  std::vector<std::string> options, entries;
  GgufValue is, others;
  GgufValue every = {}, from = {};
};

// The rows of one tensor of the model are groups, each of the same heads, as many as `parts` says. The tensors `to`
// have one of the parts each, of all groups; a single one has them one after the other.
struct GgufGrouped {
  std::string from;
  GgufValue groups;
  std::vector<GgufValue> parts;
  std::vector<std::string> to;
};

struct GgufNote {
  std::string text, given;             // `given`: an option that must have a value; "": none must
  std::map<std::string, Value> where;  // for models with these values alone
};

// Rows of a tensor of the file that are multiplied by the product of `by`: the next `rows`, all if there is only one.
struct GgufScale {
  GgufValue rows;
  std::vector<GgufValue> by;
};

// Other names and further keys, for models with these values alone; of several, the first such one counts. Of an option
// that is a list of texts, or a text of letters, the value may be one of its entries.
struct GgufVariant {
  std::map<std::string, Value> where;
  std::string architecture;  // "": that of the others
  std::vector<std::pair<std::string, std::string>> tensors;
  std::vector<std::pair<std::string, GgufValue>> keys;
};

// Patterns of names are of tensors in the file, or of these without their last part, such as `.weight`.
struct GgufModel {
  std::string none;               // the reason why there can be no file; then nothing else is given
  std::string architecture;       // general.architecture, which the keys begin with
  std::vector<std::string> rope;  // values of the option rope_type that llama.cpp knows, if any
  std::vector<std::pair<std::string, std::string>> tensors;  // pattern of the model's names -> the file's
  std::vector<std::pair<std::string, GgufValue>> keys;       // key without the architecture -> its value
  std::map<std::string, GgufValue> require;                  // such a key, or an option -> the only supported value
  std::map<std::string, std::vector<std::string>> fixed;     // option -> the supported values, as JSON; {}: no value
  std::map<std::string, GgufLayers> layers;                  // option that is a list
  std::map<std::string, GgufByLayer> by_layer;               // key without the architecture
  std::map<std::string, GgufValue> interleave;               // pattern -> heads: a head's halves of rows alternate
  std::map<std::string, GgufValue> rows;                     // pattern -> rows of the matrix that a vector becomes
  std::map<std::string, std::vector<GgufScale>> scale;       // pattern
  std::vector<std::string> squeeze, negative_exp, plus_one, f32;  // patterns
  std::vector<GgufGrouped> grouped;
  std::vector<GgufNote> notes;
  std::vector<GgufVariant> variants;
  Pretrained arrangement;  // its `transpose` and `regroup` alone; names as in the file
};

}  // namespace eng
