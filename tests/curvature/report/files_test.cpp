// SPDX-License-Identifier: Apache-2.0
// Odd results: hostile names, gaps, numbers that are not finite, nothing at all.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>
#include <sstream>
#include <string>

#include "plugins/curvature/report/axis.hpp"
#include "plugins/curvature/report/text.hpp"
#include "sample.hpp"
#include "table.hpp"

using namespace curvature;
using Json = nlohmann::json;

namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

// Sets every number of the results that may be missing.
void set_all(Results& r, double value) {
  const auto measures = [&](Measures& of) {
    of.hessian = {value, value, value};
    of.magnitude = of.zeros = of.below = of.gradient_norm = of.weight_norm = value;
  };
  r.step = r.activation_threshold = value;
  for (Tensor& tensor : r.tensors) {
    measures(tensor.measures);
    for (Row& row : tensor.measured_rows) measures(row.measures);
  }
  for (Site& site : r.sites) {
    site.zeros = site.below = value;
    for (auto& unit : site.units) unit = {value, value};
  }
  Partition& p = r.partition;
  p.functional_hessian = p.functional_sparsity = p.sensitive_hessian = p.sensitive_sparsity = {value, value};
  r.response_map.base_perplexity = r.response_map.base_auc = value;
  for (Response& response : r.response_map.responses) {
    response.perplexity_change = response.auc = {value, value, value};
    for (auto& trial : response.trials) trial.perplexity_change = trial.auc = value;
  }
  for (auto& point : r.embedding.points) point.x = point.y = value;
  r.embedding.dbscan_radius = r.embedding.silhouette = value;
}

size_t nulls(const Json& json) {
  if (!json.is_structured()) return json.is_null();
  size_t sum = 0;
  for (const auto& one : json) sum += nulls(one);
  return sum;
}

// Each element of the XML ends where it must, with its name.
bool well_formed(const std::string& xml) {
  std::vector<std::string> open;
  for (size_t at = xml.find('<'); at != std::string::npos; at = xml.find('<', at + 1)) {
    const size_t end = xml.find('>', at);
    if (end == std::string::npos || xml.find('<', at + 1) < end) return false;
    const std::string tag = xml.substr(at + 1, end - at - 1);
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != name) return false;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty();
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a hostile name stays a name in every file") {
  const std::string name = hostile_name();
  REQUIRE(name.size() == 1000);
  Results results = sample_results(3);
  results.tensors[5].name = results.tensors[5].block = results.sites[0].block = results.sites[1].op = name;
  results.settings.emplace_back(name, name), results.method = results.embedding.method = name;
  results.embedding.features[0] = results.embedding.silhouette_reason = results.partition.by = name;
  results.embedding.silhouette = none;
  results.facts = Json{{name.substr(0, 30), name.substr(0, 45)}}.dump();

  const Json json = Json::parse(file_of(results, "results.json"));
  const std::string kept = json["tensors"][5]["name"];
  CHECK(kept.substr(0, 40) == name.substr(0, 40));
  CHECK(has(kept, "\r\nline\x01\x7f\xef\xbf\xbd\xc3\xa9"));  // but for the byte that is not UTF-8

  const CsvTable table = read_csv(file_of(results, "results.csv")), rows = read_csv(file_of(results, "rows.csv"));
  REQUIRE(table.size() == results.tensors.size() + 1);
  CHECK(table[6][0] == report::clean(name));
  CHECK(table[6][2] == report::clean(name));
  CHECK(rows[1][0] == report::clean(name));

  const std::string page = file_of(results, "report.html");
  CHECK(!has(page, "<script"));
  CHECK(
      has(page,
          "&lt;script&gt;alert(&#39;x&#39;)&lt;/script&gt;&quot;quoted&quot;, a&amp;b??line???\xc3\xa9 ]]&gt; --&gt;"));
  CHECK(report::clean(page).find('?') != std::string::npos);
  for (const char c : page) CHECK_FALSE((static_cast<unsigned char>(c) < 0x20 && c != '\n'));
}

