// SPDX-License-Identifier: Apache-2.0
// A fiber: a stack of its own, and a switch between stacks in one thread of the system. The sanitizers are told.
#pragma once

#include <cstddef>

#ifndef __x86_64__
#include <ucontext.h>
#endif

namespace emu {

class Fiber {
 public:
  Fiber();  // of the calling thread of the system
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber calls `body` on an empty stack. It must not return.
  void start(void (*body)());
  // Leaves `from`, which is running, and goes on here. `last`: nobody will switch to `from` before it is started anew.
  void enter(Fiber& from, bool last = false);
  // First thing in a body.
  static void begun();

 private:
  char* stack_ = nullptr;
  bool fresh_ = false;
#ifdef __x86_64__
  void* at_ = nullptr;
#else
  ucontext_t at_{};
  void (*body_)() = nullptr;
#endif
  void* tsan_ = nullptr;          // ThreadSanitizer's name of the fiber
  void* fake_ = nullptr;          // AddressSanitizer's fake stack
  const void* bottom_ = nullptr;  // of the stack, for AddressSanitizer
  size_t bytes_ = 0;
};

}  // namespace emu
