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
// Throws Failure naming the pattern or path, and `key`, where the patterns stand.
std::vector<std::string> find_files(const std::string& base_dir, const std::vector<std::string>& patterns,
                                    const std::string& key = "paths");
// `files` without those that are also among `others`, by whatever name.
std::vector<std::string> without(const std::vector<std::string>& files, const std::vector<std::string>& others);
// "is a pipe ...", for an error about what is no regular file, and what to do.
std::string not_a_file(unsigned mode);

}  // namespace text_data
