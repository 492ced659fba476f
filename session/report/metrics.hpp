// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl in the directory of a run: one JSON object per step.
#pragma once

#include <cstdint>
#include <filesystem>
#include <streambuf>
#include <string>

#include "session/file.hpp"
#include "session/train/trainer.hpp"

namespace eng {

// Reads a line of metrics.jsonl, and says what is after it; none: it is longer than any line may be, and cut.
constexpr size_t longest_metrics_line = 16 << 20;
enum class LineEnd { newline, file, none };
LineEnd read_line(std::streambuf& from, std::string& line);

// One line with its newline. Numbers read back to the same double; a value that is not finite is null.
std::string metrics_line(const Metrics& metrics, int64_t attempt = 1);

class MetricsFile {
 public:
  // Opens for appending, and creates the file if necessary. First removes every line after step `keep_through` and an
  // incomplete line after a crash, so that a resumed run writes the same numbers as an uninterrupted one. `attempt`: of
  // the lines to come.
  // Throws Error(Exit::disk).
  MetricsFile(std::filesystem::path path, int64_t keep_through, int64_t attempt = 1);
  // Throws Error(Exit::disk); a line that could not be written completely is removed.
  void append(const Metrics& metrics);
  void sync();  // to the disk; before a checkpoint, so that no line before it can be lost

 private:
  std::filesystem::path path_;
  int64_t attempt_;
  Fd fd_;
};

}  // namespace eng
