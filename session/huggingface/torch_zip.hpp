// SPDX-License-Identifier: Apache-2.0
// The archive that torch.save writes since PyTorch 1.6: a zip file whose entries are stored, not compressed. The
// central directory says where they are; every offset is checked before it is used.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>

namespace eng {

// Reads bytes [offset, offset + bytes) of a file; called only for bytes that the file has.
using ReadAt = std::function<void(void* out, uint64_t offset, uint64_t bytes)>;

struct ZipEntry {
  uint64_t begin = 0, bytes = 0;  // of its content, in the file
};

// The entries of an archive of `file_bytes`, by name. Each lies in front of the central directory, and no two share a
// byte. Throws Error(Exit::checkpoint), prefixed by `where`, for anything else: also for an archive that is compressed,
// encrypted, or has bytes after its end.
std::map<std::string, ZipEntry> read_stored_zip(uint64_t file_bytes, const ReadAt& read, const std::string& where);

}  // namespace eng
