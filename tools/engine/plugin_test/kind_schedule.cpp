// SPDX-License-Identifier: Apache-2.0
// eng.schedule/1: one rate for each update, whenever it is asked.
#include <cmath>

#include "engine/schedule.h"
#include "tools/engine/plugin_test/kinds.hpp"

namespace eng::plugin_test {
namespace {

class Rates {
 public:
  Rates(const eng_schedule& table, const Section& section, int64_t steps, double peak) : table_(table), peak_(peak) {
    const Watched options(section);
    const eng_schedule_run run = {sizeof(eng_schedule_run), 0, steps, peak};
    Sink sink;
    check_made(table.create(options.get(), &run, &self_, sink.get()), sink, options.misuse());
    made_ = true;
  }
  ~Rates() {
    if (made_) table_.destroy(self_);
  }
  Rates(const Rates&) = delete;
  Rates& operator=(const Rates&) = delete;
  double rate(uint64_t k) const {
    double out = -1;
    Sink sink;
    sink.check(table_.rate(self_, k, &out, sink.get()), Exit::environment, fmt::format("the rate of update {}", k));
    if (!(out >= 0 && out <= peak_ * (1 + 1e-9)))
      throw Broken(fmt::format("the rate of update {} is {:g}: it must be from 0 to the peak, {:g}", k, out, peak_));
    return out;
  }

 private:
  const eng_schedule& table_;
  double peak_;
  void* self_ = nullptr;
  bool made_ = false;
};

}  // namespace

void test_schedule(const Subject& s, Sheet& sheet) {
  eng_schedule table{};
  Section section;
  const bool made = sheet.check("create", [&] {
    table = s.table<eng_schedule>();
    section = s.section();
    const Rates one(table, section, 1000, 0.01);
    return "";
  });
  if (!made) return;
  // One step is the shortest run there is: no division by what is left of it, and no warm-up that ends in it.
  const auto pure = [&](const std::vector<int64_t>& runs) {
    Random random = s.random(fmt::format("rates of {}", runs.front()));
    size_t tried = 0;
    for (const int64_t steps : runs) {
      const Rates one(table, section, steps, 0.01), two(table, section, steps, 0.01);
      std::vector<uint64_t> updates = {1, 2, 3, static_cast<uint64_t>(steps), static_cast<uint64_t>(steps) + 1};
      for (int k = 0; k < 300 * s.rounds; ++k) updates.push_back(static_cast<uint64_t>(pick(random, 1, 2 * steps)));
      std::map<uint64_t, double> first;
      for (uint64_t k : updates) first[k] = one.rate(k);
      std::shuffle(updates.begin(), updates.end(), random);
      for (uint64_t k : updates) {
        const double rate = two.rate(k), again = one.rate(k);
        if (rate != first[k] || again != first[k])
          throw Broken(
              fmt::format("the rate of update {} of {} is {:g}, asked in another order or of another object {:g}", k,
                          steps, first[k], rate != first[k] ? rate : again));
      }
      tried += first.size();
    }
    return fmt::format("{} updates; train.steps = {}", tried, fmt::join(runs, ", "));
  };
  sheet.check("a pure function from 0 to the peak", [&] { return pure({1000, 4000, 100000}); });
  sheet.check("a run of one step", [&] { return pure({1}); });
}

}  // namespace eng::plugin_test
