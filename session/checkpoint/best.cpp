// SPDX-License-Identifier: Apache-2.0
#include "session/checkpoint/best.hpp"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>

namespace eng {
namespace {

constexpr const char *best_key = "best", *gain_key = "gain", *without_gain = "evaluations_without_gain";

// "100 2.5", as written below; -1 for anything else.
int64_t step_in(const std::string& text, double& loss) {
  char* end = nullptr;
  const long long step = std::strtoll(text.c_str(), &end, 10);
  if (end == text.c_str() || *end != ' ' || step < 0) return -1;
  const char* number = end + 1;
  loss = std::strtod(number, &end);
  return end != number && !*end && std::isfinite(loss) ? step : -1;
}

}  // namespace

Progression::Progression(const Config& config, const Facts& facts)
    : keeps_best_(config.section("checkpoint").boolean("best")),
      patience_(config.section("train").integer("early_stop_patience")),
      min_delta_(config.section("train").number("early_stop_min_delta")) {
  if (keeps_best_) read(facts, best_key, best_);
  if (!patience_) return;
  read(facts, gain_key, gain_);
  if (const auto n = facts.find(without_gain); n != facts.end() && gain_.step >= 0)
    without_gain_ = std::strtoll(n->second.c_str(), nullptr, 10);
}

void Progression::add(int64_t step, double loss) {
  const bool number = std::isfinite(loss);
  if (keeps_best_ && number && (best_.step < 0 || loss < best_.loss)) best_ = {step, loss};
  if (!patience_) return;
  const bool gained = number && (gain_.step < 0 || loss < gain_.loss - min_delta_);
  if (gained) gain_ = {step, loss};
  without_gain_ = gained ? 0 : without_gain_ + 1;
}

std::string Progression::over() const {
  if (!patience_ || without_gain_ < patience_) return "";
  // Without the word that scripts look for in lines of steps and evaluations.
  const std::string what = without_gain_ == 1 ? "the last evaluation was not"
                                              : fmt::format("none of the last {} evaluations was", without_gain_);
  if (gain_.step < 0) return fmt::format("early stop: {} finite", what);
  return fmt::format("early stop: {} below {:.4f} of step {}{}", what, gain_.loss, gain_.step,
                     min_delta_ > 0 ? fmt::format(" by more than {:g}", min_delta_) : "");
}

void Progression::write(Facts& facts) const {
  write(facts, best_key, best_);
  write(facts, gain_key, gain_);
  if (patience_) facts[without_gain] = std::to_string(without_gain_);
}

void Progression::read(const Facts& facts, const char* name, Point& point) {
  double loss = 0;
  const auto found = facts.find(name);
  if (const int64_t step = found == facts.end() ? -1 : step_in(found->second, loss); step >= 0) point = {step, loss};
}

void Progression::write(Facts& facts, const char* name, const Point& point) {
  if (point.step >= 0) facts[name] = fmt::format("{} {:.17g}", point.step, point.loss);
}

int64_t best_step(const Progression::Facts& facts) {
  double loss = 0;
  const auto found = facts.find(best_key);
  return found == facts.end() ? -1 : step_in(found->second, loss);
}

}  // namespace eng
