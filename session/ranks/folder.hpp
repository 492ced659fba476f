// SPDX-License-Identifier: Apache-2.0
// A folder for the temporary files of mpirun and its ranks. It is removed even if the process is killed.
#pragma once

#include <filesystem>

#include "session/file.hpp"

namespace eng {

// A new folder that only this user can access. The destructor removes it. If the process is killed first, the next
// folder made at the same place removes it, as soon as no process holds it. Throws std::filesystem::filesystem_error.
class LaunchFolder {
 public:
  explicit LaunchFolder(const std::filesystem::path& place);
  ~LaunchFolder();
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }
  // Call it in a child before exec, so that the child's program also holds the folder.
  void hold() const;

 private:
  std::filesystem::path path_;
  Fd fd_;
};

}  // namespace eng
