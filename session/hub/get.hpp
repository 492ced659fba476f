// SPDX-License-Identifier: Apache-2.0
// Downloads the files of a repository into a folder: engine model get, engine data get.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "session/hub/client.hpp"
#include "session/hub/listing.hpp"

namespace eng::hub {

struct Wish {
  Place place;
  Choice choice;
  std::filesystem::path to;
  std::string token;
  double pause = 1;  // seconds before the second try of a download that failed
};

struct Progress {
  std::string file;
  size_t number = 0, files = 0;  // the file, from 1, of those that are not there yet
  uint64_t done = 0, all = 0;    // bytes of all of them, as far as sizes are known
};

struct Watch {
  std::function<void(const Progress&)> progress;
  std::function<void(const std::string&)> note;  // a line for the user
};

struct Got {
  struct One {
    File file;
    bool downloaded;
  };
  std::string commit;
  std::vector<One> files;
  uint64_t bytes = 0;  // downloaded by this call
};

// Files that are there with the right content are left alone, and parts of files are continued. A file has its name
// once it is whole and its hash is right. Throws Error.
Got get(const Wish& wish, Transport& transport, const Watch& watch);

}  // namespace eng::hub
