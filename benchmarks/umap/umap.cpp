// SPDX-License-Identifier: Apache-2.0
// Embeds points by the UMAP of plugins/curvature: f64 values from standard input, point by point, coordinates to
// standard output in the same way. benchmarks/umap_trustworthiness.py compares them with umap-learn's.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "plugins/curvature/maths/umap.hpp"

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: %s COLUMNS NEIGHBOURS SEED < POINTS > COORDINATES\n", argv[0]);
    return 2;
  }
  try {
    std::vector<double> values, block(1 << 16);
    while (const size_t count = std::fread(block.data(), sizeof(double), block.size(), stdin))
      values.insert(values.end(), block.begin(), block.begin() + static_cast<std::ptrdiff_t>(count));
    const curvature::maths::Points points(values, std::stoul(argv[1]));
    const auto found = curvature::maths::umap(points, std::stoi(argv[2]), std::stoull(argv[3]));
    if (!found) {
      std::fprintf(stderr, "this build has no UMAP: run tools/umappp-headers, then meson setup --reconfigure\n");
      return 1;
    }
    return std::fwrite(found->data(), sizeof(double), found->size(), stdout) == found->size() ? 0 : 1;
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
