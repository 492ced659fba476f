// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include <utility>

#include "charts.hpp"
#include "csv.hpp"
#include "json.hpp"
#include "page.hpp"
#include "picture.hpp"
#include "svg.hpp"

namespace curvature::report {

void make_texts(const Results& results, const Take& take) {
  take("results.json", results_json(results));
  take("results_flat.json", results_flat_json(results));
  take("results.csv", tensors_csv(results));
  take("report.html", report_page(results));
  if (const std::string rows = rows_csv(results); !rows.empty()) take("rows.csv", rows);
}

std::string make_pictures(const Results& results, const Take& take, const std::string& cairo) {
  std::string left_out, reason;  // the same for all that are left out
  const auto draw = [&](const std::string& name, const Chart& chart) {
    if (chart.scene.marks.empty()) return;
    take(name + ".svg", svg_file(chart.scene));
    for (const auto& [medium, ending] : {std::pair(Medium::png, ".png"), std::pair(Medium::pdf, ".pdf")}) {
      const auto [bytes, why] = picture(chart.scene, medium, cairo);
      if (bytes.empty())
        left_out += (left_out.empty() ? "" : ", ") + name + ending, reason = why;
      else
        take(name + ending, bytes);
    }
  };
  draw("phase", phase_diagram(results, Where::paper));
  draw(results.embedding.method == "umap" ? "umap" : "pca", embedding_map(results, Where::paper));
  draw("response", response_map(results));
  if (const auto charts = response_charts(results, Where::paper); !charts.empty())
    draw("response_perplexity", charts[0]), draw("response_auc", charts[1]);
  return left_out.empty() ? "" : "left out: " + left_out + ": " + reason;
}

std::string make_files(const Results& results, const Take& take, const std::string& cairo) {
  make_texts(results, take);
  return make_pictures(results, take, cairo);
}

}  // namespace curvature::report
