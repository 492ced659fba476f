// SPDX-License-Identifier: Apache-2.0
// Any bytes as a file of tokens, or as Megatron's index of one: refused with a Failure, or all tokens lie inside the
// file and are ids, and documents begin at them in order. The first byte chooses. Compile with the parts of
// plugins/data that read files of tokens.
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "plugins/data/documents.hpp"
#include "plugins/data/failure.hpp"
#include "plugins/data/token_file.hpp"

namespace {

void write(const std::string& path, const uint8_t* data, size_t size) {
  FILE* file = std::fopen(path.c_str(), "wb");
  if (file == nullptr || std::fwrite(data, 1, size, file) != size || std::fclose(file) != 0) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string name = "/tmp/engine-fuzz-tokens-" + std::to_string(getpid());
  if (size < 2) return 0;
  const std::string bin = name + ".bin", index = name + ".idx";
  // The second byte says how much of the rest is the .bin beside the index.
  const bool with_index = (data[0] & 1) != 0;
  const size_t tokens = with_index ? data[1] % (size - 1) : size - 2;
  write(bin, data + 2, tokens < size - 2 ? tokens : size - 2);
  std::remove(index.c_str());
  if (with_index)
    write(index, data + 2 + (tokens < size - 2 ? tokens : size - 2),
          size - 2 - (tokens < size - 2 ? tokens : size - 2));
  try {
    static constexpr const char* dtypes[] = {"auto", "uint8", "uint16", "int16", "uint32", "int32", "uint64", "int64"};
    text_data::TokenFile file = text_data::open_token_file(bin, dtypes[data[0] >> 1 & 7], 50257);
    const uint64_t held = text_data::InputFile(file.path).size();
    if (file.offset > held || file.tokens > (held - file.offset) / file.width) std::abort();
    text_data::scan(file, 50257);
    if (file.largest >= 50257) std::abort();
    if (text_data::describe(file, true).empty()) std::abort();
    std::vector<uint64_t> starts;
    text_data::add_documents(file, data[1], 100, starts);
    for (std::size_t i = 0; i < starts.size(); ++i)
      if (starts[i] < (i ? starts[i - 1] : 100) || starts[i] > 100 + file.tokens) std::abort();
    std::vector<text_data::WeightFrom> weights;
    text_data::add_weights(file, weights);
    for (const text_data::WeightFrom& from : weights)
      if (from.token >= file.tokens || !(from.weight >= 0)) std::abort();
  } catch (const text_data::Failure& failure) {
    if (failure.text.empty()) std::abort();
  }
  std::remove(bin.c_str());
  std::remove(index.c_str());
  return 0;
}
