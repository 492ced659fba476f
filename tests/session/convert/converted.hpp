// SPDX-License-Identifier: Apache-2.0
// Conversions with the plugins of this build, judged as `engine check` judges a file.
#pragma once

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/base/error.hpp"
#include "session/convert/convert.hpp"
#include "tests/session/built.hpp"

namespace eng::test {

inline Converted converted(const std::string& text, const std::string& arguments = "",
                           const std::string& name = "ds.json", const std::vector<std::string>& ignored = {}) {
  ForeignRun run{text.empty() ? "" : name, text, arguments, {}, ignored};
  run.read = [](const std::string& path) -> std::string { throw Error(Exit::usage, "cannot read " + path); };
  return convert_run(run, schemas_of(built_plugins()));
}

// All notes, a line each.
inline std::string notes_of(const Converted& made) {
  std::string out;
  for (const std::string& note : made.notes) out += note + "\n";
  return out;
}

// The message of a refusal, and its help.
inline std::string refusal(const std::string& text, const std::string& arguments = "",
                           const std::string& name = "ds.json", const std::vector<std::string>& ignored = {}) {
  try {
    return "converted:\n" + converted(text, arguments, name, ignored).text;
  } catch (const Error& e) {
    CHECK(e.exit() == Exit::usage);
    return std::string(e.what()) + (e.help().empty() ? "" : "\nhelp: " + e.help());
  }
}

// The line of a key, with its comment and without the blanks between.
inline std::string line_of(const Converted& made, const std::string& begin) {
  const auto at = made.text.find("\n" + begin);
  if (at == std::string::npos) return "";
  std::string line = made.text.substr(at + 1, made.text.find('\n', at + 1) - at - 1);
  const auto hash = line.find(" # ");
  if (hash == std::string::npos) return line;
  const std::string before = line.substr(0, line.find_last_not_of(' ', hash) + 1);
  return before + line.substr(hash);
}

}  // namespace eng::test
