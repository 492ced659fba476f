// SPDX-License-Identifier: Apache-2.0
// Bad input: the status, and a text that says what, where and what to change.
#include <sys/stat.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <filesystem>

#include "harness.hpp"

using namespace data_test;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

struct Errors {
  Folder folder;

  void refuse(const Settings& settings, eng_status status, const std::vector<std::string>& words) {
    Source source(folder, settings);
    CHECK(source.status() == status);
    for (const std::string& word : words) CHECK_THAT(source.error(), Contains(word));
  }
};

// A user who may not read everything, for as long as it lives; root may.
class Unprivileged {
 public:
  Unprivileged() {
    if (was_root_ && seteuid(65534) != 0) works_ = false;
  }
  ~Unprivileged() {
    if (was_root_ && works_) works_ = seteuid(0) == 0;
  }
  bool works() const { return works_; }

 private:
  bool was_root_ = geteuid() == 0;
  bool works_ = true;
};

// A folder for temporary files that another user can reach. Root's TMPDIR may be its own.
fs::path open_to_others() {
  const Unprivileged user;
  std::error_code none;
  const fs::path usual = fs::temp_directory_path(none);
  for (const fs::path& place : {usual, fs::path("/tmp"), fs::path("/var/tmp"), fs::path("/dev/shm")})
    if (!place.empty() && ::eaccess(place.c_str(), W_OK | X_OK) == 0) return place;
  throw std::runtime_error("this test needs a folder for temporary files that every user may enter and write to: " +
                           usual.string() + ", /tmp, /var/tmp and /dev/shm are none; set TMPDIR to one");
}

}  // namespace

TEST_CASE_METHOD(Errors, "paths that lead nowhere") {
  folder.write("docs/a.txt", "text");
  refuse({.paths = {}}, ENG_INVALID, {"[data] paths is empty"});
  refuse({.paths = {""}}, ENG_INVALID, {"empty"});
  refuse({.paths = {"missing.txt"}}, ENG_NOT_FOUND, {(folder.path() / "missing.txt").string()});
  // Names of data sets get the way to a file; what is a path gets none.
  refuse({.paths = {"wikitext"}}, ENG_NOT_FOUND,
         {"no file " + (folder.path() / "wikitext").string() + ". If wikitext is a data set on huggingface.co",
          "tools/export-dataset wikitext --out wikitext.jsonl.zst\n", "set data.paths=[\"wikitext.jsonl.zst\"]",
          "HF_ENDPOINT", "https://hf-mirror.com"});
  refuse({.paths = {"HuggingFaceFW/fineweb-1.5"}}, ENG_NOT_FOUND,
         {"tools/export-dataset HuggingFaceFW/fineweb-1.5 --out fineweb-1.5.jsonl.zst\n"});
  for (const char* path : {"missing.txt", "docs/missing", "a/b/c", "/missing", "~/missing", "missing/", "mis sing"}) {
    INFO(path);
    CHECK(Source(folder, {.paths = {path}}).error().find("huggingface") == std::string::npos);
  }
  refuse({.paths = {"docs/a.txt", "missing.txt"}}, ENG_NOT_FOUND, {"missing.txt"});
  refuse({.paths = {"docs/a.txt/b.txt"}}, ENG_NOT_FOUND, {"docs/a.txt/b.txt"});
  refuse({.paths = {"~/a.txt"}}, ENG_NOT_FOUND, {"'~' is not expanded"});
  refuse({.paths = {"docs/*.md"}}, ENG_NOT_FOUND, {"'docs/*.md' matches no file", folder.path().string()});
  refuse({.paths = {"none/**/*.md"}}, ENG_NOT_FOUND, {"'none/**/*.md' matches no file"});
  refuse({.paths = {"docs"}}, ENG_INVALID, {(folder.path() / "docs").string(), "is a folder", "docs/**/*"});
}

TEST_CASE_METHOD(Errors, "files that are none, or cannot be read") {
  REQUIRE(mkfifo((folder.path() / "pipe").c_str(), 0644) == 0);
  refuse({.paths = {"pipe"}}, ENG_INVALID,
         {"pipe is a pipe, not a regular file", "read more than once", "cat > text.txt"});
  refuse({.paths = {"/dev/null"}}, ENG_INVALID, {"/dev/null is a terminal or another device", "cat > text.txt"});
  refuse({.paths = {"p*"}}, ENG_NOT_FOUND, {"'p*' matches no file"});
  fs::create_symlink("loop", folder.path() / "loop");
  refuse({.paths = {"loop"}}, ENG_DATA_LOSS, {"loop"});
}

TEST_CASE("files that may not be read") {
  Errors errors{Folder(open_to_others())};
  const Folder& folder = errors.folder;
  folder.write("secret.txt", "text");
  folder.write("closed/a.txt", "text");
  fs::permissions(folder.path() / "secret.txt", fs::perms::none);
  fs::permissions(folder.path() / "closed", fs::perms::none);
  {
    Unprivileged user;
    REQUIRE(user.works());
    errors.refuse({.paths = {"secret.txt"}}, ENG_DATA_LOSS,
                  {(folder.path() / "secret.txt").string(), "Permission denied"});
    errors.refuse({.paths = {"**/*.txt"}}, ENG_DATA_LOSS, {(folder.path() / "closed").string(), "Permission denied"});
    errors.refuse({.paths = {"closed/a.txt"}}, ENG_DATA_LOSS, {"closed/a.txt", "Permission denied"});
  }
  fs::permissions(folder.path() / "closed", fs::perms::owner_all);
}

