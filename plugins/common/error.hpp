// SPDX-License-Identifier: Apache-2.0
// Errors of a plugin in C++: it throws Error, and `guarded` turns that into a status and a text at the C boundary. No
// exception leaves a function of the ABI.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "engine/base.h"

namespace common {

struct Error {
  Error(eng_status why, std::string message) : status(why), text(std::move(message)) {}
  eng_status status;
  std::string text;  // empty: the host has already written one
};

// Gives the host the text. Returns `status`, so that a function can return the call.
inline eng_status report(eng_error* sink, eng_status status, std::string_view text) noexcept {
  if (sink && sink->set && !text.empty()) sink->set(sink, status, text.data(), text.size());
  return status;
}

// Runs `body`, which returns nothing or an eng_status, and turns what it throws into a status and a text.
// `frame(text, expected)` returns the whole message. `expected` is true for an Error, false for running out of memory
// and for other exceptions. It runs only if something was thrown.
template <class Frame, class Body>
eng_status guarded_in(eng_error* sink, Frame&& frame, Body&& body) noexcept {
  eng_status status = ENG_INTERNAL;
  try {
    try {
      if constexpr (std::is_void_v<decltype(body())>)
        return body(), ENG_OK;
      else
        return body();
    } catch (const Error& e) {
      status = e.status;
      return report(sink, status, frame(e.text, true));
    } catch (const std::bad_alloc&) {
      status = ENG_NO_MEMORY;
      return report(sink, status, frame("out of host memory", false));
    } catch (const std::exception& e) {
      return report(sink, status, frame(e.what(), false));
    } catch (...) {
      return report(sink, status, frame("unknown exception", false));
    }
  } catch (...) {  // no memory even for the text
    return status;
  }
}

// The text of an Error is the whole message.
template <class Body>
eng_status guarded(eng_error* sink, Body&& body) noexcept {
  return guarded_in(
      sink, [](const std::string& text, bool) { return text; }, body);
}
// Like the first `guarded`; `doing`, such as "opening a tokenizer", says what was being done when something unexpected
// happened.
template <class Body>
eng_status guarded(eng_error* sink, const char* doing, Body&& body) noexcept {
  return guarded_in(
      sink, [&](const std::string& text, bool expected) { return expected ? text : doing + (": " + text); }, body);
}
// Every message begins with name() and a colon: who refused.
template <class Name, class Body, class = std::invoke_result_t<Name>>
eng_status guarded(eng_error* sink, Name&& name, Body&& body) noexcept {
  return guarded_in(
      sink, [&](const std::string& text, bool) { return name() + (": " + text); }, body);
}

}  // namespace common
