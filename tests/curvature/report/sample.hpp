// SPDX-License-Identifier: Apache-2.0
// Results of an analysis that never was: made by formulas, of every kind that there is. For tests of files alone.
#pragma once

#include <string>
#include <vector>

#include "plugins/curvature/report/files.hpp"

// The results of a model with this many layers.
curvature::Results sample_results(int layers);
struct File {
  std::string name, bytes;
};
struct Files {
  std::vector<File> files;
  std::string note;
};
// All files of these results. `cairo`: as of report::make_files.
Files files_of(const curvature::Results& results, const std::string& cairo = "");
// The bytes of the file of this name; "" if there is none.
std::string bytes_of(const Files& files, const std::string& name);
std::string file_of(const curvature::Results& results, const std::string& name, const std::string& cairo = "");
// A name that tries to break JSON, CSV and HTML: quotes, tags, controls, broken UTF-8, 1000 bytes.
std::string hostile_name();
