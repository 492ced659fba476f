// SPDX-License-Identifier: Apache-2.0
// The output of `engine plugins`.
#pragma once

#include <string>

#include "core/registry/registry.hpp"

namespace eng {

// One line per provided interface; with `why` also the folders searched and every refused file with its reason.
std::string print_plugins(const Registry& registry, bool why);
// A line with the plugins that a build folder lacks so far, or "".
std::string not_built_yet(const Registry& registry);

// Explains a missing plugin: files that use the name otherwise, refused files that might be meant, how the one that is
// meant is built or installed, the folders that the user `asked` for, and one line about all others.
std::string explain_missing(const Registry& registry, const std::string& kind, const std::string& name,
                            const std::vector<std::filesystem::path>& asked = {});
// A plugin with all its options and presets. `what` is its id, the name of an interface it provides, or its file's name
// up to the first dot. "" if there is none.
std::string print_plugin(const Registry& registry, const std::string& what);
// If print_plugin finds nothing: why such a file was refused, and similar names.
std::string near_plugins(const Registry& registry, const std::string& what);

}  // namespace eng
