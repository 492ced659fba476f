// SPDX-License-Identifier: Apache-2.0
// The partition finds what was planted; each field of the results moves when its cause changes, and else does not.
#include <catch2/catch.hpp>

#include "toys.hpp"

using namespace curvature_test;
using Json = nlohmann::json;

namespace {

const Given few = {{"probes", int64_t{24}},       {"windows", int64_t{8}},
                   {"held_windows", int64_t{16}}, {"train_windows", int64_t{16}},
                   {"noise_seeds", int64_t{2}},   {"noise", std::vector<double>{0, 0.05}},
                   {"save_every", int64_t{1000}}, {"embedding", std::string("pca")},
                   {"cluster_radius", 1.0},       {"cluster_points", int64_t{2}}};
Given with(const Given& more) {
  Given all = few;
  for (const auto& [key, value] : more) all[key] = value;
  return all;
}
Json run(const Toy& toy, const Given& given) {
  ToyHost host(toy, given);
  const eng_status status = host.run();
  INFO(host.error_text);
  REQUIRE(status == ENG_OK);
  return host.results();
}
const Json& tensor(const Json& r, const std::string& name) {
  for (const Json& t : r["tensors"])
    if (t["name"] == name) return t;
  throw std::logic_error("no tensor " + name);
}
// The results at this JSON pointer.
Json at(const Json& r, const std::string& path) {
  return r.at(Json::json_pointer(path));
}

}  // namespace

TEST_CASE("a dead block is found, and a copy of a block is in the class of its original") {
  const Planted toy;
  for (const char* by : {"tensor", "row"}) {
    const Json r = run(toy, with({{"partition", std::string(by)}}));
    for (const char* of : {"fc1.weight", "fc1.bias", "fc2.weight"}) {
      INFO(by << " " << of);
      const Json dead = tensor(r, std::string("layers.2.") + of);
      CHECK(dead["hessian_abs"] == 0.0);
      CHECK(dead["sparsity"] == 1.0);
      CHECK(dead["exact_zeros"] == 1.0);
      CHECK(dead["class"] == "sensitive");
      const Json one = tensor(r, std::string("layers.1.") + of), copy = tensor(r, std::string("layers.3.") + of);
      if (by == std::string("tensor")) CHECK(copy["class"] == one["class"]);  // rows lie at the thresholds
      CHECK(copy["sparsity"] == one["sparsity"]);
      CHECK(copy["weight_norm"] == one["weight_norm"]);
      CHECK(copy["gradient_norm"].get<double>() == Approx(one["gradient_norm"].get<double>()).epsilon(1e-5));
      CHECK(copy["hessian_low"].get<double>() < one["hessian_high"].get<double>());
      CHECK(one["hessian_low"].get<double>() < copy["hessian_high"].get<double>());
      for (const Json& row : dead["measured_rows"]) CHECK(row["class"] == "sensitive");
    }
    uint64_t all = 0;
    for (const auto& p : toy.parameters) all += p.values.size();
    CHECK(r["Wfunc"].get<uint64_t>() + r["Wsens"].get<uint64_t>() + r["Wboth"].get<uint64_t>() == all);
    CHECK(r["Wsens"].get<uint64_t>() >= toy.parameters[0].values.size());
    CHECK(r["Wfunc"].get<uint64_t>() > 0);
  }
}

TEST_CASE("noise moves the perplexity of the class that it is added to; noise of 0 moves nothing") {
  const Json r = run(Planted(), with({{"noise", std::vector<double>{0, 0.5}}, {"noise_seeds", int64_t{3}}}));
  REQUIRE(r["prm_results"]["responses"].size() == 6);
  for (const Json& one : r["prm_results"]["responses"]) {
    INFO(one.dump());
    for (const Json& trial : one["trials"]) {
      if (one["sigma"] != 0.0) continue;
      CHECK(trial["perplexity_change"] == 0.0);
      CHECK(trial["auc"] == r["prm_results"]["base_auc"]);
    }
    if (one["sigma"] != 0.0 && one["class"] == "functional") {
      CHECK(one["perplexity_change"]["mean"] > 0.0);
      CHECK(one["trials"][0]["perplexity_change"] != one["trials"][1]["perplexity_change"]);
    }
  }
  // Only what is dead is sensitive at these thresholds, and noise of 0.5 does not wake it.
  const Json dead = run(Planted(), with({{"noise", std::vector<double>{0.5}},
                                         {"thresholds", std::string("absolute")},
                                         {"h_sensitive", 1e-9},
                                         {"sparsity_sensitive", 0.99}}));
  CHECK(dead["Wsens"] == 80 + 10 + 40);
  for (const Json& one : dead["prm_results"]["responses"])
    if (one["class"] == "sensitive") CHECK(one["perplexity_change"]["mean"] == 0.0);
}

