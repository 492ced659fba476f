// SPDX-License-Identifier: Apache-2.0
#include "axis.hpp"

#include <fmt/format.h>

#include <limits>

#include "../../../charts/ticks.hpp"
#include "text.hpp"

namespace curvature::report {
namespace {

std::vector<double> finite_only(const std::vector<double>& values) {
  std::vector<double> out;
  for (const double value : values)
    if (std::isfinite(value)) out.push_back(charts::drawable(value));
  return out;
}

}  // namespace

Axis Axis::linear(const std::vector<double>& values, double from, double to) {
  Axis out;
  out.from_ = from, out.to_ = to;
  const auto known = finite_only(values);
  if (known.empty()) return out;
  const auto [low, high] = std::minmax_element(known.begin(), known.end());
  const double room = *high > *low ? (*high - *low) * 0.05 : std::max(std::abs(*high) * 0.1, 1e-12);
  out.low_ = *low - room, out.high_ = *high + room;
  return out;
}

Axis Axis::whole(const std::vector<double>& values, double from, double to) {
  Axis out = linear(values, from, to);
  out.whole_ = true;
  if (const auto known = finite_only(values); !known.empty()) {
    const auto [low, high] = std::minmax_element(known.begin(), known.end());
    out.low_ = *low - 0.5, out.high_ = *high + 0.5;
  }
  return out;
}

Axis Axis::changes(const std::vector<double>& sizes, const std::vector<double>& values, double from, double to) {
  Axis out = linear(values, from, to);
  double small = std::numeric_limits<double>::infinity(), large = 0;
  for (const double value : finite_only(sizes))
    if (value != 0) small = std::min(small, std::abs(value)), large = std::max(large, std::abs(value));
  if (large <= 100 * small || large < 1e-290) return out;  // in numbers so small, 1 + |v| / smallest has no digits
  out.scale_ = Scale::signed_log;
  out.smallest_ = std::pow(10, std::floor(std::log10(std::max(small, large * 1e-12))));
  double low = 0, high = 0;
  for (const double value : finite_only(values))
    low = std::min(low, out.warped(value)), high = std::max(high, out.warped(value));
  const double room = (high - low) * 0.05;
  out.low_ = low - room, out.high_ = high + room;
  return out;
}

Axis Axis::named(std::vector<std::string> names, double from, double to) {
  Axis out;
  out.scale_ = Scale::names, out.from_ = from, out.to_ = to;
  out.low_ = -0.4, out.high_ = std::max<double>(1, static_cast<double>(names.size())) - 0.6;
  out.names_ = std::move(names);
  return out;
}

Axis Axis::shares(double from, double to) {
  Axis out;
  out.low_ = -0.04, out.high_ = 1.04, out.from_ = from, out.to_ = to;
  return out;
}

double Axis::warped(double value) const {
  value = charts::drawable(value);
  if (scale_ != Scale::signed_log) return value;
  return std::copysign(std::log10(1 + std::abs(value) / smallest_), value);
}

double Axis::place(double value) const {
  return from_ + (to_ - from_) * (warped(value) - low_) / (high_ - low_);
}

std::vector<Tick> Axis::powers() const {
  std::vector<Tick> out;
  const int most = static_cast<int>(std::ceil(std::max(high_, -low_)));
  const int each = std::max(1, most / (low_ < -1 ? 3 : 5));
  for (const double sign : {-1.0, 1.0})
    for (int power = 1; power <= most; power += each) {
      const double value = sign * smallest_ * std::pow(10, power);
      if (warped(value) >= low_ && warped(value) <= high_) out.push_back({place(value), fmt::format("{:g}", value)});
    }
  out.push_back({place(0), "0"});
  std::sort(out.begin(), out.end(), [](const Tick& a, const Tick& b) { return a.at < b.at; });
  return out;
}

std::vector<Tick> Axis::ticks() const {
  std::vector<Tick> out;
  if (scale_ == Scale::names) {
    for (size_t k = 0; k < names_.size(); ++k) out.push_back({place(static_cast<double>(k)), names_[k]});
    return out;
  }
  if (scale_ == Scale::signed_log) return powers();
  for (const double value : charts::round_numbers(low_, high_, 5, whole_))
    out.push_back({place(value), short_number(value)});
  return out;
}

}  // namespace curvature::report
