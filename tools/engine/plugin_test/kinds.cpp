// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/kinds.hpp"

#include <algorithm>

#include "engine/chat.h"
#include "engine/documents.h"
#include "engine/job.h"
#include "engine/loss.h"
#include "engine/model.h"
#include "engine/monitor.h"
#include "engine/observer.h"
#include "engine/op.h"
#include "engine/schedule.h"
#include "engine/tokenizer.h"
#include "session/config/schemas.hpp"

namespace eng::plugin_test {

std::span<const Kind> kinds() {
  static const Kind all[] = {
      {ENG_DEVICE_KIND, "device", test_device},
      {ENG_OPS_KIND, "", test_ops},
      {ENG_KERNELS_KIND, "", test_kernels},
      {ENG_MODEL_KIND, "model", test_model},
      {ENG_OPTIMIZER_KIND, "optimizer", test_optimizer},
      {ENG_PRECISION_KIND, "precision", test_precision},
      {ENG_ZERO_KIND, "zero", test_zero},
      {ENG_TIER_KIND, "offload", test_tier},
      {ENG_DATA_KIND, "data", test_data},
      {ENG_DOCUMENTS_KIND, "data", test_documents},
      {ENG_TOKENIZER_KIND, "", test_tokenizer},
      {ENG_CHAT_KIND, "", test_chat},
      {ENG_COMM_KIND, "comm", test_comm},
      {ENG_SCHEDULE_KIND, "schedule", test_schedule},
      {ENG_OBSERVER_KIND, "", test_observer},
      {ENG_JOB_KIND, "job", test_job},
      {ENG_MONITOR_KIND, "", test_monitor},
      {ENG_TRANSFORM_KIND, "", test_transform},
      {ENG_LOSS_KIND, "loss", test_loss},
  };
  return all;
}

const Kind* find_kind(const std::string& id) {
  const auto all = kinds();
  const auto found = std::find_if(all.begin(), all.end(), [&](const Kind& k) { return id == k.id; });
  return found == all.end() ? nullptr : &*found;
}

Random Subject::random(const std::string& check) const {
  uint64_t hash = 0xCBF29CE484222325ull;
  for (const char c : one.kind + one.name + check) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ull;
  return Random(hash ^ (seed * 0x9E3779B97F4A7C15ull));
}

namespace {

// A model of nothing: a configuration needs one.
SchemaSource with_sample(SchemaSource from) {
  static const PluginSchema none;
  SchemaSource out = from;
  out.find = [find = from.find](const std::string& kind, const std::string& name) {
    return kind == ENG_MODEL_KIND && name == "sample of plugins test" ? &none : find(kind, name);
  };
  return out;
}

}  // namespace

Config Subject::config(const std::string& more) const {
  const Kind* kind = find_kind(one.kind);
  const std::string section = kind ? kind->section : "";
  std::string text =
      section == "model" || more.find("[model]") == 0 ? "" : "[model]\nplugin = \"sample of plugins test\"\n";
  if (section == "offload")
    text += fmt::format("[offload]\noptimizer = \"{}\"\n", one.name);
  else if (one.kind == ENG_DOCUMENTS_KIND)
    text += fmt::format("[data]\nplugin = \"text\"\nformat = \"{}\"\npaths = [\"a file\"]\n", one.name);
  else if (section == "schedule")
    text += fmt::format("[schedule]\nkind = \"{}\"\n", one.name);
  else if (!section.empty())
    text += fmt::format("[{}]\nplugin = \"{}\"\n", section, one.name);
  std::vector<std::string> overrides;
  for (const std::string& key : given) {
    const std::string name = key.substr(0, key.find('='));
    const bool whole = name.find('.') != std::string::npos;
    if (!section.empty() && (whole || find_option(one.schema.options, name) || is_engine_key(section, name)))
      overrides.push_back(whole ? key : section + "." + key);
  }
  try {
    return Config::parse(text + more, "plugins test", scratch, overrides, with_sample(schemas_of(registry)));
  } catch (const Error& e) {
    throw Untested(fmt::format("it cannot be made with these options: {}; give KEY=VALUE", e.what()));
  }
}

Section Subject::section(const std::string& more) const {
  const Kind* kind = find_kind(one.kind);
  return config(more).section(kind->section);
}

template <class F, class... Args>
eng_status Watched::ask(const eng_options* self, F eng_options::*what, const char* key, bool out, Args... args) {
  auto& me = *static_cast<Watched*>(self->data);
  const eng_status status = (me.theirs_.get()->*what)(me.theirs_.get(), key, args...);
  const bool known = key && me.section_.settings().count(key);
  if (!key || !out)
    me.misuse_ = "it reads an option with key or out NULL";
  else if (!known)
    me.misuse_ = fmt::format("it reads the option `{}`, which its description does not list", one_line(key, 60));
  else if (status == ENG_INVALID)
    me.misuse_ = fmt::format("it reads the option `{}` as another type than its description gives it", key);
  return status;
}

Watched::Watched(const Section& section) : section_(section), theirs_(section) {
  table_ = *theirs_.get();
  table_.data = this;
  table_.get_bool = [](const eng_options* o, const char* k, int32_t* out, eng_error* e) {
    return ask(o, &eng_options::get_bool, k, out, out, e);
  };
  table_.get_int = [](const eng_options* o, const char* k, int64_t* out, eng_error* e) {
    return ask(o, &eng_options::get_int, k, out, out, e);
  };
  table_.get_float = [](const eng_options* o, const char* k, double* out, eng_error* e) {
    return ask(o, &eng_options::get_float, k, out, out, e);
  };
  table_.get_string = [](const eng_options* o, const char* k, const char** out, eng_error* e) {
    return ask(o, &eng_options::get_string, k, out, out, e);
  };
  table_.get_count = [](const eng_options* o, const char* k, uint32_t* out, eng_error* e) {
    return ask(o, &eng_options::get_count, k, out, out, e);
  };
  table_.get_float_at = [](const eng_options* o, const char* k, uint32_t at, double* out, eng_error* e) {
    return ask(o, &eng_options::get_float_at, k, out, at, out, e);
  };
  table_.get_string_at = [](const eng_options* o, const char* k, uint32_t at, const char** out, eng_error* e) {
    return ask(o, &eng_options::get_string_at, k, out, at, out, e);
  };
  table_.is_set = [](const eng_options* o, const char* k) -> int32_t {
    const auto& me = *static_cast<const Watched*>(o->data);
    return me.theirs_.get()->is_set(me.theirs_.get(), k);
  };
}

void check_made(eng_status status, const Sink& sink, const std::string& misuse) {
  if (!misuse.empty()) throw Broken(misuse);
  if (status == ENG_OK) return;
  if (status == ENG_INVALID || status == ENG_NOT_FOUND || status == ENG_UNAVAILABLE || status == ENG_UNSUPPORTED)
    throw Untested(fmt::format("it cannot be made here with these options: {}", sink.text(status)));
  throw Broken(fmt::format("create fails: {}", sink.text(status)));
}

std::unique_ptr<Machine> machine(const Subject& subject, const std::string& name, int64_t threads,
                                 uint32_t local_rank) {
  const Provided* device = subject.registry.find(ENG_DEVICE_KIND, name);
  if (!device) throw Untested(fmt::format("needs the device {}, which no plugin provides", name));
  const bool counted = find_option(device->schema.options, "threads") != nullptr;
  std::string text = fmt::format("[model]\nplugin = \"sample of plugins test\"\n[device]\nplugin = \"{}\"\n", name);
  if (counted) text += fmt::format("threads = {}\n", threads);
  std::vector<std::string> overrides;
  for (const std::string& key : subject.given)
    if (key.starts_with("device."))
      overrides.push_back(key);
    else if (key.find('.') == std::string::npos && find_option(device->schema.options, key.substr(0, key.find('='))))
      overrides.push_back("device." + key);
  const Config config =
      Config::parse(text, "plugins test", subject.scratch, overrides, with_sample(schemas_of(subject.registry)));
  try {
    return std::make_unique<Machine>(subject.registry, name, config.section("device"), local_rank);
  } catch (const Error& e) {
    throw Untested(fmt::format("needs a device {}: {}", name, e.what()));
  }
}

Section defaults(const Subject& subject, const std::string& section, const std::string& plugin) {
  const std::string text =
      fmt::format("[model]\nplugin = \"sample of plugins test\"\n[{}]\nplugin = \"{}\"\n", section, plugin);
  return Config::parse(text, "plugins test", subject.scratch, {}, with_sample(schemas_of(subject.registry)))
      .section(section);
}

Chosen<eng_optimizer> usual_optimizer(const Subject& subject) {
  if (!subject.registry.find(ENG_OPTIMIZER_KIND, "adamw"))
    throw Untested("needs the optimizer adamw, which no plugin provides");
  return {"adamw", subject.registry.table<eng_optimizer>(ENG_OPTIMIZER_KIND, "adamw"),
          defaults(subject, "optimizer", "adamw")};
}

Course plain_course(const Subject& subject, Random& random) {
  Course out;
  out.model = {"sample", sample_model, sample_options(random)};
  out.precision = {"plain", plain_precision, Section()};
  out.zero = {"plain", plain_zero, Section()};
  out.rows = pick(random, 1, 3), out.length = pick(random, 3, 20);
  out.accumulate = static_cast<uint32_t>(pick(random, 1, 3));
  out.seed = subject.seed;
  return out;
}

void no_cases(const std::string& op, const std::string& why, const std::string& else_why) {
  if (why.find(op) != std::string::npos) throw Broken(why);
  throw Untested(else_why + (why.empty() ? "" : "; " + why));
}

void wake(const Subject& subject) {
  // Models last: they ask for ops.
  std::vector<Provided> all = subject.file.description.provides;
  std::stable_partition(all.begin(), all.end(), [](const Provided& one) { return one.kind != ENG_MODEL_KIND; });
  for (const Provided& other : all) {
    if (!other.refused.empty()) continue;
    const Subject one{subject.registry, subject.file,   other,          subject.given,
                      subject.seed,     subject.rounds, subject.scratch};
    try {
      if (other.kind == ENG_MODEL_KIND) small_model(one);
      if (other.kind == ENG_PRECISION_KIND) make_precision(other.name, one.table<eng_axis>(), one.section());
      if (other.kind == ENG_OPTIMIZER_KIND)
        make_optimizer(other.name, one.table<eng_optimizer>(), one.section(), {1, 0.01});
    } catch (const std::exception&) {
      // The verdict on it tells what is wrong.
    }
  }
}

namespace {

// Runs a course and keeps some of the calls that are wanted, two of each op and shape.
void collect(const Course& course, Machine& machine, const std::function<bool(const Call&)>& wanted,
             std::vector<Case>& out) {
  Training run(course, machine);
  if (course.packed && run.model().fields.size() == 2) return;  // it reads tokens and labels alone
  std::map<std::string, int> seen;
  run.team().observe = [&](const Call& call, const std::function<Array(size_t)>& input) {
    if (!wanted(call) || ++seen[text_of(call)] > 2) return;
    Case& one = out.emplace_back(Case{call, {}});
    for (size_t k = 0; k < call.in.size(); ++k) one.in.push_back(input(k));
  };
  run.init();
  for (int64_t k = 0; k < course.steps; ++k) run.step();
  if (!course.generate) return;
  run.team().run("reset");
  run.team().run("decode");
}

std::vector<Case> cases_of_models(const Subject& subject, Machine& on, const std::function<bool(const Call&)>& wanted,
                                  uint64_t round, const Chosen<eng_axis>& precision, std::string* why) {
  std::vector<Case> out;
  for (const Provided& other : subject.file.description.provides) {
    if (!other.refused.empty() || other.kind != ENG_MODEL_KIND) continue;
    const Subject provider{subject.registry, subject.file,   other,          subject.given,
                           subject.seed,     subject.rounds, subject.scratch};
    Random random = provider.random("in use " + std::to_string(round));
    Course course = plain_course(provider, random);
    course.precision = precision, course.steps = 1;
    try {
      course.model = small_model(provider);
      load_ops(subject.registry);
      collect(course, on, wanted, out);
      course.packed = true, course.length = std::max<int64_t>(course.length, 4);
      collect(course, on, wanted, out);
    } catch (const std::exception& e) {  // a kernel may not have the format
      if (why) *why = e.what();
    }
  }
  return out;
}

}  // namespace

std::vector<Case> cases_in_use(const Subject& subject, Machine& on, const std::function<bool(const Call&)>& wanted,
                               uint64_t round, const std::string& format, std::string* why) {
  if (format == "f64") return cases_of_models(subject, on, wanted, round, {"f64", f64_precision, Section()}, why);
  if (format != "f32") {
    if (!subject.registry.find(ENG_PRECISION_KIND, format)) return {};
    return cases_of_models(
        subject, on, wanted, round,
        {format, subject.registry.table<eng_axis>(ENG_PRECISION_KIND, format), defaults(subject, "precision", format)},
        why);
  }
  std::vector<Case> out;
  for (const Provided& other : subject.file.description.provides) {
    const Kind* kind = find_kind(other.kind);
    if (!other.refused.empty() || !kind) continue;
    Subject provider{subject.registry, subject.file,   other,          subject.given,
                     subject.seed,     subject.rounds, subject.scratch};
    Random random = provider.random("in use " + std::to_string(round));
    Course course = plain_course(provider, random);
    course.steps = 2;
    try {
      if (other.kind == ENG_MODEL_KIND) {
        course.model = small_model(provider);
      } else if (other.kind == ENG_OPTIMIZER_KIND) {
        course.optimizer = provider.chosen<eng_optimizer>();
      } else if (other.kind == ENG_PRECISION_KIND) {
        course.precision = provider.chosen<eng_axis>();
        course.optimizer = usual_optimizer(provider);
      } else if (other.kind == ENG_ZERO_KIND) {
        course.zero = provider.chosen<eng_axis>();
        course.ranks = 2;
        course.optimizer = usual_optimizer(provider);
      } else if (other.kind == ENG_OBSERVER_KIND) {
        course.observers = {{other.name, provider.table<eng_observer>(), observer_options(provider)}};
        course.optimizer = usual_optimizer(provider);
      } else if (other.kind == ENG_TRANSFORM_KIND) {
        course.transforms = {{other.name, provider.table<eng_transform>(), transform_options(provider)}};
        course.optimizer = usual_optimizer(provider);
      } else if (other.kind == ENG_LOSS_KIND) {
        course.loss = provider.chosen<eng_loss>();
        course.rows += course.rows % 2;
        course.optimizer = usual_optimizer(provider);
      } else {
        continue;
      }
      load_ops(subject.registry);
      collect(course, on, wanted, out);
      if (other.kind != ENG_MODEL_KIND) continue;
      course.generate = true;
      collect(course, on, wanted, out);
      course.generate = false, course.packed = true, course.length = std::max<int64_t>(course.length, 4);
      collect(course, on, wanted, out);
    } catch (const std::exception& e) {
      if (why) *why = e.what();
    }
  }
  return out;
}

}  // namespace eng::plugin_test
