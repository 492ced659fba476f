// SPDX-License-Identifier: Apache-2.0
// What people see while a run goes on: a live line on a terminal, plain lines in a pipe.
#pragma once

#include <cstdint>
#include <string>

namespace eng {

// Numbers that are not finite are printed as "-".
struct StepLine {
  int64_t step = 0, steps = 0;
  double loss = 0, lr = 0, grad_norm = 0;
  double tokens_per_second = 0;
  double mfu = 0;           // of 1
  uint64_t memory = 0;      // peak bytes, device or host
  double wait = 0;          // of 1: data, communication and offload waits in the step's time
  double seconds_left = 0;  // estimated
};

// step 50/300 loss: 6.1034 lr: 1.00e-04 grad_norm: 1.87 tok/s: 3610 mfu: 39.3% mem: 1.2GiB wait: 0% left: 18h05m
std::string step_text(const StepLine& line);
// These do not match `step (\d+)` or `loss: (\d+\.\d+)`, so that people's expressions find training steps only.
// eval @100  loss 3.1187  ppl 22.62  (245000 tokens, 21s)
std::string eval_text(int64_t step, double loss, uint64_t tokens, double seconds);
// saved step-00000100  34.6GiB in 41s
std::string saved_text(const std::string& name, uint64_t bytes, double seconds);
// 0.4s 45s 12m05s 18h05m 3d04h
std::string duration_text(double seconds);
// 512B 1.2GiB
std::string size_text(uint64_t bytes);

class Progress {
 public:
  // `every`: a plain line each so many steps; the first and last always.
  Progress(int fd, bool terminal, int64_t every);
  ~Progress();  // leaves the cursor on a fresh line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const StepLine& line);
  void line(const std::string& text);  // any other whole line, above the live one

 private:
  void put(const std::string& text) const;
  int fd_;
  bool terminal_;
  int64_t every_;
  bool first_ = true;
  std::string live_;  // what stands on the terminal's last line
};

}  // namespace eng
