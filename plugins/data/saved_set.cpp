// SPDX-License-Identifier: Apache-2.0
#include "saved_set.hpp"

#include <filesystem>

#include "input.hpp"
#include "json_reader.hpp"

namespace text_data {
namespace {

namespace fs = std::filesystem;

json small_json(const std::string& path) {
  constexpr uint64_t most = uint64_t{16} << 20;
  const InputFile file(path);
  if (file.size() > most) throw Failure(ENG_INVALID, "[data] " + path + " is larger than 16 MiB");
  std::string text(file.size(), '\0');
  file.read_at(0, text.size(), text.data());
  json found = parse_json(text, "[data] " + path);
  if (!found.is_object()) throw Failure(ENG_INVALID, "[data] " + path + ": is not an object");
  return found;
}

}  // namespace

std::vector<std::string> saved_set(const std::string& folder) {
  const fs::path top = folder, state = top / "state.json", splits = top / "dataset_dict.json";
  std::error_code none;
  if (fs::is_regular_file(splits, none)) {
    std::string names;
    const json all = small_json(splits.string());
    for (const json& name : all.value("splits", json::array()))
      if (name.is_string()) names += (names.empty() ? "" : ", ") + printable(name.get<std::string>());
    throw Failure(ENG_INVALID, "[data] " + folder + " is a data set with the splits " + names +
                                   ": name the folder of one, and that of another in validation_paths");
  }
  if (!fs::is_regular_file(state, none)) return {};
  const json all = small_json(state.string());
  const auto files = all.find("_data_files");
  if (files == all.end() || !files->is_array()) return {};
  const auto indices = all.find("_indices_data_files");
  if (indices != all.end() && indices->is_array() && !indices->empty())
    throw Failure(ENG_UNSUPPORTED,
                  "[data] " + folder +
                      ": the order of its rows is in a file of indices, which is not read: write it anew "
                      "with flatten_indices().save_to_disk of a current version of datasets");
  std::vector<std::string> found;
  for (const json& file : *files) {
    const std::string name =
        file.is_object()
            ? file.value("filename", json()).is_string() ? file["filename"].get<std::string>() : std::string()
            : std::string();
    if (name.empty() || name.find('/') != name.npos || !fs::is_regular_file(top / name, none))
      throw Failure(ENG_DATA_LOSS, "[data] " + state.string() + " names the file " +
                                       printable(name.empty() ? "?" : name) +
                                       ", which is not in the folder: copy the folder again");
    found.push_back((top / name).string());
  }
  if (found.empty()) throw Failure(ENG_INVALID, "[data] " + folder + " is a data set without rows");
  return found;
}

}  // namespace text_data