TEST_CASE_METHOD(Errors, "too little text") {
  folder.write("empty.txt", "");
  folder.write("empty.jsonl", "\n\n");
  refuse({.paths = {"empty.txt"}}, ENG_INVALID, {(folder.path() / "empty.txt").string(), "is empty"});
  refuse({.paths = {"empty.*"}}, ENG_INVALID, {"all 2 files are empty", "empty.jsonl"});

  folder.write("four.txt", "1234");
  Settings settings{.paths = {"four.txt"}, .numbers = {{"validation", 0}}, .length = 4};
  refuse(settings, ENG_INVALID, {"holds 4 tokens", "takes 5", "sequence_length = 4"});
  settings.length = 3;
  CHECK(Source(folder, settings).status() == ENG_OK);
  settings.length = int64_t{1} << 62;
  refuse(settings, ENG_INVALID, {"holds 4 tokens"});

  folder.write("nine.txt", "123456789");
  settings = {.paths = {"nine.txt"}, .length = 4};
  refuse(settings, ENG_INVALID, {"holds 9 tokens", "take 10", "validation = 0.05", "validation = 0"});
  folder.write("nine.txt", "1234567890");
  Source enough(folder, settings);
  CHECK(enough.status() == ENG_OK);
  CHECK(enough.info().train_samples == 1);
  CHECK(enough.info().validation_samples == 1);
}

TEST_CASE_METHOD(Errors, "JSON and tables are not taken for text without being asked") {
  for (const char* name : {"a.csv", "a.Csv.GZ"}) {
    folder.write(name, "some text, more\n");
    refuse({.paths = {name}}, ENG_INVALID,
           {(folder.path() / name).string() + ":1: no column \"text\"", "[data] field"});
    std::filesystem::remove(folder.path() / name);
  }
  for (const char* name : {"a.json", "a.json.gz", "a.JSON"}) {
    folder.write(name, "text, some text\n");
    refuse({.paths = {name}}, ENG_INVALID,
           {(folder.path() / name).string(), "[data] format = \"jsonl\"", "format = \"text\""});
    refuse({.paths = {"a*"}, .strings = {{"format", "auto"}}}, ENG_INVALID, {"format = \"text\""});
    std::filesystem::remove(folder.path() / name);
  }
  // Lines of objects are JSON Lines in a file of any name; another name is told.
  folder.write("a.json", "{\"text\": \"some text\"}");
  Settings settings{.paths = {"a.json"}, .numbers = {{"validation", 0}}, .length = 8};
  for (const char* format : {"auto", "jsonl"}) {
    settings.strings["format"] = format;
    CHECK(Source(folder, settings).text() == "some text");
  }
  settings.strings["format"] = "text";
  settings.length = 20;  // and the last label
  CHECK(Source(folder, settings).text() == "{\"text\": \"some text\"}");
  folder.write("a.parquet", "PAR1");
  refuse({.paths = {"a.parquet"}, .strings = {{"format", "text"}}}, ENG_UNSUPPORTED, {"tools/export-dataset"});
}

TEST_CASE_METHOD(Errors, "text that is kept in memory has a limit, decompressed text too") {
  const std::string text(3 << 20, 'a');  // 3 kB of gzip
  folder.write("bomb.txt.gz", gzip(text));
  folder.write("plain.txt", text);
  folder.write("lines.jsonl", "{\"text\": \"" + text + "\"}\n");
  const double limit = 2 << 20;
  for (const char* name : {"bomb.txt.gz", "lines.jsonl"}) {
    refuse({.paths = {name}, .numbers = {{"memory", limit}}}, ENG_INVALID,
           {(folder.path() / name).string(), "more than the 2097152 bytes of [data] memory", "decompress it"});
    CHECK(Source(folder, {.paths = {name}, .numbers = {{"memory", double(3 << 20)}}}).status() == ENG_OK);
    CHECK(Source(folder, {.paths = {name}}).status() == ENG_OK);
  }
  CHECK(Source(folder, {.paths = {"plain.txt"}, .numbers = {{"memory", 0}}}).status() == ENG_OK);  // it stays on disk
  refuse({.paths = {"bomb.txt.gz", "lines.jsonl"}, .numbers = {{"memory", double(5 << 20)}}}, ENG_INVALID,
         {"lines.jsonl"});
}

