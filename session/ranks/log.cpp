// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/log.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include "session/config/failure.hpp"
#include "session/held_folder.hpp"
#include "session/stamp.hpp"

namespace eng {

std::string log_name(uint32_t rank) {
  return fmt::format("rank-{:05}.log", rank);
}

void log_line(const std::filesystem::path& run, uint32_t rank, const std::string& text) noexcept try {
  const HeldFolder logs(HeldFolder(run), logs_folder);
  const Fd fd = open_regular(logs.inside() / log_name(rank), O_WRONLY | O_CREAT | O_APPEND);
  const std::string line = utc_now(true) + " " + for_terminal(text) + "\n";
  [[maybe_unused]] const ssize_t written = ::write(fd, line.data(), line.size());
} catch (...) {  // there is no place left to report it
}

}  // namespace eng