TEST_CASE("text is made showable character by character") {
  CHECK(report::clean("a\tb\n\x1b[0m\x7f") == "a?b??[0m?");
  CHECK(report::clean("\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80") == "\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80");
  CHECK(report::clean("\xc3") == "?");
  CHECK(report::clean("\xe2\x82") == "??");
  CHECK(report::clean("\xf0\x9f\x98z") == "???z");
  CHECK(report::clean("\xc0\x80\xed\xa0\x80\xf4\x90\x80\x80\xff") == "??????????");  // too long, a surrogate, too large
  CHECK(report::clean("\xc2\x85\xe2\x80\xae\xe2\x81\xa6\xef\xbf\xbf") == "????");    // C1, marks of direction
  CHECK(report::clean(std::string(2, '\0')) == "??");
  CHECK(report::brief("\xc3\xa9\xc3\xa9", 3) == "\xc3\xa9…");
  CHECK(report::brief("abc", 3) == "abc");
  CHECK(report::short_number(-0.000123456) == "-0.0001235");
  CHECK(report::short_number(infinity) == "–");
  CHECK(report::exact_number(none).empty());
}

TEST_CASE("a number that is not finite is null, an empty field or a dash") {
  const Results good = sample_results(3);
  const Json before = Json::parse(file_of(good, "results.json"));
  for (const double value : {none, infinity, -infinity}) {
    Results results = good;
    set_all(results, value);
    const Json json = Json::parse(file_of(results, "results.json"));
    const size_t numbers = 2 + 19 * 8 + 6 * 3 * 8 + 3 * (2 + 2 * 16) + 8 + 2 + 12 * (6 + 6) + 19 * 2 + 2;
    CHECK(nulls(json) == numbers + 19);  // and the points' rows
    CHECK(nulls(before) == 19 + 2 + 13 * 2);
    const CsvTable table = read_csv(file_of(results, "results.csv"));
    for (size_t column = 5; column < 13; ++column) CHECK(table[1][column].empty());
    for (const std::string& text :
         {file_of(results, "results.csv"), file_of(results, "rows.csv"), file_of(results, "report.html")})
      for (const char* word : {"nan", "NaN", "inf,", ">inf", "inf<", "\"inf"}) CHECK(!has(text, word));
    CHECK(has(file_of(results, "report.html"), "<td class=\"number\">–</td>"));
  }
}

TEST_CASE("an analysis that found nothing has all its files") {
  const auto [files, note] = files_of({});
  CHECK(note.empty());
  REQUIRE(files.size() == 4);
  CHECK(files[0].name == "results.json");
  const Json json = Json::parse(files[0].bytes);
  CHECK(json["timestamp"].is_null());
  CHECK(json["tensors"].empty());
  CHECK(json["hessian_data_size"] == 0);
  CHECK(files[1].name == "results_flat.json");
  CHECK(Json::parse(files[1].bytes)["prm_results"].empty());
  CHECK(files[2].name == "results.csv");
  CHECK(read_csv(files[2].bytes).size() == 1);
  CHECK(files[3].name == "report.html");
  for (const char* text : {"There is no tensor.", "No noise was applied.", "No activation was counted.",
                           "Nothing was measured.", "The engine said nothing."})
    CHECK(has(files[3].bytes, text));
}

TEST_CASE("activations without units have a profile and no curves") {
  Results results = sample_results(2);
  CHECK(has(file_of(results, "report.html"), "Units: exact zeros"));
  for (Site& site : results.sites) site.units.clear();
  const std::string page = file_of(results, "report.html");
  CHECK(has(page, "Sparsity after eng.activation/1"));
  CHECK(!has(page, "Units: exact zeros"));
  CHECK(!has(page, "percentile of the units"));
}

