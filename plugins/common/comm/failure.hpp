// SPDX-License-Identifier: Apache-2.0
// The reason why a rank has given up.
#pragma once

#include <atomic>
#include <mutex>
#include <string>

#include "../error.hpp"

namespace common {

// Any thread may call any of it.
class Failure {
 public:
  explicit operator bool() const { return failed_; }
  // Keeps the first reason.
  void set(const std::string& reason) noexcept {
    const std::lock_guard lock(mutex_);
    if (failed_) return;
    try {
      reason_ = reason;
    } catch (...) {  // fails without a text
    }
    failed_ = true;
  }
  // "" before the first.
  std::string reason() const {
    const std::lock_guard lock(mutex_);
    return reason_;
  }
  [[noreturn]] void raise() const { throw Error{ENG_UNAVAILABLE, reason()}; }
  void check() const {
    if (failed_) raise();
  }

 private:
  mutable std::mutex mutex_;
  std::string reason_;
  std::atomic<bool> failed_{false};
};

}  // namespace common
