// SPDX-License-Identifier: Apache-2.0
// This process, and those that it starts, in a control group of its own, if the system permits that.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace cli {

class Group {
 public:
  // A file of the group and what to write into it.
  struct Limit {
    std::string file, text;
  };
  // `controller`: "memory". Its limit in version 1 and in version 2.
  Group(const std::string& controller, const Limit& first, const Limit& second) {
    std::ifstream groups("/proc/self/cgroup");
    for (std::string line; std::getline(groups, line);) {
      const size_t one = line.find(':'), two = line.find(':', one + 1);
      if (two == std::string::npos) continue;
      const std::string controllers = line.substr(one + 1, two - one - 1);
      if (!controllers.empty() && ("," + controllers + ",").find("," + controller + ",") == std::string::npos) continue;
      const Limit& limit = controllers.empty() ? second : first;
      const std::filesystem::path own =
          "/sys/fs/cgroup/" + (controllers.empty() ? "" : controller) + line.substr(two + 1);
      path_ = own / ("engine-test-" + std::to_string(getpid()));
      std::error_code failed;
      if (std::filesystem::create_directory(path_, failed) && write(path_ / limit.file, limit.text) &&
          write(path_ / "cgroup.procs", std::to_string(getpid()))) {
        home_ = own;
        return;
      }
      std::filesystem::remove(path_, failed);
    }
  }
  ~Group() {
    if (!there()) return;
    write(home_ / "cgroup.procs", std::to_string(getpid()));
    std::error_code failed;
    std::filesystem::remove(path_, failed);
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  bool there() const { return !home_.empty(); }
  std::string name() const { return path_.filename(); }

 private:
  static bool write(const std::filesystem::path& to, const std::string& text) {
    const int file = open(to.c_str(), O_WRONLY | O_CLOEXEC);
    const bool good = file >= 0 && ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    if (file >= 0) close(file);
    return good;
  }
  std::filesystem::path path_, home_;
};

}  // namespace cli
