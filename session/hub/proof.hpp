// SPDX-License-Identifier: Apache-2.0
// The proof that a file has the content that a hub lists: SHA-256, or SHA-1 of git's blob.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "session/hub/listing.hpp"

namespace eng::hub {

class Proof {
 public:
  explicit Proof(const File& file);
  ~Proof();
  Proof(const Proof&) = delete;
  Proof& operator=(const Proof&) = delete;

  void restart();  // from the first byte
  void add(const void* data, uint64_t bytes);
  // Adds the first `bytes` of a file. Throws Error(Exit::disk).
  void add_file(const std::filesystem::path& path, uint64_t bytes);
  uint64_t bytes() const { return bytes_; }
  // After the last byte: "" if size and hash are right, else what is wrong.
  std::string problem();

 private:
  struct Hash;
  const File file_;
  std::unique_ptr<Hash> hash_;
  uint64_t bytes_ = 0;
};

}  // namespace eng::hub
