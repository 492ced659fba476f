// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <charconv>
#include <cmath>

#include "../common/error.hpp"
#include "maths/umap.hpp"

namespace curvature {
namespace {

using common::Error;

std::string text_of(double x) {
  char room[40];
  return {room, std::to_chars(room, room + sizeof room, x).ptr};
}

// Reads keys, and keeps the text of each.
class Reader {
 public:
  Reader(const eng_options* given, Options& out) : given_(given), out_(out) {}

  template <class T>
  void whole(const char* key, T& to) {
    int64_t value = 0;
    check(given_->get_int(given_, key, &value, nullptr), key);
    to = static_cast<T>(value);
    keep(key, std::to_string(value));
  }
  void real(const char* key, double& to) {
    check(given_->get_float(given_, key, &to, nullptr), key);
    keep(key, text_of(to));
  }
  // `fallback` if it was not given.
  void real_or(const char* key, double fallback, double& to) {
    const eng_status status = given_->get_float(given_, key, &to, nullptr);
    if (status == ENG_NOT_FOUND)
      to = fallback;
    else
      check(status, key);
    keep(key, text_of(to));
  }
  void flag(const char* key, bool& to) {
    int32_t value = 0;
    check(given_->get_bool(given_, key, &value, nullptr), key);
    to = value != 0;
    keep(key, to ? "true" : "false");
  }
  std::string word(const char* key) {
    const char* value = nullptr;
    check(given_->get_string(given_, key, &value, nullptr), key);
    keep(key, value);
    return value;
  }
  void words(const char* key, std::vector<std::string>& to) {
    std::string all;
    for (uint32_t i = 0; i < count(key); ++i) {
      const char* value = nullptr;
      check(given_->get_string_at(given_, key, i, &value, nullptr), key);
      to.emplace_back(value);
      all += (i ? ", " : "") + to.back();
    }
    keep(key, all);
  }
  void reals(const char* key, std::vector<double>& to) {
    std::string all;
    for (uint32_t i = 0; i < count(key); ++i) {
      double value = 0;
      check(given_->get_float_at(given_, key, i, &value, nullptr), key);
      to.push_back(value);
      all += (i ? ", " : "") + text_of(value);
    }
    keep(key, all);
  }

 private:
  uint32_t count(const char* key) {
    uint32_t n = 0;
    check(given_->get_count(given_, key, &n, nullptr), key);
    return n;
  }
  static void check(eng_status status, const char* key) {
    if (status != ENG_OK) throw Error{status, std::string("job.") + key + " is missing"};
  }
  void keep(const char* key, std::string text) { out_.texts.emplace_back(key, std::move(text)); }
  const eng_options* given_;
  Options& out_;
};

void must(bool holds, const std::string& text) {
  if (!holds) throw Error{ENG_INVALID, text};
}

// A threshold: a quantile lies in 0 .. 1, so does a share of activations.
void need_threshold(const char* key, double value, bool bounded) {
  const std::string range = bounded ? "a number from 0 to 1" : "a finite number, at least 0";
  must(std::isfinite(value) && value >= 0 && (!bounded || value <= 1),
       std::string("job.") + key + " = " + text_of(value) + " is out of range: give " + range);
}

void need_multiple(const char* key, uint32_t value, uint32_t micro_batch) {
  must(value % micro_batch == 0, std::string("job.") + key + " = " + std::to_string(value) +
                                     " must be a multiple of job.micro_batch = " + std::to_string(micro_batch));
}

}  // namespace

Options::Options(const eng_options* given) {
  Reader r(given, *this);
  fisher = r.word("method") == "fisher";
  r.whole("probes", probes), r.real("step", step), r.whole("windows", windows), r.whole("micro_batch", micro_batch);
  r.whole("samples_per_tensor", samples_per_tensor), r.whole("max_parameters", max_parameters);
  r.real("confidence", confidence), r.whole("held_windows", held_windows), r.whole("train_windows", train_windows);
  r.real("sparsity_threshold", sparsity_threshold), r.words("activations", activations);
  r.words("unit_tensors", unit_tensors);
  by_row = r.word("partition") == "row";
  r.whole("max_rows", max_rows);
  quantiles = r.word("thresholds") == "quantile";
  r.real_or("h_functional", quantiles ? 0.5 : 0.1, h_functional);
  r.real_or("sparsity_functional", 0.5, sparsity_functional);
  r.real_or("h_sensitive", quantiles ? 0.5 : 0.05, h_sensitive);
  r.real_or("sparsity_sensitive", quantiles ? 0.5 : 0.8, sparsity_sensitive);
  r.reals("noise", noise), r.flag("noise_relative", noise_relative), r.whole("noise_seeds", noise_seeds);
  embedding = r.word("embedding");
  r.whole("neighbours", neighbours), r.real("cluster_radius", cluster_radius);
  r.whole("cluster_points", cluster_points), r.whole("points", points), r.whole("seed", seed);
  r.whole("save_every", save_every);

  need_threshold("h_functional", h_functional, quantiles);
  need_threshold("h_sensitive", h_sensitive, quantiles);
  need_threshold("sparsity_functional", sparsity_functional, true);
  need_threshold("sparsity_sensitive", sparsity_sensitive, true);
  must(h_sensitive <= h_functional, "job.h_sensitive = " + text_of(h_sensitive) + " is above job.h_functional = " +
                                        text_of(h_functional) + ": lower the first or raise the second");
  for (double sigma : noise)
    must(std::isfinite(sigma) && sigma >= 0,
         "job.noise has " + text_of(sigma) + ": give finite numbers, each at least 0");
  must(!fisher || (samples_per_tensor == 0 && max_parameters == 0),
       "job.method = \"fisher\" measures every parameter at once: remove job.samples_per_tensor and "
       "job.max_parameters");
  must(embedding != "umap" || maths::has_umap(),
       "job.embedding = \"umap\": this build has no UMAP; set it to \"auto\" or \"pca\", or build again after "
       "tools/umappp-headers");
  need_multiple("windows", windows, micro_batch);
  need_multiple("held_windows", held_windows, micro_batch);
  need_multiple("train_windows", train_windows, micro_batch);
}

}  // namespace curvature
