// SPDX-License-Identifier: Apache-2.0
// A directory that a process works in for long: held open, so that what its name leads to later does not matter.
#pragma once

#include <filesystem>
#include <string>

#include "session/file.hpp"

namespace eng {

class HeldFolder {
 public:
  // Throws Error(Exit::disk) if `path` is not a directory that can be opened.
  explicit HeldFolder(std::filesystem::path path);
  // The folder `name` in another one, made if it is not there. A symbolic link is not followed: it throws
  // Error(Exit::disk), as anything else does that is no folder.
  HeldFolder(const HeldFolder& in, const std::string& name);
  const std::filesystem::path& path() const { return path_; }  // as given, for messages
  // Leads to the directory itself, also after it was moved. Valid as long as this object.
  const std::filesystem::path& inside() const { return inside_; }
  int descriptor() const { return fd_; }
  enum class Place { same, moved, removed };
  // The directory's present place: under its name, under another one, or nowhere.
  Place place() const;
  // Its name now.
  std::filesystem::path found() const;

 private:
  HeldFolder(std::filesystem::path path, Fd fd);
  std::filesystem::path path_;
  Fd fd_;
  std::filesystem::path inside_;
};

// The folder `name` in `run`, by its path. Throws Error(Exit::disk) if it is a symbolic link: a run has its own
// folders, and what a link leads to is not the run's to read or to change.
std::filesystem::path own_folder(const std::filesystem::path& run, const std::string& name);
// The text with the names of held directories in place of those that `inside` gives.
std::string name_held(std::string text);

}  // namespace eng
