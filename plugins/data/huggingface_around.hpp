// SPDX-License-Identifier: Apache-2.0
// The post_processor of a tokenizer.json: the ids around a text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "json_reader.hpp"

namespace text_data {

struct Around {
  std::vector<int32_t> prefix, suffix;
};

// `id_of` gives the id of a token or -1, `ids` is their number.
Around read_post_processor(const JsonReader& reader, const json& value, const std::string& place,
                           const std::function<int32_t(const std::string&)>& id_of, std::size_t ids);

}  // namespace text_data
