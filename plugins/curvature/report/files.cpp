// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include "charts.hpp"
#include "csv.hpp"
#include "json.hpp"
#include "page.hpp"
#include "png.hpp"
#include "svg.hpp"

namespace curvature::report {

void make_texts(const Results& results, const Take& take) {
  take("results.json", results_json(results));
  take("results.csv", tensors_csv(results));
  take("report.html", report_page(results));
  if (const std::string rows = rows_csv(results); !rows.empty()) take("rows.csv", rows);
}

std::string make_pictures(const Results& results, const Take& take, const std::string& cairo) {
  std::string note;
  const auto picture = [&](const std::string& name, const Chart& chart) {
    if (chart.scene.marks.empty()) return;
    take(name + ".svg", svg_file(chart.scene));
    const auto [bytes, why] = png(chart.scene, cairo);
    if (bytes.empty())
      note += (note.empty() ? "" : "\n") + name + ".png is left out: " + why;
    else
      take(name + ".png", bytes);
  };
  picture("phase", phase_diagram(results));
  picture(results.embedding.method == "umap" ? "umap" : "pca", embedding_map(results));
  if (const auto charts = response_charts(results); !charts.empty()) {
    take("response_perplexity.svg", svg_file(charts[0].scene));
    take("response_auc.svg", svg_file(charts[1].scene));
  }
  return note;
}

std::string make_files(const Results& results, const Take& take, const std::string& cairo) {
  make_texts(results, take);
  return make_pictures(results, take, cairo);
}

}  // namespace curvature::report
