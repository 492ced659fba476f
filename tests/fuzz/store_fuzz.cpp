// SPDX-License-Identifier: Apache-2.0
// Any text as an answer of a store: refused with an Error, or elements that are parts of it, whose texts are made once.
#include <cstdlib>

#include "core/base/error.hpp"
#include "session/store/xml.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace eng::store;
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  for (const char* name : {"Contents", "Key", "Size", "ETag", "Upload", "Part", "Error", "NextContinuationToken"}) try {
      for (const std::string_view one : elements(xml, name))
        if (one.data() && (one.data() < xml.data() || one.data() + one.size() > xml.data() + xml.size())) abort();
      const std::string text = text_of(xml, name);
      if (text.size() > size || text_of("<a>" + xml_text(text) + "</a>", "a") != text) abort();
    } catch (const eng::Error& e) {
      if (e.exit() != eng::Exit::data) abort();
    }
  return 0;
}
