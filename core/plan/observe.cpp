// SPDX-License-Identifier: Apache-2.0
#include "core/plan/observe.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/text.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

std::string who(const Observer& observer) {
  return "observer " + observer.name;
}

std::string where(const eng_site& site) {
  static constexpr const char* names[] = {"", "an activation", "a gradient", "an update", "a parameter", "the scalars"};
  return *site.block ? fmt::format("{} of {}", names[site.what], site.block) : names[site.what];
}

}  // namespace

Observing::Observing(const PlanRequest& request, Plan& plan, Emitter& emitter)
    : r_(request), plan_(plan), emit_(emitter) {
  const Model& model = request.model;
  if (!request.train || !any()) return;
  const Template& head = model.templates.at(model.blocks.back().tmpl);
  if (head.graph.value(head.outputs[0]).desc.dtype != ENG_F32)
    throw Error(Exit::usage, "observers give f32 numbers, but this plan's losses have another type");
  for (auto b = static_cast<uint32_t>(model.reference_blocks); b + 1 < model.blocks.size(); ++b) {
    const Template& t = model.templates.at(model.blocks[b].tmpl);
    for (uint32_t k = 0; k < t.outputs.size(); ++k)
      for (size_t o = 0;
           o < observers().size() && t.outputs[k] != t.beside && is_float(t.graph.value(t.outputs[k]).desc.dtype);
           ++o) {
        rows_[{o, b, k}] = plan_.row;
        for (const Result& one : results(o, site(ENG_SITE_ACTIVATION, b, k))) take(o, one, true, plan_.row++);
      }
  }
}

eng_site Observing::site(uint32_t what, uint32_t block, uint32_t output) const {
  eng_site out{};
  out.struct_size = sizeof out;
  out.what = what;
  out.block = what == ENG_SITE_SCALARS ? "" : r_.model.blocks[block].name.c_str();
  out.number = block, out.output = output;
  return out;
}

std::vector<Observing::Result> Observing::results(size_t observer, const eng_site& site) const {
  const Observer& o = observers()[observer];
  eng_result list[16] = {};
  uint32_t n = 0;
  const auto said = [&] { return fmt::format("{}, {}", who(o), where(site)); };
  call_plugin(Exit::usage, said, o.table.results, o.self.get(), &site, list, uint32_t{std::size(list)}, &n);
  const auto refuse = [&](const std::string& why) { return Error(Exit::environment, said() + ": " + why); };
  if (n > std::size(list)) throw refuse(fmt::format("it has {} results; the limit is {}", n, std::size(list)));
  std::vector<Result> out;
  for (uint32_t k = 0; k < n; ++k) {
    const std::string name = list[k].name ? list[k].name : "";
    if (name.empty() || name.size() > 200 || printable(name, 200) != name || name.find('"') != std::string::npos)
      throw refuse(
          fmt::format("the name of result {} is `{}`, not 1 to 200 characters without quotes", k, printable(name, 80)));
    if (list[k].combine < ENG_COMBINE_SUM || list[k].combine > ENG_COMBINE_LAST)
      throw refuse(fmt::format("result {} is combined in the unknown way {}", name, list[k].combine));
    out.push_back({name, list[k].combine, list[k].flags});
  }
  return out;
}

void Observing::take(size_t observer, const Result& result, bool in_row, uint32_t number) {
  const Observer& o = observers()[observer];
  const std::string name = o.name + "." + result.name;
  auto it = std::find_if(plan_.observed.begin(), plan_.observed.end(), [&](const auto& s) { return s.name == name; });
  if (it == plan_.observed.end())
    it = plan_.observed.insert(it, {name, static_cast<uint32_t>(observer), result.combine, result.flags, {}, {}});
  if (it->observer != observer || it->combine != result.combine || it->flags != result.flags)
    throw fault("{}: it combines the results {} in two ways, or another observer gives them", who(o), name);
  (in_row ? it->rows : it->once).push_back(number);
}

std::vector<View> Observing::places(size_t observer, const std::vector<Result>& results) {
  std::vector<View> out;
  const View& all = exchange_->losses;
  const auto rows = static_cast<uint64_t>(plan_.accumulate) * plan_.row;
  for (const Result& one : results) {
    take(observer, one, false, plan_.once);
    out.push_back({all.buffer, (rows + plan_.once++) * sizeof(float), make_desc(ENG_F32, {1})});
  }
  return out;
}

bool Observing::wants(const eng_site& site) const {
  for (size_t o = 0; o < observers().size(); ++o)
    if (!results(o, site).empty()) return true;
  return false;
}

void Observing::observe(eng_site site, const View& value, const std::vector<eng_range>& ranges) {
  std::vector<eng_site_range> shown;
  for (const eng_range& r : ranges)
    shown.push_back({r.parameter->name, r.parameter->shape, r.first, r.count, r.offset});
  site.ranges = shown.data(), site.n_ranges = static_cast<uint32_t>(shown.size());
  const bool here = r_.model.owns(site.number);  // the stages of a pipeline add what they have
  for (size_t o = 0; o < observers().size(); ++o) {
    const std::vector<Result> all = results(o, this->site(site.what, site.number, site.output));
    if (all.empty()) continue;
    const std::vector<View> to = places(o, all);
    if (value.buffer && here)
      emit(o, site, value, all, to);
    else
      for (size_t k = 0; k < to.size(); ++k)  // what changes nothing
        emit_.action(op(ENG_OP_INIT_CONSTANT), {}, {to[k]},
                     {{{"value", 0, here && all[k].combine == ENG_COMBINE_MAX ? -INFINITY : 0.0}, {"first", 0, 0.0}}});
  }
}

