// SPDX-License-Identifier: Apache-2.0
// Any bytes as a tekken.json if they begin with `{`, else, cut at the first zero byte, as a pattern and the lines of a
// file of tiktoken behind the 256 bytes: refused with a Failure, or a tokenizer whose ids are below its vocabulary.
// Compile with the tokenizer's parts of plugins/data.
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "plugins/data/failure.hpp"
#include "plugins/data/tokenizer.hpp"

namespace {

void write(const std::string& path, const std::string& text) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(text.data(), 1, text.size(), file) != text.size() || std::fclose(file) != 0)
    std::abort();
}

struct Scratch {
  const std::string path = "/tmp/engine-fuzz-ranks-" + std::to_string(getpid());
  Scratch() { std::filesystem::create_directories(path); }
  ~Scratch() { std::filesystem::remove_all(path); }
};

// The lines of single bytes, in base64.
std::string byte_lines() {
  const char* const digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (unsigned byte = 0; byte < 256; ++byte) {
    out += {digits[byte >> 2], digits[(byte & 3) << 4], '=', '=', ' '};
    out += std::to_string(byte) + "\n";
  }
  return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Scratch scratch;
  static const std::string bytes = byte_lines();
  const std::string all(reinterpret_cast<const char*>(data), size);
  const bool tekken = !all.empty() && all[0] == '{';
  const std::string path = scratch.path + (tekken ? "/tekken.json" : "/x.tiktoken");
  const size_t cut = std::min(all.find('\0'), size);
  const nlohmann::json config = {{"pat_str", all.substr(0, cut)}};
  write(path, tekken ? all : bytes + all.substr(std::min(cut + 1, size)));
  const std::string text = config.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
  write(scratch.path + "/tokenizer_config.json", tekken ? "{}" : text);
  try {
    const auto tokenizer = tekken ? text_data::open_tekken(path) : text_data::open_tiktoken(path);
    std::vector<int32_t> ids = tokenizer->prefix();
    tokenizer->encode(all, ids);
    tokenizer->encode("It's 1234 caf\xc3\xa9s,  e\xcc\x81\n\n \xff end", ids);
    std::string decoded;
    for (const int32_t id : ids) {
      if (id < 0 || id >= tokenizer->info().vocabulary) std::abort();
      tokenizer->decode(id, decoded);
    }
  } catch (const text_data::Failure& failure) {
    if (failure.text.empty()) std::abort();
  }
  return 0;
}
