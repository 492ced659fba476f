// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/usual.hpp"

#include "session/plugins/listing.hpp"

namespace eng {

std::string usual(const Registry& registry, const std::string& kind, const std::string& use) {
  for (const Candidate& file : registry.candidates())
    for (const Provided& one : file.description.provides) {
      const auto said = one.facts.find("usual");
      if (one.kind == kind && said != one.facts.end() && std::get<bool>(said->second) &&
          registry.find(kind, one.name) == &one)
        return one.name;
    }
  throw Error(Exit::environment, fmt::format("no plugin is the usual one of {}, {}", kind, use),
              not_built_yet(registry) + "engine plugins ls --why");
}

}  // namespace eng
