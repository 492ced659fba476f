// SPDX-License-Identifier: Apache-2.0
#include "tests/session/built.hpp"
#include "session/plugins/search.hpp"

namespace eng::test {

Registry& built_plugins() {
  static const auto all = [] {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(ENGINE_PLUGIN_DIR))
      if (entry.path().string().ends_with(".eng.so")) files.push_back(entry.path());
    return find_plugins({files, false});
  }();
  return *all;
}

}  // namespace eng::test
