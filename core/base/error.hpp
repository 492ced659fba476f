// SPDX-License-Identifier: Apache-2.0
// Errors say what is wrong, where, and what to change, and carry the exit code of the command.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/base.h"

namespace eng {

// Exit codes of the `engine` command.
enum class Exit : int {
  done = 0,
  bug = 1,
  usage = 2,
  environment = 3,
  data = 4,
  device_memory = 5,
  host_memory = 6,
  numerics = 7,
  communication = 8,
  checkpoint = 9,
  disk = 10,
  stopped = 75,
};

// `what()` is one or more readable lines; `help` says what to change, "" if there is no advice.
class Error : public std::runtime_error {
 public:
  Error(Exit exit, const std::string& message, std::string help = "")
      : std::runtime_error(message), exit_(exit), help_(std::move(help)) {}
  Exit exit() const { return exit_; }
  const std::string& help() const { return help_; }

 private:
  Exit exit_;
  std::string help_;
};

// A fault of a plugin, to throw.
template <class... Args>
Error fault(fmt::format_string<Args...> text, Args&&... args) {
  return Error(Exit::environment, fmt::format(text, std::forward<Args>(args)...));
}

// Checks outside input: throws std::runtime_error unless `right`. The caller adds the name of what was read.
template <class... Args>
void need(bool right, fmt::format_string<Args...> text, Args&&... args) {
  if (!right) throw std::runtime_error(fmt::format(text, std::forward<Args>(args)...));
}

constexpr std::size_t most_kept = 16384;  // bytes; a longer text from a plugin is cut

// An eng_error that keeps the text. Pass `sink.get()` across the ABI, then `sink.check(status, ...)`.
class Sink {
 public:
  Sink() {
    error_.struct_size = sizeof(error_);
    error_.data = this;
    error_.set = [](eng_error* self, eng_status code, const char* text, uint64_t length) {
      self->code = code;
      const std::size_t kept = text ? std::min<uint64_t>(length, most_kept) : 0;
      static_cast<Sink*>(self->data)->text_.assign(text ? text : "", kept);
    };
  }
  Sink(const Sink&) = delete;
  Sink& operator=(const Sink&) = delete;
  eng_error* get() { return &error_; }
  const std::string& text() const { return text_; }
  // The text of a failed call, or "failed with status N and no text" if it gave none.
  std::string text(eng_status status) const {
    return text_.empty() ? fmt::format("failed with status {} and no text", status) : text_;
  }
  // Throws Error(exit, "WHERE: TEXT") unless status is ENG_OK. `where` names plugin and function: a string, or a
  // function that returns one, so that a step without errors allocates nothing.
  void check(eng_status status, Exit exit, const std::string& where) const {
    if (status == ENG_OK) return;
    throw Error(exit, where + ": " + text(status));
  }
  template <class Where>
  requires std::is_invocable_r_v<std::string, Where>
  void check(eng_status status, Exit exit, const Where& where) const {
    if (status != ENG_OK) check(status, exit, std::string(where()));
  }

 private:
  eng_error error_{};
  std::string text_;
};

// Calls a function of a plugin, whose last argument is an error sink. Throws like Sink::check.
template <class Where, class F, class... Args>
void call_plugin(Exit exit, const Where& where, F function, Args... args) {
  Sink sink;
  sink.check(function(args..., sink.get()), exit, where);
}

// Fills a caller's sink (which may be NULL) and returns the status.
inline eng_status report(eng_error* sink, eng_status status, const std::string& text) {
  if (sink && sink->set) sink->set(sink, status, text.data(), text.size());
  return status;
}

}  // namespace eng
