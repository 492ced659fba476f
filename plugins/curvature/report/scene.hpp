// SPDX-License-Identifier: Apache-2.0
// A picture without a medium: svg.hpp draws it into a page or a file, picture.hpp into a file, alike.
#pragma once

#include <string>
#include <vector>

#include "../../../charts/colours.hpp"

namespace curvature::report {

// The first of charts::colours: 0 to 7 tell series apart, the others have a meaning.
inline constexpr int series_inks = charts::series, ink_text = 8, ink_soft = 9, ink_grid = 10, inks = 11;

// In a paper a unit is 0.25 mm, so a picture of a column, 8.5 cm, is 340 units wide. Letters are 7.8 points high.
inline constexpr double column_width = 340, millimetres_per_unit = 0.25, letter_height = 11;
inline constexpr double points_per_unit = millimetres_per_unit / 25.4 * 72, pixels_per_unit = 3;  // 305 to the inch

// Each series has a form besides its colour.
enum class Form { circle, square, triangle, diamond, cross };
enum class Side { begin, middle, end };  // which part of a text is at its place

struct Place {
  double x, y;  // units (a page's pixels), from the top left corner
};

inline constexpr double area_strength = 0.1;

struct Mark {
  enum class Kind { line, area, dot, text } kind;
  int ink;
  std::vector<Place> places;  // of a line: its corners; of an area: two opposite corners; else one
  std::string text;           // of a text; of others: what they stand for, shown where a medium can
  double width = 1.5;         // of a line; radius of a dot
  bool dashed = false, faint = false;
  Form form = Form::circle;
  Side side = Side::begin;
  double strength = area_strength;  // of the colour of an area, up to 1
};

struct Scene {
  std::string title;
  double width = 0, height = 0;
  std::vector<Mark> marks;  // later ones lie above earlier ones
};

}  // namespace curvature::report
