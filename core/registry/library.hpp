// SPDX-License-Identifier: Apache-2.0
// A plugin file in the process: loaded once, started once, never unloaded.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.hpp"
#include "core/registry/files.hpp"
#include "core/registry/registry.hpp"

namespace eng {

class Library {
 public:
  // The library of this file, loaded and started on the first call in the process. Throws
  // Error(Exit::environment); a later call for the same file throws the same again.
  static Library& load(const Candidate& candidate, const FileIdentity& expected);

  const void* get_interface(const std::string& kind, const std::string& name);
  const std::string& sha256() const { return sha256_; }
  const std::string& warning() const { return warning_; }

 private:
  friend void stop_plugins();
  Library(const Candidate& candidate, const FileIdentity& id);
  void open();
  void start();
  Error error(const std::string& why, const std::string& help = "") const;

  std::filesystem::path path_;
  Description description_;
  FileIdentity identity_;
  eng_plugin plugin_{};
  eng_host host_{};
  std::string sha256_, warning_;
  std::string failure_, failure_help_;
  bool started_ = false, stopped_ = false;
};

}  // namespace eng
