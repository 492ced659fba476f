// SPDX-License-Identifier: Apache-2.0
// A model's configuration as Hugging Face spells it: config.json.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "session/config/config.hpp"

namespace eng {

// Keys of every config.json that change no number here.
bool is_harmless(const std::string& key);

// Throw Error(Exit::usage).
nlohmann::json parse_config_json(const std::string& text, const std::filesystem::path& file);
nlohmann::json read_config_json(const std::filesystem::path& file);
// What it says of the model. `plugin`: the model plugin that the user named, "" to find it. Throws Error(Exit::usage)
// that lists everything that is not supported.
ModelSource model_of_config_json(const nlohmann::json& json, const std::filesystem::path& file,
                                 const std::string& plugin, const SchemaSource& plugins);

// config.json of a model, with weights of `dtype` ("bfloat16"). `before`: that of the directory it came from, if any,
// whose keys that mean nothing to the engine (token ids and the like) are kept.
nlohmann::json write_config_json(const Section& model, const Schema& options, const Pretrained& pretrained,
                                 const std::string& dtype, const nlohmann::json& before);

}  // namespace eng
