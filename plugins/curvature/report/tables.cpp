// SPDX-License-Identifier: Apache-2.0
#include "tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "charts.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

using Line = std::vector<Cell>;

constexpr size_t most_rows = 1000;  // of the table of rows; rows.csv has all

Cell number(double value) {
  return {short_number(value), true};
}

Cell count(uint64_t value) {
  return {fmt::format("{}", value), true};
}

std::string range(const Interval& of) {
  return fmt::format("{} … {}", short_number(of.low), short_number(of.high));
}

std::string share_of(uint64_t part, uint64_t whole) {
  return whole ? fmt::format("{} ({:.3g} %)", part, 100.0 * static_cast<double>(part) / static_cast<double>(whole))
               : fmt::format("{}", part);
}

const Line measures_heading = {{"mean H", true},        {"interval", true},    {"mean |H|", true},
                               {"elements", true},      {"exact zeros", true}, {"sparsity", true},
                               {"gradient norm", true}, {"weight norm", true}};

void add_measures(Line& line, const Measures& of) {
  line.insert(line.end(), {number(of.hessian.mean),
                           {range(of.hessian), true},
                           number(of.magnitude),
                           count(of.elements),
                           number(of.zeros),
                           number(of.below),
                           number(of.gradient_norm),
                           number(of.weight_norm)});
}

Line with(Line line, const Line& more) {
  line.insert(line.end(), more.begin(), more.end());
  return line;
}

std::string threshold_text(const Partition::Threshold& of) {
  if (!std::isfinite(of.value)) return "–";
  return std::isfinite(of.quantile)
             ? fmt::format("{} (quantile {} of what was measured)", short_number(of.value), short_number(of.quantile))
             : fmt::format("{} (given)", short_number(of.value));
}

}  // namespace

