// SPDX-License-Identifier: Apache-2.0
// The charts with a mark for each tensor or row.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "charts.hpp"
#include "plot.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

constexpr size_t most_dots = 3000;  // more cannot be told apart

// Every k-th of n, so that at most `most_dots` are drawn.
size_t stride(size_t n) {
  return std::max<size_t>(1, (n + most_dots - 1) / most_dots);
}

}  // namespace

size_t drawn(size_t n) {
  return (n + stride(n) - 1) / stride(n);
}

namespace {

std::string drawn_note(size_t n, const char* what) {
  const size_t some = drawn(n);
  return some == n ? "" : fmt::format(" Of {} {}, {} are drawn, evenly chosen.", n, what, some);
}

double dot_radius(size_t n, Where where) {
  return (n > 400 ? 2.5 : 4.5) * (where == Where::paper ? 0.75 : 1);
}

// A tensor, or a row of one.
struct Dot {
  const Measures* of;
  const Tensor* tensor;
  const Row* row;  // null: the tensor
  std::string name() const { return row ? fmt::format("{}, row {}", tensor->name, row->index) : tensor->name; }
};

std::vector<Dot> dots_of(const Results& results) {
  std::vector<Dot> out;
  for (const Tensor& tensor : results.tensors)
    if (results.partition.by == "row")
      for (const Row& row : tensor.measured_rows) out.push_back({&row.measures, &tensor, &row});
    else
      out.push_back({&tensor.measures, &tensor, nullptr});
  return out;
}

double log_size(double magnitude) {
  return magnitude > 0 ? std::log10(magnitude) : none;
}

// If H or the sparsity is missing, a mark stands in a strip at the side.
struct Strips {
  bool left = false, below = false;
  static constexpr double wide = 44, high = 32;
};

void label_strips(Plot& plot, const Frame& frame, const Strips& strips) {
  Mark text{Mark::Kind::text, ink_soft, {}, ""};
  if (strips.left) {
    const double at = frame.left + Strips::wide / 2;
    plot.mark({Mark::Kind::line, ink_grid, {{at, frame.top}, {at, frame.bottom}}, "", 1});
    text.places = {{at, frame.bottom + 16}}, text.text = "0 or none", text.side = Side::middle;
    plot.mark(text);
  }
  if (strips.below) {
    const double at = frame.bottom - Strips::high / 2;
    plot.mark({Mark::Kind::line, ink_grid, {{frame.left, at}, {frame.right, at}}, "", 1});
    text.places = {{frame.left - 7, at + 4}}, text.text = "none", text.side = Side::end;
    plot.mark(text);
  }
}

}  // namespace

