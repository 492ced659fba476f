// SPDX-License-Identifier: Apache-2.0
// A schedule: the learning rate of every update, as one formula of the update's number. It sees neither time nor
// losses, so a run that was stopped and resumed has the rates of one that was not. Here: a straight warm-up, then a
// power of what is left of the run.
//
// With P = peak, W = warmup_steps, S = steps of the run, M = P * final_share:
//   k < W         P k / W
//   W <= k <= S   M + (P - M) ((S - k) / (S - W))^power
//   k > S         M
#include <cmath>
#include <cstring>
#include <new>

#include "engine/plugin.h"
#include "engine/schedule.h"

ENG_DESCRIPTION(R"(
[plugin]
id = 'org.example.my_thing'
name = 'my_thing'
version = '0.1.0'
license = 'Apache-2.0'
summary = 'a schedule'

[[provides]]
kind = 'eng.schedule/1'
name = 'my_thing'
summary = 'warm-up, then a power of what is left of the run'

[provides.options]
warmup_steps = { type = 'int', default = 0, min = 0, max = 1e9, help = 'updates until the full learning rate' }
power = { type = 'float', default = 2.0, above = 0, max = 100, help = '1 is a straight line' }
final_share = { type = 'float', default = 0.0, min = 0, max = 1, help = 'the last rate, as a part of the peak' }
)")

namespace {

struct Schedule {
  double peak, last, power;
  uint64_t warmup, steps;

  double rate(uint64_t k) const {
    if (k < warmup) return peak * (static_cast<double>(k) / static_cast<double>(warmup));
    if (k >= steps) return last;  // a run that is made longer asks beyond its last step too
    const double left = static_cast<double>(steps - k) / static_cast<double>(steps - warmup);
    return last + (peak - last) * std::pow(left, power);
  }
};

eng_status fail(eng_error* error, eng_status status, const char* text) {
  if (error) error->set(error, status, text, std::strlen(text));
  return status;
}

eng_status create(const eng_options* options, const eng_schedule_run* run, void** self, eng_error* error) {
  int64_t warmup = 0;
  double power = 0, share = 0;
  if (eng_status s = options->get_int(options, "warmup_steps", &warmup, error)) return s;
  if (eng_status s = options->get_float(options, "power", &power, error)) return s;
  if (eng_status s = options->get_float(options, "final_share", &share, error)) return s;
  // This checks what the description cannot say.
  if (warmup > run->steps)
    return fail(error, ENG_INVALID, "warmup_steps is more than train.steps: lower it, or train longer");
  Schedule* made = new (std::nothrow)
      Schedule{run->peak, run->peak * share, power, static_cast<uint64_t>(warmup), static_cast<uint64_t>(run->steps)};
  if (!made) return fail(error, ENG_NO_MEMORY, "out of memory");
  *self = made;
  return ENG_OK;
}

void destroy(void* self) {
  delete static_cast<Schedule*>(self);
}

eng_status rate(void* self, uint64_t k, double* out, eng_error*) {
  *out = static_cast<const Schedule*>(self)->rate(k);
  return ENG_OK;
}

constexpr eng_schedule make_table() {
  eng_schedule table{};
  table.struct_size = sizeof table;
  table.create = create;
  table.destroy = destroy;
  table.rate = rate;
  return table;
}
constexpr eng_schedule table = make_table();

const char* describe() {
  return eng_description;
}

eng_status start(const eng_host*, eng_error*) {
  return ENG_OK;
}

void stop() {}

const void* get_interface(const char* kind, const char* name) {
  return !std::strcmp(kind, ENG_SCHEDULE_KIND) && !std::strcmp(name, "my_thing") ? &table : nullptr;
}

const eng_plugin plugin = {ENG_PLUGIN_INIT, describe, start, stop, get_interface};

}  // namespace

ENG_QUERY const eng_plugin* eng_plugin_query_1(uint32_t) {
  return &plugin;
}
