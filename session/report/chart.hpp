// SPDX-License-Identifier: Apache-2.0
// Lines over steps, drawn as SVG.
#pragma once

#include <string>
#include <vector>

namespace eng {

// The notation for the numbers of an axis.
enum class Figures { plain, bytes, percent };

struct Curve {
  size_t run = 0;  // its colour and dashes: the class "rN" of the page
  std::string label;
  std::vector<int64_t> steps;
  std::vector<double> values;
};

struct Chart {
  std::string title;
  Figures unit = Figures::plain;
  std::vector<Curve> lines;
  // Curves of few points, such as evaluations: with a mark at each.
  std::vector<Curve> marked;
  // Expected values: a line across the whole width.
  std::vector<Curve> levels;
  bool smooth = false;  // many points get a line of their means as well
};

// `text` as it stands in HTML and XML, in an attribute too. What cannot be shown is '?'.
std::string escaped(const std::string& text);
// "1.234", "4.1 GiB", "12 %".
std::string number_text(double value, Figures unit);
struct Drawing {
  std::string svg;           // an <svg> element with a <title>; "" if there is no point
  bool logarithmic = false;  // the values' axis
  bool means = false;        // some line has one of its means
};
// The values of the points that it draws are in data-v of its paths, as "step value step value ...".
Drawing draw(const Chart& chart);

}  // namespace eng
