// SPDX-License-Identifier: Apache-2.0
// [provides.gguf] of a model, with the values of one configuration.
#pragma once

#include "core/config/section.hpp"
#include "session/gguf/rope.hpp"
#include "session/plugins/gguf.hpp"

namespace eng {

// `model`: the section [model]. Throws Error(Exit::usage) if no option of a term has a value.
Value gguf_value(const GgufValue& value, const Section& model, const std::string& key);
// The product of the values.
double gguf_factor(const std::vector<GgufValue>& by, const Section& model, const std::string& key);
// The description for one configuration: with the names and keys of its variant.
GgufModel gguf_for(const GgufModel& gguf, const Section& model);
// Refuses, with Error(Exit::usage), a model that llama.cpp does not know, or computes in another way.
void require_gguf(const GgufModel* gguf, const Section& model);
// Differences of llama.cpp that the user is told, for this configuration.
std::vector<std::string> gguf_notes(const GgufModel& gguf, const Section& model);
// The keys of the architecture, rotary embedding included. Returns the tensors that its scaling needs.
std::vector<RopeFactors> write_keys(const GgufModel& gguf, const Section& model, GgufHeader& out);
// The name in the file of a tensor of the model; "" if it has none.
std::string gguf_name(const GgufModel& gguf, const std::string& name);
// True if `pattern` is of the tensor `name` of the file.
bool names_tensor(const std::string& pattern, const std::string& name);

}  // namespace eng
