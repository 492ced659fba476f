// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.model: refused with a Failure, or a tokenizer whose ids are below its vocabulary. Compile
// with the tokenizer's parts of plugins/data.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "plugins/data/failure.hpp"
#include "plugins/data/tokenizer.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = "/tmp/engine-fuzz-sentencepiece-" + std::to_string(getpid()) + ".model";
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) std::abort();
  try {
    const auto tokenizer = text_data::open_sentencepiece(path);
    std::vector<int32_t> ids = tokenizer->prefix();
    ids.insert(ids.end(), tokenizer->suffix().begin(), tokenizer->suffix().end());
    // The input itself is as good a text as any.
    tokenizer->encode({reinterpret_cast<const char*>(data), size}, ids);
    tokenizer->encode("It's 1234 caf\xc3\xa9s,  e\xcc\x81\n\n \xff end", ids);
    std::string text;
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->info().vocabulary) std::abort();
      tokenizer->decode(id, text);
    }
  } catch (const text_data::Failure& failure) {
    if (failure.text.empty()) std::abort();
  }
  std::remove(path.c_str());
  return 0;
}
