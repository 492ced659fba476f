// SPDX-License-Identifier: Apache-2.0
// A scene with two axes.
#pragma once

#include <string>
#include <vector>

#include "../results.hpp"
#include "axis.hpp"
#include "scene.hpp"

namespace curvature::report {

// The colours and forms of the classes of the partition, by number.
inline constexpr int class_inks[] = {0, 1, 7};
inline constexpr Form class_forms[] = {Form::circle, Form::square, Form::triangle};

struct Entry {  // of a legend
  std::string label;
  int ink;
  Form form = Form::circle;
  bool line = false, dashed = false;
};

// The place that shows a chart: the page has its title and note outside of it; a paper has a narrow column, and no more
// words.
enum class Where { page, paper };

// The axes of a plot of this size: the legend is above.
struct Frame {
  double width = 560, height = 300;
  double left = 66, right = 542, top, bottom;
  Frame(double wide, double high, const std::vector<Entry>& legend);
  // This size on the page; in a paper it is as wide as a column, and its plot half as high.
  static Frame of(Where where, double wide, double high, const std::vector<Entry>& legend);
};

// A text with its begin, middle or end at a place.
Mark text_mark(Place at, std::string text, int ink = ink_soft, Side side = Side::begin);
// The ticks whose labels leave room for the one before. `from`: where the first may begin.
std::vector<Tick> apart(const std::vector<Tick>& ticks, double from);
// The width of a text, about.
double text_width(const std::string& text);

class Plot {
 public:
  Plot(std::string title, const Frame& frame, const std::vector<Entry>& legend, Axis x, Axis y, std::string x_title,
       std::string y_title);
  // Places in values. Nothing is drawn where a value is not finite.
  void line(const std::vector<Place>& values, int ink, bool dashed = false, bool faint = false, std::string tip = {});
  void dot(double x, double y, int ink, Form form, double radius, std::string tip, bool faint = false);
  // A bar from `low` to `high`.
  void whisker(double x, double low, double high, int ink);
  void across(double y, int ink);  // a dashed line over the whole width
  void down(double x, int ink);    // a dashed line over the whole height
  // An area of the plot, to its edges where a bound is not finite.
  void area(double x_low, double x_high, double y_low, double y_high, int ink);
  // In pixels, where no value has a place.
  void mark(Mark mark) { scene_.marks.push_back(std::move(mark)); }
  const Axis& x() const { return x_; }
  const Axis& y() const { return y_; }
  Scene done() && { return std::move(scene_); }

 private:
  Frame frame_;
  Axis x_, y_;
  Scene scene_;
};

}  // namespace curvature::report
