// SPDX-License-Identifier: Apache-2.0
// `engine plugins test FILE`: an audit of the file, a probe of its process, and the laws of what it provides.
#pragma once

#include <filesystem>

#include "tools/engine/plugin_test/verdict.hpp"

namespace eng::plugin_test {

struct Request {
  std::filesystem::path file;
  std::vector<std::filesystem::path> plugin_paths;  // searched for what it is tried with
  std::vector<std::string> given;                   // KEY=VALUE, of any of its options
  std::string kind, name;                           // only these; "": all
  uint64_t seed = 1;
  int rounds = 2;
  double seconds = 300;  // the most that one thing it provides may take
};

// Throws Error(Exit::usage) for a key or a name that nothing has, Error(Exit::environment) if there is no such file.
std::vector<Verdict> test_plugin(const Request& request);

// One of the ranks that the test of a communicator starts: writes its verdicts into `folder`.
void test_as_rank(const Request& request, const std::filesystem::path& folder);

}  // namespace eng::plugin_test
