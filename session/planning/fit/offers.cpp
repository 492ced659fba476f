// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/offers.hpp"

#include <algorithm>
#include <tuple>

#include "engine/optimizer.h"
#include "session/config/toml.hpp"

namespace eng {
namespace {

Offer offer_of(const std::string& name, const Provided* provided) {
  Offer out{name, 0, "", false};
  if (!provided || !provided->fit) return out;
  const Preset& fit = *provided->fit;
  out.order = std::get<int64_t>(fit.at("order"));
  out.effect = text_in(fit, "effect");
  out.discrete = fit.count("discrete") && fit.at("discrete") == Value(true);
  if (fit.count("group")) out.group = text_in(fit, "group");
  out.lossy = texts_in(fit, "lossy");
  return out;
}

// All with [provides.fit] for which `holds` is true.
template <class Holds>
Offers offers_where(const Registry& registry, const char* kind, Holds holds) {
  Offers out;
  for (const std::string& name : registry.names(kind))
    if (const Provided* one = registry.find(kind, name); one && one->fit && holds(*one))
      out.push_back(offer_of(name, one));
  std::sort(out.begin(), out.end(),
            [](const Offer& a, const Offer& b) { return std::tie(a.order, a.name) < std::tie(b.order, b.name); });
  return out;
}

bool lists(const Provided& one, const char* key, const std::string& name) {
  const std::vector<std::string> all = texts_in(*one.fit, key);
  return std::find(all.begin(), all.end(), name) != all.end();
}

bool is_given(const Section& section, const Option& option) {
  return section.has(option.key) && (option.type != Type::strings || !section.strings(option.key).empty());
}

}  // namespace

Offers offers(const Registry& registry, const char* kind, const std::string& now) {
  Offers out = {offer_of(now, registry.find(kind, now))};
  for (Offer& one :
       offers_where(registry, kind, [&](const Provided& p) { return p.name != now && !lists(p, "same_as", now); }))
    out.push_back(std::move(one));
  return out;
}

Offers replacements(const Registry& registry, const std::string& now) {
  return offers_where(registry, ENG_OPTIMIZER_KIND,
                      [&](const Provided& p) { return p.name != now && lists(p, "instead_of", now); });
}

Offers tiers_given(const Registry& registry, const Section& offload) {
  return offers_where(registry, ENG_TIER_KIND, [&](const Provided& p) {
    return std::all_of(p.schema.options.begin(), p.schema.options.end(),
                       [&](const Option& o) { return !o.required || is_given(offload, o); });
  });
}

std::string effect_between(const Offer& from, const Offer& to) {
  if (from.name == to.name) return "";
  return !to.effect.empty()    ? to.effect
         : from.effect.empty() ? ""
                               : fmt::format("without {}: {}", from.name, from.effect);
}

}  // namespace eng
