// SPDX-License-Identifier: Apache-2.0
// Switches by hand on x86-64, by ucontext elsewhere. Never instrumented by ThreadSanitizer.
#include "fiber.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <new>

#ifdef EMU_TSAN
extern "C" {
void* __tsan_get_current_fiber(void);
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
}
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#ifdef __x86_64__
// Saves what a callee must keep on this stack, and goes on with what another stack holds.
extern "C" void emu_switch_stacks(void** save, void* to);
asm(R"(
.text
.type emu_switch_stacks,@function
emu_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size emu_switch_stacks,.-emu_switch_stacks
)");
#endif

namespace emu {
namespace {

#ifdef EMU_ASAN
constexpr size_t stack_bytes = 512 << 10;
#else
constexpr size_t stack_bytes = 128 << 10;
#endif
thread_local Fiber* left = nullptr;  // the fiber that was running before the last switch
thread_local Fiber* entered = nullptr;

}  // namespace

Fiber::Fiber() {
#ifdef EMU_TSAN
  tsan_ = __tsan_get_current_fiber();
#endif
}

Fiber::~Fiber() {
  if (!stack_) return;
  munmap(stack_, stack_bytes);
#ifdef EMU_TSAN
  __tsan_destroy_fiber(tsan_);
#endif
}

void Fiber::start(void (*body)()) {
  if (!stack_) {
    void* memory =
        mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    stack_ = static_cast<char*>(memory);
    mprotect(stack_, 4096, PROT_NONE);  // an endless recursion ends here
    bottom_ = stack_, bytes_ = stack_bytes;
#ifdef EMU_TSAN
    tsan_ = __tsan_create_fiber(0);
#endif
  }
#ifdef EMU_ASAN
  __asan_unpoison_memory_region(stack_ + 4096, stack_bytes - 4096);
#endif
  fake_ = nullptr;
#ifdef __x86_64__
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes - 64);
  *--top = nullptr;  // where `body` would return to
  *--top = reinterpret_cast<void*>(body);
  for (int k = 0; k < 6; ++k) *--top = nullptr;
  at_ = top;
#else
  body_ = body;
  getcontext(&at_);
  at_.uc_stack.ss_sp = stack_;
  at_.uc_stack.ss_size = stack_bytes;
  at_.uc_link = nullptr;
  makecontext(&at_, body_, 0);
#endif
}

void Fiber::enter(Fiber& from, [[maybe_unused]] bool last) {
  left = &from, entered = this;
#ifdef EMU_TSAN
  __tsan_switch_to_fiber(tsan_, 1);  // 1: the switch orders nothing
#endif
#ifdef EMU_ASAN
  __sanitizer_start_switch_fiber(last ? nullptr : &from.fake_, bottom_, bytes_);
#endif
#ifdef __x86_64__
  emu_switch_stacks(&from.at_, at_);
#else
  swapcontext(&from.at_, &at_);
#endif
  // Back in `from`, which somebody has entered again.
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(from.fake_, &left->bottom_, &left->bytes_);
#endif
}

void Fiber::begun() {
#ifdef EMU_ASAN
  __sanitizer_finish_switch_fiber(nullptr, &left->bottom_, &left->bytes_);
#endif
}

}  // namespace emu
