// SPDX-License-Identifier: Apache-2.0
// A model's configuration as Hugging Face spells it; core/config/pretrained.hpp reads it.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/config/config.hpp"

namespace eng {

// config.json of a model, with weights of `dtype` ("bfloat16"). `before`: that of the directory it came from, if any,
// whose keys that mean nothing to the engine (token ids and the like) are kept.
nlohmann::json write_config_json(const Section& model, const Schema& options, const Pretrained& pretrained,
                                 const std::string& dtype, const nlohmann::json& before);

}  // namespace eng
