// SPDX-License-Identifier: Apache-2.0
// Analyses of curvature of a very small OPT on the cuda device, beside one on the cpu device.
#pragma once

#include "tests/cli/harness.hpp"

namespace cli {

// `engine analyse` with further words.
inline Args analysis(const std::string& device, const std::string& out, const Args& more = {}) {
  Args all = {"analyse",
              "opt.toml",
              "job.probes=2",
              "job.windows=2",
              "job.held_windows=2",
              "job.train_windows=2",
              "job.noise_seeds=1",
              "job.noise=[0.0, 0.01]",
              "device.plugin=" + device,
              "--out",
              out};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}
inline void write_opt(const Scratch& scratch) {
  scratch.write("opt.toml",
                "[model]\nplugin = 'opt'\nvocab_size = 256\nhidden_size = 16\nnum_hidden_layers = 1\nffn_dim = 24\n"
                "num_attention_heads = 2\ndropout = 0.0\n[data]\npaths = ['text.txt']\nvalidation = 0.2\n"
                "[train]\nsequence_length = 16\nsteps = 1\n");
}

// The measured values: without times, memory and how they were computed.
inline Json measured_by(const fs::path& analysis) {
  Json r = Json::parse(read(analysis / "results.json"));
  for (const char* of_the_run : {"timestamp", "memory", "engine", "device"}) r.erase(of_the_run);
  return r;
}

// Gradients of the two devices differ in their rounding, and what the job's ops make of them does not add to it.
inline void check_near(const Json& got, const Json& want) {
  REQUIRE(got["tensors"].size() == want["tensors"].size());
  for (size_t k = 0; k < want["tensors"].size(); ++k) {
    const Json &g = got["tensors"][k], &w = want["tensors"][k];
    INFO(w["name"]);
    for (const char* key : {"hessian_mean", "hessian_abs", "gradient_norm", "weight_norm"})
      CHECK(g[key].get<double>() == Approx(w[key].get<double>()).epsilon(2e-3).margin(1e-5));
  }
  CHECK(got["activations"][0]["exact_zeros"].get<double>() ==
        Approx(want["activations"][0]["exact_zeros"].get<double>()).epsilon(0.02));
  const Json &changes = got["prm_results"]["responses"], &others = want["prm_results"]["responses"];
  REQUIRE(changes.size() == others.size());
  for (size_t k = 0; k < changes.size(); ++k) {
    const double change = changes[k]["perplexity_change"]["mean"];
    if (changes[k]["sigma"] == 0.0) CHECK(change == 0.0);
    CHECK(change == Approx(others[k]["perplexity_change"]["mean"].get<double>()).epsilon(2e-3).margin(1e-3));
  }
}

}  // namespace cli
