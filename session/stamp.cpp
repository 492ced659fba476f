// SPDX-License-Identifier: Apache-2.0
#include "session/stamp.hpp"

#include <fmt/chrono.h>
#include <unistd.h>

#include <ctime>

namespace eng {

std::string utc_now(bool full) {
  return fmt::format(fmt::runtime(full ? "{:%Y-%m-%dT%H:%M:%SZ}" : "{:%Y%m%d-%H%M%S}"),
                     fmt::gmtime(std::time(nullptr)));
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "?";
}

}  // namespace eng
