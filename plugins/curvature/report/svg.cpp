// SPDX-License-Identifier: Apache-2.0
#include "svg.hpp"

#include <fmt/format.h>

#include "text.hpp"

namespace curvature::report {
namespace {

std::string ink(int number) {
  return number < series_inks ? fmt::format("s{}", number)
         : number == ink_text ? "text"
         : number == ink_soft ? "soft"
                              : "grid";
}

// The text that a pointer at the mark shows, without a script.
std::string tip(const std::string& text) {
  return text.empty() ? "" : fmt::format("<title>{}</title>", escaped(text));
}

std::string dot(const Mark& mark) {
  const auto [x, y] = mark.places.front();
  const double r = mark.width;
  std::string d;
  switch (mark.form) {
    case Form::circle:
      return fmt::format("<circle class=\"dot {}{}\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{}\">{}</circle>\n", ink(mark.ink),
                         mark.faint ? " faint" : "", x, y, r, tip(mark.text));
    case Form::square:
      d = fmt::format("M{:.2f} {:.2f}h{}v{}h{}z", x - r, y - r, 2 * r, 2 * r, -2 * r);
      break;
    case Form::triangle:
      d = fmt::format("M{:.2f} {:.2f}L{:.2f} {:.2f}H{:.2f}z", x, y - 1.2 * r, x + 1.2 * r, y + r, x - 1.2 * r);
      break;
    case Form::diamond:
      d = fmt::format("M{:.2f} {:.2f}l{} {}l{} {}l{} {}z", x, y - 1.3 * r, 1.3 * r, 1.3 * r, -1.3 * r, 1.3 * r,
                      -1.3 * r, -1.3 * r);
      break;
    case Form::cross:
      d = fmt::format("M{:.2f} {:.2f}l{} {}M{:.2f} {:.2f}l{} {}", x - r, y - r, 2 * r, 2 * r, x - r, y + r, 2 * r,
                      -2 * r);
  }
  return fmt::format("<path class=\"{} {}{}\" d=\"{}\">{}</path>\n", mark.form == Form::cross ? "line" : "dot",
                     ink(mark.ink), mark.faint ? " faint" : "", d, tip(mark.text));
}

std::string drawn(const Mark& mark) {
  const auto& places = mark.places;
  switch (mark.kind) {
    case Mark::Kind::dot:
      return dot(mark);
    case Mark::Kind::area:
      return fmt::format(
          "<rect class=\"area {}\"{} x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\"/>\n", ink(mark.ink),
          mark.strength == area_strength ? "" : fmt::format(" style=\"fill-opacity:{:.2f}\"", mark.strength),
          places[0].x, places[0].y, places[1].x - places[0].x, places[1].y - places[0].y);
    case Mark::Kind::text:
      return fmt::format("<text class=\"{}{}\" x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", ink(mark.ink),
                         mark.side == Side::begin    ? ""
                         : mark.side == Side::middle ? " middle"
                                                     : " end",
                         places[0].x, places[0].y, escaped(mark.text));
    case Mark::Kind::line:
      break;
  }
  std::string d;
  for (const auto& [x, y] : places) d += fmt::format("{}{:.2f} {:.2f}", d.empty() ? "M" : "L", x, y);
  return fmt::format("<path class=\"line {}{}{}\" style=\"stroke-width:{}\" d=\"{}\">{}</path>\n", ink(mark.ink),
                     mark.dashed ? " dashed" : "", mark.faint ? " faint" : "", mark.width, d, tip(mark.text));
}

std::string element(const Scene& scene, const std::string& attributes, const std::string& before) {
  if (scene.marks.empty()) return "";
  std::string out = fmt::format("<svg {}viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}", attributes,
                                scene.width, scene.height, escaped(scene.title), before);
  for (const Mark& mark : scene.marks) out += drawn(mark);
  return out + "</svg>\n";
}

// page.css for programs that know neither its variables nor its page.
std::string file_style() {
  std::string out =
      "<style>\ntext { font: 11px \"DejaVu Sans\", Verdana, Arial, sans-serif; }\n"
      "text.middle { text-anchor: middle; } text.end { text-anchor: end; }\n"
      ".line { fill: none; stroke-linejoin: round; stroke-width: 1.5; } .dashed { stroke-dasharray: 5 4; }\n"
      ".dot { stroke: #ffffff; stroke-width: .6; fill-opacity: .8; } .faint { opacity: .45; } .area { fill-opacity: "
      ".1; }\n";
  for (int k = 0; k < inks; ++k)
    out += fmt::format(".line.{0} {{ stroke: #{1:06x}; }} .dot.{0}, .area.{0}, text.{0} {{ fill: #{1:06x}; }}\n",
                       ink(k), charts::colours[k].light);
  return out + "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n";
}

}  // namespace

std::string svg(const Scene& scene) {
  return element(scene, "", "");
}

std::string svg_file(const Scene& scene) {
  return element(scene,
                 fmt::format("xmlns=\"http://www.w3.org/2000/svg\" width=\"{:g}mm\" height=\"{:g}mm\" ",
                             scene.width * millimetres_per_unit, scene.height * millimetres_per_unit),
                 file_style());
}

}  // namespace curvature::report
