// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fit/text.hpp"

#include <algorithm>

#include "session/json.hpp"

namespace eng {
namespace {

std::string size(uint64_t n) {
  return format_bytes(static_cast<double>(n));
}

constexpr size_t most_told = 6;  // settings that are too large

double tokens_per_second(const Tried& t, const Fit& fit) {
  return static_cast<double>(fit.tokens) / t.seconds;
}

// The bytes that must fit into the memory of the device.
uint64_t need(const Tried& t) {
  return t.peak.machine;
}

std::string seconds(double s) {
  return s >= 1 ? fmt::format("{:.3g} s", s) : fmt::format("{:.3g} ms", 1e3 * s);
}

// "--ranks 4 train.micro_batch=1".
std::string words(const Tried& t, const Fit& fit) {
  const std::string ranks = t.ranks == fit.ranks ? "" : fmt::format("--ranks {}", t.ranks), edits = words_of(t.edits);
  if (ranks.empty() && edits.empty()) return "as it is";
  return ranks + (ranks.empty() || edits.empty() ? "" : " ") + edits;
}

std::string tried_text(const char* what, const Tried& t, const Fit& fit) {
  std::string out =
      fmt::format("  {:<11} {}\n  {:<11} {} of {}", what, words(t, fit), "", size(need(t)), size(fit.available.device));
  const bool offloads =
      std::any_of(t.edits.begin(), t.edits.end(), [](const Edit& e) { return e.section == "offload"; });
  if (fit.available.host)
    out += fmt::format(", {} of {} of a host", size(t.peak.hosts), size(fit.available.host));
  else if (offloads)
    out += fmt::format(", {} of a host's memory", size(t.peak.hosts));
  if (t.peak.storage) out += fmt::format(", {} on disks", size(t.peak.storage));
  if (fit.timed) out += fmt::format("; a step takes {} estimated, bound by {}", seconds(t.seconds), to_string(t.bound));
  return out + fmt::format("; {}\n", t.effect.text);
}

// The fastest settings of several ranks, one a line.
std::string table_text(const Fit& fit) {
  if (fit.fastest.empty() || fit.ranks == 1) return "";
  std::string out = fmt::format("  {:<11} {:>10} {:>13}  {:<27} settings\n", "fastest", fit.timed ? "tokens/s" : "",
                                "of a device", fit.timed ? "bound by" : "");
  for (size_t k = 0; k < fit.fastest.size(); ++k) {
    const Tried& t = fit.fastest[k];
    const std::string rate = fit.timed ? fmt::format("{:.0f}", tokens_per_second(t, fit)) : "";
    out += fmt::format("  {:<11} {:>10} {:>13}  {:<27} {}\n", k + 1, rate, size(need(t)),
                       fit.timed ? to_string(t.bound) : "", words(t, fit));
  }
  return out;
}

std::string too_large_text(const Tried& t, const Fit& fit) {
  return fmt::format("  {:<11} {}: {} too much{}{}{}\n", "too large", words(t, fit), size(t.excess.bytes),
                     t.excess.host      ? " of host memory"
                     : t.excess.storage ? " of disks"
                                        : "",
                     t.largest.empty() ? "" : "; ", t.largest);
}

Json json_of(const Tried& t, const Fit& fit) {
  Json edits = Json::array();
  for (const Edit& e : t.edits)
    edits.push_back(Json::ordered(
        {{"key", e.section + "." + e.key}, {"toml", e.value.index() ? Json(toml_text(e.value)) : Json()}}));
  return Json::ordered({{"edits", std::move(edits)},
                        {"ranks", t.ranks},
                        {"micro_batch", t.micro},
                        {"same_numbers", t.effect.same_numbers},
                        {"effect", t.effect.text},
                        {"peak_bytes", need(t)},
                        {"host_bytes", t.peak.hosts},
                        {"nvme_bytes", t.peak.storage},
                        {"excess_bytes", t.excess.bytes},
                        {"step_seconds_estimate", fit.timed ? Json(t.seconds) : Json()},
                        {"tokens_per_second_estimate", fit.timed ? Json(tokens_per_second(t, fit)) : Json()},
                        {"step_bound", fit.timed ? Json(to_string(t.bound)) : Json()}});
}

// The one to paste.
const Tried* first_of(const Fit& fit) {
  return fit.same ? &*fit.same : fit.best ? &*fit.best : nullptr;
}

}  // namespace

std::string fit_text(const Fit& fit) {
  std::string out =
      fmt::format("fit {}: {}{}, {} rank{}, {} sequences per step\n", fit.device, size(fit.available.device),
                  fit.reserve ? fmt::format(" ({} reserved{})", size(fit.reserve), fit.assumed ? ", assumed" : "") : "",
                  fit.ranks, fit.ranks == 1 ? "" : "s", fit.rows);
  if (!fit.timed) out += "  the device states no rates: settings are ordered by nominal ones\n";
  if (fit.same) out += tried_text(fit.best ? "same bits" : "best", *fit.same, fit);
  if (fit.best) out += tried_text("best", *fit.best, fit);
  if (fit.second && !(fit.same && words(*fit.second, fit) == words(*fit.same, fit)))
    out += tried_text("runner-up", *fit.second, fit);
  if (fit.own_format) out += tried_text("same format", *fit.own_format, fit);
  out += table_text(fit);
  for (size_t k = 0; k < std::min(fit.too_large.size(), most_told); ++k) out += too_large_text(fit.too_large[k], fit);
  if (fit.too_large.size() > most_told)
    out += fmt::format("  {:<11} {} more settings; --json lists them\n", "too large", fit.too_large.size() - most_told);
  if (!first_of(fit) && fit.cut)
    out += "  nothing that fits was found: the time ended first\n";
  else if (!first_of(fit))
    out += fit.too_large.empty()
               ? "  nothing fits\n"
               : fmt::format("  nothing fits: {} too much at least\n", size(fit.too_large.front().excess.bytes));
  else if (!fit.own_fits && !fit.cut)
    out += "  nothing fits in the configuration's number format\n";
  for (const Tried& t : fit.remedies) out += tried_text("would fit", t, fit);
  if (!first_of(fit) && fit.remedies.empty() && !fit.cut) out += "  no smaller model fits either\n";
  out += fmt::format("  {} plans were made\n", fit.plans);
  for (const Tried* t : {fit.same ? &*fit.same : nullptr, fit.best ? &*fit.best : nullptr})
    if (t && !t->edits.empty())
      out += fmt::format("\n# {}; {}\n{}",
                         t == first_of(fit) && fit.best && fit.same ? "every bit as before" : "the fastest",
                         t->effect.text, toml_of(t->edits));
  return out;
}

std::string fit_json(const Fit& fit) {
  const auto maybe = [&](const std::optional<Tried>& t) { return t ? json_of(*t, fit) : Json(); };
  const auto list = [&](const std::vector<Tried>& all) {
    Json out = Json::array();
    for (const Tried& t : all) out.push_back(json_of(t, fit));
    return out;
  };
  const Json out = Json::ordered({{"device", fit.device},
                                  {"device_bytes", fit.available.device},
                                  {"reserve_bytes", fit.reserve},
                                  {"host_bytes", fit.available.host ? Json(fit.available.host) : Json()},
                                  {"ranks", fit.ranks},
                                  {"sequences_per_step", fit.rows},
                                  {"fits", first_of(fit) != nullptr},
                                  {"same_numbers", maybe(fit.same)},
                                  {"fastest", maybe(fit.best ? fit.best : fit.same)},
                                  {"runner_up", maybe(fit.second)},
                                  {"same_format", maybe(fit.own_format)},
                                  {"fastest_settings", list(fit.fastest)},
                                  {"too_large", list(fit.too_large)},
                                  {"remedies", list(fit.remedies)}});
  return out.dump(2) + "\n";
}

std::vector<std::string> proposals(const Fit& fit) {
  std::vector<const Tried*> all;
  for (const auto* t : {&fit.same, &fit.best, &fit.second, &fit.own_format})
    if (*t) all.push_back(&**t);
  const auto order = [](const Tried* t) {
    const auto is_format = [](const Edit& e) { return e.section == "precision"; };
    return std::pair(!t->effect.same_numbers, std::any_of(t->edits.begin(), t->edits.end(), is_format));
  };
  std::stable_sort(all.begin(), all.end(), [&](const Tried* a, const Tried* b) { return order(a) < order(b); });
  for (const Tried& t : fit.remedies) all.push_back(&t);
  std::vector<std::string> out;
  for (const Tried* t : all) {
    const std::string line = fmt::format("{} ({}): {}", words(*t, fit), t->effect.text, size(need(*t)));
    if (std::find(out.begin(), out.end(), line) == out.end()) out.push_back(line);
  }
  return out;
}

std::string cut_text(const Fit& fit) {
  if (!fit.cut) return "";
  return fmt::format("{} {:g} s of processor time and {} plans; engine plan --fit searches to its end",
                     proposals(fit).empty() ? "not known, the search found nothing in" : "the search ended after",
                     seconds_for_proposals, fit.plans);
}

}  // namespace eng