// An observer's ops, and its results to where they go.
void Observing::emit(size_t observer, eng_site site, const View& value, const std::vector<Result>& results,
                     const std::vector<View>& places) {
  const Observer& o = observers()[observer];
  const std::string said = fmt::format("{}, {}", who(o), where(site));
  EmittingBuilder builder(emit_, plan_.ranks, fmt::format("{} {}", o.name, site.block), Line::observers);
  builder.together = "the engine itself combines the results of ranks";
  site.value = builder.add(value);
  site.scalars = site.what == ENG_SITE_SCALARS ? site.value : builder.add(scalars_beside(value));
  std::vector<eng_id> out(results.size(), 0);
  ask(said, builder, Exit::usage, o.table.observe, o.self.get(), &builder, &site, out.data(),
      static_cast<uint32_t>(out.size()));
  const auto refuse = [&](const std::string& why) { throw Error(Exit::environment, said + ": " + why); };
  for (size_t k = 0; k < out.size(); ++k) {
    if (!out[k]) refuse(fmt::format("it gives no result {}", results[k].name));
    const View from = builder.view(out[k]);
    if (!same(from.desc, make_desc(ENG_F32, {1})))
      refuse(fmt::format("its result {} is {}, it must be f32 (1)", results[k].name, describe(from.desc)));
    if (emit_.tier_of(from))
      emit_.copy(from, places[k]);
    else
      emit_.action(op(ENG_OP_SCALE), {from}, {places[k]}, {{{"factor", 0, 1.0}}});
  }
}

// The step's scalars where ops on that value can read them.
View Observing::scalars_beside(const View& value) {
  const uint32_t at = emit_.tier_of(value);
  if (!at) return plan_.scalars;
  View& copy = scalars_[at];
  if (!copy.buffer) {
    copy = emit_.transient("scalars for observers", Line::observers, plan_.scalars.desc, at);
    emit_.copy(plan_.scalars, copy);
  }
  return copy;
}

void Observing::block(uint32_t b, const std::vector<View>& outputs, const View& row) {
  if (b + 1 == r_.model.blocks.size()) return;
  for (uint32_t k = 0; k < outputs.size(); ++k)
    for (size_t o = 0; o < observers().size(); ++o) {
      const auto it = rows_.find({o, b, k});
      if (it == rows_.end()) continue;
      const eng_site here = site(ENG_SITE_ACTIVATION, b, k);
      const std::vector<Result> all = results(o, here);
      if (all.empty()) continue;
      emit_.label(Phase::observe, here.block);
      std::vector<View> to;
      for (uint32_t n = 0; n < all.size(); ++n) to.push_back(slice(row, it->second + n, 1));
      emit(o, here, outputs[k], all, to);
    }
}

bool Observing::watched(uint32_t what, size_t u) const {
  return any() && wants(site(what, homes_->unit(u).block));
}

void Observing::gradients() {
  const Homes& homes = *homes_;
  for (size_t u = 0; u < homes.units(); ++u) {
    if (homes.frozen(u) || !watched(ENG_SITE_GRADIENT, u)) continue;
    emit_.label(Phase::observe, homes.unit(u).name);
    const Home& grad = homes.grad[u];
    for (const Range& piece : homes.pieces(u, !grad.part && !plan_.stores(grad.place))) {
      const bool mine = plan_.ranks.counts(grad.part) && homes.held(u);
      const View value = mine ? emit_.in_memory(homes.view(grad, piece), "gradient", Line::observers) : View{};
      observe(site(ENG_SITE_GRADIENT, homes.unit(u).block), value, homes.shown(u, homes.kept(grad, piece)));
    }
  }
  scalars_.clear();
}

View Observing::before_update(size_t u, Id part, const View& master, uint32_t place) {
  if (!plan_.ranks.counts(part) || !watched(ENG_SITE_UPDATE, u)) return {};
  eng_desc desc = master.desc;
  desc.dtype = ENG_F32;
  const View old = emit_.transient("before the update of " + homes_->unit(u).name, Line::observers, desc, place);
  const bool casts = master.desc.dtype != ENG_F32;
  if (casts) emit_.action(op(ENG_OP_CAST), {master}, {old}, {{{"dtype", ENG_F32, 0}}});
  emit_.action(op(ENG_OP_SCALE), {casts ? old : master}, {old}, {{{"factor", 0, -1.0}}});
  return old;
}

void Observing::after_update(size_t u, Id part, const std::vector<eng_range>& ranges, const View& master,
                             const View& old) {
  if (!any()) return;
  const uint32_t b = homes_->unit(u).block;
  if (old.buffer) emit_.action(op(ENG_OP_ADD), {master, old}, {old});
  observe(site(ENG_SITE_UPDATE, b), old, ranges);
  observe(site(ENG_SITE_PARAMETER, b), plan_.ranks.counts(part) ? master : View{}, ranges);
}

void Observing::finish() {
  emit_.label(Phase::observe);
  observe(site(ENG_SITE_SCALARS, 0), plan_.ranks.counts(0) ? plan_.scalars : View{}, {});
  exchange_->after_losses(plan_.once);
}

}  // namespace eng
