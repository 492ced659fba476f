// SPDX-License-Identifier: Apache-2.0
#include "sample.hpp"

#include <fmt/format.h>

#include <cmath>

using namespace curvature;

namespace {

// 0 to 1, always the same.
double random_share(uint64_t n) {
  n = (n + 1) * 0x9e3779b97f4a7c15u;
  n = (n ^ (n >> 30)) * 0xbf58476d1ce4e5b9u;
  n = (n ^ (n >> 27)) * 0x94d049bb133111ebu;
  return static_cast<double>((n ^ (n >> 31)) >> 11) * 0x1p-53;
}

Interval around(double mean, double half) {
  return {mean, mean - half, mean + half};
}

struct Kind {
  const char* name;
  int64_t rows, columns;
  double size;
  bool with_units;
};
constexpr Kind kinds[] = {{"q_proj.weight", 64, 64, 3e-4, false},   {"v_proj.weight", 64, 64, 4e-3, false},
                          {"out_proj.weight", 64, 64, 6e-3, false}, {"layer_norm.weight", 64, 0, 2e-2, false},
                          {"fc1.weight", 256, 64, 2e-3, true},      {"fc2.weight", 64, 256, 8e-3, true}};

Measures measures(double size, uint64_t elements, double sparsity, uint64_t seed) {
  Measures out;
  out.magnitude = size * (0.5 + random_share(seed));
  out.hessian = around(out.magnitude * (random_share(seed + 1) - 0.2), out.magnitude * 0.3);
  out.elements = elements;
  out.zeros = sparsity * 0.9, out.below = sparsity;
  out.gradient_norm = std::sqrt(out.magnitude) * random_share(seed + 2);
  out.weight_norm = 1 + random_share(seed + 3);
  out.kind = out.magnitude > 4e-3 && !(sparsity >= 0.5) ? Class::functional
             : out.magnitude < 2e-3 && sparsity > 0.7   ? Class::sensitive
                                                        : Class::both;
  return out;
}

}  // namespace

Results sample_results(int layers) {
  Results out;
  out.facts =
      R"({"now": "2026-11-25T12:00:00Z", "version": "0.1.0", "commit": "v0-1-gabcdef", "device": {"plugin": "cpu",
    "name": "2 cores"}, "precision": "fp32", "ranks": 2, "model": {"plugin": "opt", "hash": "sha256:12ab", "parameters": 1070464, "layers": 4},
    "data": {"hash": "xxh:77", "windows": {"train": 512, "held_out": 64}},
    "memory": {"planned": 104857600, "measured": 104333312}})";
  out.settings = {{"method", "hutchinson"}, {"probes", "32"},           {"seed", "17"},
                  {"step", "1e-3"},         {"partition.by", "tensor"}, {"noise.seeds", "[1, 2, 3]"}};
  out.probes = 32, out.step = 1.25e-3, out.activation_threshold = 1e-3;
  const auto add = [&](std::string name, std::string block, uint32_t number, const Kind& kind, double sparsity) {
    Tensor tensor;
    const uint64_t seed = out.tensors.size() * 10;
    tensor.name = std::move(name), tensor.block = std::move(block), tensor.block_number = number;
    tensor.shape = {kind.rows};
    if (kind.columns) tensor.shape.push_back(kind.columns);
    tensor.rows = static_cast<uint64_t>(kind.rows);
    const uint64_t columns = static_cast<uint64_t>(kind.columns ? kind.columns : 1);
    tensor.measures = measures(kind.size * std::exp(-0.2 * number), tensor.rows * columns, sparsity, seed);
    for (uint64_t row = 0; kind.with_units && row < 3; ++row)
      tensor.measured_rows.push_back({row * 7, measures(kind.size, columns, sparsity * 0.8, seed + row + 5)});
    out.tensors.push_back(std::move(tensor));
  };
  add("embed.tokens.weight", "embed", 0, {"", 512, 64, 1e-5, false}, none);
  for (int layer = 0; layer < layers; ++layer) {
    const auto number = static_cast<uint32_t>(layer + 1);
    const std::string block = fmt::format("layers.{}", layer);
    const double sparsity = 0.95 - 0.6 * layer / std::max(1, layers);
    for (const Kind& kind : kinds)
      add(fmt::format("{}.{}", block, kind.name), block, number, kind, kind.with_units ? sparsity : none);
    Site site{block, number, "eng.activation/1", 16384, sparsity * 0.9, sparsity, {}};
    for (uint64_t unit = 0; unit < 16; ++unit) {
      const double share = std::min(1.0, sparsity + 0.4 * (random_share(unit + 999 * number) - 0.5));
      site.units.push_back({share * 0.9, share});
    }
    out.sites.push_back(std::move(site));
  }
  out.partition.functional_hessian = {4e-3, 0.75}, out.partition.functional_sparsity = {0.5, none};
  out.partition.sensitive_hessian = {2e-3, 0.25}, out.partition.sensitive_sparsity = {0.7, none};
  out.partition.functional = 400000, out.partition.sensitive = 300001, out.partition.both = 370463;
  ResponseMap& map = out.response_map;
  map.base_perplexity = 8.69, map.base_auc = 0.5312;
  for (const Class kind : classes)
    for (const double sigma : {0.0, 1e-5, 1e-4, 1e-3}) {
      Response response;
      response.kind = kind, response.sigma = sigma;
      const double size = kind == Class::functional ? 900 : kind == Class::sensitive ? 20 : 200, change = size * sigma;
      response.perplexity_change = around(change, change * 0.4), response.auc = around(0.5312 - 10 * sigma, 2 * sigma);
      for (uint64_t seed = 1; seed <= 3; ++seed) {
        const double off = random_share(seed + static_cast<uint64_t>(size)) - 0.5;
        response.trials.push_back({seed, change * (1 + off), 0.5312 - 10 * sigma + 3 * sigma * off});
      }
      map.responses.push_back(response);
    }
  Embedding& embedding = out.embedding;
  embedding.method = "umap", embedding.features = {"log10_hessian", "sparsity", "gradient_norm", "weight_norm"};
  embedding.dbscan_radius = 0.5, embedding.dbscan_points = 4, embedding.silhouette = 0.6180339887498949;
  for (uint32_t k = 0; k < out.tensors.size(); ++k) {
    const int32_t cluster = k % 7 == 3 ? -1 : static_cast<int32_t>(k % 5);
    embedding.points.push_back(
        {k, -1, 3.0 * cluster + random_share(k), 2.0 * (cluster % 3) + random_share(k + 500), cluster});
  }
  return out;
}

Files files_of(const Results& results, const std::string& cairo) {
  Files out;
  out.note = report::make_files(
      results,
      [&](const std::string& name, const std::string& bytes) {
        out.files.push_back({name, bytes});
      },
      cairo);
  return out;
}

std::string bytes_of(const Files& files, const std::string& name) {
  for (const auto& file : files.files)
    if (file.name == name) return file.bytes;
  return "";
}

std::string file_of(const Results& results, const std::string& name, const std::string& cairo) {
  return bytes_of(files_of(results, cairo), name);
}

std::string hostile_name() {
  std::string out = "<script>alert('x')</script>\"quoted\", a&b\r\nline\x01\x7f\xff\xc3\xa9 ]]> --> =1+1";
  return out + std::string(1000 - out.size(), 'n');
}
