// SPDX-License-Identifier: Apache-2.0
#include "page.hpp"

#include "../../../charts/page.hpp"
#include "charts.hpp"
#include "json.hpp"
#include "page_text.hpp"
#include "svg.hpp"
#include "tables.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

std::string fact(const Pairs& facts, const std::string& key) {
  for (const auto& [name, value] : facts)
    if (name == key) return value;
  return "";
}

std::string figure(const Chart& chart) {
  return fmt::format("<figure><figcaption>{}<small>{}</small></figcaption>\n{}</figure>\n", escaped(chart.scene.title),
                     escaped(chart.note), svg(chart.scene));
}

std::string figures(const std::vector<Chart>& charts, const char* style = "charts") {
  std::string out;
  for (const Chart& chart : charts)
    if (!chart.scene.marks.empty()) out += figure(chart);
  return out.empty() ? out : fmt::format("<div class=\"{}\">\n{}</div>\n", style, out);
}

std::string section(const char* title, const std::string& text, const std::string& body, const char* without) {
  if (body.empty()) return fmt::format("<h2>{}</h2>\n<p class=\"soft\">{}</p>\n", title, without);
  return fmt::format("<h2>{}</h2>\n<p class=\"soft\">{}</p>\n{}", title, text, body);
}

std::string embedding_text(const Embedding& of) {
  std::string features;
  for (const std::string& feature : of.features) features += (features.empty() ? "" : ", ") + feature;
  const std::string method = of.method == "umap" ? "UMAP" : of.method == "pca" ? "PCA" : of.method;
  return escaped(fmt::format(
      "{} of ({}). Clusters by DBSCAN, radius {}, {} points. Near points have similar "
      "features. Directions and{} have no unit, and clusters are of this picture, not of the model's function.",
      method.empty() ? "None" : method, features, short_number(of.dbscan_radius), of.dbscan_points,
      of.method == "umap" ? " distances between clusters" : " the sign of an axis"));
}

std::string response(const Results& results) {
  const ResponseMap& map = results.response_map;
  if (map.responses.empty()) return "";
  return response_heat(map, &Response::perplexity_change, 0, "Change of perplexity on held-out windows") +
         response_heat(map, &Response::auc, map.base_auc, "Membership AUC") +
         figures(response_charts(results), "charts large") + trials_table(map);
}

std::string body(const Results& results, const Pairs& facts) {
  std::string out = summary_table(results);
  out += section(
      "Partition",
      "Functional: high curvature, seldom zero. Sensitive: low curvature, mostly zero. Both: all others. The names are "
      "those of this partition; that a class has a function, or holds data, does not follow from it: the response map "
      "measures what its noise does.",
      partition_table(results), "");
  out += section("Phase diagram and embedding", embedding_text(results.embedding),
                 figures({phase_diagram(results), embedding_map(results)}, "charts large"), "Nothing was measured.");
  out += section(
      "Curvature by block",
      fmt::format(
          "H is the diagonal of the {}. An interval that contains 0 does not tell the sign. Mean |H| of few "
          "probes is too large: noise has a magnitude too.",
          results.method == "fisher"
              ? fmt::format("empirical Fisher matrix of the loss. The interval, of level {}, is over the probes, "
                            "each of which is the gradient of other windows",
                            short_number(results.confidence))
              : fmt::format("Hessian of the mean loss of a token. The interval, of level {}, is of the probes: it "
                            "says how far more probes could move the number, not how it would change on other "
                            "text",
                            short_number(results.confidence))),
      figures(hessian_profiles(results)),
      "No tensor has its like in another block; the table of tensors has them all.");
  out += section(
      "Activations",
      fmt::format("Counted after the activation over all tokens of the held-out windows. Sparsity is the share of |x| "
                  "<= {}. Exact zeros come with ReLU; SiLU and GELU have almost none.",
                  short_number(results.activation_threshold)),
      results.sites.empty() ? "" : figures(activation_charts(results)) + sites_table(results),
      "No activation was counted.");
  out += section(
      "Response to noise",
      fmt::format("Gaussian noise of this spread{} was added to the parameters of one class; then the parameters were "
                  "put back. Classes differ in their number of parameters, so equal spread is not equal norm. Without "
                  "noise: perplexity {}, AUC {}. AUC: how well the loss tells training from held-out windows; 0.5 is "
                  "chance. It tests one simple attack, and a low value is no proof of privacy.",
                  results.response_map.relative ? ", times the spread of each tensor," : "",
                  short_number(results.response_map.base_perplexity), short_number(results.response_map.base_auc)),
      response(results), "No noise was applied.");
  out += section("Tensors", "Sparsity is that of the units that a tensor belongs to. A dash: not measured.",
                 results.tensors.empty() ? "" : tensors_table(results) + rows_table(results), "There is no tensor.");
  out += section("Settings", "Every option and seed of the analysis.",
                 results.settings.empty() ? "" : pairs_table(results.settings), "There are none.");
  return out + section("Run", "What the engine says of it. Memory in bytes.", facts.empty() ? "" : pairs_table(facts),
                       "The engine said nothing.");
}

}  // namespace

std::string report_page(const Results& results) {
  const Pairs facts = facts_table(results);
  const std::string model = fact(facts, "model.plugin"), parameters = fact(facts, "model.parameters");
  const std::string title = "Curvature analysis" + (model.empty() ? "" : ": " + model) +
                            (parameters.empty() ? "" : ", " + parameters + " parameters");
  std::string line;
  for (const char* key : {"now", "device.name", "precision", "version"})
    if (const std::string value = fact(facts, key); !value.empty()) line += (line.empty() ? "" : " · ") + value;
  return "<!doctype html>\n" + charts::page_head(escaped(title), page_css, false) +
         fmt::format("<p class=\"soft\">{}</p>\n", escaped(line)) + body(results, facts) +
         "<footer>The same numbers, with all their digits: results.json and results.csv. docs/analysis.md explains "
         "them.</footer>\n</body></html>\n";
}

}  // namespace curvature::report
