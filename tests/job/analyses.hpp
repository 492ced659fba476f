// SPDX-License-Identifier: Apache-2.0
// Analyses by the fixture: the command with its folder, and what it wrote.
#pragma once

#include <sstream>

#include "../cli/harness.hpp"

namespace job_test {

using namespace cli;

// `engine --plugin-path FOLDER analyse ...`.
inline Args words(const Args& more, const std::string& verb = "analyse") {
  Args out = {"--plugin-path", FIXTURE_JOB_DIR, verb};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

inline Args with(Args first, const Args& more) {
  first.insert(first.end(), more.begin(), more.end());
  return first;
}

// The numbers of a result of the fixture.
inline std::map<std::string, std::string> result(const fs::path& directory, const std::string& file = "result.txt") {
  std::istringstream in(read(directory / file));
  std::map<std::string, std::string> out;
  for (std::string name, number; in >> name >> number;) out[name] = number;
  return out;
}

inline std::map<std::string, std::string> analysed(const Scratch& scratch, const std::string& out,
                                                   const Args& more = {}, const std::string& target = "config.toml") {
  const Result done = engine(scratch, words(with({target, "--job", "fixture", "--out", out}, more)));
  INFO(done.err);
  REQUIRE(done.exit == 0);
  CHECK(state(scratch / out).at("status") == "done");
  const auto all = result(scratch / out);
  CHECK(all.at("restored") == "0000000000000001");
  return all;
}

}  // namespace job_test
