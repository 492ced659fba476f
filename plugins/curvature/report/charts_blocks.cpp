// SPDX-License-Identifier: Apache-2.0
// The charts over blocks, units and noise.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "charts.hpp"
#include "plot.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

// "layers.3.fc1.weight" of block "layers.3" -> "layers.*.fc1.weight".
std::string role(const Tensor& tensor) {
  const size_t at = tensor.name.find(tensor.block), digit = tensor.block.find_first_of("0123456789");
  if (tensor.block.empty() || at == std::string::npos || digit == std::string::npos) return tensor.name;
  const size_t end = std::min(tensor.block.find_first_not_of("0123456789", digit), tensor.block.size());
  return tensor.name.substr(0, at + digit) + "*" + tensor.name.substr(at + end);
}

// `groups` in the order of their first members.
template <class Item, class Key>
std::vector<std::pair<std::string, std::vector<const Item*>>> grouped(const std::vector<Item>& items, Key key) {
  std::vector<std::pair<std::string, std::vector<const Item*>>> out;
  std::map<std::string, size_t> where;
  for (const Item& item : items) {
    const auto [at, added] = where.emplace(key(item), out.size());
    if (added) out.push_back({at->first, {}});
    out[at->second].second.push_back(&item);
  }
  return out;
}

// The value below which this share of the sorted values lies.
double quantile(const std::vector<double>& sorted, double share) {
  return sorted.empty() ? none : sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1) + 0.5)];
}

std::vector<double> sorted_units(const Site& site, double Site::Unit::*share) {
  std::vector<double> out;
  for (const auto& unit : site.units)
    if (std::isfinite(unit.*share)) out.push_back(unit.*share);
  std::sort(out.begin(), out.end());
  return out;
}

Chart hessian_profile(const std::string& name, const std::vector<const Tensor*>& tensors) {
  std::vector<double> blocks, sizes, values;
  std::vector<Place> magnitudes, means;
  for (const Tensor* tensor : tensors) {
    const auto& [hessian, magnitude] = std::pair(tensor->measures.hessian, tensor->measures.magnitude);
    const double at = tensor->block_number;
    blocks.push_back(at), sizes.push_back(magnitude);
    values.insert(values.end(), {hessian.mean, hessian.low, hessian.high, magnitude});
    magnitudes.push_back({at, magnitude}), means.push_back({at, hessian.mean});
  }
  const std::vector<Entry> legend = {{"mean |H|", 0, Form::circle}, {"mean H with its interval", 1, Form::square}};
  const Frame frame(430, 230, legend);
  const Axis y = Axis::changes(sizes, values, frame.bottom, frame.top);
  Plot plot(brief(name, 80), frame, legend, Axis::whole(blocks, frame.left, frame.right), y, "block", "H");
  plot.line(magnitudes, 0);
  plot.line(means, 1);
  for (size_t k = 0; k < tensors.size(); ++k) {
    const Interval& hessian = tensors[k]->measures.hessian;
    plot.whisker(blocks[k], hessian.low, hessian.high, 1);
    plot.dot(blocks[k], hessian.mean, 1, Form::square, 3,
             fmt::format("{}: mean H {}, from {} to {}", tensors[k]->name, short_number(hessian.mean),
                         short_number(hessian.low), short_number(hessian.high)));
    plot.dot(blocks[k], sizes[k], 0, Form::circle, 3,
             fmt::format("{}: mean |H| {}", tensors[k]->name, short_number(sizes[k])));
  }
  return {std::move(plot).done(), y.logarithmic() ? "The axis is logarithmic on both sides of 0." : ""};
}

