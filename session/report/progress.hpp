// SPDX-License-Identifier: Apache-2.0
// The progress of a run: a live line on a terminal, plain lines in a pipe.
#pragma once

#include <cstdint>
#include <string>

#include "session/report/outlet.hpp"
#include "session/train/training.hpp"

namespace eng {

// The look of a run on a descriptor.
struct Look {
  bool terminal = false;  // one line is drawn over: a terminal, but for TERM=dumb
  bool colour = false;    // and NO_COLOR is not set
};
Look look_of(int fd);

// Numbers that are not finite are printed as "-"; mfu is left out where the peak of the device is unknown.
// step 50/300 loss: 6.1034 lr: 1.00e-04 grad_norm: 1.87 tok/s: 3610 mfu: 39.3% mem: 1.2GiB wait: 0% left: 18h05m
// with `gpu: 96% 78C 352W 40.1GiB` before `wait:` if the device tells it.
std::string step_text(const Metrics& metrics, int64_t steps, double seconds_left);
// Like step_text, for a line of at most `columns` characters that is drawn over: with a bar, as far as there is room.
// step 50/300 [==>            ] loss: 6.1034 lr: ...
// `gpu:` is left out where the line would be too long with it.
std::string live_text(std::string text, int64_t step, int64_t steps, size_t columns, bool colour);
// Begins with another word than a step's line. Every line with the word loss matches `step (\d+)` and
// `loss: (\d+\.\d+)`: scripts that look for the word take both for granted.
// eval step 100  loss: 3.1187  ppl 22.62  (245000 tokens, 21s)
std::string eval_text(int64_t step, const Evaluation& evaluation);
// saved step-00000100  34.6GiB in 41s  best
std::string saved_text(const Saved& saved);
// 0.4s 45s 12m05s 18h05m 3d04h
std::string duration_text(double seconds);
// 512B 1.2GiB
std::string size_text(uint64_t bytes);

class Progress final : public Listener {
 public:
  // `fd`: what `out` writes to; the width of a terminal is asked there. `every`: a plain line every this many of
  // `steps`, and always for the first and the last.
  Progress(Outlet& out, int fd, const Look& look, int64_t every, int64_t steps);
  ~Progress() override;  // leaves the cursor on a fresh line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void step(const Metrics& metrics, double seconds_left) override;
  void evaluated(int64_t step, const Evaluation& evaluation) override;
  void alert(int64_t step, const std::string& text) override;
  void saving() override {}
  void saved(const Saved& saved) override;
  void line(const std::string& text);  // any other whole line, above the live one
  void finish();                       // the live line stays, and later output goes below it

 private:
  Outlet& out_;
  int fd_;
  Look look_;
  int64_t every_, steps_;
  bool first_ = true;
  std::optional<DeviceUse> use_;  // what was reported last
  std::string live_;              // the text on the terminal's last line
};

}  // namespace eng
