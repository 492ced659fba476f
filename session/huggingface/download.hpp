// SPDX-License-Identifier: Apache-2.0
// Help for a model that is named as on huggingface.co.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

#include "session/shell.hpp"

namespace eng {

// The command to type if `directory` does not exist but may be the name of a model, org/name; "" if it cannot be one.
inline std::string download_line(const std::filesystem::path& directory) {
  namespace fs = std::filesystem;
  std::error_code none;
  const std::string name = directory.filename(), owner = directory.parent_path().filename();
  const auto plain = [](const std::string& text) {
    return !text.empty() && text[0] != '.' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '.' || c == '_' || c == '-';
    });
  };
  // The folder of the owner is not there, or has a model of the owner that was downloaded.
  bool may = !fs::exists(directory.parent_path(), none);
  for (const fs::directory_entry& entry : fs::directory_iterator(directory.parent_path(), none))
    may = may || fs::exists(entry.path() / ".engine-hub.json", none);
  if (!plain(name) || !plain(owner) || !may) return "";
  const std::string model = owner + "/" + name;
  const bool here = fs::absolute(directory, none).lexically_normal() == fs::current_path(none) / owner / name;
  return "no run downloads models. If this is a model on huggingface.co, download it first:\n  engine model get " +
         model + (here ? "" : " --to " + shell_word(directory.string())) +
         "\nor, with Python's package huggingface_hub,\n  hf download " + model + " --local-dir " +
         shell_word(here ? model : directory.string()) +
         "\nWhere huggingface.co cannot be reached, the environment variable HF_ENDPOINT names a mirror, for example "
         "https://hf-mirror.com; many models are also on ModelScope:\n  pip install modelscope\n  modelscope download "
         "--model " +
         model + " --local_dir " + shell_word(here ? model : directory.string());
}

}  // namespace eng
