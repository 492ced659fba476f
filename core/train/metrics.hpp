// SPDX-License-Identifier: Apache-2.0
// metrics.jsonl: one JSON object per step, one write(2) per line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

namespace eng {

// What is known of one step. The first group is a pure function of configuration, data and seeds; the second
// depends on the machine and the moment.
struct Metrics {
  int64_t step = 0;
  uint64_t tokens = 0;  // of all steps so far
  double loss = 0;
  double grad_norm = 0;
  double lr = 0;
  double loss_scale = 1;
  std::optional<double> eval_loss;  // of an evaluation right after this step

  double tokens_per_second = 0;
  double mfu = 0;
  double step_seconds = 0;
  struct {
    double data = 0, comm = 0, offload = 0;
  } wait_seconds;
  uint64_t device_peak_bytes = 0;
  uint64_t host_peak_bytes = 0;
};

// One line with its newline. Numbers are the shortest that read back to the same double; what is not finite
// is null.
std::string metrics_line(const Metrics& metrics);

class MetricsFile {
 public:
  // Opens for appending, creating it if need be, after removing every line behind step `keep_through` and
  // whatever a crash tore: a run that goes on writes the same file as one that never stopped.
  // Throws Error(Exit::disk).
  MetricsFile(std::filesystem::path path, int64_t keep_through);
  ~MetricsFile();
  MetricsFile(const MetricsFile&) = delete;
  MetricsFile& operator=(const MetricsFile&) = delete;
  // Throws Error(Exit::disk); a line that could not be written whole is taken back.
  void append(const Metrics& metrics);
  void sync();  // to the disk; before a checkpoint, so that no line before it can be lost

 private:
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace eng
