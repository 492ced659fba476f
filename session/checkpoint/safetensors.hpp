// SPDX-License-Identifier: Apache-2.0
// The safetensors container: 8 bytes of header length (little endian), a JSON header, then the tensors' bytes
// without holes. Reading checks every offset before it is used.
#pragma once

#include <map>
#include <vector>

#include "session/file.hpp"

namespace eng {

struct StoredTensor {
  std::string name;
  int32_t dtype = 0;
  std::vector<int64_t> shape;
  uint64_t begin = 0, end = 0;  // bytes after the header
  uint64_t count() const;       // elements
};

struct SafetensorsHeader {
  std::vector<StoredTensor> tensors;  // in file order
  uint64_t data_start = 0;            // position in the file of byte 0 of `begin`
  uint64_t data_bytes = 0;
};

// Elements of a shape. Throws Error(Exit::checkpoint), prefixed by `where`, for a negative or overflowing one.
uint64_t element_count(const std::vector<int64_t>& shape, const std::string& where);

// The header's length, from the first 8 bytes of a file of `file_bytes`. Throws Error(Exit::checkpoint).
uint64_t safetensors_header_length(const unsigned char first[8], uint64_t file_bytes, const std::string& where);
// `json` is the header without its length. Throws Error(Exit::checkpoint) naming `where`, the tensor and what is
// wrong with it.
SafetensorsHeader parse_safetensors_header(const char* json, uint64_t length, uint64_t file_bytes,
                                           const std::string& where);

// The checksum of all bytes before the data, which are read a piece at a time. Throws Error(Exit::checkpoint).
std::string header_checksum(const FileReader& file);

// Length, JSON and padding to a multiple of 8, for tensors one after the other in the given order; fills in `begin` and
// `end`.
std::string safetensors_header(std::vector<StoredTensor>& tensors, const std::map<std::string, std::string>& metadata);

class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::filesystem::path& path);
  const SafetensorsHeader& header() const { return header_; }
  const std::vector<StoredTensor>& tensors() const { return header_.tensors; }
  const std::string& header_text() const { return text_; }  // all bytes before the data
  uint64_t size() const { return file_.size(); }
  const std::filesystem::path& path() const { return file_.path(); }
  const StoredTensor* find(const std::string& name) const;
  // Elements [first, first + count). Throws Error(Exit::checkpoint).
  void read(const StoredTensor& tensor, uint64_t first, uint64_t count, void* out) const;
  void release() { file_.release(); }

 private:
  FileReader file_;
  std::string text_;
  SafetensorsHeader header_;
  std::map<std::string, size_t> index_;
};

}  // namespace eng
