// SPDX-License-Identifier: Apache-2.0
// The folder that a repository is downloaded into, and its record: which commit, which files, which hashes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "session/held_folder.hpp"
#include "session/hub/listing.hpp"

namespace eng::hub {

class Store {
 public:
  // Makes the folder if it is not there, and holds it against other commands of this kind. Throws Error(Exit::disk,
  // usage), also if the folder is of another repository.
  Store(const std::filesystem::path& root, const Place& place);
  const HeldFolder& root() const { return root_; }
  // The folder of a file, made if it is not there. No symbolic link below the root is followed.
  HeldFolder folder_of(const std::string& path) const;
  // True if the file is there with the listed content; it is read unless the record knows it. Throws
  // Error(Exit::usage) if another file is there that no download made.
  bool has(const File& file, const std::string& commit);
  // The bytes that are there of a file of this content; 0 if there are none.
  uint64_t part_bytes(const File& file, const std::string& commit) const;
  std::string part_etag(const File& file) const;
  // The part is of this content, with this ETag.
  void begin_part(const File& file, const std::string& commit, const std::string& etag);
  void drop_part(const File& file);
  // The whole part takes the file's name.
  void finish(const File& file, const std::string& commit);
  // The names of files of other commits that this listing does not have.
  std::vector<std::string> left_over(const Listing& listing) const;
  // Writes the record.
  void save(const std::string& commit);

 private:
  struct Kept {
    uint64_t size = 0;
    int64_t modified = 0;  // nanoseconds
    std::string content, commit;
  };
  struct Part {
    std::string content, etag;
  };
  void load();
  Place place_;
  HeldFolder root_;
  std::string commit_;
  std::map<std::string, Kept> files_;
  std::map<std::string, Part> parts_;
};

// The file name of a path, and the one of its part.
std::string name_of(const std::string& path);
std::string part_of(const std::string& path);

}  // namespace eng::hub
