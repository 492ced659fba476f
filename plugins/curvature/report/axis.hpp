// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

namespace curvature::report {

struct Tick {
  double at;  // pixels
  std::string label;
};

// A range of values on a range of pixels.
class Axis {
 public:
  enum class Scale {
    linear,
    signed_log,  // log(1 + |v| / smallest) with the sign of v: shows 0, both signs and many powers of ten
    names,       // 0, 1, 2, ... have names
  };
  // `values`: what must have a place; those that are not finite are passed over. Without any, the axis is 0 .. 1.
  static Axis linear(const std::vector<double>& values, double from, double to);
  // An axis of whole numbers: ticks only at them.
  static Axis whole(const std::vector<double>& values, double from, double to);
  // signed_log where the `sizes` that are not 0 differ by more than a factor of 100, else linear.
  static Axis changes(const std::vector<double>& sizes, const std::vector<double>& values, double from, double to);
  static Axis named(std::vector<std::string> names, double from, double to);
  static Axis shares(double from, double to);  // 0 .. 1

  double place(double value) const;
  std::vector<Tick> ticks() const;
  double from() const { return from_; }  // the pixels of its ends
  double to() const { return to_; }
  bool logarithmic() const { return scale_ == Scale::signed_log; }

 private:
  double warped(double value) const;
  std::vector<Tick> powers() const;
  Scale scale_ = Scale::linear;
  double low_ = 0, high_ = 1, from_ = 0, to_ = 1;
  double smallest_ = 1;
  bool whole_ = false;
  std::vector<std::string> names_;
};

}  // namespace curvature::report
