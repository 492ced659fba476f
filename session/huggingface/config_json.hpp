// SPDX-License-Identifier: Apache-2.0
// A model's configuration as Hugging Face spells it: config.json.
#pragma once

#include "session/config/config.hpp"
#include "session/json.hpp"

namespace eng {

// The object that transformers writes in the place of an infinite number. In an option of lists of numbers, the largest
// double stands for it.
Json infinite_json();

// Throw Error(Exit::usage).
Json parse_config_json(const std::string& text, const std::filesystem::path& file);
Json read_config_json(const std::filesystem::path& file);
// The model that the file describes. `plugin`: the model plugin that the user named, or "" to find it. Throws an
// Error(Exit::usage) that lists everything that is not supported.
ModelSource model_of_config_json(const Json& json, const std::filesystem::path& file, const std::string& plugin,
                                 const SchemaSource& plugins);

// config.json of a model, with weights of `dtype` ("bfloat16"). `before`: the file of the directory it came from, if
// any. Its keys that the engine does not use (such as token ids) are kept.
Json write_config_json(const Section& model, const Schema& options, const Pretrained& pretrained,
                       const std::string& dtype, const Json& before);

}  // namespace eng
