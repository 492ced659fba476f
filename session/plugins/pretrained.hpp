// SPDX-License-Identifier: Apache-2.0
// The spelling of a model's options and tensors in the directories of Hugging Face.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/config/plugin_schema.hpp"

namespace eng {

struct GgufModel;  // session/plugins/gguf.hpp

// Tensors of the files beside those of the model: one of the files holds several of the model, or the reverse. Of each,
// the names as patterns, one of which is alone. With `#` in the names of the files, `files` stand for one entry of a
// model's tensor along its first dimension, and `#` for the number of that entry.
struct Regroup {
  std::vector<std::string> files, model;
  int64_t axis = 0;  // along which they lie one after the other, in the files
  bool numbered = false;
  bool optional = false;  // a model may have no such tensors
};

// [provides.pretrained] of a model plugin (engine/plugin.h): how its options are spelled in a Hugging Face config.json.
// A path is a key of config.json, with dots for nested keys; values are JSON texts.
struct Pretrained {
  using Pairs = std::vector<std::pair<std::string, std::string>>;
  std::vector<std::string> model_types;    // the first is written; none: the plugin reads no config.json
  std::vector<std::string> architectures;  // the first is written
  std::vector<std::string> recognise;      // paths that identify its config.json if that has no model_type
  std::map<std::string, std::vector<std::string>> fixed;  // path -> the supported values
  // For export, in addition to the options: path -> a constant, or {"product": [option, ...]}, a whole number that is
  // written only if no option gives the path a value.
  std::map<std::string, std::string> write;
  std::vector<std::string> ignore;          // paths that do not change the results
  Pairs rename;                             // prefixes of tensor names: accepted -> the plugin's
  Pairs tied;                               // an optional tensor that is no parameter -> the tensor it must equal
  std::vector<std::string> ignore_tensors;  // suffixes
  std::vector<std::string> transpose = {};  // patterns of names in the files
  std::vector<Regroup> regroup = {};        // `split`, then `join`

  // [provides.gguf], which a plugin may have without [provides.pretrained].
  std::shared_ptr<const GgufModel> gguf = {};
};

// That of `schema`; without one, an empty one.
inline const Pretrained& pretrained_of(const PluginSchema& schema) {
  static const Pretrained none;
  return schema.pretrained ? *schema.pretrained : none;
}

}  // namespace eng
