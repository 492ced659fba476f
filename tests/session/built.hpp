// SPDX-License-Identifier: Apache-2.0
// The plugins of this build, and configurations for them.
#pragma once

#include "core/registry/registry.hpp"
#include "session/config/schemas.hpp"

namespace eng::test {

Registry& built_plugins();

inline Config built_config(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return Config::parse(text, "c.toml", "/", overrides, schemas_of(built_plugins()));
}

}  // namespace eng::test
