// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "core/config/source.hpp"
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
    const auto names = plugins().names(section.kind);  // the first of a kind is the default
    std::vector<std::string> keys;
    for (const Option& option : merged(section, names.empty() ? nullptr : plugins().find(section.kind, names[0])))
      keys.push_back(option.key);
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
  using Names = std::vector<std::string>;
  CHECK(nearest("lerning_rate", {"beta1", "learning_rate"}) == Names{"learning_rate"});
  CHECK(nearest("stpes", {"steps", "step"}) == Names{"steps"});
  CHECK(nearest("ep", {"eps", "k"}) == Names{"eps"});
  CHECK(nearest("eqq", {"eps"}).empty());  // two edits of a short name
  CHECK(nearest("", {"a"}).empty());
  CHECK(nearest("beta", {"beta1", "beta2"}) == Names{"beta1", "beta2"});
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

TEST_CASE("names of other trainers point at a key that exists") {
  for (const char* name : {"gradient_accumulation_steps", "train_micro_batch_size_per_gpu", "max_steps", "seq_len",
                           "batch_size", "gradient_clipping", "lr", "steps_per_print"}) {
    const auto other = foreign_key(name);
    REQUIRE(other);
    const std::string here = other->here;
    const auto& all = section_schemas();
    const auto section = std::find_if(
        all.begin(), all.end(), [&](const auto& schema) { return schema.name == here.substr(0, here.find('.')); });
    REQUIRE(section != all.end());
    CHECK(find_option(section->options, here.substr(here.find('.') + 1)));
  }
  CHECK_FALSE(foreign_key("steps"));
  // Sections, names within a table of a section, and names outside any.
  CHECK_THAT(problems(with("[zero_optimization]\nstage = 2\n")),
             Catch::Contains("error[E0111]: [zero_optimization] is DeepSpeed's name; here it is `[zero]`"));
  CHECK_THAT(problems(with("[optimizer.params]\nlr = 1e-3\n")),
             Catch::Contains("`params.lr` is DeepSpeed's and torchtitan's name; here it is `optimizer.learning_rate`"));
  CHECK_THAT(problems("train_batch_size = 8\n" + with("")),
             Catch::Contains("error[E0111]: `train_batch_size` is DeepSpeed's name; here it is `train.global_batch`"));
  CHECK_THAT(problems(with("[optimizer]\ntype = \"AdamW\"\n[schedule]\ntype = \"WarmupLR\"\n")),
             Catch::Contains("here it is `optimizer.plugin`") && Catch::Contains("here it is `schedule.kind`"));
  const std::string text = problems(with("[train]\ngradient_accumulation_steps = 4\nlr = 1e-3\n"));
  CHECK_THAT(
      text,
      Catch::Contains("error[E0111]: `gradient_accumulation_steps` is DeepSpeed's and Hugging Face's name; here it "
                      "is `train.accumulate`") &&
          Catch::Contains("`lr` is DeepSpeed's and torchtitan's name; here it is `optimizer.learning_rate`") &&
          Catch::Contains("2 problems in opt.toml"));
}

TEST_CASE("every name in the documents' table of DeepSpeed is recognised, and has the key that stands there") {
  std::ifstream page(std::string(ENGINE_SOURCE_DIR) + "/docs/config.md");
  std::string line;
  while (line != "## From DeepSpeed" && std::getline(page, line)) continue;
  std::size_t names = 0;
  while (std::getline(page, line) && !line.starts_with("#")) {
    const auto middle = line.find(" | ", 1);
    const std::string there = line.substr(0, middle), here = line.substr(std::min(middle, line.size()));
    for (std::size_t at = there.find("| `"); middle != std::string::npos && at != std::string::npos;
         at = there.find(", `", at + 1)) {
      const auto first = there.find('`', at) + 1;
      const std::string name = there.substr(first, there.find('`', first) - first);
      if (name.starts_with("Warmup")) continue;  // a value
      const std::string word = name.substr(name.rfind('.') + 1), table = name.substr(0, name.find('.'));
      auto found = foreign_key(table + "." + word);
      if (!found) found = foreign_key(word);
      INFO(line);
      REQUIRE(found);
      if (here.find("not yet") == std::string::npos) CHECK_THAT(here, Catch::Contains(found->here));
      ++names;
    }
  }
  CHECK(names > 14);
}