Chart sparsity_profile(const std::string& op, const std::vector<const Site*>& sites) {
  std::vector<double> blocks;
  std::vector<Place> zeros, below;
  for (const Site* site : sites) {
    blocks.push_back(site->block_number);
    zeros.push_back({blocks.back(), site->zeros}), below.push_back({blocks.back(), site->below});
  }
  const bool units_known =
      std::any_of(sites.begin(), sites.end(), [](const Site* site) { return !site->units.empty(); });
  std::vector<Entry> legend = {{"exact zeros", 0, Form::circle}, {"|x| <= threshold", 1, Form::square}};
  if (units_known) legend.push_back({"80 % of the units", 1, {}, true});
  const Frame frame(430, 230, legend);
  Plot plot("Sparsity after " + brief(op, 60), frame, legend, Axis::whole(blocks, frame.left, frame.right),
            Axis::shares(frame.bottom, frame.top), "block", "share");
  plot.line(zeros, 0), plot.line(below, 1);
  for (size_t k = 0; k < sites.size(); ++k) {
    const auto units = sorted_units(*sites[k], &Site::Unit::below);
    plot.whisker(blocks[k], quantile(units, 0.1), quantile(units, 0.9), 1);
    plot.dot(blocks[k], sites[k]->below, 1, Form::square, 3.5,
             fmt::format("{}: |x| <= threshold {}", sites[k]->block, short_number(sites[k]->below)));
    plot.dot(blocks[k], sites[k]->zeros, 0, Form::circle, 3,
             fmt::format("{}: exact zeros {}", sites[k]->block, short_number(sites[k]->zeros)));
  }
  return {std::move(plot).done(),
          units_known ? "The bars are no error: they go from the 10th to the 90th percentile of the units." : ""};
}

Chart unit_curves(const std::vector<Site>& sites, const char* title, double Site::Unit::*share) {
  if (std::all_of(sites.begin(), sites.end(), [](const Site& site) { return site.units.empty(); })) return {};
  std::vector<Entry> legend;
  if (sites.size() <= series_inks)
    for (size_t k = 0; k < sites.size(); ++k)
      legend.push_back({brief(sites[k].block, 24), static_cast<int>(k % series_inks), {}, true});
  const Frame frame(430, 230, legend);
  Plot plot(title, frame, legend, Axis::shares(frame.left, frame.right), Axis::shares(frame.bottom, frame.top),
            "share of the units of the block", "share of the tokens, at most");
  constexpr size_t most = 200;  // points of a line
  for (size_t k = 0; k < sites.size(); ++k) {
    const auto units = sorted_units(sites[k], share);
    if (units.empty()) continue;
    std::vector<Place> line;
    const size_t n = std::min(most, units.size());
    for (size_t j = 0; j < n; ++j) {
      const double at = n > 1 ? static_cast<double>(j) / static_cast<double>(n - 1) : 0;
      line.push_back({at, quantile(units, at)});
    }
    if (line.size() == 1) line.push_back({1, line[0].y});
    plot.line(line, static_cast<int>(k % series_inks), false, false, sites[k].block);
  }
  return {std::move(plot).done(), "Units in ascending order: a unit at 1 is never active."};
}

// A chart over the spreads of noise, a line for each class.
struct Curve {
  const char* title;
  const char* unit;
  Interval Response::*mean;
  double Response::Trial::*trial;
  double base;  // without noise
};