std::string html_table(const std::vector<Cell>& heading, const std::vector<std::vector<Cell>>& lines) {
  std::string out = "<div class=\"wide\"><table>";
  if (!heading.empty()) {
    out += "<thead><tr>";
    for (const auto& [text, is_number] : heading)
      out += fmt::format("<th{}>{}</th>", is_number ? " class=\"number\"" : "", escaped(text));
    out += "</tr></thead>";
  }
  out += "<tbody>\n";
  for (const auto& line : lines) {
    out += "<tr>";
    for (size_t k = 0; k < line.size(); ++k)
      if (k == 0)
        out += fmt::format("<th>{}</th>", escaped(line[k].text));
      else
        out += fmt::format("<td class=\"{}\">{}</td>", line[k].number ? "number" : "free", escaped(line[k].text));
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string summary_table(const Results& results) {
  const Partition& of = results.partition;
  const uint64_t whole = of.functional + of.sensitive + of.both;
  const Embedding& map = results.embedding;
  const std::string silhouette = std::isfinite(map.silhouette)   ? short_number(map.silhouette)
                                 : map.silhouette_reason.empty() ? "–"
                                                                 : fmt::format("none: {}", map.silhouette_reason);
  const bool fisher = results.method == "fisher";
  return html_table(
      {}, {{{"functional parameters (Wfunc)"}, {share_of(of.functional, whole)}},
           {{"sensitive parameters (Wsens)"}, {share_of(of.sensitive, whole)}},
           {{"both (Wboth)"}, {share_of(of.both, whole)}},
           {{"measured elements of the diagonal (hessian_data_size)"}, {fmt::format("{}", hessian_data_size(results))}},
           {{"method"},
            {fisher                           ? "fisher: the diagonal of the empirical Fisher matrix"
             : results.method == "hutchinson" ? "hutchinson: the diagonal of the Hessian"
                                              : results.method}},
           {{"probes"}, {fmt::format("{}", results.probes)}},
           {{"step of the differences"}, {short_number(results.step)}},
           {{"level of the intervals"}, {short_number(results.confidence)}},
           {{"activations count as zero up to"}, {short_number(results.activation_threshold)}},
           {{"silhouette"}, {silhouette}},
           {{"perplexity on held-out windows"}, {short_number(results.response_map.base_perplexity)}},
           {{"membership AUC"}, {short_number(results.response_map.base_auc)}}});
}

std::string partition_table(const Results& results) {
  const Partition& of = results.partition;
  return html_table({}, {{{"decided for each"}, {of.by}},
                         {{"functional: mean |H| above"}, {threshold_text(of.functional_hessian)}},
                         {{"functional: and sparsity below"}, {threshold_text(of.functional_sparsity)}},
                         {{"sensitive: mean |H| below"}, {threshold_text(of.sensitive_hessian)}},
                         {{"sensitive: and sparsity above"}, {threshold_text(of.sensitive_sparsity)}}});
}

std::string tensors_table(const Results& results) {
  std::vector<Line> lines;
  for (const Tensor& tensor : results.tensors) {
    lines.push_back({{tensor.name},
                     {class_name(tensor.measures.kind)},
                     {shape_text(tensor.shape)},
                     {tensor.block},
                     count(tensor.block_number),
                     {fmt::format("{} of {}", tensor.measured_rows.size(), tensor.rows), true}});
    add_measures(lines.back(), tensor.measures);
  }
  return html_table(
      with({{"tensor"}, {"class"}, {"shape"}, {"block"}, {"number", true}, {"measured rows", true}}, measures_heading),
      lines);
}

std::string rows_table(const Results& results) {
  std::vector<Line> lines;
  size_t all = 0;
  for (const Tensor& tensor : results.tensors)
    for (const Row& row : tensor.measured_rows) {
      if (++all > most_rows) continue;
      lines.push_back({{tensor.name}, {class_name(row.measures.kind)}, count(row.index)});
      add_measures(lines.back(), row.measures);
    }
  if (!all) return "";
  const std::string note =
      all > most_rows ? fmt::format("the first {} of {}; rows.csv has all", most_rows, all) : fmt::format("{}", all);
  return fmt::format("<details><summary>Measured rows: {}</summary>\n{}</details>\n", note,
                     html_table(with({{"tensor"}, {"class"}, {"row", true}}, measures_heading), lines));
}

std::string sites_table(const Results& results) {
  std::vector<Line> lines;
  for (const Site& site : results.sites)
    lines.push_back({{site.block},
                     count(site.block_number),
                     {site.op},
                     site.units.empty() ? number(none) : count(site.units.size()),
                     count(site.tokens),
                     number(site.zeros),
                     number(site.below)});
  return html_table({{"block"},
                     {"number", true},
                     {"activation"},
                     {"units", true},
                     {"tokens", true},
                     {"exact zeros", true},
                     {"sparsity", true}},
                    lines);
}

std::string response_heat(const ResponseMap& map, const Interval Response::*of, double base, const char* title) {
  const auto spreads = sigmas(map);
  double largest = 0;
  for (const Response& response : map.responses)
    if (const double change = std::abs((response.*of).mean - base); std::isfinite(change))
      largest = std::max(largest, change);
  std::string out = fmt::format("<h3>{}</h3><div class=\"wide\"><table><thead><tr><th>noise</th>", title);
  for (const double sigma : spreads) out += fmt::format("<th class=\"number\">{}</th>", short_number(sigma));
  out += "</tr></thead><tbody>\n";
  for (const Class kind : classes) {
    out += fmt::format("<tr><th>{}</th>", class_name(kind));
    for (const double sigma : spreads) {
      const auto found = std::find_if(map.responses.begin(), map.responses.end(), [&](const Response& response) {
        return response.kind == kind && response.sigma == sigma;
      });
      if (found == map.responses.end()) {
        out += "<td class=\"heat\">–</td>";
        continue;
      }
      const Interval& value = (*found).*of;
      const double share = std::abs(value.mean - base) / largest;
      out += fmt::format("<td class=\"heat\" style=\"background:rgb(var(--heat)/{:.2f})\">{}<small>{}</small></td>",
                         std::isfinite(share) ? 0.45 * std::sqrt(share) : 0, short_number(value.mean), range(value));
    }
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string trials_table(const ResponseMap& map) {
  std::vector<Line> lines;
  for (const Response& response : map.responses)
    for (const auto& [seed, change, auc] : response.trials)
      lines.push_back({{class_name(response.kind)}, number(response.sigma), count(seed), number(change), number(auc)});
  if (lines.empty()) return "";
  return fmt::format(
      "<details><summary>Every seed: {}</summary>\n{}</details>\n", lines.size(),
      html_table({{"class"}, {"noise", true}, {"seed", true}, {"change of perplexity", true}, {"AUC", true}}, lines));
}

std::string pairs_table(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::vector<Line> lines;
  for (const auto& [key, value] : pairs) lines.push_back({{key}, {value}});
  return html_table({}, lines);
}

}  // namespace curvature::report
