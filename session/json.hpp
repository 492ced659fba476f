// SPDX-License-Identifier: Apache-2.0
// JSON that files of others hold: read strictly, refused with the place.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

namespace eng {

// Throws Error(Exit::checkpoint, "WHERE: WHY").
[[noreturn]] void refuse(const std::string& where, const std::string& why);
// A document of bounded depth, with no key twice in an object. `look` sees each value that is no object or list, and
// the key it stands at. Throws as `refuse`.
nlohmann::json parse_json(std::string_view text, const std::string& where, size_t deepest,
                          const std::function<void(const std::string& key, const nlohmann::json& value)>& look = {});
// The same, of texts and numbers alone; all numbers but that of `fraction` are whole and >= 0, so that 1.5 and -1 are
// never silently made to fit.
nlohmann::json parse_strictly(std::string_view text, const std::string& where, const std::string& fraction = "");

}  // namespace eng
