// SPDX-License-Identifier: Apache-2.0
// From the patterns in the configuration to the list of files.
#pragma once

#include <string>
#include <vector>

namespace text_data {

// Absolute paths of regular files, sorted bytewise, each file once even if reached by two names or links.
// In a pattern `*`, `?` and `[...]` match within one name, a name `**` stands for any number of folders (none too);
// hidden names match only where the pattern spells the dot, and `**` does not follow links to folders.
// A path that exists is taken literally, whatever characters it has.
// Throws Failure naming the pattern or path.
std::vector<std::string> find_files(const std::string& base_dir, const std::vector<std::string>& patterns);

}  // namespace text_data
