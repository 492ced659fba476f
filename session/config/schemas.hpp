// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/registry/registry.hpp"
#include "session/config/config.hpp"

namespace eng {

// What the plugins of a registry say of their options. Borrows the registry.
SchemaSource schemas_of(const Registry& registry);

}  // namespace eng
