// SPDX-License-Identifier: Apache-2.0
// Strict reading of JSON files that others wrote. An error names the place.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace eng {

// Throws Error(Exit::checkpoint, "WHERE: WHY").
[[noreturn]] void refuse(const std::string& where, const std::string& why);
// A document of limited depth in which no object has a key twice. `look` is called for each value that is neither an
// object nor a list, with its key. Throws like `refuse`.
nlohmann::json parse_json(std::string_view text, const std::string& where, size_t deepest,
                          const std::function<void(const std::string& key, const nlohmann::json& value)>& look = {});
// The same for documents whose values are texts and numbers only. All numbers except that of key `fraction` must be
// whole and >= 0, so that 1.5 and -1 are never silently converted.
nlohmann::json parse_strictly(std::string_view text, const std::string& where, const std::string& fraction = "");

}  // namespace eng
