// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tokenizer.json, or, cut at the first zero byte, as a vocab.json and its merges.txt: refused with a
// Failure, or a tokenizer whose ids are below its vocabulary. Compile with the tokenizer's parts of plugins/data.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "plugins/data/failure.hpp"
#include "plugins/data/tokenizer.hpp"

namespace {

void write(const std::string& path, const uint8_t* data, size_t size) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) std::abort();
}

struct Folder {
  const std::string path = "/tmp/engine-fuzz-tokenizer-" + std::to_string(getpid());
  Folder() { std::filesystem::create_directories(path); }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Folder folder;
  const auto cut = static_cast<size_t>(std::find(data, data + size, 0) - data);
  const std::string path = folder.path + (cut < size ? "/vocab.json" : "/tokenizer.json");
  write(path, data, cut);
  if (cut < size) write(folder.path + "/merges.txt", data + cut + 1, size - cut - 1);
  try {
    const auto tokenizer = text_data::open_huggingface(path);
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
  return 0;
}
