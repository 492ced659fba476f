// SPDX-License-Identifier: Apache-2.0
// A plugin file that is opened once: reading, hashing and loading mean the same file, and only this user and root can
// put another one in its place.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "session/file.hpp"
#include "session/plugins/plugin_file.hpp"

namespace eng {

// The users besides root and this user who can alter a folder or file: "user 1000 (bob)", "group 50 (staff)", "every
// user"; "" if nobody can. The sticky bit does not matter here. `at` is a descriptor of it, O_PATH is enough; its
// access list is read only if its group may write.
std::string others_who_write(const struct stat& info, int at);

class HeldFile final : public PluginFile {
 public:
  HeldFile(Fd fd, const struct stat& info, std::string path)
      : fd_(std::move(fd)), info_(info), path_(std::move(path)) {}
  const std::string& path() const override { return path_; }
  std::string sha256() const override;
  std::string doubt() const override;
  std::string missing() const override;
  ReadAt reader() const {
    return [this](void* out, uint64_t offset, uint64_t bytes) { return read(out, offset, bytes); };
  }
  // Bytes of the file from `offset` on: the number read, less than `bytes` only at the end of the file or on an error.
  uint64_t read(void* out, uint64_t offset, uint64_t bytes) const;

 private:
  Fd fd_;
  struct stat info_;  // when it was opened
  std::string path_;
};

struct Held {
  std::shared_ptr<const HeldFile> file;  // nullptr if there is no regular file that can be read
  std::string refused;                   // why it must not be loaded; "" if it may be
};

// Opens `path`, an absolute path, component by component. Symbolic links are followed one at a time, so that each
// folder that a link lies in or leads through is checked. Refused is a file that another user can write or exchange:
// the file and every folder from / on must belong to root or this user, and be writable by nobody else. A sticky folder
// such as /tmp may be writable, except that the file itself must not lie in it: others could put a library beside it
// that it loads ($ORIGIN).
Held hold(const std::filesystem::path& path);

// The reason why others can put files into a folder with this absolute path, or make the folder if it is not there: a
// folder on the way is not closed to them as for `hold`, or the last one is sticky and open. "" if they cannot.
std::string folder_distrust(const std::string& path);

}  // namespace eng