TEST_CASE("each field of the results moves when its cause changes", "[.slow]") {
  const Json r = run(Planted(), few);
  Planted other(0.8), longer, narrower;
  longer.length = 20;
  // A cause, fields that it moves, and fields that it must not move.
  struct Cause {
    const char* name;
    Json results;
    std::vector<const char*> moves, stays;
  };
  const std::vector<Cause> causes = {
      {"nothing", run(Planted(), few), {}, {""}},
      {"parameters",
       run(other, few),
       {"/tensors/0/hessian_mean", "/tensors/0/hessian_abs", "/tensors/0/gradient_norm", "/tensors/0/weight_norm",
        "/tensors/0/sparsity", "/step", "/prm_results/base_perplexity", "/embedding/points/0/x",
        "/activations/0/sparsity", "/partition/functional_hessian/value"},
       {"/hessian_data_size", "/probes", "/method"}},
      {"seed",
       run(Planted(), with({{"seed", int64_t{9}}})),
       {"/tensors/0/hessian_mean", "/tensors/0/hessian_low", "/tensors/0/hessian_high",
        "/prm_results/responses/3/trials/0/perplexity_change", "/settings/seed"},
       {"/tensors/0/gradient_norm", "/tensors/0/sparsity", "/prm_results/base_perplexity", "/prm_results/base_auc"}},
      {"probes",
       run(Planted(), with({{"probes", int64_t{48}}})),
       {"/probes", "/tensors/0/hessian_mean", "/settings/probes"},
       {"/tensors/0/gradient_norm", "/activations", "/hessian_data_size"}},
      {"step", run(Planted(), with({{"step", 1e-2}})), {"/step", "/tensors/0/hessian_mean"}, {"/activations"}},
      {"windows",
       run(Planted(), with({{"windows", int64_t{16}}})),
       {"/tensors/0/hessian_mean", "/tensors/0/gradient_norm"},
       {"/activations", "/prm_results/base_perplexity"}},
      {"held-out windows",
       run(Planted(), with({{"held_windows", int64_t{24}}})),
       {"/prm_results/base_perplexity", "/prm_results/base_auc", "/activations/0/tokens", "/activations/0/sparsity"},
       {"/tensors/0/hessian_mean", "/tensors/0/gradient_norm"}},
      {"training windows",
       run(Planted(), with({{"train_windows", int64_t{24}}})),
       {"/prm_results/base_auc"},
       {"/prm_results/base_perplexity", "/tensors/0/hessian_mean"}},
      {"length of a window", run(longer, few), {"/activations/0/tokens", "/prm_results/base_perplexity"}, {}},
      {"threshold of activations",
       run(Planted(), with({{"sparsity_threshold", 0.5}})),
       {"/activation_threshold", "/activations/0/sparsity", "/activations/0/unit_sparsity", "/tensors/0/sparsity"},
       {"/activations/0/exact_zeros", "/activations/0/unit_exact_zeros", "/tensors/0/exact_zeros"}},
      {"confidence",
       run(Planted(), with({{"confidence", 0.5}})),
       {"/confidence", "/tensors/0/hessian_low", "/tensors/0/hessian_high",
        "/prm_results/responses/3/perplexity_change/low"},
       {"/tensors/0/hessian_mean", "/prm_results/responses/3/perplexity_change/mean"}},
      {"a sample",
       run(Planted(), with({{"samples_per_tensor", int64_t{20}}})),
       {"/hessian_data_size", "/tensors/0/elements"},
       {"/tensors/0/gradient_norm"}},
      {"thresholds of the partition",
       run(Planted(), with({{"h_functional", 0.9}})),
       {"/Wfunc", "/Wboth", "/partition/functional_hessian/value", "/partition/functional_hessian/quantile"},
       {"/Wsens", "/tensors/0/hessian_mean", "/partition/sensitive_hessian"}},
      {"rows",
       run(Planted(), with({{"partition", std::string("row")}})),
       {"/partition/by", "/embedding/points/0/row"},
       {}},
      {"noise",
       run(Planted(), with({{"noise", std::vector<double>{0, 0.2}}})),
       {"/prm_results/responses/3/sigma", "/prm_results/responses/3/perplexity_change/mean"},
       {"/prm_results/base_perplexity", "/prm_results/responses/0"}},
      {"relative noise",
       run(Planted(), with({{"noise_relative", true}})),
       {"/prm_results/relative", "/prm_results/responses/3/perplexity_change/mean"},
       {"/prm_results/base_perplexity"}},
      {"repetitions",
       run(Planted(), with({{"noise_seeds", int64_t{3}}})),
       {"/prm_results/responses/3/trials", "/prm_results/responses/3/perplexity_change/mean"},
       {"/prm_results/responses/3/trials/0"}},
      {"the radius of clusters",
       run(Planted(), with({{"cluster_radius", 0.6}, {"cluster_points", int64_t{3}}})),
       {"/embedding/dbscan_radius", "/embedding/dbscan_points", "/silhouette"},
       {"/embedding/points/0/x"}},
      {"no embedding",
       run(Planted(), with({{"embedding", std::string("none")}})),
       {"/embedding/method", "/embedding/points", "/embedding/silhouette_reason", "/silhouette"},
       {"/tensors/0/hessian_mean", "/prm_results"}},
      {"method",
       run(Planted(), with({{"method", std::string("fisher")}, {"probes", int64_t{5}}})),
       {"/method", "/tensors/0/hessian_mean", "/step"},
       {"/tensors/0/weight_norm"}},
  };
  for (const Cause& cause : causes) {
    for (const char* field : cause.moves) {
      INFO(cause.name << " moves " << field);
      CHECK(at(cause.results, field) != at(r, field));
    }
    for (const char* field : cause.stays) {
      INFO(cause.name << " does not move " << field);
      CHECK(at(cause.results, field) == at(r, field));
    }
  }
  CHECK(r["device"] == "toy");
  CHECK(r["model"]["hash"] == "1234");
}
