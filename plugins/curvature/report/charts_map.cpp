// SPDX-License-Identifier: Apache-2.0
// The response map as a picture: its numbers as coloured cells.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

constexpr double names_end = 82, cells_end = column_width - 10, cell_height = 26;

struct Panel {
  const char* title;
  Interval Response::*number;
  double base;  // without noise
};

// The mean of a class at a spread; none: not measured.
double value_of(const ResponseMap& map, const Panel& panel, Class kind, double sigma) {
  for (const Response& response : map.responses)
    if (response.kind == kind && response.sigma == sigma) return (response.*panel.number).mean;
  return none;
}

std::string cell_text(double value) {
  return std::isfinite(value) ? fmt::format("{:.2g}", value) : "–";
}

// Draws a panel whose cells begin at `top`.
void draw_panel(Scene& scene, const ResponseMap& map, const Panel& panel, double top) {
  const auto spreads = sigmas(map);
  const double wide = (cells_end - names_end) / static_cast<double>(spreads.size());
  double largest = 0, widest = 0;
  for (const Class kind : classes)
    for (const double sigma : spreads) {
      const double value = value_of(map, panel, kind, sigma);
      if (std::isfinite(value)) largest = std::max(largest, std::abs(value - panel.base));
      widest = std::max(widest, text_width(cell_text(value)));
    }
  const bool numbers = widest + 2 <= wide;
  scene.marks.push_back(text_mark({8, top - 23}, panel.title, ink_text));
  scene.marks.push_back(text_mark({8, top - 8}, fmt::format("orange: higher, blue: lower; the deepest: {}",
                                                            largest > 0 ? fmt::format("{:.2g}", largest) : "0")));
  for (size_t row = 0; row < std::size(classes); ++row) {
    const double y = top + cell_height * static_cast<double>(row), middle = y + cell_height / 2 + 4;
    scene.marks.push_back(text_mark({names_end - 7, middle}, class_name(classes[row]), ink_soft, Side::end));
    for (size_t column = 0; column < spreads.size(); ++column) {
      const double x = names_end + wide * static_cast<double>(column);
      const double value = value_of(map, panel, classes[row], spreads[column]), change = value - panel.base;
      if (std::isfinite(change) && change != 0) {
        Mark cell{Mark::Kind::area, change > 0 ? 1 : 0, {{x + 1, y + 1}, {x + wide - 1, y + cell_height - 1}}, ""};
        cell.strength = 0.7 * std::sqrt(std::abs(change) / largest);
        scene.marks.push_back(std::move(cell));
      }
      if (numbers) scene.marks.push_back(text_mark({x + wide / 2, middle}, cell_text(value), ink_text, Side::middle));
    }
  }
  const double bottom = top + cell_height * static_cast<double>(std::size(classes));
  scene.marks.push_back(
      {Mark::Kind::line, ink_soft, {{names_end, top}, {names_end, bottom}, {cells_end, bottom}}, "", 1});
}

}  // namespace

Chart response_map(const Results& results) {
  const ResponseMap& map = results.response_map;
  const auto spreads = sigmas(map);
  if (spreads.empty()) return {};
  const double high = cell_height * static_cast<double>(std::size(classes)), first = 38, second = first + high + 46;
  Scene scene;
  scene.title = "Response map", scene.width = column_width, scene.height = second + high + 40;
  draw_panel(scene, map, {"change of perplexity", &Response::perplexity_change, 0}, first);
  draw_panel(scene, map, {"AUC of telling training windows by their loss", &Response::auc, map.base_auc}, second);
  std::vector<Tick> ticks;
  const double wide = (cells_end - names_end) / static_cast<double>(spreads.size());
  for (size_t k = 0; k < spreads.size(); ++k)
    ticks.push_back({names_end + wide * (static_cast<double>(k) + 0.5), short_number(spreads[k])});
  for (const auto& [at, label] : apart(ticks, names_end))
    scene.marks.push_back(text_mark({at, second + high + 16}, label, ink_soft, Side::middle));
  scene.marks.push_back(text_mark({column_width / 2, scene.height - 7}, noise_title(map), ink_soft, Side::middle));
  return {std::move(scene), ""};
}

}  // namespace curvature::report
