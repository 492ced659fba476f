// SPDX-License-Identifier: Apache-2.0
// Another user exchanges folders while plugins in them are found and loaded.
#pragma once

#include <functional>
#include <string>

namespace race {

// Races of `tries` attempts each, in every way in which another user may get at a folder; a tenth of them where each
// loading succeeds and so needs a process. Needs root. `report` gets a line for each. Returns what is wrong, "" if
// nothing is.
std::string run(int tries, const std::function<void(const std::string&)>& report);

}  // namespace race
