// SPDX-License-Identifier: Apache-2.0
// Each field of the results moves the files, and moves nothing else in them.
#include <catch2/catch.hpp>
#include <nlohmann/json.hpp>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "sample.hpp"
#include "table.hpp"

using namespace curvature;
using Json = nlohmann::json;

namespace {

using Names = std::vector<std::string>;

struct Change {
  void (*change)(Results&);
  Names json;      // where results.json differs, as pointers
  Names csv = {};  // where results.csv differs: column@record
  Names rows = {};
};

const Change changes[] = {
    {[](Results& r) { r.settings[2].second = "18"; }, {"/settings/seed"}},
    {[](Results& r) { r.settings[5].second = "[1, 2, 4]"; }, {"/settings/noise.seeds"}},
    {[](Results& r) { r.method = "fisher"; }, {"/method"}},
    {[](Results& r) { r.probes = 33; }, {"/probes"}},
    {[](Results& r) { r.step = 0.5; }, {"/step"}},
    {[](Results& r) { r.confidence = 0.9; }, {"/confidence"}},
    {[](Results& r) { r.activation_threshold = 0.5; }, {"/activation_threshold"}},

    {[](Results& r) { r.tensors[1].name = "another"; }, {"/tensors/1/name"}, {"name@2"}},
    {[](Results& r) { r.tensors[1].shape[1] = 65; }, {"/tensors/1/shape/1"}, {"shape@2"}},
    {[](Results& r) { r.tensors[1].block = "other"; }, {"/tensors/1/block"}, {"block@2"}},
    {[](Results& r) { r.tensors[1].block_number = 77; }, {"/tensors/1/block_number"}, {"block_number@2"}},
    {[](Results& r) { r.tensors[1].rows = 99; }, {"/tensors/1/rows"}, {"rows@2"}},
    {[](Results& r) { r.tensors[1].measures.hessian.mean = 0.125; }, {"/tensors/1/hessian_mean"}, {"hessian_mean@2"}},
    {[](Results& r) { r.tensors[1].measures.hessian.low = -3.5; }, {"/tensors/1/hessian_low"}, {"hessian_low@2"}},
    {[](Results& r) { r.tensors[1].measures.hessian.high = 3.5; }, {"/tensors/1/hessian_high"}, {"hessian_high@2"}},
    {[](Results& r) { r.tensors[1].measures.magnitude = 0.25; }, {"/tensors/1/hessian_abs"}, {"hessian_abs@2"}},
    {[](Results& r) { r.tensors[1].measures.elements += 1; },
     {"/hessian_data_size", "/tensors/1/elements"},
     {"elements@2"}},
    {[](Results& r) { r.tensors[5].measures.zeros = 0.0625; }, {"/tensors/5/exact_zeros"}, {"exact_zeros@6"}},
    {[](Results& r) { r.tensors[5].measures.below = 0.03125; }, {"/tensors/5/sparsity"}, {"sparsity@6"}},
    {[](Results& r) { r.tensors[1].measures.gradient_norm = 7.5; }, {"/tensors/1/gradient_norm"}, {"gradient_norm@2"}},
    {[](Results& r) { r.tensors[1].measures.weight_norm = 8.5; }, {"/tensors/1/weight_norm"}, {"weight_norm@2"}},
    {[](Results& r) { r.tensors[1].measures.kind = Class::sensitive; }, {"/tensors/1/class"}, {"class@2"}},

    {[](Results& r) { r.tensors[5].measured_rows[1].index = 8; }, {"/tensors/5/measured_rows/1/row"}, {}, {"row@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.hessian.mean = 0.125; },
     {"/tensors/5/measured_rows/1/hessian_mean"},
     {},
     {"hessian_mean@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.hessian.low = -3.5; },
     {"/tensors/5/measured_rows/1/hessian_low"},
     {},
     {"hessian_low@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.hessian.high = 3.5; },
     {"/tensors/5/measured_rows/1/hessian_high"},
     {},
     {"hessian_high@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.magnitude = 0.25; },
     {"/tensors/5/measured_rows/1/hessian_abs"},
     {},
     {"hessian_abs@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.elements = 5; },
     {"/tensors/5/measured_rows/1/elements"},
     {},
     {"elements@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.zeros = 0.0625; },
     {"/tensors/5/measured_rows/1/exact_zeros"},
     {},
     {"exact_zeros@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.below = 0.03125; },
     {"/tensors/5/measured_rows/1/sparsity"},
     {},
     {"sparsity@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.gradient_norm = 7.5; },
     {"/tensors/5/measured_rows/1/gradient_norm"},
     {},
     {"gradient_norm@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.weight_norm = 8.5; },
     {"/tensors/5/measured_rows/1/weight_norm"},
     {},
     {"weight_norm@2"}},
    {[](Results& r) { r.tensors[5].measured_rows[1].measures.kind = Class::functional; },
     {"/tensors/5/measured_rows/1/class"},
     {},
     {"class@2"}},

    {[](Results& r) { r.sites[0].block = "other"; }, {"/activations/0/block"}},
    {[](Results& r) { r.sites[0].block_number = 77; }, {"/activations/0/block_number"}},
    {[](Results& r) { r.sites[0].op = "x.relu/1"; }, {"/activations/0/op"}},
    {[](Results& r) { r.sites[0].tokens = 5; }, {"/activations/0/tokens"}},
    {[](Results& r) { r.sites[0].zeros = 0.0625; }, {"/activations/0/exact_zeros"}},
    {[](Results& r) { r.sites[0].below = 0.03125; }, {"/activations/0/sparsity"}},
    {[](Results& r) { r.sites[0].units[9].zeros = 0.0625; }, {"/activations/0/unit_exact_zeros/9"}},
    {[](Results& r) { r.sites[0].units[9].below = 0.03125; }, {"/activations/0/unit_sparsity/9"}},

    {[](Results& r) { r.partition.by = "row"; }, {"/partition/by"}},
    {[](Results& r) { r.partition.functional_hessian.value = 0.5; }, {"/partition/functional_hessian/value"}},
    {[](Results& r) { r.partition.functional_hessian.quantile = 0.5; }, {"/partition/functional_hessian/quantile"}},
    {[](Results& r) { r.partition.functional_sparsity.value = 0.25; }, {"/partition/functional_sparsity/value"}},
    {[](Results& r) { r.partition.functional_sparsity.quantile = 0.25; }, {"/partition/functional_sparsity/quantile"}},
    {[](Results& r) { r.partition.sensitive_hessian.value = 0.25; }, {"/partition/sensitive_hessian/value"}},
    {[](Results& r) { r.partition.sensitive_hessian.quantile = none; }, {"/partition/sensitive_hessian/quantile"}},
    {[](Results& r) { r.partition.sensitive_sparsity.value = 0.75; }, {"/partition/sensitive_sparsity/value"}},
    {[](Results& r) { r.partition.sensitive_sparsity.quantile = 0.75; }, {"/partition/sensitive_sparsity/quantile"}},
    {[](Results& r) { r.partition.functional += 1; }, {"/Wfunc"}},
    {[](Results& r) { r.partition.sensitive += 1; }, {"/Wsens"}},
    {[](Results& r) { r.partition.both += 1; }, {"/Wboth"}},

    {[](Results& r) { r.response_map.relative = true; }, {"/prm_results/relative"}},
    {[](Results& r) { r.response_map.base_perplexity = 9.5; }, {"/prm_results/base_perplexity"}},
    {[](Results& r) { r.response_map.base_auc = 0.75; }, {"/prm_results/base_auc"}},
    {[](Results& r) { r.response_map.responses[3].kind = Class::both; }, {"/prm_results/responses/3/class"}},
    {[](Results& r) { r.response_map.responses[3].sigma = 0.01; }, {"/prm_results/responses/3/sigma"}},
    {[](Results& r) { r.response_map.responses[3].perplexity_change.mean = 2; },
     {"/prm_results/responses/3/perplexity_change/mean"}},
    {[](Results& r) { r.response_map.responses[3].perplexity_change.low = -2; },
     {"/prm_results/responses/3/perplexity_change/low"}},
    {[](Results& r) { r.response_map.responses[3].perplexity_change.high = 22; },
     {"/prm_results/responses/3/perplexity_change/high"}},
    {[](Results& r) { r.response_map.responses[3].auc.mean = 0.25; }, {"/prm_results/responses/3/auc/mean"}},
    {[](Results& r) { r.response_map.responses[3].auc.low = 0.125; }, {"/prm_results/responses/3/auc/low"}},
    {[](Results& r) { r.response_map.responses[3].auc.high = 0.875; }, {"/prm_results/responses/3/auc/high"}},
    {[](Results& r) { r.response_map.responses[3].trials[1].seed = 9; }, {"/prm_results/responses/3/trials/1/seed"}},
    {[](Results& r) { r.response_map.responses[3].trials[1].perplexity_change = 7; },
     {"/prm_results/responses/3/trials/1/perplexity_change"}},
    {[](Results& r) { r.response_map.responses[3].trials[1].auc = 0.375; }, {"/prm_results/responses/3/trials/1/auc"}},

    {[](Results& r) { r.embedding.method = "pca"; }, {"/embedding/method"}},
    {[](Results& r) { r.embedding.features[1] = "other"; }, {"/embedding/features/1"}},
    {[](Results& r) { r.embedding.points[2].tensor = 3; }, {"/embedding/points/2/tensor"}},
    {[](Results& r) { r.embedding.points[2].row = 5; }, {"/embedding/points/2/row"}},
    {[](Results& r) { r.embedding.points[2].x = 0.5; }, {"/embedding/points/2/x"}},
    {[](Results& r) { r.embedding.points[2].y = 0.5; }, {"/embedding/points/2/y"}},
    {[](Results& r) { r.embedding.points[2].cluster = 9; }, {"/embedding/points/2/cluster"}},
    {[](Results& r) { r.embedding.dbscan_radius = 0.75; }, {"/embedding/dbscan_radius"}},
    {[](Results& r) { r.embedding.dbscan_points = 7; }, {"/embedding/dbscan_points"}},
    {[](Results& r) { r.embedding.silhouette = 0.25; }, {"/silhouette"}},
};

Names changed_places(const Json& a, const Json& b) {
  Names out;
  for (const auto& one : Json::diff(a, b)) out.push_back(one["path"]);
  std::sort(out.begin(), out.end());
  return out;
}

struct Read {
  Json json;
  CsvTable csv, rows;
  std::string page;
  explicit Read(const Results& results) {
    const auto files = files_of(results);
    json = Json::parse(bytes_of(files, "results.json"));
    csv = read_csv(bytes_of(files, "results.csv")), rows = read_csv(bytes_of(files, "rows.csv"));
    page = bytes_of(files, "report.html");
  }
};

}  // namespace

TEST_CASE("each field of the results moves each file that has it, and nothing else there") {
  const Results before = sample_results(1);
  const Read old(before);
  for (const Change& one : changes) {
    Results after = before;
    one.change(after);
    INFO(one.json[0]);
    const Read now(after);
    CHECK(changed_places(old.json, now.json) == one.json);
    CHECK(differences(old.csv, now.csv) == one.csv);
    if (one.json[0] != "/tensors/1/name") CHECK(differences(old.rows, now.rows) == one.rows);  // it stands in both
    CHECK(old.page != now.page);
  }
}

TEST_CASE("every field of results.json is among those that are changed") {
  const auto pattern = [](const std::string& pointer) {
    std::string out;
    for (const char c : pointer)
      if (c < '0' || c > '9')
        out += c;
      else if (out.back() == '/')
        out += '*';
    return out;
  };
  // The version; what the next test changes; and what is empty where no row was measured.
  std::set<std::string> changed = {"/v", "/embedding/silhouette_reason", "/tensors/*/measured_rows"};
  for (const Change& one : changes)
    for (const std::string& place : one.json) changed.insert(pattern(place));
  const Json json = Json::parse(file_of(sample_results(1), "results.json")), flat = json.flatten();
  size_t fields = 0;
  for (const char* part : {"timestamp", "device", "memory", "model", "data", "engine"}) CHECK(json.contains(part));
  for (const auto& [pointer, value] : flat.items()) {
    const std::string part = pointer.substr(1, pointer.find('/', 1) - 1);
    const bool fact = part == "timestamp" || part == "device" || part == "memory" || part == "model" ||
                      part == "data" || part == "engine" || part == "settings";
    if (fact) continue;  // tried below; and settings are of any name
    INFO(pointer);
    CHECK(changed.count(pattern(pointer)));
    ++fields;
  }
  CHECK(fields > 200);
}

TEST_CASE("the reason for no silhouette is told where there is none") {
  Results results = sample_results(1);
  results.embedding.silhouette = none, results.embedding.silhouette_reason = "there is one cluster";
  const Json json = Json::parse(file_of(results, "results.json"));
  CHECK(json["silhouette"].is_null());
  CHECK(json["embedding"]["silhouette_reason"] == "there is one cluster");
  CHECK(file_of(results, "report.html").find("none: there is one cluster") != std::string::npos);
}

TEST_CASE("each fact of the engine moves results.json and the page") {
  const Results before = sample_results(1);
  const Json json = Json::parse(file_of(before, "results.json"));
  const Json facts = Json::parse(before.facts).flatten();
  REQUIRE(facts.size() == 16);
  CHECK(file_of(before, "report.html").find("2026-11-25T12:00:00Z · 2 cores · fp32 · 0.1.0") != std::string::npos);
  for (const auto& [key, value] : facts.items()) {
    INFO(key);
    Json changed = Json::parse(before.facts);
    changed[Json::json_pointer(key)] = value.is_string() ? Json("changed") : Json(77);
    Results after = before;
    after.facts = changed.dump();
    const Names places = changed_places(json, Json::parse(file_of(after, "results.json")));
    REQUIRE(places.size() == 1);
    CHECK((places[0] == (key == "/now" ? "/timestamp" : key) || places[0] == "/engine" + key));
    CHECK(file_of(before, "report.html") != file_of(after, "report.html"));
  }
}

TEST_CASE("numbers come back with all their digits, and equal results give equal bytes") {
  Results results = sample_results(1);
  const double odd = 0.1 + 0.2, small = 5e-324, large = 1.7976931348623157e308;
  results.tensors[0].measures.hessian = {odd, small, large};
  const Json all = Json::parse(file_of(results, "results.json")), one = all["tensors"][0];
  CHECK(one["hessian_mean"] == odd);
  CHECK(one["hessian_low"] == small);
  CHECK(one["hessian_high"] == large);
  const auto record = read_csv(file_of(results, "results.csv"))[1];
  CHECK(std::stod(record[5]) == odd);
  CHECK(record[6] == "5e-324");
  CHECK(std::stod(record[7]) == large);
  results.tensors[0].measures.elements = results.tensors[0].rows = UINT64_MAX - 1000000000;
  CHECK(Json::parse(file_of(results, "results.json"))["tensors"][0]["elements"] == UINT64_MAX - 1000000000);
  CHECK(file_of(results, "results.json") == file_of(results, "results.json"));
  CHECK(file_of(results, "results.json").find("\n{\"name\":\"layers.0.fc1.weight\"") !=
        std::string::npos);  // its own line
  CHECK(file_of(results, "report.html") == file_of(results, "report.html"));
}
