// SPDX-License-Identifier: Apache-2.0
// A temporary folder, and small helpers around files and refusals.
#pragma once

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "core/base/error.hpp"

namespace eng::test {

class Scratch {
 public:
  Scratch() {
    // In memory where there is such a place: these tests flush thousands of times.
    const std::filesystem::path shm = "/dev/shm";
    const auto parent = ::access(shm.c_str(), W_OK) == 0 ? shm : std::filesystem::temp_directory_path();
    std::string name = (parent / "eng-test-XXXXXX").string();
    if (!mkdtemp(name.data())) throw std::runtime_error("mkdtemp failed");
    path_ = name;
  }
  ~Scratch() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  const std::filesystem::path& path() const { return path_; }
  std::filesystem::path operator/(const std::string& name) const { return path_ / name; }

 private:
  std::filesystem::path path_;
};

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

inline std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The text of the Error that `call` throws, whose exit code must be `exit`; "accepted" if it throws none.
template <class Call>
std::string refusal(Exit exit, Call call) {
  try {
    call();
  } catch (const Error& e) {
    if (e.exit() != exit) return std::string("wrong exit code: ") + e.what();
    return e.what();
  }
  return "accepted";
}

}  // namespace eng::test
