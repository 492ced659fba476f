// SPDX-License-Identifier: Apache-2.0
// Plugins that exist only as schemas, and short ways to parse.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "session/config/config_text.hpp"
#include "session/config/problem_text.hpp"

namespace eng::test {

const SchemaSource& plugins();

inline Config parse(const std::string& text, const std::vector<std::string>& overrides = {},
                    const SchemaSource& source = plugins()) {
  return Config::parse(text, "opt.toml", "/", overrides, source);
}

// The text of the error; "" if there is none.
inline std::string problems(const std::string& text, const std::vector<std::string>& overrides = {},
                            const SchemaSource& source = plugins()) {
  try {
    parse(text, overrides, source);
  } catch (const ConfigError& error) {
    return error.exit() == Exit::usage ? tell(error) : std::string("wrong exit code: ") + error.what();
  }
  return "";
}

// The smallest configuration, and then `more`.
inline std::string with(const std::string& more) {
  return "[model]\nplugin = \"llama\"\npreset = \"tiny\"\n[data]\npaths = [\"a\"]\n" + more;
}

}  // namespace eng::test
