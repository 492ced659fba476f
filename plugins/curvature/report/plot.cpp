// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <algorithm>
#include <cmath>

namespace curvature::report {
namespace {

constexpr double row_height = 17, letter = 6.6;  // about; legends get enough room
constexpr double legend_room = 38;               // of an entry beside its text

// The positions of the entries of a legend; rows are filled from the left.
std::vector<Place> legend_places(double width, const std::vector<Entry>& legend) {
  std::vector<Place> out;
  double x = 8, y = 14;
  for (const Entry& entry : legend) {
    const double wide = legend_room + text_width(entry.label);
    if (x > 8 && x + wide > width) x = 8, y += row_height;
    out.push_back({x, y});
    x += wide;
  }
  return out;
}

}  // namespace

Frame::Frame(double wide, double high, const std::vector<Entry>& legend) : width(wide), height(high) {
  const auto places = legend_places(wide, legend);
  top = (places.empty() ? 0 : places.back().y + 4) + 26;  // the title of the y axis is between
  bottom = height - 40;
  right = width - 18;
}

Frame Frame::of(Where where, double wide, double high, const std::vector<Entry>& legend) {
  if (where == Where::page) return {wide, high, legend};
  Frame out(column_width, high, legend);
  out.bottom = out.top + high / 2, out.height = out.bottom + 40;
  return out;
}

Mark text_mark(Place at, std::string text, int ink, Side side) {
  return {Mark::Kind::text, ink, {at}, std::move(text), 1, false, false, {}, side};
}

double text_width(const std::string& text) {
  return letter * static_cast<double>(text.size());
}

std::vector<Tick> apart(const std::vector<Tick>& ticks, double from) {
  std::vector<Tick> out;
  for (const Tick& tick : ticks) {
    const double half = text_width(tick.label) / 2;
    if (tick.at - half < from) continue;
    from = tick.at + half + letter;
    out.push_back(tick);
  }
  return out;
}

Plot::Plot(std::string title, const Frame& frame, const std::vector<Entry>& legend, Axis x, Axis y, std::string x_title,
           std::string y_title)
    : frame_(frame), x_(std::move(x)), y_(std::move(y)) {
  scene_.title = std::move(title), scene_.width = frame.width, scene_.height = frame.height;
  auto& marks = scene_.marks;
  const auto places = legend_places(frame.width, legend);
  for (size_t k = 0; k < legend.size(); ++k) {
    const auto& [label, ink, form, is_line, dashed] = legend[k];
    const auto [left, middle] = places[k];
    if (is_line)
      marks.push_back({Mark::Kind::line, ink, {{left, middle - 4}, {left + 20, middle - 4}}, "", 1.5, dashed});
    else
      marks.push_back({Mark::Kind::dot, ink, {{left + 12, middle - 4}}, "", 4.5, false, false, form});
    marks.push_back({Mark::Kind::text, ink_text, {{left + 25, middle}}, label});
  }
  for (const auto& [at, label] : y_.ticks()) {
    if (at < frame.top - 1 || at > frame.bottom + 1) continue;
    marks.push_back({Mark::Kind::line, ink_grid, {{frame.left, at}, {frame.right, at}}, "", 1});
    marks.push_back(text_mark({frame.left - 7, at + 4}, label, ink_soft, Side::end));
  }
  for (const auto& [at, label] : apart(x_.ticks(), 0)) {
    if (at < frame.left - 1 || at > frame.right + 1) continue;
    marks.push_back({Mark::Kind::line, ink_grid, {{at, frame.top}, {at, frame.bottom}}, "", 1});
    marks.push_back(text_mark({at, frame.bottom + 16}, label, ink_soft, Side::middle));
  }
  marks.push_back(text_mark({8, frame.top - 11}, std::move(y_title)));
  marks.push_back(
      text_mark({(frame.left + frame.right) / 2, frame.height - 7}, std::move(x_title), ink_soft, Side::middle));
}

void Plot::line(const std::vector<Place>& values, int ink, bool dashed, bool faint, std::string tip) {
  Mark mark{Mark::Kind::line, ink, {}, std::move(tip), 1.8, dashed, faint};
  for (const auto& [x, y] : values)
    if (std::isfinite(x) && std::isfinite(y)) mark.places.push_back({x_.place(x), y_.place(y)});
  if (mark.places.size() > 1) scene_.marks.push_back(std::move(mark));
}

void Plot::dot(double x, double y, int ink, Form form, double radius, std::string tip, bool faint) {
  if (std::isfinite(x) && std::isfinite(y))
    mark({Mark::Kind::dot, ink, {{x_.place(x), y_.place(y)}}, std::move(tip), radius, false, faint, form});
}

void Plot::whisker(double x, double low, double high, int ink) {
  if (!std::isfinite(x) || !std::isfinite(low) || !std::isfinite(high)) return;
  const double at = x_.place(x), from = y_.place(low), to = y_.place(high);
  mark({Mark::Kind::line, ink, {{at, from}, {at, to}}, "", 1.5});
  for (const double end : {from, to}) mark({Mark::Kind::line, ink, {{at - 3, end}, {at + 3, end}}, "", 1.5});
}

void Plot::across(double y, int ink) {
  if (std::isfinite(y))
    mark({Mark::Kind::line, ink, {{frame_.left, y_.place(y)}, {frame_.right, y_.place(y)}}, "", 1.4, true});
}

void Plot::down(double x, int ink) {
  if (std::isfinite(x))
    mark({Mark::Kind::line, ink, {{x_.place(x), frame_.top}, {x_.place(x), frame_.bottom}}, "", 1.4, true});
}

void Plot::area(double x_low, double x_high, double y_low, double y_high, int ink) {
  const auto bounded = [](const Axis& axis, double value, double edge) {
    if (!std::isfinite(value)) return edge;
    return std::clamp(axis.place(value), std::min(axis.from(), axis.to()), std::max(axis.from(), axis.to()));
  };
  const double left = bounded(x_, x_low, x_.from()), right = bounded(x_, x_high, x_.to());
  const double bottom = bounded(y_, y_low, y_.from()), top = bounded(y_, y_high, y_.to());
  if (left < right && top < bottom) mark({Mark::Kind::area, ink, {{left, top}, {right, bottom}}, ""});
}

}  // namespace curvature::report
