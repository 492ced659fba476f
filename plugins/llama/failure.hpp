// SPDX-License-Identifier: Apache-2.0
// Errors inside the plugin are thrown; the boundary turns them into a status and a text.
#pragma once

#include <new>
#include <string>
#include <utility>

#include "engine/base.h"

namespace llama {

struct Failure {
  eng_status code;
  std::string text;  // empty: the host has already written one
};

inline eng_status report(eng_error* error, eng_status code, const std::string& text) noexcept {
  if (error && !text.empty()) error->set(error, code, text.data(), text.size());
  return code;
}

// Runs `body`, lets nothing escape.
template <class Body>
eng_status guarded(eng_error* error, Body&& body) noexcept {
  try {
    return std::forward<Body>(body)();
  } catch (const Failure& failure) {
    return report(error, failure.code, failure.text);
  } catch (const std::bad_alloc&) {
    return error ? (error->set(error, ENG_NO_MEMORY, "out of memory", 13), ENG_NO_MEMORY) : ENG_NO_MEMORY;
  } catch (...) {
    return error ? (error->set(error, ENG_INTERNAL, "unexpected failure", 18), ENG_INTERNAL) : ENG_INTERNAL;
  }
}

}  // namespace llama
