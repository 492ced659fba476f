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

// Broken UTF-8 would be refused by the JSON library.
std::string dumped(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
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

Json tensors(const Results& results) {
  Json out = Json::array();
  for (const Tensor& tensor : results.tensors) {
    Json one = {{"name", tensor.name},
                {"shape", tensor.shape},
                {"block", tensor.block},
                {"block_number", tensor.block_number},
                {"rows", tensor.rows}};
    add_measures(one, tensor.measures);
    one["measured_rows"] = Json::array();
    for (const auto& [index, measures] : tensor.measured_rows) {
      Json row = {{"row", index}};
      add_measures(row, measures);
      one["measured_rows"].push_back(std::move(row));
    }
    out.push_back(std::move(one));
  }
  return out;
}

Json activations(const Results& results) {
  Json out = Json::array();
  for (const Site& site : results.sites) {
    Json zeros = Json::array(), below = Json::array();
    for (const auto& unit : site.units) zeros.push_back(unit.zeros), below.push_back(unit.below);
    out.push_back({{"block", site.block},
                   {"block_number", site.block_number},
                   {"op", site.op},
                   {"tokens", site.tokens},
                   {"exact_zeros", site.zeros},
                   {"sparsity", site.below},
                   {"unit_exact_zeros", std::move(zeros)},
                   {"unit_sparsity", std::move(below)}});
  }
  return out;
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

Json embedding(const Embedding& of) {
  Json points = Json::array();
  for (const auto& [tensor, row, x, y, cluster] : of.points) {
    Json point = {{"tensor", tensor}, {"row", nullptr}, {"x", x}, {"y", y}, {"cluster", cluster}};
    if (row >= 0) point["row"] = row;
    points.push_back(std::move(point));
  }
  return {{"method", of.method},
          {"features", of.features},
          {"dbscan_radius", of.dbscan_radius},
          {"dbscan_points", of.dbscan_points},
          {"silhouette_reason", of.silhouette_reason},
          {"points", std::move(points)}};
}

void flatten(const Json& json, const std::string& key, std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object()) {
    out.emplace_back(key, json.is_string() ? json.get<std::string>() : dumped(json, -1));
    return;
  }
  for (const auto& [name, value] : json.items()) flatten(value, key.empty() ? name : key + "." + name, out);
}

}  // namespace

std::string results_json(const Results& results) {
  Json facts = parsed_facts(results), out;
  out["v"] = 1;
  for (const char* key : {"timestamp", "device", "memory", "model", "data"}) {
    out[key] = facts.contains(key) ? facts[key] : nullptr;
    facts.erase(key);
  }
  out["engine"] = facts.empty() ? Json::object() : std::move(facts);
  out["settings"] = Json::object();
  for (const auto& [key, value] : results.settings) out["settings"][key] = value;
  out["method"] = results.method;
  out["probes"] = results.probes;
  out["step"] = results.step;
  out["confidence"] = results.confidence;
  out["activation_threshold"] = results.activation_threshold;
  out["hessian_data_size"] = hessian_data_size(results);
  out["Wfunc"] = results.partition.functional;
  out["Wsens"] = results.partition.sensitive;
  out["Wboth"] = results.partition.both;
  out["partition"] = partition(results.partition);
  out["silhouette"] = results.embedding.silhouette;
  out["prm_results"] = response_map(results.response_map);
  out["embedding"] = embedding(results.embedding);
  out["activations"] = activations(results);
  out["tensors"] = tensors(results);
  return dumped(out, 1) + "\n";
}

std::vector<std::pair<std::string, std::string>> facts_table(const Results& results) {
  std::vector<std::pair<std::string, std::string>> out;
  flatten(parsed_facts(results), "", out);
  return out;
}

}  // namespace curvature::report
