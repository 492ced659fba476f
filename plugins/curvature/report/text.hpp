// SPDX-License-Identifier: Apache-2.0
// Names and numbers as they stand in the files of an analysis.
#pragma once

#include <string>
#include <vector>

#include "../results.hpp"

namespace curvature::report {

// The text without what could not be shown: '?' for each control character and each byte that is not UTF-8.
std::string clean(const std::string& text);
// The clean text, cut after about `most` bytes.
std::string brief(const std::string& text, size_t most);
// The clean text as it stands in HTML and XML, also in an attribute.
std::string escaped(const std::string& text);
// Few digits, for reading; a dash if it is not finite.
std::string short_number(double value);
// A number with as many digits as bring the same number back; "" if it is not finite.
std::string exact_number(double value);
// "functional", "sensitive", "both".
const char* class_name(Class kind);
// "768 x 768"; "" of no dimension.
std::string shape_text(const std::vector<int64_t>& shape);
// The number of elements of the diagonal of the Hessian that were measured: the sum over the tensors.
uint64_t hessian_data_size(const Results& results);
// The number of measured rows of all tensors.
uint64_t measured_rows(const Results& results);

// The numbers of Measures, under the names that all files use.
struct Field {
  const char* name;
  double Measures::*number;
};
inline constexpr Field numbers_after_hessian[] = {{"hessian_abs", &Measures::magnitude},
                                                  {"exact_zeros", &Measures::zeros},
                                                  {"sparsity", &Measures::below},
                                                  {"gradient_norm", &Measures::gradient_norm},
                                                  {"weight_norm", &Measures::weight_norm}};

}  // namespace curvature::report
