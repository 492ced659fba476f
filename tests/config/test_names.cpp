// SPDX-License-Identifier: Apache-2.0
#include "core/config/names.hpp"

#include <algorithm>
#include <catch2/catch.hpp>

#include "core/config/schema.hpp"
#include "support.hpp"

using namespace eng;
using namespace eng::test;

namespace {

// Every insertion, deletion, replacement (of some letters) and swap at one place of the name.
std::vector<std::string> typos(const std::string& name) {
  std::vector<std::string> all;
  for (std::size_t i = 0; i < name.size(); ++i) {
    all.push_back(name.substr(0, i) + name.substr(i + 1));
    for (char c : {'x', 'q'}) {
      all.push_back(name.substr(0, i) + c + name.substr(i));
      all.push_back(name.substr(0, i) + c + name.substr(i + 1));
    }
    if (i + 1 < name.size() && name[i] != name[i + 1]) {
      std::string swapped = name;
      std::swap(swapped[i], swapped[i + 1]);
      all.push_back(swapped);
    }
  }
  return all;
}

struct Case {
  std::string section, key;
  std::vector<std::string> keys;
};

// Every key of every section, with the default plugins.
std::vector<Case> all_keys() {
  std::vector<Case> all;
  for (const auto& section : section_schemas()) {
    const std::string name = section.name == "model" ? "llama" : default_plugin(section);
    const PluginSchema* plugin = section.kind.empty() ? nullptr : find_plugin(plugins(), section.kind, name);
    const auto keys = keys_of(plugin ? merged(section.options, plugin->options) : section.options);
    for (const auto& key : keys) all.push_back({section.name, key, keys});
  }
  return all;
}

}  // namespace

TEST_CASE("edit distance") {
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "abc") == 0);
  CHECK(edit_distance("abc", "acb") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(nearest("lerning_rate", {"beta1", "learning_rate"}) == "learning_rate");
  CHECK(nearest("stpes", {"steps", "step"}) == "steps");
  CHECK(nearest("ep", {"eps", "k"}) == "eps");
  CHECK(nearest("eqq", {"eps"}).empty());  // two edits of a short name
  CHECK(nearest("", {"a"}).empty());
  CHECK(nearest("beta", {"beta1", "beta2"}) == "beta1");
  CHECK(nearest_all("beta", {"beta1", "beta2"}).size() == 2);
  CHECK(nearest(std::string(1000, 'a'), {std::string(1001, 'a')}).empty());
}

TEST_CASE("one edit away from every key, the key is suggested") {
  std::size_t tried = 0;
  for (const Case& c : all_keys()) {
    for (const std::string& typo : typos(c.key)) {
      if (typo.empty() || std::find(c.keys.begin(), c.keys.end(), typo) != c.keys.end()) continue;
      const std::string text =
          problems("[model]\nplugin = \"llama\"\npreset = \"tiny\"\n", {c.section + "." + typo + "=1"});
      INFO(text);
      // "did you mean": among the nearest, or offered beside the section that owns the very word.
      const auto mean = text.find("did you mean ");
      REQUIRE(mean != std::string::npos);
      const std::string line = text.substr(mean, text.find('\n', mean) - mean);
      CHECK_THAT(line, Catch::Contains("`" + c.key + "`"));
      ++tried;
    }
  }
  CHECK(tried > 1000);
}

TEST_CASE("names of other trainers point at a key that exists, or at a section that is not here yet") {
  for (const char* name : {"gradient_accumulation_steps", "train_micro_batch_size_per_gpu", "max_steps", "seq_len",
                           "batch_size", "gradient_clipping", "lr", "stage", "n_layer"}) {
    const Foreign* other = foreign_key(name);
    REQUIRE(other);
    const std::string here = other->here, section = here.substr(0, here.find('.'));
    CHECK((find_schema(section) || later_section(section)));
    if (find_schema(section) && section != "model")
      CHECK(find_option(find_schema(section)->options, here.substr(here.find('.') + 1)));
  }
  CHECK_FALSE(foreign_key("steps"));
  const std::string text = problems(with("[train]\ngradient_accumulation_steps = 4\nlr = 1e-3\nstage = 2\n"));
  CHECK_THAT(
      text,
      Catch::Contains("error[E0111]: `gradient_accumulation_steps` is DeepSpeed's and Hugging Face's name; here it "
                      "is `train.accumulate`") &&
          Catch::Contains("help: write accumulate\n") && Catch::Contains("help: write learning_rate in [optimizer]") &&
          Catch::Contains("[zero] is not supported by this version") && Catch::Contains("3 problems in opt.toml"));
}
