// SPDX-License-Identifier: Apache-2.0
// Objects of a store on the network, below one address. A run knows no more of a store than this.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace eng {

struct Object {
  std::string key;  // below the address: no '/' at its beginning
  uint64_t bytes = 0;
};

// Every request is tried again where another try may help, after longer and longer pauses. Throws Error(environment)
// where the store refuses, Error(communication) where it cannot be reached, and Error(stopped) once `stop` is true.
// Thread: one at a time.
class ObjectStore {
 public:
  virtual ~ObjectStore() = default;
  virtual const std::string& address() const = 0;                  // "s3://bucket/prefix", for messages
  virtual void stop_when(std::function<bool()> stop) = 0;          // asked while it transfers and waits
  virtual std::vector<Object> list(const std::string& below) = 0;  // the keys that begin so, in order
  // The first `bytes` of an open file. What an interrupted call has sent of it is not sent again.
  virtual void put(const std::string& key, int file, uint64_t bytes) = 0;
  virtual void put_text(const std::string& key, const std::string& text) = 0;
  // Throws Error(data) if there is no such object, or if it is longer than `limit` bytes.
  virtual std::string get_text(const std::string& key, uint64_t limit) = 0;
  // Into a file that may have the first bytes of it already. `progress` gets the bytes of the file.
  virtual void get(const Object& object, const std::filesystem::path& file,
                   const std::function<void(uint64_t)>& progress) = 0;
  virtual void remove(const std::string& key) = 0;
  // Removes what calls of `put` have sent of objects that are not there, of those keys below that `unwanted` names.
  virtual void abandon(const std::string& below, const std::function<bool(const std::string& key)>& unwanted) = 0;
};

// True for "s3://bucket/prefix": the address of a store, and not a path.
inline bool is_object_address(const std::string& place) {
  return place.starts_with("s3://");
}

// Opens a store. Whoever gives none cannot use one.
using OpenStore = std::function<std::unique_ptr<ObjectStore>(const std::string& address)>;

}  // namespace eng
