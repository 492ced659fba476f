// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <catch2/catch.hpp>
#include <fstream>

#include "core/config/names.hpp"
#include "session/config/foreign.hpp"
#include "session/config/spelling.hpp"
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

TEST_CASE("one edit away from every key, the key is suggested", "[.slow]") {
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

TEST_CASE("every name in the documents' table of DeepSpeed is recognised, with the key in the table") {
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
      const std::string table = name.substr(0, name.find('.'));
      const bool alone = table == name;
      const auto found = foreign_name(alone ? "" : table, alone ? name : name.substr(table.size() + 1), {});
      INFO(line);
      REQUIRE(found);
      if (here.find("not yet") == std::string::npos) CHECK_THAT(here, Catch::Contains(found->here));
      ++names;
    }
  }
  CHECK(names > 14);
}

TEST_CASE("patterns of names") {
  CHECK(matches("*.bias", "a.b.bias"));
  CHECK(matches("*", ""));
  CHECK(matches("a*b*c", "a.b.bb.c"));
  CHECK(matches("layers.?.w", "layers.3.w"));
  CHECK(matches("a**", "a"));
  CHECK_FALSE(matches("*.bias", "a.bias.x"));
  CHECK_FALSE(matches("layers.?.w", "layers.13.w"));
  CHECK_FALSE(matches("", "a"));
  CHECK_FALSE(matches("a*b*c", "a.c.b"));
  const std::vector<std::string> names = {"embed.weight", "layers.0.attn.q", "layers.1.attn.q", "norm.weight"};
  CHECK(nearly_matched("layers.*.atn.q", names, 2) == std::vector<std::string>{"layers.0.attn.q", "layers.1.attn.q"});
  CHECK(nearly_matched("nrom.weight", names, 1) == std::vector<std::string>{"norm.weight"});
  CHECK(nearly_matched("x", {}, 3).empty());
}
