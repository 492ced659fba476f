// SPDX-License-Identifier: Apache-2.0
// Any text as a manifest, under a good seal: accepted with every element in one range of a listed file, or refused with
// an Error. What is accepted is written and read again as the same.
#include <cstdlib>
#include <string>

#include "core/base/error.hpp"
#include "session/checkpoint/manifest.hpp"
#include "session/checkpoint/safetensors.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string body(reinterpret_cast<const char*>(data), size);
  for (const std::string& text : {body + ",\n\"checksum\": \"" + eng::Checksum::of(body) + "\"\n}\n", body}) try {
      const eng::Manifest manifest = eng::parse_manifest(text, "fuzz");
      for (const auto& t : manifest.tensors) {
        uint64_t at = 0;
        for (const auto& s : t.ranges) {
          if (s.first != at) abort();
          at += s.count;
        }
        if (at != eng::element_count(t.shape, "")) abort();
      }
      const std::string again = eng::manifest_text(manifest);
      if (eng::manifest_text(eng::parse_manifest(again, "fuzz")) != again) abort();
    } catch (const eng::Error& e) {
      if (e.exit() != eng::Exit::checkpoint) abort();
    }
  return 0;
}
