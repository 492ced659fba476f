// SPDX-License-Identifier: Apache-2.0
// What `engine plugins` prints.
#pragma once

#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// One line per thing provided; with `why` also the places looked and every refused file with its reason.
std::string print_plugins(const Registry& registry, bool why);
// Why there is no such plugin: files that have the name in another way, files that were refused and might be meant, the
// folders that the user `asked` for, and one line on all others.
std::string explain_missing(const Registry& registry, const std::string& kind, const std::string& name,
                            const std::vector<std::filesystem::path>& asked = {});
// One plugin with all its options and presets; `what` is its id, the name of something it provides, or its file's name
// up to the first dot. "" if there is none.
std::string print_plugin(const Registry& registry, const std::string& what);
// Where print_plugin finds nothing: why such a file was refused, and names that are near.
std::string near_plugins(const Registry& registry, const std::string& what);

}  // namespace eng
