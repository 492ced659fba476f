// SPDX-License-Identifier: Apache-2.0
#include "session/plugins/pins.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "core/base/error.hpp"

namespace eng {

void pin_plugins(Registry& registry, const std::vector<std::string>& hashes, const std::string& by,
                 const std::string& help) {
  const std::vector<Candidate>& all = registry.candidates();
  for (std::string text : hashes) {
    const std::string id = text.substr(0, text.find('='));
    const auto named = [&](const Candidate& candidate) { return candidate.description.id == id; };
    if (std::none_of(all.begin(), all.end(), named))
      throw Error(Exit::usage, fmt::format("{}: there is no plugin with id '{}'", by, id));
    std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
    const std::string hash = text.substr(std::min(id.size() + 1, text.size()));
    if (hash.size() != 64 || hash.find_first_not_of("0123456789abcdef") != std::string::npos)
      throw Error(Exit::usage, fmt::format("{}: '{}' is not ID=HASH with 64 hexadecimal digits", by, text));
    registry.pin(id, {hash, by, help});
  }
}

}  // namespace eng
