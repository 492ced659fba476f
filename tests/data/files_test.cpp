// SPDX-License-Identifier: Apache-2.0
// Patterns: which files they name, and in which order.
#include <catch2/catch.hpp>
#include <filesystem>

#include "harness.hpp"

using namespace data_test;
namespace fs = std::filesystem;

namespace {

// The names of the matched files, in order: each file of this tree holds its own name.
class Tree {
 public:
  Tree() {
    for (const char* name : {"a.md", "b.md", "c.txt", "sub/d.md", "sub/deep/e.md", "sub/deep/f.txt", ".hidden.md",
                             ".git/g.md", "sub/.h.md", "[x].md", "sub/x.md", "zz/sub/k.md"}) {
      folder_.write(name, std::string(name) + ";");
    }
    fs::create_directory_symlink(folder_.path() / "sub", folder_.path() / "link");
    fs::create_symlink(folder_.path() / "c.txt", folder_.path() / "d.txt");
    fs::create_symlink(folder_.path() / "nowhere", folder_.path() / "dangling.md");
  }

  std::string match(std::vector<std::string> patterns) {
    // A first try learns how long the text is, which is the length that makes one window of all of it.
    Settings settings{.paths = std::move(patterns), .strings = {{"separator", ""}}, .numbers = {{"validation", 0}}};
    Source once(folder_, settings);
    if (once.status() != ENG_OK) return once.error();
    settings.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder_, settings).text();
  }

  const Folder& folder() const { return folder_; }

 private:
  Folder folder_;
};

}  // namespace

TEST_CASE("patterns name files, sorted, each once") {
  Tree tree;
  CHECK(tree.match({"b.md", "a.md"}) == "a.md;b.md;");
  CHECK(tree.match({"*.txt"}) == "c.txt;");  // d.txt is a link to c.txt
  CHECK(tree.match({"?.md"}) == "a.md;b.md;");
  CHECK(tree.match({"[b-z].*"}) == "b.md;c.txt;");
  CHECK(tree.match({"*.md", "a.md", "./a.md", "sub/../a.md"}) == "[x].md;a.md;b.md;");
  CHECK(tree.match({"sub/*.md"}) == "sub/d.md;sub/x.md;");
  CHECK(tree.match({"*/d.md"}) == "sub/d.md;");  // link/d.md is the same file
  CHECK(tree.match({(tree.folder().path() / "a.md").string()}) == "a.md;");
}

TEST_CASE("two stars stand for any folders, none too") {
  Tree tree;
  CHECK(tree.match({"**/*.md"}) == "[x].md;a.md;b.md;sub/d.md;sub/deep/e.md;sub/x.md;zz/sub/k.md;");
  CHECK(tree.match({"**/**/*.md"}) == tree.match({"**/*.md"}));
  CHECK(tree.match({"sub/**/*.md"}) == "sub/d.md;sub/deep/e.md;sub/x.md;");
  CHECK(tree.match({"sub/**"}) == "sub/d.md;sub/deep/e.md;sub/deep/f.txt;sub/x.md;");
  CHECK(tree.match({"**/sub/*.md"}) == "sub/d.md;sub/x.md;zz/sub/k.md;");
  CHECK(tree.match({"**/deep/**/e.md"}) == "sub/deep/e.md;");
}

TEST_CASE("hidden names match only where the dot is written") {
  Tree tree;
  CHECK(tree.match({".*.md"}) == ".hidden.md;");
  CHECK(tree.match({".git/*"}) == ".git/g.md;");
  CHECK(tree.match({"**/.h*.md"}) == ".hidden.md;sub/.h.md;");
  CHECK(tree.match({"a.md", "**/g.md"}).find("'**/g.md' matches no file") != std::string::npos);
}

TEST_CASE("a path that exists is taken literally") {
  Tree tree;
  CHECK(tree.match({"[x].md"}) == "[x].md;");
  fs::remove(tree.folder().path() / "[x].md");
  tree.folder().write("x.md", "x.md;");
  CHECK(tree.match({"[x].md"}) == "x.md;");
}
