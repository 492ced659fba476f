// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/loopback.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>

#include "core/base/error.hpp"

namespace eng {
namespace {

constexpr unsigned char library[] = {
#include <loopback.inc>
};

}  // namespace

Fd loopback_library() {
  Fd out(::memfd_create("engine-loopback", MFD_CLOEXEC));
  for (size_t done = 0; out >= 0 && done < sizeof(library);) {
    const ssize_t n = ::write(out, library + done, sizeof(library) - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += static_cast<size_t>(n);
    if (done == sizeof(library)) return out;
  }
  throw Error(Exit::environment, fmt::format("cannot make a file in memory: {}", std::strerror(errno)));
}

void preload_loopback(int library) {
  ::fcntl(library, F_SETFD, 0);
  const char* others = std::getenv("LD_PRELOAD");
  const std::string mine = fmt::format("/proc/self/fd/{}", library);
  ::setenv("LD_PRELOAD", others && *others ? (mine + ":" + others).c_str() : mine.c_str(), 1);
}

}  // namespace eng
