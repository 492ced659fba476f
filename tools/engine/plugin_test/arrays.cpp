// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/arrays.hpp"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <new>

#include "core/base/error.hpp"

namespace eng::plugin_test {
namespace {

// Each its own, so that a copy from one guard to another is seen.
uint8_t next_mark() {
  static uint8_t mark = 0;
  return mark = static_cast<uint8_t>(mark % 97 + 131);
}

uint64_t room(uint64_t size) {
  return (2 * Bytes::guard + size + Bytes::guard - 1) / Bytes::guard * Bytes::guard;
}

// 16-bit floats: a sign, an exponent, a fraction.
struct Half {
  int fraction, lowest;
  explicit Half(int32_t dtype) : fraction(dtype == ENG_BF16 ? 7 : 10), lowest(dtype == ENG_BF16 ? -126 : -14) {}
  int infinite() const { return ((1 << (15 - fraction)) - 1) << fraction; }
  uint16_t pattern(double x) const {
    const int sign = std::signbit(x) ? 0x8000 : 0;
    if (std::isnan(x)) return static_cast<uint16_t>(sign | infinite() | 1);
    const double size = std::min(std::fabs(x), 1e300);
    const int exponent = size > 0 ? std::max(std::ilogb(size), lowest) : lowest;
    const double all = std::nearbyint(std::ldexp(size, fraction - exponent)) + std::ldexp(exponent - lowest, fraction);
    return static_cast<uint16_t>(sign | (all < infinite() ? static_cast<int>(all) : infinite()));
  }
  double value(uint16_t pattern) const {
    const int size = pattern & 0x7fff, exponent = size >> fraction, units = size & ((1 << fraction) - 1);
    double v = exponent == 0 ? std::ldexp(units, lowest - fraction)
                             : std::ldexp(units + (1 << fraction), exponent - 1 + lowest - fraction);
    if (size >= infinite()) v = size > infinite() ? NAN : INFINITY;
    return pattern & 0x8000 ? -v : v;
  }
};

}  // namespace

void Bytes::Free::operator()(uint8_t* room) const {
  std::free(room);
}

Bytes::Bytes(uint64_t size, uint8_t fill)
    : size_(size), mark_(next_mark()), room_(static_cast<uint8_t*>(std::aligned_alloc(guard, room(size)))) {
  if (!room_) throw std::bad_alloc();
  std::memset(room_.get(), mark_, room(size));
  std::memset(data(), fill, size);
}

Bytes::Bytes(const Bytes& other) : Bytes(other.size_) {
  if (size_) std::memcpy(data(), other.data(), size_);
}

Bytes& Bytes::operator=(const Bytes& other) {
  if (this != &other) *this = Bytes(other);
  return *this;
}

std::string Bytes::touched() const {
  if (!room_) return "";
  for (uint64_t k = 1; k <= guard; ++k)
    if (data()[-static_cast<int64_t>(k)] != mark_) return fmt::format("byte {} before its beginning", k);
  for (uint64_t k = size_; k < room(size_) - guard; ++k)
    if (data()[k] != mark_) return fmt::format("byte {} after its end", k - size_ + 1);
  return "";
}

double Array::at(int64_t k) const {
  switch (desc.dtype) {
    case ENG_F32:
      return static_cast<double>(as<float>()[k]);
    case ENG_F64:
      return as<double>()[k];
    case ENG_I32:
      return static_cast<double>(as<int32_t>()[k]);
    case ENG_I64:
      return static_cast<double>(as<int64_t>()[k]);
    case ENG_BF16:
    case ENG_F16:
      return Half(desc.dtype).value(as<uint16_t>()[k]);
    default:
      return static_cast<double>(as<uint8_t>()[k]);
  }
}

void Array::put(int64_t k, double value) {
  switch (desc.dtype) {
    case ENG_F32:
      as<float>()[k] = static_cast<float>(value);
      break;
    case ENG_F64:
      as<double>()[k] = value;
      break;
    case ENG_I32:
      as<int32_t>()[k] = static_cast<int32_t>(value);
      break;
    case ENG_I64:
      as<int64_t>()[k] = static_cast<int64_t>(value);
      break;
    case ENG_BF16:
    case ENG_F16:
      as<uint16_t>()[k] = Half(desc.dtype).pattern(value);
      break;
    default:
      as<uint8_t>()[k] = static_cast<uint8_t>(value);
  }
}

Array normal(Random& random, const eng_desc& desc, double std) {
  Array out(desc);
  std::normal_distribution<double> draw(0.0, std);
  for (int64_t k = 0; k < out.size(); ++k) out.put(k, draw(random));
  return out;
}

Array integers(Random& random, const eng_desc& desc, int64_t low, int64_t high) {
  Array out(desc);
  for (int64_t k = 0; k < out.size(); ++k) out.put(k, static_cast<double>(pick(random, low, high)));
  return out;
}

Documents documents(Random& random, int64_t b, int64_t t) {
  const eng_desc desc = make_desc(ENG_I32, {b, t});
  Documents out{Array(desc), Array(desc)};
  int64_t first = 0, segment = pick(random, -1, 3);
  for (int64_t k = 0; k < b * t; ++k) {
    const int64_t at = k % t;
    if (at == 0 || at == t / 2 || (at - first > 1 && pick(random, 0, 3) == 0)) first = at, segment = 7 - segment;
    out.segments.put(k, static_cast<double>(segment)), out.positions.put(k, static_cast<double>(at - first));
  }
  return out;
}

Array anything(Random& random, const eng_desc& desc) {
  if (!desc.dtype) return Array();
  return is_float(desc.dtype) ? normal(random, desc) : integers(random, desc, 0, 3);
}

eng_desc with_dtype(eng_desc desc, int32_t dtype) {
  desc.dtype = dtype;
  return desc;
}

std::string dims_of(const std::vector<eng_desc>& all) {
  std::string out;
  for (const eng_desc& one : all) out += (out.empty() ? "" : ", ") + (one.dtype ? describe(one) : "absent");
  return out;
}

Difference difference(const Array& a, const Array& b) {
  double most = 0, top = 0;
  Difference out;
  for (int64_t k = 0; k < b.size(); ++k) {
    const double x = a.at(k), y = b.at(k);
    const bool same = x == y || (std::isnan(x) && std::isnan(y));
    const double d = same ? 0 : std::fabs(x - y);
    if (std::isfinite(y)) top = std::max(top, std::fabs(y));
    if (!std::isfinite(d)) return {std::numeric_limits<double>::infinity(), k};
    if (d > most) most = d, out.where = k;
  }
  out.worst = top > 0 ? most / top : most;
  return out;
}

std::string first_difference(const Array& a, const Array& b) {
  if (a.bytes == b.bytes) return "";
  for (int64_t k = 0; k < b.size(); ++k) {
    const uint64_t n = dtype_size(b.desc.dtype), at = static_cast<uint64_t>(k) * n;
    if (std::memcmp(a.bytes.data() + at, b.bytes.data() + at, n) != 0)
      return fmt::format("element {} is {:.9g} and {:.9g}", k, a.at(k), b.at(k));
  }
  return "they differ in length";
}

}  // namespace eng::plugin_test
