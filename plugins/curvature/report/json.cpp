// SPDX-License-Identifier: Apache-2.0
#include "json.hpp"

#include <nlohmann/json.hpp>
#include <stdexcept>

#include "text.hpp"

namespace curvature::report {
namespace {

using Json = nlohmann::ordered_json;

Json parsed_facts(const Results& results) {
  Json facts = Json::parse(results.facts, nullptr, false);
  if (!facts.is_object())
    throw std::invalid_argument("the facts of the engine must be a JSON object, but are `" +
                                clean(results.facts.substr(0, 100)) + "`");
  return facts;
}

// On one line. Broken UTF-8 would be refused by the JSON library.
std::string dumped(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Adds a list with an item on each line. Long lists are written item by item: the whole as a Json takes much memory.
template <class Item, class Add>
void add_lines(std::string& out, const std::vector<Item>& items, Add add) {
  out += "[";
  for (size_t k = 0; k < items.size(); ++k) out += k ? ",\n" : "\n", add(out, items[k]);
  out += "]";
}

// Adds an object with one field more, a list.
template <class Item, class Add>
void add_with_lines(std::string& out, const Json& object, const char* key, const std::vector<Item>& items, Add add) {
  out += dumped(object);
  out.back() = ',';  // for its closing brace
  out += "\"" + std::string(key) + "\":";
  add_lines(out, items, add);
  out += "}";
}

// The library writes null for what is not finite.
Json interval(const Interval& of) {
  return {{"mean", of.mean}, {"low", of.low}, {"high", of.high}};
}

void add_measures(Json& out, const Measures& of) {
  out["hessian_mean"] = of.hessian.mean;
  out["hessian_low"] = of.hessian.low;
  out["hessian_high"] = of.hessian.high;
  for (const auto& [name, number] : numbers_after_hessian) out[name] = of.*number;
  out["elements"] = of.elements;
  out["class"] = class_name(of.kind);
}

void add_row(std::string& text, const Row& row) {
  Json out = {{"row", row.index}};
  add_measures(out, row.measures);
  text += dumped(out);
}

void add_tensor(std::string& text, const Tensor& tensor) {
  Json out = {{"name", tensor.name},
              {"shape", tensor.shape},
              {"block", tensor.block},
              {"block_number", tensor.block_number},
              {"rows", tensor.rows}};
  add_measures(out, tensor.measures);
  add_with_lines(text, out, "measured_rows", tensor.measured_rows, add_row);
}

void add_site(std::string& text, const Site& site) {
  Json zeros = Json::array(), below = Json::array();
  for (const auto& unit : site.units) zeros.push_back(unit.zeros), below.push_back(unit.below);
  text += dumped({{"block", site.block},
                  {"block_number", site.block_number},
                  {"op", site.op},
                  {"tokens", site.tokens},
                  {"exact_zeros", site.zeros},
                  {"sparsity", site.below},
                  {"unit_exact_zeros", std::move(zeros)},
                  {"unit_sparsity", std::move(below)}});
}

Json threshold(const Partition::Threshold& of) {
  return {{"value", of.value}, {"quantile", of.quantile}};
}

Json partition(const Partition& of) {
  return {{"by", of.by},
          {"functional_hessian", threshold(of.functional_hessian)},
          {"functional_sparsity", threshold(of.functional_sparsity)},
          {"sensitive_hessian", threshold(of.sensitive_hessian)},
          {"sensitive_sparsity", threshold(of.sensitive_sparsity)}};
}

Json response_map(const ResponseMap& map) {
  Json responses = Json::array();
  for (const Response& of : map.responses) {
    Json trials = Json::array();
    for (const auto& [seed, change, auc] : of.trials)
      trials.push_back({{"seed", seed}, {"perplexity_change", change}, {"auc", auc}});
    responses.push_back({{"class", class_name(of.kind)},
                         {"sigma", of.sigma},
                         {"perplexity_change", interval(of.perplexity_change)},
                         {"auc", interval(of.auc)},
                         {"trials", std::move(trials)}});
  }
  return {{"relative", map.relative},
          {"base_perplexity", map.base_perplexity},
          {"base_auc", map.base_auc},
          {"responses", std::move(responses)}};
}

void add_point(std::string& text, const Embedding::Point& point) {
  text += dumped({{"tensor", point.tensor},
                  {"row", point.row < 0 ? Json() : Json(point.row)},
                  {"x", point.x},
                  {"y", point.y},
                  {"cluster", point.cluster}});
}

void add_embedding(std::string& text, const Embedding& of) {
  const Json out = {{"method", of.method},
                    {"features", of.features},
                    {"dbscan_radius", of.dbscan_radius},
                    {"dbscan_points", of.dbscan_points},
                    {"silhouette_reason", of.silhouette_reason}};
  add_with_lines(text, out, "points", of.points, add_point);
}

void flatten(const Json& json, const std::string& key, std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object()) {
    out.emplace_back(key, json.is_string() ? json.get<std::string>() : dumped(json));
    return;
  }
  for (const auto& [name, value] : json.items()) flatten(value, key.empty() ? name : key + "." + name, out);
}

// At least the bytes of the lists, which are nearly all.
size_t length_bound(const Results& results) {
  size_t units = 0;
  for (const Site& site : results.sites) units += site.units.size();
  return 65536 + results.tensors.size() * 2048 + measured_rows(results) * 448 + units * 48 +
         results.embedding.points.size() * 128;
}

}  // namespace

std::string results_json(const Results& results) {
  Json facts = parsed_facts(results), settings = Json::object();
  for (const auto& [key, value] : results.settings) settings[key] = value;
  std::string out;
  out.reserve(length_bound(results));  // what grows has its old and its new room at once
  out += "{\n\"v\": 1";
  const auto key = [&](const char* name) { out += ",\n\"" + std::string(name) + "\": "; };
  const auto add = [&](const char* name, const Json& value) { key(name), out += dumped(value); };
  const std::pair<const char*, const char*> taken[] = {
      {"timestamp", "now"}, {"device", "device"}, {"memory", "memory"}, {"model", "model"}, {"data", "data"}};
  for (const auto& [name, fact] : taken) {
    add(name, facts.contains(fact) ? facts[fact] : Json());
    facts.erase(fact);
  }
  add("engine", facts);
  add("settings", settings);
  add("method", results.method);
  add("probes", results.probes);
  add("step", results.step);
  add("confidence", results.confidence);
  add("activation_threshold", results.activation_threshold);
  add("hessian_data_size", hessian_data_size(results));
  add("Wfunc", results.partition.functional);
  add("Wsens", results.partition.sensitive);
  add("Wboth", results.partition.both);
  add("partition", partition(results.partition));
  add("silhouette", results.embedding.silhouette);
  add("prm_results", response_map(results.response_map));
  key("embedding"), add_embedding(out, results.embedding);
  key("activations"), add_lines(out, results.sites, add_site);
  key("tensors"), add_lines(out, results.tensors, add_tensor);
  out += "\n}\n";
  return out;
}

std::string results_flat_json(const Results& results) {
  const Json facts = parsed_facts(results);
  const auto fact = [&](const char* pointer) {
    const Json::json_pointer at(pointer);
    return facts.contains(at) ? facts.at(at) : Json();
  };
  const Json plugin = fact("/device/plugin"), peak = fact("/memory/measured/device_peak_bytes");
  const bool gpu = plugin.is_string() && plugin != "cpu" && plugin != "reference";
  const Partition& by = results.partition;
  Json out = {
      {"timestamp", fact("/now")},
      {"experiment_type", "curvature_" + results.method},
      {"gpu_device", gpu ? fact("/device/name") : Json()},
      {"gpu_memory_used", gpu && peak.is_number() ? Json(peak.get<double>() / 1e9) : Json()},
      {"prm_results", Json::array()},
      {"umap_silhouette_score", results.embedding.method == "umap" ? Json(results.embedding.silhouette) : Json()},
      {"parameter_counts", {{"Wfunc", by.functional}, {"Wsens", by.sensitive}, {"Wboth", by.both}}},
      {"hessian_data_size", hessian_data_size(results)},
      {"gpu_optimized", gpu}};
  for (const Response& of : results.response_map.responses)
    out["prm_results"].push_back({{"class", class_name(of.kind)},
                                  {"sigma", of.sigma},
                                  {"perplexity_change", of.perplexity_change.mean},
                                  {"perplexity_change_low", of.perplexity_change.low},
                                  {"perplexity_change_high", of.perplexity_change.high},
                                  {"auc", of.auc.mean},
                                  {"auc_low", of.auc.low},
                                  {"auc_high", of.auc.high}});
  return out.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

std::vector<std::pair<std::string, std::string>> facts_table(const Results& results) {
  std::vector<std::pair<std::string, std::string>> out;
  flatten(parsed_facts(results), "", out);
  return out;
}

}  // namespace curvature::report
