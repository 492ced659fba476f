// SPDX-License-Identifier: Apache-2.0
#include "session/report/chart.hpp"

#include <limits>

#include "charts/page.hpp"
#include "charts/ticks.hpp"
#include "core/base/text.hpp"
#include "core/config/value.hpp"

namespace eng {
namespace {

constexpr double width = 560, height = 260, left = 62, right = 22, top = 10, bottom = 44;
constexpr size_t most_points = 700;  // of a line; more cannot be told apart

// A range of values, linear or logarithmic, on a range of the picture.
struct Axis {
  double low, high, from, to;
  bool logarithmic = false;

  double place(double value) const {
    value = charts::drawable(value);
    const double t = logarithmic ? (std::log(value) - std::log(low)) / (std::log(high) - std::log(low))
                                 : (value - low) / (high - low);
    return from + (to - from) * t;
  }
};

// Round numbers between `low` and `high`, about `wanted` of them.
std::vector<double> ticks(const Axis& axis, int wanted) {
  std::vector<double> out;
  if (axis.logarithmic) {
    const double decades = std::log10(axis.high) - std::log10(axis.low);
    const double each = std::max(1.0, std::ceil(decades / wanted));
    for (double e = std::ceil(std::log10(axis.low)); std::pow(10, e) <= axis.high * (1 + 1e-9); e += each)
      out.push_back(std::pow(10, e));
    if (out.size() > 1) return out;
    out.clear();
  }
  return charts::round_numbers(axis.low, axis.high, wanted);
}

// The points that are drawn: of each stretch of a long line its first, lowest, highest and last.
std::vector<size_t> chosen(const Curve& line) {
  std::vector<size_t> out;
  const size_t n = line.values.size(), stretches = most_points / 4;
  if (n <= most_points) {
    for (size_t k = 0; k < n; ++k) out.push_back(k);
    return out;
  }
  for (size_t s = 0; s < stretches; ++s) {
    const size_t begin = n * s / stretches, end = n * (s + 1) / stretches;
    const auto first = line.values.begin();
    const auto [low, high] =
        std::minmax_element(first + static_cast<ptrdiff_t>(begin), first + static_cast<ptrdiff_t>(end));
    size_t four[] = {begin, static_cast<size_t>(low - first), static_cast<size_t>(high - first), end - 1};
    std::sort(std::begin(four), std::end(four));
    for (const size_t k : four)
      if (out.empty() || out.back() != k) out.push_back(k);
  }
  return out;
}

// Each value replaced by the mean of those up to `reach` before and after it.
Curve smoothed(const Curve& line, size_t reach) {
  Curve out = line;
  std::vector<double> sums(1, 0);
  for (const double v : line.values) sums.push_back(sums.back() + v);
  for (size_t k = 0; k < line.values.size(); ++k) {
    const size_t begin = k - std::min(k, reach), end = std::min(line.values.size(), k + reach + 1);
    out.values[k] = (sums[end] - sums[begin]) / static_cast<double>(end - begin);
  }
  return out;
}

// `values`: with data-v, for the reader that points at the line.
std::string path(const Curve& line, const Axis& x, const Axis& y, const std::string& style, bool values) {
  std::string d, data;
  for (const size_t k : chosen(line)) {
    d += fmt::format("{}{:.1f} {:.1f}", d.empty() ? "M" : "L", x.place(static_cast<double>(line.steps[k])),
                     y.place(line.values[k]));
    if (values) data += fmt::format("{}{} {:.6g}", data.empty() ? "" : " ", line.steps[k], line.values[k]);
  }
  if (line.values.size() == 1) d += "h0.1";
  const std::string more = values ? fmt::format(" data-run=\"{}\" data-v=\"{}\"", escaped(line.label), data) : "";
  return fmt::format("<path class=\"r{} {}\" d=\"{}\"{}/>\n", line.run % 8, style, d, more);
}

std::string marks(const Curve& line, const Axis& x, const Axis& y) {
  std::string out;
  for (const size_t k : chosen(line))
    out += fmt::format("<circle class=\"r{}\" r=\"3\" cx=\"{:.1f}\" cy=\"{:.1f}\"/>", line.run % 8,
                       x.place(static_cast<double>(line.steps[k])), y.place(line.values[k]));
  return out + "\n";
}

std::string grid(const Axis& x, const Axis& y, Figures unit) {
  std::string out;
  double one = 1;  // KiB, MiB, ...: bytes are round in these
  while (unit == Figures::bytes && one * 1024 <= y.high) one *= 1024;
  for (const double round : ticks({y.low / one, y.high / one, y.from, y.to, y.logarithmic}, 5)) {
    const double v = round * one;
    const double at = y.place(v);
    out += fmt::format("<path class=\"grid\" d=\"M{} {:.1f}H{}\"/><text class=\"y\" x=\"{}\" y=\"{:.1f}\">{}</text>\n",
                       left, at, width - right, left - 6, at + 4, escaped(number_text(v, unit)));
  }
  for (const double v : charts::round_numbers(x.low, x.high, 6, true))
    out += fmt::format(
        "<path class=\"grid\" d=\"M{0:.1f} {1}V{2}\"/><text class=\"x\" x=\"{0:.1f}\" y=\"{3}\">{4:.0f}"
        "</text>\n",
        x.place(v), top, height - bottom, height - bottom + 18, v);
  return out + fmt::format("<text class=\"x\" x=\"{:.1f}\" y=\"{}\">step</text>\n", (x.from + x.to) / 2, height - 6);
}

}  // namespace

std::string escaped(const std::string& text) {
  return charts::markup(printable(text, 1000));
}

std::string number_text(double value, Figures unit) {
  if (unit == Figures::bytes) return format_bytes(value);
  if (unit == Figures::percent) return fmt::format("{:.3g} %", 100 * value);
  return std::abs(value) >= 1e4 && std::abs(value) < 1e7 ? fmt::format("{:.0f}", value) : fmt::format("{:.4g}", value);
}

Drawing draw(const Chart& chart) {
  Axis x{0, 0, left, width - right}, y{0, 0, height - bottom, top};
  x.low = y.low = std::numeric_limits<double>::infinity(), x.high = y.high = -x.low;
  size_t points = 0;
  for (const auto* group : {&chart.lines, &chart.marked, &chart.levels})
    for (const Curve& line : *group)
      for (size_t k = 0; k < line.values.size(); ++k) {
        if (group != &chart.levels) {
          ++points;
          x.low = std::min(x.low, static_cast<double>(line.steps[k]));
          x.high = std::max(x.high, static_cast<double>(line.steps[k]));
        }
        const double value = charts::drawable(line.values[k]);
        y.low = std::min(y.low, value), y.high = std::max(y.high, value);
      }
  if (!points) return {};
  y.logarithmic = y.low > 0 && y.high / y.low > 50 && chart.unit == Figures::plain;
  if (chart.unit != Figures::plain) y.low = std::min(0.0, y.low);  // shares and sizes are seen against nothing
  const double room = y.high > y.low ? (y.high - y.low) * 0.04 : std::max(std::abs(y.high) * 0.1, 1e-12);
  if (y.logarithmic) {
    y.low /= 1.1, y.high *= 1.1;
  } else {
    if (y.low != 0) y.low -= room;
    y.high += room;
  }
  if (x.high == x.low) x.low -= 1, x.high += 1;
  Drawing drawing;
  drawing.logarithmic = y.logarithmic;
  std::string& out = drawing.svg;
  out = fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" data-x=\"{} {} {} {}\"><title>{}</title>\n", width, height,
                    x.low, x.high, x.from, x.to, escaped(chart.title));
  out += grid(x, y, chart.unit);
  for (Curve level : chart.levels) {
    const double value = level.values.front();
    level.steps = {static_cast<int64_t>(x.low), static_cast<int64_t>(x.high)}, level.values = {value, value};
    out += path(level, x, y, "level", false);
  }
  for (const Curve& line : chart.lines) {
    const size_t reach = line.values.size() / 100;
    const bool means = chart.smooth && reach > 0;
    drawing.means |= means;
    out += path(line, x, y, means ? "faint" : "", true);
    if (means) out += path(smoothed(line, reach), x, y, "", false);
  }
  for (const Curve& line : chart.marked) out += path(line, x, y, "thin", true) + marks(line, x, y);
  out += "<path class=\"here\" d=\"\"/></svg>\n";
  return drawing;
}

}  // namespace eng
