// SPDX-License-Identifier: Apache-2.0
// The answers of a store: elements in XML, which come from anybody.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace eng::store {

inline constexpr size_t longest_answer = size_t{16} << 20;  // bytes

// The contents of all elements of this name, in order, with what is in them as it stands. An element within another one
// of the same name is no element of its own. Throws Error(Exit::data) for one that does not end.
std::vector<std::string_view> elements(std::string_view xml, std::string_view name);
// True if the outermost element has this name.
bool has_root(std::string_view xml, std::string_view name);
// The text of the first one: entities are replaced. "" if there is none. Throws Error(Exit::data) also for an entity
// that is unknown.
std::string text_of(std::string_view xml, std::string_view name);
// A text as it stands in XML.
std::string xml_text(std::string_view text);

}  // namespace eng::store
