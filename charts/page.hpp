// SPDX-License-Identifier: Apache-2.0
// The beginning of a page with charts: one file that asks nothing of a network.
#pragma once

#include <fmt/format.h>

#include <string>

#include "colours.hpp"

namespace charts {

// `text` as it stands in HTML and XML, in an attribute too, once nothing in it is broken or a control character.
inline std::string markup(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += c;
  }
  return out;
}

// The variables of the colours.
inline std::string colour_rules() {
  const auto rule = [](uint32_t Colour::*of) {
    std::string out = ":root {";
    for (const Colour& colour : colours) out += fmt::format(" --{}: #{:06x};", colour.name, colour.*of);
    return out + " }";
  };
  return fmt::format(
      ":root {{ color-scheme: light dark; }}\n{}\n@media (prefers-color-scheme: dark) {{ {} }}\n@media print {{ {} "
      "}}\n",
      rule(&Colour::light), rule(&Colour::dark), rule(&Colour::paper));
}

// After the document type, up to the heading. `title` is markup, `css` the rules besides those of the colours;
// `scripts`: the page has some inside.
inline std::string page_head(const std::string& title, const std::string& css, bool scripts) {
  return fmt::format(
      "<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<meta name=\"viewport\" "
      "content=\"width=device-width\">\n<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
      "style-src 'unsafe-inline'{1}\">\n<style>\n{2}{3}</style></head><body>\n<h1>{0}</h1>\n",
      title, scripts ? "; script-src 'unsafe-inline'" : "", colour_rules(), css);
}

}  // namespace charts
