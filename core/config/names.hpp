// SPDX-License-Identifier: Apache-2.0
// Names people type: spelling mistakes, and the names other trainers use.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace eng {

// Insertions, deletions, replacements and swaps of neighbours between two names.
std::size_t edit_distance(const std::string& a, const std::string& b);
// All candidates at the smallest allowed distance (see `nearest`), in their order.
std::vector<std::string> nearest_all(const std::string& name, const std::vector<std::string>& candidates);
// "`a`, `b` or `c`".
std::string quoted_list(const std::vector<std::string>& names, const char* last = " or ");

// A key of another trainer; `here` is "section.key".
struct Foreign {
  const char* name;
  const char* here;
  const char* whose;
};
const Foreign* foreign_key(const std::string& name);
// The section that another trainer's section name means, or "".
std::string foreign_section(const std::string& name);

// Sections and keys of the design that this version does not read: the section that owns `key`, or "".
bool later_section(const std::string& name);
std::string later_owner(const std::string& key);

}  // namespace eng
