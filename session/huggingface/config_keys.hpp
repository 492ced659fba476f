// SPDX-License-Identifier: Apache-2.0
// The keys of config.json beside those that a model plugin describes, and the families that are one of the engine's
// under another name.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "session/json.hpp"

namespace eng {

// Keys that have no effect on numbers: tokens, the way of loading, the defaults of generation.
const std::set<std::string>& harmless_keys();
// True for a harmless key; also for keys of a tool that has many.
bool is_harmless(const std::string& key);

// Keys that change other models. Accepted where their value changes nothing; the texts are JSON.
struct NeutralKey {
  const char* path;
  std::vector<const char*> values;  // none: refused with every value
  const char* what;                 // for the message
};
const std::vector<NeutralKey>& neutral_keys();

// A family of transformers that computes what another one does, but for a window of attention that leaves out a token:
// files with one need a plugin of the family itself.
struct Twin {
  const char* model_type;               // of its config.json
  const char* as;                       // the model_type that is read in its place
  const char* architecture;             // what its names of classes begin with, "Mistral"
  const char* as_architecture;          // "Llama"
  const char* defaults;                 // its own, where they differ from the other's: a JSON object
  std::vector<const char*> always_off;  // keys of the other family that this one does not have
  bool windows_by_layer;                // `layer_types` decides which layers have the window
};
const std::vector<Twin>& twins();
// The values that transformers takes where a config.json of that family says nothing, of keys for which null means
// something else: a JSON object; nullptr for other families.
const char* family_defaults(const std::string& model_type);
// Families that look like one of the engine's, and what is different; nullptr for others.
const char* difference_of(const std::string& model_type);

}  // namespace eng
