// SPDX-License-Identifier: Apache-2.0
#include "session/embed/turn.hpp"

#include <mutex>
#include <shared_mutex>
#include <vector>

#include "core/registry/registry.hpp"

namespace eng {
namespace {

// Never destroyed: deleters of tensors may run after static destructors.
struct Turns {
  std::mutex gate;  // whoever waits to set up keeps new programs out
  std::shared_mutex programs;
  std::mutex mutex;
  std::vector<std::shared_ptr<const void>> waiting;  // to be destroyed
};
Turns& turns = *new Turns;
thread_local bool mine = false;  // this thread holds a turn

std::vector<std::shared_ptr<const void>> take_waiting() {
  const std::lock_guard lock(turns.mutex);
  return std::exchange(turns.waiting, {});
}

// While no program runs.
void destroy_waiting() {
  for (auto all = take_waiting(); !all.empty(); all = take_waiting())
    if (plugins_stopped()) new auto(std::move(all));
}

bool any_waiting() {
  const std::lock_guard lock(turns.mutex);
  return !turns.waiting.empty();
}

// If a program runs, whoever ends it comes here.
void sweep() {
  while (any_waiting() && turns.programs.try_lock()) {
    mine = true;
    destroy_waiting();
    mine = false;
    turns.programs.unlock();
  }
}

}  // namespace

Turn::Turn(For what) : what_(what) {
  const std::lock_guard lock(turns.gate);
  if (what == For::setup)
    turns.programs.lock();
  else
    turns.programs.lock_shared();
  mine = true;
}

Turn::~Turn() {
  if (what_ == For::setup) {
    destroy_waiting();
    turns.programs.unlock();
  } else {
    turns.programs.unlock_shared();
  }
  mine = false;
  sweep();
}

void Turn::give_back(std::shared_ptr<const void> what) {
  {
    const std::lock_guard lock(turns.mutex);
    turns.waiting.push_back(std::move(what));
  }
  if (!mine) sweep();
}

}  // namespace eng
