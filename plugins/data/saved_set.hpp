// SPDX-License-Identifier: Apache-2.0
// Folders that `save_to_disk` of the library datasets wrote.
#pragma once

#include <string>
#include <vector>

namespace text_data {

// The files of such a folder, in their order; none if it is another folder. Throws Failure for a folder of several
// splits, which names them, and if a file that the folder's state.json names is missing.
std::vector<std::string> saved_set(const std::string& folder);

}  // namespace text_data