Chart response_chart(const ResponseMap& map, const Curve& curve, Where where) {
  const auto spreads = sigmas(map);
  std::vector<std::string> names;
  for (const double sigma : spreads) names.push_back(short_number(sigma));
  std::vector<double> values = {curve.base}, sizes;
  for (const Response& response : map.responses) {
    const Interval& of = response.*curve.mean;
    values.insert(values.end(), {of.mean, of.low, of.high});
    sizes.push_back(of.mean);
    for (const auto& trial : response.trials) values.push_back(trial.*curve.trial);
  }
  std::vector<Entry> legend;
  for (const Class kind : classes)
    legend.push_back({class_name(kind), class_inks[static_cast<int>(kind)], class_forms[static_cast<int>(kind)]});
  legend.push_back({"without noise", ink_soft, {}, true, true});
  const Frame frame = Frame::of(where, 560, 300, legend);
  const Axis y = Axis::changes(sizes, values, frame.bottom, frame.top);
  Plot plot(curve.title, frame, legend, Axis::named(names, frame.left, frame.right), y, noise_title(map), curve.unit);
  plot.across(curve.base, ink_soft);
  for (const Class kind : classes) {
    const int k = static_cast<int>(kind);
    std::vector<Place> line;
    std::vector<const Response*> members;
    for (const Response& response : map.responses)
      if (response.kind == kind && std::isfinite(response.sigma)) members.push_back(&response);
    std::stable_sort(members.begin(), members.end(),
                     [](const Response* a, const Response* b) { return a->sigma < b->sigma; });
    for (const Response* response : members) {
      const auto found = std::lower_bound(spreads.begin(), spreads.end(), response->sigma) - spreads.begin();
      const double at = static_cast<double>(found) + 0.09 * (k - 1);
      const Interval& of = response->*curve.mean;
      line.push_back({at, of.mean});
      plot.whisker(at, of.low, of.high, class_inks[k]);
      for (const auto& trial : response->trials)
        plot.dot(at + 0.035, trial.*curve.trial, class_inks[k], class_forms[k], 2.2,
                 fmt::format("{}, seed {}: {}", class_name(kind), trial.seed, short_number(trial.*curve.trial)), true);
      plot.dot(at, of.mean, class_inks[k], class_forms[k], 4,
               fmt::format("{}, spread {}: {}, from {} to {}", class_name(kind), short_number(response->sigma),
                           short_number(of.mean), short_number(of.low), short_number(of.high)));
    }
    plot.line(line, class_inks[k]);
  }
  return {std::move(plot).done(), fmt::format("Small marks: one seed each. Bars: the interval of the mean.{}",
                                              y.logarithmic() ? " The axis is logarithmic on both sides of 0." : "")};
}

}  // namespace

std::vector<double> sigmas(const ResponseMap& map) {
  std::vector<double> out;
  for (const Response& response : map.responses)
    if (std::isfinite(response.sigma)) out.push_back(response.sigma);
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

std::vector<Chart> hessian_profiles(const Results& results) {
  std::vector<Chart> out;
  for (const auto& [name, tensors] : grouped(results.tensors, role))
    if (tensors.size() > 1) out.push_back(hessian_profile(name, tensors));
  return out;
}

std::vector<Chart> activation_charts(const Results& results) {
  std::vector<Chart> out;
  if (results.sites.empty()) return out;
  std::map<std::string, size_t> seen;  // a block may have several activations of one kind
  const auto key = [&](const Site& site) {
    const size_t before = seen[fmt::format("{}\n{}", site.block_number, site.op)]++;
    return before ? fmt::format("{}, number {} of the block", site.op, before + 1) : site.op;
  };
  for (const auto& [op, sites] : grouped(results.sites, key)) out.push_back(sparsity_profile(op, sites));
  out.push_back(unit_curves(results.sites, "Units: |x| <= threshold", &Site::Unit::below));
  out.push_back(unit_curves(results.sites, "Units: exact zeros", &Site::Unit::zeros));
  return out;
}

const char* noise_title(const ResponseMap& map) {
  return map.relative ? "spread of the noise, in spreads of the tensor"
                      : "spread of the noise, in units of the parameters";
}

std::vector<Chart> response_charts(const Results& results, Where where) {
  const ResponseMap& map = results.response_map;
  if (sigmas(map).empty()) return {};
  return {response_chart(map,
                         {"Change of perplexity by noise", "change of perplexity", &Response::perplexity_change,
                          &Response::Trial::perplexity_change, 0},
                         where),
          response_chart(
              map, {"Membership AUC under noise", "AUC", &Response::auc, &Response::Trial::auc, map.base_auc}, where)};
}

}  // namespace curvature::report
