// SPDX-License-Identifier: Apache-2.0
// The goldens of tools/goldens/curvature.py, and how tests compare with them.
#pragma once

#include <catch2/catch.hpp>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace curvature::test {

// The list `key` of the file `name`.
inline std::vector<nlohmann::json> golden(const std::string& name, const std::string& key) {
  const auto path = std::filesystem::path(ENGINE_SOURCE_DIR) / "tests/curvature/golden" / (name + ".json");
  return nlohmann::json::parse(std::ifstream(path)).at(key);
}

// The largest difference of two lists, each divided by `scale`; infinite for lists of different lengths.
inline double apart(const std::vector<double>& a, const std::vector<double>& b, double scale = 1) {
  if (a.size() != b.size()) return INFINITY;
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i)
    most = std::fmax(most, std::isfinite(a[i]) ? std::abs(a[i] - b[i]) / scale : INFINITY);
  return most;
}

// The text with which `body` refuses its input; empty if it does not.
template <class Body>
std::string refused(Body&& body) {
  try {
    body();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

}  // namespace curvature::test
