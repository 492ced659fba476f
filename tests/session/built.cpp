// SPDX-License-Identifier: Apache-2.0
#include "tests/session/built.hpp"

namespace eng::test {

Registry& built_plugins() {
  static const auto all = [] {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(ENGINE_PLUGIN_DIR))
      if (entry.path().string().ends_with(".eng.so")) files.push_back(entry.path());
    return Registry::scan({files, false});
  }();
  return *all;
}

}  // namespace eng::test
