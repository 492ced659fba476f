// SPDX-License-Identifier: Apache-2.0
// Observers that are asked between steps (eng_observer.after_step), and what they ask for.
#pragma once

#include <string>

#include "session/train/observer_texts.hpp"

namespace eng {

class Listener;

class AfterStep {
 public:
  // Borrows both. `steps`: of the run.
  AfterStep(Trainer& trainer, Listener& listener, int64_t steps);

  struct Asked {
    bool save = false;      // a checkpoint of this step
    std::string stop = {};  // why the run ends; "": it goes on
  };
  // After a step. All ranks call it: rank 0 asks the observers in their order, and every rank gets the same answer.
  // Throws the same Error on all ranks if an observer fails.
  Asked ask(const Metrics& metrics);

 private:
  Asked ask_all(const Metrics& metrics);
  void call_weights();
  Trainer& trainer_;
  Listener& listener_;
  const int64_t steps_;
  const bool any_;
  ObserverTexts texts_;
};

}  // namespace eng
