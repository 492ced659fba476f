// SPDX-License-Identifier: Apache-2.0
// Decides which session may run when several live in one process. Plugins are promised that no program runs while one
// of their [setup] or [plan] functions is called (engine/base.h), whichever session calls it.
#pragma once

#include <memory>

namespace eng {

// Held while a session runs programs, or, alone in the process, while it sets up or gives back. A thread holds at most
// one.
class Turn {
 public:
  enum class For { program, setup };
  explicit Turn(For what);
  ~Turn();
  Turn(const Turn&) = delete;
  Turn& operator=(const Turn&) = delete;

  // Destroys something that is given back in [setup]: now, or after the programs that are running. Never waits. Any
  // thread. Once plugins were stopped it is kept instead: there is nobody to give it to.
  static void give_back(std::shared_ptr<const void> what);

 private:
  const For what_;
};

}  // namespace eng
