// SPDX-License-Identifier: Apache-2.0
// Any text as a hub's list of files: refused with an Error, or a list whose chosen names stay inside of a folder.
#include <cstdlib>
#include <filesystem>

#include "core/base/error.hpp"
#include "session/hub/listing.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace eng::hub;
  const std::filesystem::path top = "/top/folder";
  try {
    const Listing listing = parse_listing({reinterpret_cast<const char*>(data), size}, "fuzz");
    for (const Choice& choice : {Choice{}, Choice{{"*"}, {}}})
      for (const Kind kind : {Kind::model, Kind::data}) try {
          for (const File& file : chosen(listing, kind, choice)) {
            const auto path = (top / file.path).lexically_normal();
            if (path.parent_path().string().rfind(top.string(), 0) != 0 || path != top / file.path) abort();
            if (file.size && *file.size > largest_file) abort();
          }
        } catch (const eng::Error& e) {
          if (e.exit() != eng::Exit::data) abort();
        }
  } catch (const eng::Error& e) {
    if (e.exit() != eng::Exit::data) abort();
  }
  return 0;
}
