// SPDX-License-Identifier: Apache-2.0
// Turns the patterns of the configuration into the list of files.
#pragma once

#include <string>
#include <vector>

namespace text_data {

// Returns absolute paths of regular files, sorted bytewise. A file reached by two names or links is listed once. In a
// pattern `*`, `?` and `[...]` match within one name; the name `**` stands for any number of folders, also none. Hidden
// names match only where the pattern spells the dot, and `**` does not follow links to folders. A path that exists is
// taken literally, whatever characters it has. Throws Failure that names the pattern or path, and `key`, the option
// that holds the patterns.
std::vector<std::string> find_files(const std::string& base_dir, const std::vector<std::string>& patterns,
                                    const std::string& key = "paths");
// `files` without those that `others` also lists, under whatever name.
std::vector<std::string> without(const std::vector<std::string>& files, const std::vector<std::string>& others);
// "is a pipe ...": the text of an error about a path that is not a regular file, with what to do.
std::string not_a_file(unsigned mode);

}  // namespace text_data
