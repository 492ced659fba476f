// SPDX-License-Identifier: Apache-2.0
// The files of a repository, as a hub lists them, and the choice among them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "session/hub/names.hpp"

namespace eng::hub {

struct File {
  std::string path;
  std::optional<uint64_t> size;  // bytes, where the hub says them
  std::string sha256;            // of the content; of files in LFS
  std::string git_sha1;          // of git's blob, of other files

  // Names the content: "sha256:...", "git-sha1:..."; "" if the hub gives no hash.
  std::string content() const;
};

struct Listing {
  std::string commit;  // 40 hexadecimal digits
  std::vector<File> files;
};

inline constexpr uint64_t longest_listing = uint64_t{64} << 20;  // bytes
inline constexpr size_t most_files = 50'000;                     // longer lists are cut by the hub
inline constexpr uint64_t largest_file = uint64_t{1} << 50;      // bytes

// The answer to `Place::listing`: an object with `sha` and `siblings` (rfilename, size, blobId, lfs.sha256, lfs.size).
// Names are as given: `unfit` judges them. Throws Error(Exit::data); `where` is the address.
Listing parse_listing(std::string_view text, const std::string& where);

struct Choice {
  std::vector<std::string> include, exclude;  // patterns: * ? [...]; * also matches '/'
};
// The files that match, or without `include` those that the engine reads. Throws Error(Exit::data) if one of them has a
// name that is unfit, or if there is none, with what there is.
std::vector<File> chosen(const Listing& listing, Kind kind, const Choice& choice);

}  // namespace eng::hub
