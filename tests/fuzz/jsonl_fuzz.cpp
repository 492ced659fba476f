// SPDX-License-Identifier: Apache-2.0
// The JSON Lines reader on arbitrary bytes: it hands out UTF-8 no longer than its input (three times as long
// where U+FFFD replaces bytes) or throws a Failure with a
// short text, and the same whether the bytes come at once or in pieces. Compile with plugins/data/jsonl.cpp.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "plugins/data/failure.hpp"
#include "plugins/data/jsonl.hpp"

namespace {

struct Result {
  std::string documents;  // each ends in a byte that UTF-8 does not have
  std::size_t size = 0;
  std::string error;
  bool operator==(const Result&) const = default;
};

Result parse(std::string_view bytes, std::size_t piece, bool replace, bool skip, const char* field) {
  Result result;
  text_data::JsonlReader reader("input", {field, replace, skip}, [&](std::string_view text) {
    result.size += text.size();
    result.documents.append(text);
    result.documents += '\xff';
  });
  try {
    for (std::size_t at = 0; at < bytes.size(); at += piece) reader.feed(bytes.substr(at, piece));
    reader.finish();
  } catch (const text_data::Failure& failure) {
    result.error = failure.text;
    if (result.error.empty() || result.error.size() > 2000) std::abort();
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::size_t piece = data[0] % 32 + 1;
  const std::string_view bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  const bool skip = data[0] >= 128;
  const char* const field = data[0] % 64 < 32 ? "text" : "a.text";
  for (const bool replace : {false, true}) {
    const Result whole = parse(bytes, bytes.size() + 1, replace, skip, field);
    if (whole.size > bytes.size() * (replace ? 3 : 1)) std::abort();  // U+FFFD has three bytes
    if (!(whole == parse(bytes, piece, replace, skip, field))) std::abort();
  }
  return 0;
}
