// SPDX-License-Identifier: Apache-2.0
#include "session/config/schemas.hpp"

namespace eng {

SchemaSource schemas_of(const Registry& registry) {
  SchemaSource out;
  out.find = [&registry](const std::string& kind, const std::string& name) {
    const Provided* one = registry.find(kind, name);
    return one ? &one->schema : nullptr;
  };
  out.names = [&registry](const std::string& kind) { return registry.names(kind); };
  return out;
}

}  // namespace eng
