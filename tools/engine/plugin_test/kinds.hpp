// SPDX-License-Identifier: Apache-2.0
// The laws of each kind of plugin. A kind has a file of its own, kind_NAME.cpp, and a line in kinds.cpp.
#pragma once

#include <span>

#include "session/config/config.hpp"
#include "tools/engine/plugin_test/course.hpp"

namespace eng::plugin_test {

// The plugin under test, and its surroundings.
struct Subject {
  Registry& registry;
  const Candidate& file;
  const Provided& one;
  std::vector<std::string> given;  // KEY=VALUE of the command line
  uint64_t seed = 1;
  int rounds = 2;
  std::filesystem::path scratch;  // an empty folder

  Random random(const std::string& check) const;  // its own for each check, so that one can be tried alone
  // A configuration with this plugin in its section, and `more` lines of TOML. Throws Untested if a key that the plugin
  // needs is not given.
  Config config(const std::string& more = "") const;
  Section section(const std::string& more = "") const;  // the plugin's own
  template <class Table>
  Table table() const {
    return registry.table_of<Table>(file, one.kind, one.name);
  }
  template <class Table>
  Chosen<Table> chosen() const {
    return {one.name, table<Table>(), section()};
  }
  bool brings(const std::string& op) const { return op.starts_with(file.description.id + "."); }
};

struct Kind {
  const char* id;       // "eng.data/1"
  const char* section;  // of the configuration; "" if its options come from none
  void (*test)(const Subject&, Sheet&);
};
std::span<const Kind> kinds();
const Kind* find_kind(const std::string& id);  // nullptr: of somebody else

void test_model(const Subject&, Sheet&);
void test_optimizer(const Subject&, Sheet&);
void test_data(const Subject&, Sheet&);
void test_documents(const Subject&, Sheet&);
void test_chat(const Subject&, Sheet&);
void test_tokenizer(const Subject&, Sheet&);
void test_device(const Subject&, Sheet&);
void test_kernels(const Subject&, Sheet&);
void test_ops(const Subject&, Sheet&);
void test_comm(const Subject&, Sheet&);
void test_precision(const Subject&, Sheet&);
void test_zero(const Subject&, Sheet&);
void test_tier(const Subject&, Sheet&);
void test_observer(const Subject&, Sheet&);
void test_schedule(const Subject&, Sheet&);
void test_job(const Subject&, Sheet&);
void test_monitor(const Subject&, Sheet&);
void test_transform(const Subject&, Sheet&);
void test_loss(const Subject&, Sheet&);

// Options that know what was asked of them: a plugin may read the keys of its description and of its section, by their
// types.
class Watched {
 public:
  explicit Watched(const Section& section);
  Watched(const Watched&) = delete;
  Watched& operator=(const Watched&) = delete;
  const eng_options* get() const { return &table_; }
  const std::string& misuse() const { return misuse_; }  // "" if there was none

 private:
  template <class F, class... Args>
  static eng_status ask(const eng_options* self, F eng_options::*what, const char* key, bool out, Args... args);
  const Section& section_;
  Options theirs_;
  eng_options table_{};
  std::string misuse_;
};

// A status of `create` or `describe`, as a verdict: ENG_INVALID, ENG_NOT_FOUND, ENG_UNAVAILABLE and ENG_UNSUPPORTED
// mean that it cannot be tested with these options, here; anything else is a fault.
void check_made(eng_status status, const Sink& sink, const std::string& misuse = "");
// The device that plans are run on: `name`, made with a thread count where it has such an option. Throws Untested if
// there is none.
std::unique_ptr<Machine> machine(const Subject& subject, const std::string& name, int64_t threads = 1,
                                 uint32_t local_rank = 0);
// The plain course, of a sample model.
Course plain_course(const Subject& subject, Random& random);
// A section with the defaults of a plugin.
Section defaults(const Subject& subject, const std::string& section, const std::string& plugin);
// "adamw" of whoever provides it. Throws Untested if nobody does.
Chosen<eng_optimizer> usual_optimizer(const Subject& subject);

// The smallest of its presets, in a few layers, or what the command line gives. Throws Untested if there is none that
// is small enough to run here.
Chosen<eng_model> small_model(const Subject& subject);

// Makes what else the file provides, once, as a run does before it asks for ops and kernels.
void wake(const Subject& subject);

// The options of a plugin that has no section: the defaults of its keys, and what the command line gives.
Section entry_options(const Subject& subject, const std::string& section, const Schema& keys);
Section observer_options(const Subject& subject);
Section transform_options(const Subject& subject);

// Slopes of the loss along random directions, against the gradients of the backward. Throws Broken.
std::string check_gradients(const Subject& subject, const Chosen<eng_model>& model, Random& random,
                            const std::vector<Chosen<eng_transform>>& transforms = {},
                            const std::optional<Chosen<eng_loss>>& loss = {});

// Uses of ops, with inputs as they come in runs of the file's models, optimizers and policies on a device. `format`:
// the precision of models, "f32", "f64", or one that a plugin provides.
std::vector<Case> cases_in_use(const Subject& subject, Machine& machine, const std::function<bool(const Call&)>& wanted,
                               uint64_t round, const std::string& format = "f32", std::string* why = nullptr);
// For an op of which no call was found: Broken if that is because of the op itself, else Untested with `else_why`.
[[noreturn]] void no_cases(const std::string& op, const std::string& why, const std::string& else_why);

}  // namespace eng::plugin_test
