// SPDX-License-Identifier: Apache-2.0
// 16-bit formats follow fp32: the mean loss of steps 151 to 200 lies within 0.01 of fp32's, or within three times the
// spread of fp32 runs that begin one unit in the last place apart, if that is larger. Of bf16_sr, within 0.02.
#include <algorithm>
#include <bit>
#include <catch2/catch.hpp>
#include <iostream>
#include <map>

#include "course.hpp"
#include "session/plugins/search.hpp"
#include "tests/paths.hpp"
#include "tests/rounding.hpp"

namespace bands_test {

using models::Course;

std::unique_ptr<eng::Registry> registry() {
  eng::PluginSearch search;
  for (const char* file : {"cpu/cpu", "llama/llama", "opt/opt", "mamba/mamba", "optim/optim", "precision/precision"})
    search.extra.push_back(std::string(ENGINE_PLUGIN_DIR) + "/" + file + ".eng.so");
  search.environment = false;
  return eng::find_plugins(search);
}

float of_pattern(uint16_t pattern) {
  return std::bit_cast<float>(uint32_t{pattern} << 16);
}
float to_nearest(float x) {
  return of_pattern(rounding::upper(x, 0x7fff + (std::bit_cast<uint32_t>(x) >> 16 & 1)));
}

TEST_CASE("16-bit formats follow fp32 over 200 steps, and faults are seen", "[.slow]") {
  const auto plugins = registry();
  for (const char* model : {"llama", "opt", "mamba"}) {
    Course course;
    course.model = model;
    const double fp32 = end_of(*plugins, course);
    double least = fp32, most = fp32;
    for (uint64_t seed = 1; seed <= 5; ++seed) {
      course.perturb = seed;
      const double one = end_of(*plugins, course);
      least = std::min(least, one), most = std::max(most, one);
    }
    course.perturb = 0;
    const double band = std::max(0.01, 3 * (most - least)), wider = std::max(0.02, 3 * (most - least));
    std::cout << model << ": fp32 " << fp32 << ", spread " << most - least;
    CHECK(band == 0.01);
    CHECK(fp32 < 3.0);  // it has learned: log(96) = 4.56
    for (const std::string format : {"bf16", "fp16", "bf16_sr", "bf16_sr'\ngradients = 'bf16"}) {
      course.precision = format;
      const double ours = end_of(*plugins, course);
      std::cout << ", " << format << " " << ours;
      CHECK(std::abs(ours - fp32) <= (format.starts_with("bf16_sr") ? wider : band));
      CHECK(ours != fp32);
    }
    course.precision = "bf16";
    for (const bool nearest : {false, true}) {
      course.keep = [&](float x, const Course::At&) {
        return nearest ? to_nearest(x) : of_pattern(rounding::upper(x, 0));
      };
      const double wrong = end_of(*plugins, course);
      std::cout << (nearest ? ", rounded to nearest " : ", rounded down ") << wrong;
      CHECK(std::abs(wrong - fp32) > wider);
    }
    course.keep = {}, course.precision = "fp32";
    course.forget = true;
    const double forgets = end_of(*plugins, course);
    std::cout << ", moments never updated " << forgets << "\n";
    CHECK(std::abs(forgets - fp32) > wider);
  }
}

// Only what is stored between updates differs: with masters and moments in f32, rounded by hand with the numbers of
// engine/ops.h after every update, bf16 computes what bf16_sr computes.
TEST_CASE("bf16_sr is bf16 whose masters and moments are rounded stochastically", "[.slow]") {
  const auto plugins = registry();
  Course course;
  course.model = "opt", course.precision = "bf16_sr";
  std::map<int64_t, std::vector<float>> start;
  course.keep = [&](float x, const Course::At& at) {
    if (!at.update && !at.value) start[at.parameter].push_back(x);
    return x;
  };
  const double ours = end_of(*plugins, course);
  course.precision = "bf16";
  for (const int64_t seed : {1, 2}) {  // train.seed is 1
    course.keep = [&](float x, const Course::At& at) {
      if (!at.update) return at.value ? x : start[at.parameter][static_cast<size_t>(at.element)];
      return of_pattern(rounding::upper(x, rounding::number({seed, at.parameter, 0, at.update}, at.element, at.value)));
    };
    CHECK((end_of(*plugins, course) == ours) == (seed == 1));
  }
}

}  // namespace bands_test
