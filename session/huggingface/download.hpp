// SPDX-License-Identifier: Apache-2.0
// Help for a model that is named as on huggingface.co.
#pragma once

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <string>

namespace eng {

// The command to type if `directory` does not exist but may be the name of a model, org/name; "" if it cannot be one.
inline std::string download_line(const std::filesystem::path& directory) {
  std::error_code none;
  const std::string name = directory.filename(), owner = directory.parent_path().filename();
  const auto plain = [](const std::string& text) {
    return !text.empty() && text[0] != '.' && std::all_of(text.begin(), text.end(), [](unsigned char c) {
      return std::isalnum(c) || c == '.' || c == '_' || c == '-';
    });
  };
  if (!plain(name) || !plain(owner) || std::filesystem::exists(directory.parent_path(), none)) return "";
  const std::string model = owner + "/" + name;
  return "the engine does not download models. If this is a model on huggingface.co, download it first:\n  pip install "
         "huggingface_hub\n"
         "  hf download " +
         model + " --local-dir " + name +
         "\nand give that directory (older versions: huggingface-cli download ...). Where huggingface.co cannot be "
         "reached, the environment variable HF_ENDPOINT names a mirror, for example https://hf-mirror.com; many models "
         "are also on ModelScope:\n  pip install modelscope\n  modelscope download --model " +
         model + " --local_dir " + name;
}

}  // namespace eng
