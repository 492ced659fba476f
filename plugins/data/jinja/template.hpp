// SPDX-License-Identifier: Apache-2.0
// Chat templates: a subset of Jinja, set up as transformers sets it up. A template reaches nothing but the variables
// that it is given: no files, no network, no clock. Its steps, its text and its depth are bounded.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "value.hpp"

namespace jinja {

struct Date {
  int year = 1970, month = 1, day = 1;
};
// "2024-07-26"; nothing for other texts.
std::optional<Date> read_date(std::string_view text);

struct Limits {
  static constexpr uint64_t template_bytes = uint64_t{1} << 20;
  uint64_t steps = 10'000'000;               // of a rendering; 32 bytes of text that are made count as one
  uint64_t text_bytes = uint64_t{64} << 20;  // of one text
  int depth = 400;                           // of calls and nested parts
};

struct Rendered {
  std::string text;
  // The bytes [first, second) that {% generation %} marks, in order.
  std::vector<std::pair<std::size_t, std::size_t>> generated;
};

struct Node;

class Template {
 public:
  // Throws Error, with line and column, for a template that is not understood.
  explicit Template(std::string_view source);
  Template(Template&&) noexcept;
  ~Template();
  // `date` is what strftime_now() writes; without it, a call of that is an error. Any number of threads may call this
  // at once. Throws Error, also for what the template itself raises.
  Rendered render(const std::vector<std::pair<std::string, Value>>& variables, const std::optional<Date>& date = {},
                  const Limits& limits = {}) const;
  bool marks_generation() const { return marks_; }
  bool uses(std::string_view name) const;  // a variable of this name

 private:
  std::vector<std::unique_ptr<Node>> body_;
  std::vector<std::string> names_;
  bool marks_ = false;
};

}  // namespace jinja
