// SPDX-License-Identifier: Apache-2.0
#include "files.hpp"

#include "charts.hpp"
#include "csv.hpp"
#include "json.hpp"
#include "page.hpp"
#include "png.hpp"

namespace curvature::report {

Files files(const Results& results, const std::string& cairo) {
  Files out{{{"results.json", results_json(results)},
             {"results.csv", tensors_csv(results)},
             {"report.html", report_page(results)}},
            ""};
  if (std::string rows = rows_csv(results); !rows.empty()) out.files.push_back({"rows.csv", std::move(rows)});
  const auto picture = [&](const char* name, const Chart& chart) {
    if (chart.scene.marks.empty()) return;
    auto [bytes, why] = png(chart.scene, cairo);
    if (bytes.empty())
      out.note += std::string(out.note.empty() ? "" : "\n") + name + " is left out: " + why;
    else
      out.files.push_back({name, std::move(bytes)});
  };
  picture("phase.png", phase_diagram(results));
  picture(results.embedding.method == "umap" ? "umap.png" : "pca.png", embedding_map(results));
  return out;
}

}  // namespace curvature::report
