// SPDX-License-Identifier: Apache-2.0
// Linked into an `engine` of the tests' own: a rank dies by SIGKILL at one call that changes the disk. The file
// `kill-at` in the working directory says which: CALL PATH NUMBER, where CALL is write, sync, rename or renamed (it is
// done), and what is written, or renamed, has PATH in its name. Who dies leaves `killed`; with that file there nobody
// does. With `stall-at` in place of `kill-at`, the call takes ten minutes.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "session/file.hpp"

namespace {

namespace fs = std::filesystem;

struct Aim {
  std::string call, path;
  int number = 0;
  bool stalls = false;
};
Aim aim;
std::atomic<int> seen = 0;
eng::FileCalls real;

std::string name_of(int fd) {
  std::error_code none;
  return fs::read_symlink("/proc/self/fd/" + std::to_string(fd), none);
}

// The place behind a path in a held folder, /proc/self/fd/N/NAME.
std::string place_of(const fs::path& path) {
  std::error_code none;
  return fs::canonical(path.parent_path(), none) / path.filename();
}

void maybe_die(const char* call, const std::string& path) {
  if (call != aim.call || path.find(aim.path) == std::string::npos || ++seen != aim.number) return;
  if (aim.stalls) {
    ::sleep(600);
    return;
  }
  const nlohmann::json json{
      {"where", call}, {"path", path}, {"process", ::getpid()}, {"own_thread", ::gettid() != ::getpid()}};
  const std::string text = json.dump() + "\n";
  const eng::Fd file(::open("killed", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (file >= 0 && ::write(file, text.data(), text.size()) > 0) ::kill(::getpid(), SIGKILL);
}

const bool armed = [] {
  std::ifstream in("kill-at");
  if (!in) {
    aim.stalls = true;
    in.open("stall-at");
  }
  if (!(in >> aim.call >> aim.path >> aim.number)) return false;
  real = eng::file_calls();
  eng::file_calls() = {[](int fd, const void* data, size_t bytes) {
                         maybe_die("write", name_of(fd));
                         return real.write(fd, data, bytes);
                       },
                       [](int fd) {
                         maybe_die("sync", name_of(fd));
                         return real.sync(fd);
                       },
                       [](const char* from, const char* to) {
                         const std::string place = place_of(from);
                         maybe_die("rename", place);
                         const int failed = real.rename(from, to);
                         if (!failed) maybe_die("renamed", place);
                         return failed;
                       }};
  return true;
}();

}  // namespace
