// SPDX-License-Identifier: Apache-2.0
// Help for a name of huggingface.co where a file is needed.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

namespace text_data {

// "gpt2" of "gpt2" and of "openai-community/gpt2"; "" for what cannot be a name there: a path of more parts, one in a
// folder that exists, or one with the ending of a file.
inline std::string hub_name(const std::string& what, const std::string& base_dir) {
  const std::filesystem::path path(what);
  const auto plain = [](unsigned char c) { return std::isalnum(c) || c == '.' || c == '_' || c == '-' || c == '/'; };
  const auto letter = [](unsigned char c) { return std::isalpha(c) != 0; };
  if (what.empty() || !std::isalnum(static_cast<unsigned char>(what[0])) || !path.has_filename()) return "";
  if (!std::all_of(what.begin(), what.end(), plain) || std::count(what.begin(), what.end(), '/') > 1) return "";
  const std::string letters = path.extension().string();
  if (letters.size() > 1 && std::all_of(letters.begin() + 1, letters.end(), letter)) return "";
  std::error_code none;
  if (path.has_parent_path() && std::filesystem::exists(base_dir / path.parent_path(), none)) return "";
  return path.filename().string();
}

inline constexpr const char* mirrors =
    "Where huggingface.co cannot be reached, the environment variable HF_ENDPOINT names a mirror, for example "
    "https://hf-mirror.com";

}  // namespace text_data
