// SPDX-License-Identifier: Apache-2.0
// The log of a rank, in the directory of its run.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace eng {

inline constexpr const char* logs_folder = "logs";
// The name of a rank's log in that folder.
std::string log_name(uint32_t rank);
// Appends the time and the text to a rank's log, if that is a regular file. Never throws, because errors are reported
// with it.
void log_line(const std::filesystem::path& run, uint32_t rank, const std::string& text) noexcept;

}  // namespace eng
