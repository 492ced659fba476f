// SPDX-License-Identifier: Apache-2.0
#include "core/registry/guard.hpp"

#include <fmt/core.h>

#include <clocale>
#include <cstring>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace eng {
namespace {

// The low bits of MXCSR are sticky exception flags that any arithmetic sets: not a change of mode.
uint64_t float_control() {
#if defined(__x86_64__)
  return _mm_getcsr() & ~0x3fu;
#elif defined(__aarch64__)
  uint64_t value;
  __asm__ volatile("mrs %0, fpcr" : "=r"(value));
  return value;
#else
  return 0;
#endif
}

void set_float_control(uint64_t value) {
#if defined(__x86_64__)
  _mm_setcsr(static_cast<unsigned>(value));
#elif defined(__aarch64__)
  __asm__ volatile("msr fpcr, %0" : : "r"(value));
#else
  (void)value;
#endif
}

bool flushes(uint64_t value) {
#if defined(__x86_64__)
  return value & 0x8040u;  // FTZ, DAZ
#elif defined(__aarch64__)
  return value & (1u << 24);  // FZ
#else
  (void)value;
  return false;
#endif
}

const char* signal_name(int signal) {
  return signal == SIGSEGV ? "SIGSEGV" : signal == SIGBUS ? "SIGBUS" : signal == SIGFPE ? "SIGFPE" : "SIGPIPE";
}

bool same_handler(const struct sigaction& a, const struct sigaction& b) {
  return a.sa_flags == b.sa_flags &&
         ((a.sa_flags & SA_SIGINFO) ? a.sa_sigaction == b.sa_sigaction : a.sa_handler == b.sa_handler);
}

std::string current_locale() {
  const char* name = std::setlocale(LC_ALL, nullptr);
  return name ? name : "C";
}

}  // namespace

ProcessGuard::ProcessGuard() : float_control_(float_control()), locale_(current_locale()) {
  for (int k = 0; k < 4; ++k) sigaction(signals_[k], nullptr, &handlers_[k]);
}

std::string ProcessGuard::restore() {
  std::string out;
  const auto add = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  const uint64_t control = float_control();
  if (control != float_control_) {
    set_float_control(float_control_);
    if (flushes(control) && !flushes(float_control_))
      add("it set flush-to-zero, which changes everybody's numbers (linked with -ffast-math?); undone");
    else
      add(fmt::format("it changed the floating-point control word from {:#x} to {:#x}; undone", float_control_,
                      control));
  }
  const std::string locale = current_locale();
  if (locale != locale_) {
    std::setlocale(LC_ALL, locale_.c_str());
    add(fmt::format("it changed the locale from {} to {}; undone", locale_, locale));
  }
  for (int k = 0; k < 4; ++k) {
    struct sigaction now;
    if (sigaction(signals_[k], nullptr, &now) != 0 || same_handler(now, handlers_[k])) continue;
    sigaction(signals_[k], &handlers_[k], nullptr);
    add(fmt::format("it installed a handler for {}; undone", signal_name(signals_[k])));
  }
  return out;
}

}  // namespace eng