TEST_CASE_METHOD(Errors, "options out of range") {
  folder.write("a.txt", "some text");
  refuse({.paths = {"a.txt"}, .vocabulary = 255}, ENG_INVALID, {"255", "[model] vocab_size to 256 or more"});
  refuse({.paths = {"a.txt"}, .length = 0}, ENG_INVALID, {"sequence_length is 0"});
  refuse({.paths = {"a.txt"}, .length = -1}, ENG_INVALID, {"sequence_length is -1"});
  refuse({.paths = {"a.txt"}, .numbers = {{"validation", 0.6}}}, ENG_INVALID, {"validation is 0.6"});
  refuse({.paths = {"a.txt"}, .numbers = {{"validation", 0.99}}}, ENG_INVALID, {"validation is 0.99", "or 1"});
  refuse({.paths = {"a.txt"}, .numbers = {{"validation", -0.1}}}, ENG_INVALID, {"validation is -0.1"});
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "words"}}}, ENG_NOT_FOUND,
         {(folder.path() / "words").string(), "use \"bytes\"", "tokenizer.json"});
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "openai-community/gpt2"}}}, ENG_NOT_FOUND,
         {"If openai-community/gpt2 is on huggingface.co",
          "\n  hf download openai-community/gpt2 --include 'tokenizer*' --local-dir gpt2\n", "data.tokenizer=gpt2.",
          "https://hf-mirror.com"});
  REQUIRE(mkfifo((folder.path() / "pipe.json").c_str(), 0644) == 0);
  REQUIRE(mkfifo((folder.path() / "pipe").c_str(), 0644) == 0);
  for (const char* pipe : {"pipe.json", "pipe"})  // nobody writes into it, so opening it would take for ever
    refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", pipe}}}, ENG_INVALID,
           {(folder.path() / pipe).string() + " is a pipe, a device or a socket"});
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "/dev/zero"}}}, ENG_INVALID, {"is a pipe, a device"});
  CHECK(Source(folder, {.paths = {"a.txt"}, .strings = {{"tokenizer", "words.json"}}}).error().find("huggingface") ==
        std::string::npos);
}

TEST_CASE_METHOD(Errors, "a tokenizer's file that is something else") {
  folder.write("a.txt", "some text");
  const std::string pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 17209722\n";
  folder.write("lfs/tokenizer.json", pointer);
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "lfs"}}}, ENG_INVALID,
         {"lfs/tokenizer.json: is a Git LFS pointer", "cd " + (folder.path() / "lfs").string() + " && git lfs pull"});
  folder.write("page/tokenizer.json", "<!doctype html>\n<html><body>Log in</body></html>");
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "page"}}}, ENG_INVALID,
         {"tokenizer.json: is a web page (HTML)"});
  folder.write("zip/tokenizer.json", gzip("{\"model\": {}}"));
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "zip"}}}, ENG_INVALID, {"compressed by gzip", "gzip -dc"});
  folder.write("old/vocab.json", pointer);
  folder.write("old/merges.txt", pointer);
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "old"}}}, ENG_INVALID, {"vocab.json: is a Git LFS pointer"});
  folder.write("spm.model", pointer);
  refuse({.paths = {"a.txt"}, .strings = {{"tokenizer", "spm.model"}}}, ENG_INVALID,
         {"spm.model: is a Git LFS pointer"});
}

TEST_CASE_METHOD(Errors, "reading what is not there") {
  folder.write("a.txt", "some text");
  Source source(folder, {.paths = {"a.txt"}, .numbers = {{"validation", 0}}});
  REQUIRE(source.status() == ENG_OK);
  CHECK(source.try_read(ENG_SPLIT_VALIDATION, 0) == ENG_PRECONDITION);
  CHECK_THAT(source.error(), Contains("validation is 0"));
  CHECK(source.try_read(2, 0) == ENG_INVALID);
  CHECK(source.try_read(-1, 0) == ENG_INVALID);
}

TEST_CASE_METHOD(Errors, "files that change while they are used") {
  const std::string large(3 << 20, 'x');
  const Settings settings{.paths = {"a.txt"}};
  {
    folder.write("a.txt", large);
    Source source(folder, settings);
    source.read(0, 0);
    // The source looks at the file after it read: there is no moment in which the file could be cut short unseen.
    fs::resize_file(folder.path() / "a.txt", 100);
    CHECK(source.try_read(0, 1) == ENG_DATA_LOSS);
    CHECK_THAT(source.error(), Contains((folder.path() / "a.txt").string()) && Contains("changed"));
  }
  {
    folder.write("a.txt", large);
    Source source(folder, settings);
    source.read(0, 0);
    fs::last_write_time(folder.path() / "a.txt", fs::file_time_type::clock::now() + std::chrono::seconds(1));
    CHECK(source.try_read(0, 1) == ENG_DATA_LOSS);
  }
  {
    // A new file under the old name, and none: what was opened is still whole.
    folder.write("a.txt", large);
    Source source(folder, settings);
    folder.write("b.txt", "short");
    fs::rename(folder.path() / "b.txt", folder.path() / "a.txt");
    CHECK(source.read(0, 2).tokens == std::vector<int32_t>(4, 'x'));
    fs::remove(folder.path() / "a.txt");
    CHECK(source.read(0, 3).tokens == std::vector<int32_t>(4, 'x'));
  }
  {
    // Small files were copied.
    folder.write("a.txt", "some small text");
    Source source(folder, settings);
    const Sample before = source.read(0, 0);
    folder.write("a.txt", "?");
    CHECK(source.read(0, 0) == before);
  }
}
