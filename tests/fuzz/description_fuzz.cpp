// SPDX-License-Identifier: Apache-2.0
// Any text as a plugin's description: accepted with all that the registry relies on, or refused with a reason.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "session/plugins/plugin_file.hpp"
#include "session/plugins/pretrained.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string text(reinterpret_cast<const char*>(data), size);
  eng::Description description;
  if (!eng::parse_description(text, description).empty()) return 0;
  if (description.id.empty() || description.version.empty() || description.provides.empty()) std::abort();
  for (const eng::Provided& one : description.provides) {
    if (one.kind.empty() || one.name.empty()) std::abort();
    for (const eng::Option& option : one.schema.options)
      if (option.key.empty()) std::abort();
    for (const eng::Regroup& group : pretrained_of(one.schema).regroup)
      if ((group.files.size() == 1) == (group.model.size() == 1) || group.axis < 0) std::abort();
  }
  return 0;
}
