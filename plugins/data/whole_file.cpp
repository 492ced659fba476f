// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <system_error>

#include "failure.hpp"
#include "sniff.hpp"
#include "tokenizer.hpp"

namespace text_data {

namespace fs = std::filesystem;

std::string read_whole(const std::string& path) {
  constexpr uintmax_t most = uintmax_t{256} << 20;
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (!fs::exists(status)) throw Failure(ENG_NOT_FOUND, path + ": there is no such file");
  if (!fs::is_regular_file(status)) throw Failure(ENG_INVALID, path + ": is not a regular file");
  const uintmax_t size = fs::file_size(path, error);
  if (!error && size > most)
    throw Failure(ENG_INVALID, path + ": is larger than 256 MiB, the limit for tokenizer files");
  std::ifstream in(path, std::ios::binary);
  std::string text(error ? 0 : size, '\0');
  in.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (error || !in || static_cast<uintmax_t>(in.gcount()) != size)
    throw Failure(ENG_DATA_LOSS, path + ": cannot be read");
  using Kind = Content::Kind;
  const Content found = sniff(std::string_view(text).substr(0, head_bytes), text.size() <= head_bytes);
  if (found.kind != Kind::text && found.kind != Kind::json_lines && found.kind != Kind::json)
    throw Failure(ENG_INVALID, path + ": " + refusal(found, path, ""));
  return text;
}

std::string read_if_there(const std::string& path) {
  std::error_code ignored;
  return fs::is_regular_file(path, ignored) ? read_whole(path) : "";
}

}  // namespace text_data
