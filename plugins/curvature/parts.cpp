// SPDX-License-Identifier: Apache-2.0
#include "parts.hpp"

#include <algorithm>
#include <cstring>

#include "../common/error.hpp"

namespace curvature {
namespace {

using common::Error;

constexpr uint64_t mark = 0x31545241502D5643;  // "CV-PART1"

// FNV-1a.
uint64_t checksum(const char* data, size_t n) {
  uint64_t h = 0xCBF29CE484222325;
  for (size_t i = 0; i < n; ++i) h = (h ^ static_cast<unsigned char>(data[i])) * 0x100000001B3;
  return h;
}

class Packed {
 public:
  Packed() { number(mark); }
  template <class T>
  void number(T value) {
    out_.append(reinterpret_cast<const char*>(&value), sizeof value);
  }
  void text(const std::string& value) { number(uint64_t{value.size()}), out_ += value; }
  void measures(const Measures& m) {
    number(m.hessian.mean), number(m.hessian.low), number(m.hessian.high), number(m.magnitude), number(m.elements);
    number(m.gradient_norm), number(m.weight_norm);
  }
  std::string done() && {
    number(checksum(out_.data(), out_.size()));
    return std::move(out_);
  }

 private:
  std::string out_;
};

class Unpacked {
 public:
  explicit Unpacked(const std::string& in) : in_(in) {
    uint64_t sum = 0;
    if (in.size() < 2 * sizeof sum) damaged();
    end_ = in.size() - sizeof sum;
    std::memcpy(&sum, in.data() + end_, sizeof sum);
    if (sum != checksum(in.data(), end_) || number<uint64_t>() != mark) damaged();
  }
  template <class T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof value), sizeof value);
    return value;
  }
  std::string text() {
    const auto n = number<uint64_t>();
    return {take(n), n};
  }
  // A number of things that take at least `each` bytes.
  uint64_t count(uint64_t each) {
    const auto n = number<uint64_t>();
    if (n > (end_ - at_) / each) damaged();
    return n;
  }
  Measures measures() {
    Measures m;
    m.hessian.mean = number<double>(), m.hessian.low = number<double>(), m.hessian.high = number<double>();
    m.magnitude = number<double>(), m.elements = number<uint64_t>();
    m.gradient_norm = number<double>(), m.weight_norm = number<double>();
    return m;
  }
  void done() const {
    if (at_ != end_) damaged();
  }
  [[noreturn]] static void damaged() {
    throw Error{ENG_DATA_LOSS,
                "what a part of the analysis has written is damaged: remove its folder in `parts`, to do "
                "this part again"};
  }

 private:
  const char* take(uint64_t n) {
    if (n > end_ - at_) damaged();
    const char* at = in_.data() + at_;
    at_ += n;
    return at;
  }
  const std::string& in_;
  uint64_t at_ = 0, end_ = 0;
};

}  // namespace

std::string survey_bytes(const Survey& survey) {
  Packed w;
  w.number(survey.step), w.number(survey.share), w.number(uint64_t{survey.rows});
  w.number(uint64_t{survey.sites.size()});
  for (const Site& s : survey.sites) {
    w.text(s.block), w.text(s.op);
    w.number(s.block_number), w.number(s.tokens), w.number(s.zeros), w.number(s.below);
    w.number(uint64_t{s.units.size()});
    for (const Site::Unit& u : s.units) w.number(u.zeros), w.number(u.below);
  }
  return std::move(w).done();
}

Survey survey_of(const std::string& bytes) {
  Unpacked r(bytes);
  Survey out;
  out.step = r.number<double>(), out.share = r.number<double>(), out.rows = r.number<uint64_t>() != 0;
  for (uint64_t n = r.count(16); n > 0; --n) {
    Site& s = out.sites.emplace_back();
    s.block = r.text(), s.op = r.text();
    s.block_number = r.number<uint32_t>(), s.tokens = r.number<uint64_t>();
    s.zeros = r.number<double>(), s.below = r.number<double>();
    s.units.resize(r.count(16));
    for (Site::Unit& u : s.units) u.zeros = r.number<double>(), u.below = r.number<double>();
  }
  return r.done(), out;
}

std::string measures_bytes(const std::vector<Tensor>& tensors) {
  Packed w;
  w.number(uint64_t{tensors.size()});
  for (const Tensor& t : tensors) {
    w.text(t.name), w.measures(t.measures);
    w.number(uint64_t{t.measured_rows.size()});
    for (const Row& row : t.measured_rows) w.measures(row.measures);  // all of them
  }
  return std::move(w).done();
}

void add_measures(const std::string& bytes, std::vector<Tensor>& tensors) {
  Unpacked r(bytes);
  for (uint64_t n = r.count(16); n > 0; --n) {
    const std::string name = r.text();
    const auto t = std::find_if(tensors.begin(), tensors.end(), [&](const Tensor& one) { return one.name == name; });
    if (t == tensors.end() || !t->measured_rows.empty() || t->measures.weight_norm == t->measures.weight_norm)
      Unpacked::damaged();
    t->measures = r.measures();
    const uint64_t rows = r.count(16);
    if (rows && rows != t->rows) Unpacked::damaged();
    t->measured_rows.resize(rows);
    for (uint64_t k = 0; k < rows; ++k) t->measured_rows[k] = {k, r.measures()};
  }
  r.done();
}

}  // namespace curvature
