// SPDX-License-Identifier: Apache-2.0
// A host for one data source: loads the plugin, hands it options, reads samples.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/data.h"
#include "engine/documents.h"
#include "engine/plugin.h"

namespace data_test {

// A folder of its own, removed in the end.
class Folder {
 public:
  Folder();
  explicit Folder(const std::filesystem::path& root);
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder();
  const std::filesystem::path& path() const { return path_; }
  // Writes a file, with its folders, and returns its path.
  std::string write(const std::string& name, const std::string& text) const;

 private:
  std::filesystem::path path_;
};

// The [data] section; the defaults are those of the plugin's description.
struct Settings {
  std::vector<std::string> paths = {};
  std::map<std::string, std::string> strings = {};
  std::map<std::string, double> numbers = {};
  uint64_t seed = 1;
  int64_t length = 4;
  int64_t vocabulary = 256;
  std::string source = "text";
  std::set<std::string> given = {};  // filled by Opening
  std::vector<std::string> validation_paths = {};
};

std::string gzip(const std::string& text);
std::string zstd(const std::string& text);

// The lines that the plugin logged since the last call.
std::string logged();

// The extension eng.formats/1 of this host; nullptr: it has none.
extern const eng_formats* host_formats;

const eng_plugin& plugin();
const eng_data& table(const std::string& source);

// The arguments with which a host opens a source.
struct Opening {
  Opening(const Folder& folder, const Settings& settings);
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  Settings settings;
  std::string base;
  eng_options options{};
  eng_field fields[5];
  eng_data_request request{};
};

struct Sample {
  std::vector<int32_t> tokens, labels, segments = {}, positions = {};  // the last two where documents are packed
  std::vector<float> weights = {};                                     // loss_weights, where there are some
  bool operator==(const Sample& other) const = default;
};

// An open source, or the error that opening it gave.
class Source {
 public:
  Source(const Folder& folder, const Settings& settings);
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;
  ~Source();

  eng_status status() const { return status_; }
  const std::string& error() const { return error_; }
  const eng_data_info& info() const { return info_; }
  uint64_t samples(int split) const { return split == 0 ? info_.train_samples : info_.validation_samples; }

  // Reads into buffers of this object.
  eng_status try_read(int split, uint64_t position);
  // Reads a sample, and fails the test on an error.
  const Sample& read(int split, uint64_t position);
  // All tokens in order, if there is no held-out part: tokens of each window, then the last label.
  std::vector<int32_t> tokens();
  std::string text();  // of bytes
  const Sample& sample() const { return sample_; }

 private:
  static void set(eng_error* self, eng_status code, const char* text, uint64_t length);

  const eng_data& table_;
  void* self_ = nullptr;
  eng_status status_ = ENG_OK;
  std::string error_;
  eng_error sink_{};
  eng_data_info info_{};
  std::vector<std::string> fields_;  // that are read
  Sample sample_;
};

// The first `size` bytes of a text in which every pair of bytes occurs once: a window tells where it was taken.
std::string pairs(std::size_t size);
// The position in `pairs` of the window that begins with these two bytes.
uint64_t place(int32_t first, int32_t second);

}  // namespace data_test
