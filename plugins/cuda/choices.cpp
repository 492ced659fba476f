// SPDX-License-Identifier: Apache-2.0
// Algorithms that were measured, as the text that a run keeps: where they were measured, then a line for each product.
#include <cublasLt.h>

#include <sstream>

#include "device.hpp"

namespace cuda {
namespace {

// The bytes of an algorithm mean something only to this library on such a GPU.
std::string measured_on(const Device& device) {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + " on " + text_of(device.properties);
}

eng_status choices(void* self, char* text, uint64_t capacity, uint64_t* size, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    const Device& device = of(self);
    std::string all;
    if (!device.choices.algorithms.empty()) all = measured_on(device) + "\n";
    for (const auto& [product, algorithm] : device.choices.algorithms) all += product + " = " + algorithm + "\n";
    put_text(all, text, capacity, size);
  });
}

eng_status choose(void* self, const char* text, uint64_t size, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    Device& device = of(self);
    if (!device.options.tune) return;
    std::istringstream lines(std::string(text, size));
    std::string where, line;
    std::getline(lines, where);
    if (const std::string here = measured_on(device); where != here)
      throw Error{ENG_INVALID, "the algorithms of this run were measured by " + where + "; here is " + here +
                                   ": set device.tune = false, which may change the last bits of the run, or go back"};
    Choices taken;
    while (std::getline(lines, line)) {
      const size_t at = line.find(" = ");
      if (at == std::string::npos) throw Error{ENG_INVALID, "a line of the measured algorithms lacks ` = `: " + line};
      taken.algorithms[line.substr(0, at)] = line.substr(at + 3);
    }
    device.choices = std::move(taken);
  });
}

}  // namespace

void add_choices(eng_device& t) {
  t.choices = choices, t.choose = choose;
}

}  // namespace cuda
