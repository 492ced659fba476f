// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of [reference] store, as they are and under a good seal: refused with an Error, or each of its
// sequences in order with a finite value, and what is looked up in it stays within its length.
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "session/checksum.hpp"
#include "session/data/stored_reference.hpp"
#include "session/file.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/tmp/engine-fuzz-stored-" + std::to_string(getpid());
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool seal : {false, true}) {
    if (seal && size >= 256) {
      const auto put = [&](size_t at, const std::string& text) { bytes.replace(at, text.size(), text); };
      const std::string end(8, '\0');
      put(144, eng::Checksum::of(bytes.substr(256)) + end);
      put(216, eng::Checksum::of(bytes.substr(0, 216)) + end);
    }
    eng::write_text(path, bytes);
    try {
      const eng::StoredReference file(path);
      if (file.sequences() != (size - 256) / 16) abort();
      const auto length = static_cast<size_t>(file.facts().length);
      if (length > 4096) continue;
      const std::vector<int32_t> ids(length, 7);
      std::vector<float> out(length, 0.0F);
      file.fill(ids.data(), ids.data(), out.data());
    } catch (const eng::Error& e) {
      if (e.exit() != eng::Exit::data) abort();
    }
  }
  unlink(path.c_str());
  return 0;
}
