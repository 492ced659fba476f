// SPDX-License-Identifier: Apache-2.0
// Names of repositories, revisions and files on a hub, which come from anybody, and the addresses made of them.
#pragma once

#include <string>
#include <string_view>

namespace eng::hub {

enum class Kind { model, data };
std::string_view word(Kind kind);  // "model", "data"

// One revision of one repository on one hub.
struct Place {
  Kind kind = Kind::model;
  std::string endpoint;    // "https://huggingface.co", without a slash at its end
  std::string repository;  // "org/name", or "name" alone
  std::string revision;    // a branch, a tag or a commit

  std::string listing() const;                                                 // the address of the list of files
  std::string file(const std::string& commit, const std::string& path) const;  // of a file's content
  std::string page() const;                                                    // for people
  std::string command() const;                                                 // "engine model get org/name"
};

// Throw Error(Exit::usage) for a name that no repository or revision can have.
void check_repository(const std::string& name, Kind kind);
void check_revision(const std::string& revision);

// Files of this folder beside the downloaded ones.
inline constexpr std::string_view record_name = ".engine-hub.json", part_suffix = ".engine-part";
// The reason why a file with this name, from a hub, is not written into a folder; "" if it may be.
std::string unfit(const std::string& path);

}  // namespace eng::hub
