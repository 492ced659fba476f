// SPDX-License-Identifier: Apache-2.0
#include "session/store/xml.hpp"

#include <fmt/format.h>

#include <charconv>

#include "core/base/error.hpp"
#include "core/base/text.hpp"

namespace eng::store {
namespace {

[[noreturn]] void refuse(const std::string& what) {
  throw Error(Exit::data, "the store's answer is no XML that it could be: " + what,
              "AWS_ENDPOINT_URL may name something else than a store, or a proxy answers in its place");
}

// The place of the tag `open` + name from `at` on, and where it ends; npos if there is none.
size_t find_tag(std::string_view xml, std::string_view open, std::string_view name, size_t at, size_t& end) {
  const std::string tag = std::string(open) + std::string(name);
  for (at = xml.find(tag, at); at != xml.npos; at = xml.find(tag, at + 1)) {
    const size_t after = at + tag.size();
    if (after >= xml.size()) return xml.npos;
    if (std::string_view(" >/\t\r\n").find(xml[after]) == std::string_view::npos) continue;  // a longer name
    end = xml.find('>', after);
    return end == xml.npos ? xml.npos : at;
  }
  return xml.npos;
}

void append(std::string& out, uint32_t code) {
  if (code == 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) refuse("a character that there is not");
  if (code < 0x80) {
    out += static_cast<char>(code);
  } else if (code < 0x800) {
    out += static_cast<char>(0xc0 | code >> 6), out += static_cast<char>(0x80 | (code & 63));
  } else if (code < 0x10000) {
    out += static_cast<char>(0xe0 | code >> 12), out += static_cast<char>(0x80 | (code >> 6 & 63));
    out += static_cast<char>(0x80 | (code & 63));
  } else {
    out += static_cast<char>(0xf0 | code >> 18), out += static_cast<char>(0x80 | (code >> 12 & 63));
    out += static_cast<char>(0x80 | (code >> 6 & 63)), out += static_cast<char>(0x80 | (code & 63));
  }
}

std::string plain(std::string_view xml) {
  std::string out;
  for (size_t at = 0; at < xml.size();) {
    if (xml[at] != '&') {
      out += xml[at++];
      continue;
    }
    const size_t end = xml.find(';', at);
    if (end == xml.npos || end - at > 10) refuse("`&` without an entity");
    std::string_view entity = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    if (entity == "amp")
      out += '&';
    else if (entity == "lt")
      out += '<';
    else if (entity == "gt")
      out += '>';
    else if (entity == "quot")
      out += '"';
    else if (entity == "apos")
      out += '\'';
    else {
      const bool hex = entity.starts_with("#x");
      if (!entity.starts_with('#')) refuse(fmt::format("the entity `{}`", printable(std::string(entity))));
      entity.remove_prefix(hex ? 2 : 1);
      uint32_t code = 0;
      const auto [last, error] = std::from_chars(entity.data(), entity.data() + entity.size(), code, hex ? 16 : 10);
      if (error != std::errc() || last != entity.data() + entity.size()) refuse("a number that is none");
      append(out, code);
    }
  }
  return out;
}

}  // namespace

std::vector<std::string_view> elements(std::string_view xml, std::string_view name) {
  std::vector<std::string_view> out;
  for (size_t at = 0, end = 0; (at = find_tag(xml, "<", name, at, end)) != xml.npos;) {
    if (xml[end - 1] == '/') {
      out.emplace_back();
      at = end + 1;
      continue;
    }
    size_t closed = 0;
    const size_t close = find_tag(xml, "</", name, end + 1, closed);
    if (close == xml.npos) refuse(fmt::format("<{}> does not end", name));
    out.push_back(xml.substr(end + 1, close - end - 1));
    at = closed + 1;
  }
  return out;
}

bool has_root(std::string_view xml, std::string_view name) {
  size_t at = 0;
  if (xml.starts_with("\xef\xbb\xbf")) at = 3;
  for (;;) {
    at = xml.find_first_not_of(" \t\r\n", at);
    if (at == xml.npos) return false;
    const bool comment = xml.substr(at).starts_with("<!--");
    if (!comment && !xml.substr(at).starts_with("<?")) break;
    const std::string_view close = comment ? "-->" : "?>";
    at = xml.find(close, at);
    if (at == xml.npos) return false;
    at += close.size();
  }
  size_t end = 0;
  return find_tag(xml.substr(at), "<", name, 0, end) == 0;
}

std::string text_of(std::string_view xml, std::string_view name) {
  const auto all = elements(xml, name);
  return all.empty() ? "" : plain(all.front());
}

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text)
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : c == '>' ? "&gt;" : c == '"' ? "&quot;" : std::string(1, c);
  return out;
}

}  // namespace eng::store
