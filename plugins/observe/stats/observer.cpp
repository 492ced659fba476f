// SPDX-License-Identifier: Apache-2.0
// The sites that are measured, and their names.
#include <string>
#include <vector>

#include "../../common/error.hpp"
#include "stats.hpp"

namespace stats {
namespace {

class Stats {
 public:
  explicit Stats(const eng_options* options) {
    const struct {
      const char* key;
      uint32_t site;
      const char* name;
    } all[] = {{"activations", ENG_SITE_ACTIVATION, "activation"},
               {"gradients", ENG_SITE_GRADIENT, "gradient"},
               {"updates", ENG_SITE_UPDATE, "update"},
               {"parameters", ENG_SITE_PARAMETER, "parameter"}};
    for (const auto& [key, site, name] : all)
      if (flag(options, key)) names_[site] = name;
    maxima_ = flag(options, "maxima");
  }
  // The norm, and the largest magnitude if that is wanted.
  uint32_t results(const eng_site& site, eng_result* out) {
    const std::string& name = site.what < 5 ? names_[site.what] : names_[0];
    if (name.empty()) return 0;
    texts_ = {name + "_norm." + site.block, name + "_max." + site.block};
    out[0] = {texts_[0].c_str(), ENG_COMBINE_SUM, ENG_RESULT_SQRT};
    if (maxima_) out[1] = {texts_[1].c_str(), ENG_COMBINE_MAX, 0};
    return maxima_ ? 2 : 1;
  }

 private:
  static bool flag(const eng_options* options, const char* key) {
    int32_t value = 0;
    if (const eng_status status = options->get_bool(options, key, &value, nullptr); status != ENG_OK)
      throw common::Error{status, std::string(key) + " is missing"};
    return value != 0;
  }
  std::string names_[5];  // per site; "": not measured
  bool maxima_ = true;
  std::vector<std::string> texts_;  // of the last results
};

eng_status create(const eng_options* options, void** self, eng_error* error) {
  return common::guarded(error, [&] { *self = new Stats(options); });
}

void destroy(void* self) {
  delete static_cast<Stats*>(self);
}

eng_status results(void* self, const eng_site* site, eng_result* out, uint32_t, uint32_t* n, eng_error* error) {
  return common::guarded(error, [&] { *n = static_cast<Stats*>(self)->results(*site, out); });
}

eng_status observe(void*, eng_build* b, const eng_site* site, eng_id* out, uint32_t n, eng_error* error) {
  // Gradients are those of the loss times its scale.
  const eng_id in[2] = {site->value, site->what == ENG_SITE_GRADIENT ? site->scalars : 0};
  eng_id both = 0;
  b->api->emit(b, STATS_OP_MEASURE, in, in[1] ? 2 : 1, &both, 1, nullptr, 0, nullptr);
  for (uint32_t k = 0; k < n; ++k) b->api->slice(b, both, k, 1, &out[k], nullptr);
  return b->api->status(b, error);
}

}  // namespace

const eng_observer observer = {.struct_size = sizeof(eng_observer),
                               .minor = 0,
                               .create = create,
                               .destroy = destroy,
                               .results = results,
                               .observe = observe,
                               .after_step = nullptr};

}  // namespace stats
