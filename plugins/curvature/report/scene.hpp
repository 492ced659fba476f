// SPDX-License-Identifier: Apache-2.0
// A picture without a medium: svg.hpp draws it into a page, png.hpp into a file, alike.
#pragma once

#include <string>
#include <vector>

namespace curvature::report {

// Colours: 0 to 7 tell series apart, the others have a meaning.
inline constexpr int series_inks = 8, ink_text = 8, ink_soft = 9, ink_grid = 10, inks = 11;

// As page.css has them for a light page.
inline constexpr unsigned light_colours[inks] = {0x0060a8, 0xc04a00, 0x00795a, 0xa8328a, 0x7a6200, 0x3a78d0,
                                                 0x6a3fb5, 0x444c56, 0x1b1f24, 0x59636e, 0xd8dee4};

// Each series has a form besides its colour.
enum class Form { circle, square, triangle, diamond, cross };
enum class Side { begin, middle, end };  // which part of a text is at its place

struct Place {
  double x, y;  // pixels, from the top left corner
};

struct Mark {
  enum class Kind { line, area, dot, text } kind;
  int ink;
  std::vector<Place> places;  // of a line: its corners; of an area: two opposite corners; else one
  std::string text;           // of a text; of others: what they stand for, shown where a medium can
  double width = 1.5;         // of a line; radius of a dot
  bool dashed = false, faint = false;
  Form form = Form::circle;
  Side side = Side::begin;
};

struct Scene {
  std::string title;
  double width = 0, height = 0;
  std::vector<Mark> marks;  // later ones lie above earlier ones
};

}  // namespace curvature::report
