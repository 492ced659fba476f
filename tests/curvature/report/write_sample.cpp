// SPDX-License-Identifier: Apache-2.0
// write_sample CAIRO FOLDER: files of a sample in FOLDER, and of one with hostile names and gaps in FOLDER/hostile.
// For tools/report-check.
#include <filesystem>
#include <fstream>
#include <iostream>

#include "sample.hpp"

namespace {

bool write_all(const curvature::Results& results, const std::filesystem::path& folder, const std::string& cairo) {
  std::filesystem::create_directories(folder);
  const auto [files, note] = files_of(results, cairo);
  for (const auto& [name, bytes] : files) std::ofstream(folder / name, std::ios::binary) << bytes;
  if (!note.empty()) std::cerr << note << "\n";
  return note.empty();
}

}  // namespace

int main(int n, char** words) {
  if (n != 3) return 2;
  const std::filesystem::path folder = words[2];
  curvature::Results hostile = sample_results(40);
  hostile.tensors[1].name = hostile.tensors[1].block = hostile.sites[0].block = hostile.sites[1].op = hostile_name();
  hostile.settings.emplace_back(hostile_name(), hostile_name());
  hostile.tensors[2].measures = {};
  hostile.tensors[3].measures.magnitude = 0;
  for (auto& response : hostile.response_map.responses) response.perplexity_change.high *= 1e6;
  hostile.embedding.method = "pca", hostile.embedding.silhouette = curvature::none;
  hostile.embedding.silhouette_reason = "there is one cluster";
  return write_all(sample_results(12), folder, words[1]) && write_all(hostile, folder / "hostile", words[1]) ? 0 : 1;
}
