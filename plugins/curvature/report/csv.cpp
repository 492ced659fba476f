// SPDX-License-Identifier: Apache-2.0
#include "csv.hpp"

#include <fmt/format.h>

#include "text.hpp"

namespace curvature::report {
namespace {

// One record per line: `clean` leaves no line ending in a field.
std::string field(const std::string& text) {
  const std::string shown = clean(text);
  if (shown.find_first_of("\",") == std::string::npos) return shown;
  std::string out = "\"";
  for (const char c : shown) out += c == '"' ? "\"\"" : std::string(1, c);
  return out + "\"";
}

std::string measures_header() {
  std::string out = "hessian_mean,hessian_low,hessian_high";
  for (const Field& number : numbers_after_hessian) out += fmt::format(",{}", number.name);
  return out + ",elements,class\r\n";
}

std::string measures_fields(const Measures& of) {
  std::string out = fmt::format("{},{},{}", exact_number(of.hessian.mean), exact_number(of.hessian.low),
                                exact_number(of.hessian.high));
  for (const Field& number : numbers_after_hessian) out += "," + exact_number(of.*number.number);
  return out + fmt::format(",{},{}\r\n", of.elements, class_name(of.kind));
}

}  // namespace

std::string tensors_csv(const Results& results) {
  std::string out = "name,shape,block,block_number,rows," + measures_header();
  for (const Tensor& tensor : results.tensors)
    out += fmt::format("{},{},{},{},{},", field(tensor.name), shape_text(tensor.shape), field(tensor.block),
                       tensor.block_number, tensor.rows) +
           measures_fields(tensor.measures);
  return out;
}

std::string rows_csv(const Results& results) {
  const uint64_t rows = measured_rows(results);
  if (rows == 0) return "";
  std::string out = "name,row," + measures_header();
  out.reserve(out.size() + rows * 256);
  for (const Tensor& tensor : results.tensors)
    for (const Row& row : tensor.measured_rows)
      out += fmt::format("{},{},", field(tensor.name), row.index) + measures_fields(row.measures);
  return out;
}

}  // namespace curvature::report
