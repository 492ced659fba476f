// SPDX-License-Identifier: Apache-2.0
// Algorithms that were measured, and who computes attention, as the text that a run keeps: where they were measured, a
// line for each product, and one for each call of attention that was, or that the plan leaves to cuDNN.
#include <cublasLt.h>

#include <sstream>
#include <utility>

#include "device.hpp"

namespace cuda {
namespace {

// The bytes of an algorithm mean something only to this library on such a GPU.
std::string measured_on(const Device& device) {
  return "cuBLASLt " + std::to_string(cublasLtGetVersion()) + " on " + text_of(device.properties);
}

eng_status choices(void* self, char* text, uint64_t capacity, uint64_t* size, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    const Choices& own = of(self).choices;
    std::string all;
    if (!own.algorithms.empty()) all = measured_on(of(self)) + "\n";
    for (const auto* list : {&own.algorithms, &own.attention})
      for (const auto& [call, choice] : *list) all += call + " = " + choice + "\n";
    put_text(all, text, capacity, size);
  });
}

eng_status choose(void* self, const char* text, uint64_t size, eng_error* sink) {
  return guarded(sink, device_name, [&] {
    Device& device = of(self);
    std::istringstream lines(std::string(text, size));
    std::string where;  // "": nothing was measured
    Choices taken;
    for (std::string line; std::getline(lines, line);) {
      const size_t at = line.find(" = ");
      if (at != std::string::npos)
        (line.starts_with("attention ") ? taken.attention : taken.algorithms)[line.substr(0, at)] = line.substr(at + 3);
      else if (!std::exchange(where, line).empty())
        throw Error{ENG_INVALID, "a line of the measured algorithms lacks ` = `: " + line};
    }
    // If own kernels are asked for, earlier choices are void, but for what was measured of these kernels.
    std::erase_if(taken.attention, [&, who = device.options.attention.who](const auto& one) {
      const bool measured = who == AttentionOptions::own && device.options.tune && !one.second.starts_with("cuDNN");
      return who >= AttentionOptions::own && !measured;
    });
    const std::string here = measured_on(device);
    if (!device.options.tune)
      taken.algorithms.clear();
    else if (taken.measure = where.empty() && taken.algorithms.empty(); !taken.measure && where != here)
      throw Error{ENG_INVALID, "the algorithms of this run were measured by " + where + "; here is " + here +
                                   ": set device.tune = false, which may change the last bits of the run, or go back"};
    device.choices = std::move(taken);
  });
}

}  // namespace

void add_choices(eng_device& t) {
  t.choices = choices, t.choose = choose;
}

}  // namespace cuda