TEST_CASE("pictures for papers are SVG files that need no page and no cairo") {
  Results results = sample_results(3);
  const Files files = files_of(results, "/nowhere");
  for (const char* name : {"phase.svg", "umap.svg", "response.svg", "response_perplexity.svg", "response_auc.svg"}) {
    INFO(name);
    const std::string picture = bytes_of(files, name);
    CHECK(picture.rfind("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"85mm\"", 0) == 0);
    CHECK(has(picture, "DejaVu Sans"));
    CHECK(well_formed(picture));
    CHECK(!has(picture, "var(--"));
    // Every colour that a mark asks for has a rule.
    const std::string style = picture.substr(0, picture.find("</style>"));
    std::set<std::string> missing;
    for (size_t at = picture.find("class=\""); at != std::string::npos; at = picture.find("class=\"", at + 1)) {
      std::istringstream words(picture.substr(at + 7, picture.find('"', at + 7) - at - 7));
      for (std::string word; words >> word;)
        if (!has(style, "." + word + " {") && !has(style, "." + word + ",")) missing.insert(word);
    }
    CHECK(missing == std::set<std::string>{});
    CHECK(picture == file_of(results, name));
  }
  CHECK(has(bytes_of(files, "phase.svg"), ">log10 of mean |H| (H in nats)</text>"));
  CHECK(has(bytes_of(files, "umap.svg"), ">UMAP 1</text>"));
  CHECK(has(bytes_of(files, "response.svg"), ">change of perplexity</text>"));
  CHECK(has(bytes_of(files, "response.svg"), ">functional</text>"));
  CHECK(has(bytes_of(files, "response_auc.svg"), ">AUC</text>"));
  results.tensors[5].measures.magnitude *= 2;
  CHECK(file_of(results, "phase.svg") != bytes_of(files, "phase.svg"));
  results.response_map.responses.clear();
  results.embedding.method = "pca";
  CHECK(file_of(results, "response_auc.svg").empty());
  CHECK(file_of(results, "umap.svg").empty());
  CHECK(!file_of(results, "pca.svg").empty());
}

TEST_CASE("every colour of the page has a value on light and dark pages and on paper") {
  const std::string page = file_of(sample_results(3), "report.html");
  std::set<std::string> names;
  for (size_t at = page.find("var(--"); at != std::string::npos; at = page.find("var(--", at + 1))
    names.insert(page.substr(at + 4, page.find(')', at) - at - 4));
  CHECK(names.size() > 12);
  for (const std::string& name : names) {
    INFO(name);
    size_t values = 0;
    for (size_t at = page.find(name + ": "); at != std::string::npos; at = page.find(name + ": ", at + 1)) ++values;
    CHECK(values == 3);
  }
}

TEST_CASE("facts that are no JSON object are refused") {
  for (const char* facts : {"", "[]", "{", "7"}) {
    Results results;
    results.facts = facts;
    CHECK_THROWS_WITH(file_of(results, "results.json"),
                      "the facts of the engine must be a JSON object, but are `" + std::string(facts) + "`");
    CHECK_THROWS_AS(files_of(results), std::invalid_argument);
  }
}

TEST_CASE("results_flat.json has the main numbers under the names that circulate") {
  Results results = sample_results(2);
  results.facts =
      R"({"now": "2030-01-02T03:04:05Z", "device": {"plugin": "cuda", "name": "A800"},
          "memory": {"measured": {"device_peak_bytes": 60600000000}}})";
  Json flat = Json::parse(file_of(results, "results_flat.json"));
  CHECK(flat["timestamp"] == "2030-01-02T03:04:05Z");
  CHECK(flat["experiment_type"] == "curvature_hutchinson");
  CHECK(flat["gpu_device"] == "A800");
  CHECK(flat["gpu_memory_used"] == 60.6);
  CHECK(flat["gpu_optimized"] == true);
  CHECK(flat["umap_silhouette_score"] == results.embedding.silhouette);
  CHECK(flat["parameter_counts"] == Json{{"Wfunc", 400000}, {"Wsens", 300001}, {"Wboth", 370463}});
  CHECK(flat["hessian_data_size"] == Json::parse(file_of(results, "results.json"))["hessian_data_size"]);
  REQUIRE(flat["prm_results"].size() == 12);
  CHECK(flat["prm_results"][3]["class"] == "functional");
  CHECK(flat["prm_results"][3]["sigma"] == 1e-3);
  CHECK(flat["prm_results"][3]["perplexity_change"] == results.response_map.responses[3].perplexity_change.mean);
  CHECK(flat["prm_results"][3]["auc_low"] == results.response_map.responses[3].auc.low);

  results.facts = R"({"device": {"plugin": "cpu", "name": "a processor"}})";
  results.embedding.method = "pca";
  flat = Json::parse(file_of(results, "results_flat.json"));
  for (const char* missing : {"timestamp", "gpu_device", "gpu_memory_used", "umap_silhouette_score"})
    CHECK(flat.at(missing).is_null());
  CHECK(flat["gpu_optimized"] == false);
}

