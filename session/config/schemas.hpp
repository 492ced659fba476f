// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"

namespace eng {

// The options of a registry's plugins. Borrows the registry.
SchemaSource schemas_of(const Registry& registry);

}  // namespace eng
