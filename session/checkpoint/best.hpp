// SPDX-License-Identifier: Apache-2.0
// The outcome of a run's evaluations: its best step, and whether it is over because nothing was gained.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "session/config/config.hpp"

namespace eng {

// A function of the evaluations and the configuration alone, so that all ranks agree. It goes into every checkpoint,
// and a resumed run continues it.
class Progression {
 public:
  using Facts = std::map<std::string, std::string>;  // RunPoint::extra

  // `facts`: of the checkpoint from which the run resumes.
  Progression(const Config& config, const Facts& facts);
  // After the evaluation of a step.
  void add(int64_t step, double loss);
  // With checkpoint.best: the step of the lowest loss so far; -1 before the first, and without the key.
  int64_t best() const { return best_.step; }
  // The reason why the run ends before its last step; "" if it goes on.
  std::string over() const;
  // Adds what a resumed run needs.
  void write(Facts& facts) const;

 private:
  struct Point {
    int64_t step = -1;
    double loss = 0;
  };
  static void read(const Facts& facts, const char* name, Point& point);
  static void write(Facts& facts, const char* name, const Point& point);
  const bool keeps_best_;
  const int64_t patience_;  // 0: the run is never over early
  const double min_delta_;
  Point best_, gain_;         // the lowest loss; the last one that was lower than the gain before by min_delta
  int64_t without_gain_ = 0;  // evaluations since then
};

// The step that was the best when a checkpoint with these facts was saved; -1 if nobody asked for it.
int64_t best_step(const Progression::Facts& facts);

}  // namespace eng