Chart phase_diagram(const Results& results, Where where) {
  const auto dots = dots_of(results);
  if (dots.empty()) return {};
  const Partition& by = results.partition;
  size_t counts[3] = {};
  Strips strips;
  std::vector<double> sizes = {log_size(by.functional_hessian.value), log_size(by.sensitive_hessian.value)};
  for (const Dot& dot : dots) {
    ++counts[static_cast<int>(dot.of->kind)];
    sizes.push_back(log_size(dot.of->magnitude));
    strips.left |= !std::isfinite(sizes.back()), strips.below |= !std::isfinite(dot.of->below);
  }
  std::vector<Entry> legend;
  for (const Class kind : classes) {
    const int k = static_cast<int>(kind);
    legend.push_back({fmt::format("{} ({})", class_name(kind), counts[k]), class_inks[k], class_forms[k]});
  }
  for (const Class kind : {Class::functional, Class::sensitive})
    legend.push_back(
        {fmt::format("thresholds, {}", class_name(kind)), class_inks[static_cast<int>(kind)], {}, true, true});

  const Frame frame = Frame::of(where, 560, 420, legend);
  const Axis x = Axis::linear(sizes, frame.left + (strips.left ? Strips::wide : 0), frame.right);
  const Axis y = Axis::shares(frame.bottom - (strips.below ? Strips::high : 0), frame.top);
  Plot plot("Phase diagram: mean |H| against sparsity", frame, legend, x, y, "log10 of mean |H| (H in nats)",
            "sparsity of the units (share of |x| <= threshold)");
  label_strips(plot, frame, strips);
  const double functional_x = log_size(by.functional_hessian.value), sensitive_x = log_size(by.sensitive_hessian.value);
  plot.area(functional_x, none, none, by.functional_sparsity.value, class_inks[0]);
  plot.area(none, sensitive_x, by.sensitive_sparsity.value, none, class_inks[1]);
  plot.down(functional_x, class_inks[0]), plot.across(by.functional_sparsity.value, class_inks[0]);
  plot.down(sensitive_x, class_inks[1]), plot.across(by.sensitive_sparsity.value, class_inks[1]);
  for (size_t k = 0; k < dots.size(); k += stride(dots.size())) {
    const Measures& of = *dots[k].of;
    const double size = log_size(of.magnitude);
    const int kind = static_cast<int>(of.kind);
    Mark mark{Mark::Kind::dot, class_inks[kind], {}, "", dot_radius(dots.size(), where)};
    mark.places = {{std::isfinite(size) ? x.place(size) : frame.left + Strips::wide / 2,
                    std::isfinite(of.below) ? y.place(of.below) : frame.bottom - Strips::high / 2}};
    mark.form = class_forms[kind];
    mark.text = fmt::format("{}: {}, mean |H| {}, sparsity {}", dots[k].name(), class_name(of.kind),
                            short_number(of.magnitude), short_number(of.below));
    plot.mark(std::move(mark));
  }
  std::string note = "Shaded: where the thresholds put the functional and the sensitive. ";
  if (strips.below) note += "none: belongs to no activation whose units were counted. ";
  return {std::move(plot).done(), note + drawn_note(dots.size(), "rows")};
}

Chart embedding_map(const Results& results, Where where) {
  const Embedding& of = results.embedding;
  if (of.points.empty()) return {};
  std::map<int32_t, size_t> sizes;
  std::vector<double> xs, ys;
  for (const auto& point : of.points) ++sizes[point.cluster], xs.push_back(point.x), ys.push_back(point.y);
  const auto ink = [](int32_t cluster) { return cluster < 0 ? ink_soft : cluster % series_inks; };
  const auto form = [](int32_t cluster) { return cluster < 0 ? Form::cross : static_cast<Form>(cluster % 4); };
  std::vector<Entry> legend;
  for (const auto& [cluster, size] : sizes) {
    if (legend.size() == 10) {
      legend.push_back({fmt::format("and {} more", sizes.size() - 10), ink_grid});
      break;
    }
    const std::string name = cluster < 0 ? "in no cluster" : fmt::format("cluster {}", cluster);
    legend.push_back({fmt::format("{} ({})", name, size), ink(cluster), form(cluster)});
  }
  const Frame frame = Frame::of(where, 560, 420, legend);
  const std::string method = of.method == "umap" ? "UMAP" : of.method == "pca" ? "PCA" : brief(of.method, 20);
  Plot plot(fmt::format("Embedding by {}", method), frame, legend, Axis::linear(xs, frame.left, frame.right),
            Axis::linear(ys, frame.bottom, frame.top), fmt::format("{} 1", method), fmt::format("{} 2", method));
  for (size_t k = 0; k < of.points.size(); k += stride(of.points.size())) {
    const auto& [tensor, row, x, y, cluster] = of.points[k];
    std::string name =
        tensor < results.tensors.size() ? results.tensors[tensor].name : fmt::format("tensor {}", tensor);
    if (row >= 0) name += fmt::format(", row {}", row);
    plot.dot(x, y, ink(cluster), form(cluster), dot_radius(of.points.size(), where),
             cluster < 0 ? name + ": in no cluster" : fmt::format("{}: cluster {}", name, cluster));
  }
  return {std::move(plot).done(), drawn_note(of.points.size(), "points")};
}

}  // namespace curvature::report