TEST_CASE("docs/analysis.md names every field of results.json and results.csv") {
  std::ifstream file(std::string(ENGINE_SOURCE_DIR) + "/docs/analysis.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  REQUIRE(has(page, "## results.json"));
  Json json = Json::parse(file_of(sample_results(1), "results.json"));
  for (const char* other : {"settings", "device", "model", "data", "memory", "engine"}) json[other] = 0;  // of any name
  std::set<std::string> names;
  const Json flat = json.flatten();
  for (const auto& [pointer, value] : flat.items()) {
    std::istringstream parts(pointer);
    for (std::string part; std::getline(parts, part, '/');)
      if (!part.empty() && !std::isdigit(part[0])) names.insert(part);
  }
  const CsvTable table = read_csv(file_of(sample_results(1), "results.csv"));
  names.insert(table[0].begin(), table[0].end());
  const Json circulating = Json::parse(file_of(sample_results(1), "results_flat.json"));
  for (const auto& [name, value] : circulating.items()) names.insert(name);
  for (const auto& [name, value] : circulating["prm_results"][0].items()) names.insert(name);
  CHECK(names.size() > 60);
  for (const std::string& name : names) {
    INFO(name);
    CHECK(has(page, "`" + name + "`"));
  }
}

TEST_CASE("many rows: the page has some, rows.csv all") {
  Results results = sample_results(1);
  for (uint64_t row = 0; row < 5000; ++row) results.tensors[0].measured_rows.push_back({row, {}});
  results.partition.by = "row";
  const std::string page = file_of(results, "report.html");
  CHECK(has(page, "Measured rows: the first 1000 of 5006; rows.csv has all"));
  CHECK(has(page, "Of 5006 rows, 2503 are drawn, evenly chosen."));
  CHECK(read_csv(file_of(results, "rows.csv")).size() == 5007);
}

TEST_CASE("an axis has a place for every value, and few ticks") {
  using report::Axis;
  const std::vector<std::vector<double>> sets = {{},
                                                 {0},
                                                 {7},
                                                 {-1e308, 1e308},
                                                 {1, std::nextafter(1, 2)},
                                                 {none, 3, infinity},
                                                 {5e-324, 1e-320},
                                                 {-5, 1e-9, 1e4},
                                                 {0, 1e-5, 1e300}};
  for (const auto& values : sets)
    for (const Axis& axis :
         {Axis::linear(values, 50, 400), Axis::whole(values, 50, 400), Axis::changes(values, values, 400, 50)}) {
      INFO(values.size() << " " << (values.empty() ? 0 : values.back()));
      for (const double value : values)
        if (std::isfinite(value)) {
          CHECK(axis.place(value) >= 49.999);
          CHECK(axis.place(value) <= 400.001);
        }
      const auto ticks = axis.ticks();
      CHECK(ticks.size() <= 15);
      for (const auto& tick : ticks) CHECK(std::isfinite(tick.at));
    }
  const Axis both = Axis::changes({-5, 1e-9, 1e4}, {-5, 1e-9, 1e4}, 0, 100);
  CHECK(both.logarithmic());
  CHECK(both.place(-5) < both.place(-1e-9));
  CHECK(both.place(1e-9) - both.place(0) == Approx(both.place(0) - both.place(-1e-9)));
  CHECK(both.place(1) < both.place(10));
  CHECK_FALSE(Axis::changes({1, 99}, {1, 99}, 0, 100).logarithmic());
}
