// SPDX-License-Identifier: Apache-2.0
// How the parts of this plugin report bad input, and how that becomes a status and a text at the ABI.
#pragma once

#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <string_view>

#include "engine/base.h"

namespace text_data {

class Failure : public std::runtime_error {
 public:
  Failure(eng_status status, const std::string& text) : std::runtime_error(text), status_(status) {}
  eng_status status() const { return status_; }

 private:
  eng_status status_;
};

inline eng_status fail(eng_error* error, eng_status status, std::string_view text) {
  if (error != nullptr && error->set != nullptr) error->set(error, status, text.data(), text.size());
  return status;
}

// Runs `body` and turns what it throws into a status. `doing` says what was being done when memory ran out.
template <class Body>
eng_status guarded(eng_error* error, const char* doing, Body body) {
  try {
    body();
    return ENG_OK;
  } catch (const Failure& failure) {
    return fail(error, failure.status(), failure.what());
  } catch (const std::bad_alloc&) {
    return fail(error, ENG_NO_MEMORY, std::string("out of memory while ") + doing);
  } catch (const std::exception& exception) {
    return fail(error, ENG_INTERNAL, std::string(doing) + ": " + exception.what());
  }
}

}  // namespace text_data
