// SPDX-License-Identifier: Apache-2.0
// A file is recognised by its bytes, under any name: read as what it is, or refused with what it is and what to do.
#include <catch2/catch.hpp>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "harness.hpp"
#include "tokenizer_harness.hpp"

using namespace data_test;
using namespace std::literals;
using Catch::Contains;
namespace fs = std::filesystem;

namespace {

struct Sniff {
  Folder folder;

  static Settings settings(const std::string& name, const std::string& format = "auto") {
    return {.paths = {name},
            .strings = {{"format", format}, {"separator", "|"}},
            .numbers = {{"validation", 0}},
            .length = 1};
  }
  // The whole stream, or the error.
  std::string read(Settings given) {
    Source once(folder, given);
    if (once.status() != ENG_OK) return once.error();
    given.length = static_cast<int64_t>(once.info().tokens) - 1;
    return Source(folder, given).text();
  }
  std::string read(const std::string& name, const std::string& bytes, const std::string& format = "auto") {
    folder.write(name, bytes);
    const std::string found = read(settings(name, format));
    fs::remove(folder.path() / name);
    return found;
  }
  void refuse(const std::string& name, const std::string& bytes, const std::vector<std::string>& words,
              const std::string& format = "auto") {
    CAPTURE(name, format);
    const std::string error = read(name, bytes, format);
    CHECK_THAT(error, Contains((folder.path() / name).string()));
    for (const std::string& word : words) CHECK_THAT(error, Contains(word));
  }
};

std::string repeated(const std::string& part, std::size_t size) {
  std::string text;
  while (text.size() < size) text += part;
  return text;
}

std::string numbers(const std::vector<int32_t>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(int32_t));
}

template <class Char>
std::string wide(const std::basic_string<Char>& text, bool big) {
  std::string out;
  for (const Char c : text)
    for (std::size_t i = 0; i < sizeof(Char); ++i) out += static_cast<char>(c >> 8 * (big ? sizeof(Char) - 1 - i : i));
  return out;
}

std::string tar_of(const std::string& text) {
  std::string block(512, '\0');
  block.replace(0, 5, "a.txt").replace(100, 7, "0000644").replace(124, 11, "00000000012").replace(148, 8, "        ");
  unsigned sum = 0;
  for (const char c : block) sum += static_cast<unsigned char>(c);
  char digits[8];
  std::snprintf(digits, sizeof(digits), "%06o", sum);
  return block.replace(148, 7, digits, 7) + text + std::string(512 - text.size(), '\0');
}

}  // namespace

TEST_CASE_METHOD(Sniff, "what is no text is named by its first bytes, under any name, inside gzip too") {
  const std::pair<std::string, std::vector<std::string>> cases[] = {
      {"BZh91AY&SY\x9a\xb1\x02\x33 and more", {"compressed by bzip2", "bzip2 -dc < "}},
      {"\xfd"
       "7zXZ\0\0\4\xe6\xd6\xb4\x46"s,
       {"compressed by xz", "xz -dc < "}},
      {"\x5d\0\0\x80\0\xff\xff\xff\xff\xff\xff\xff\xff\0\x20"s, {"compressed by lzma", "xz --format=lzma -dc"}},
      {"\x04\x22\x4d\x18\x64\x40\xa7"s, {"compressed by lz4", "lz4 -dc"}},
      {"\x1f\x9d\x90\x41\x82"s, {"compressed by compress", "gzip -dc"}},
      {"x\x9c\xcb\x48\xcd\xc9\xc9\x07\x00\x06\x2c\x02\x15"s, {"a bare stream of zlib", "zlib.decompress"}},
      {"PK\3\4\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\5\0\0\0a.txthello"s, {"a zip archive", "unzip "}},
      {"PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"s, {"a file of PyTorch"}},
      {"PK\3\4\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x5\0\0\0x.npy"s, {"a NumPy archive (.npz)"}},
      {"7z\xbc\xaf\x27\x1c\0\4"s, {"a 7z archive", "7z x "}},
      {"Rar!\x1a\x07\1\0"s, {"a rar archive"}},
      {tar_of("hello"), {"a tar archive", "tar -xf "}},
      {"PAR1\x15\4\x15"s, {"a Parquet file", "tools/export-dataset "}},
      {"ARROW1\0\0\xff\xff\xff\xff"s, {"an Arrow file", "tools/export-dataset "}},
      {"\xff\xff\xff\xff\x10\1\0\0\x10\0\0\0"s, {"a stream of Arrow"}},
      {"ORC\x11\0\0\x0a"s, {"an ORC file"}},
      {"Obj\1\4\x14"s, {"an Avro file", "JSON Lines"}},
      {"\x93NUMPY\1\0\x76\0{'descr': '<u2'"s, {"a NumPy array", "[data] plugin = \"tokens\""}},
      {"\x80\4\x95\x0b\0\0\0\0\0\0\0]\x94"s, {"pickled Python objects"}},
      {"\x80\2}q\0X"s, {"pickled Python objects"}},
      {"(dp0\nVtext\np1\nVxxx\np2\ns.", {"pickled Python objects"}},
      {"]q\0(X\4\0\0\0text"s, {"pickled Python objects"}},
      {"\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80"s, {"a file of PyTorch"}},
      {"SQLite format 3\0\x10"s, {"an SQLite database"}},
      {"\x89HDF\r\n\x1a\n\0"s, {"an HDF5 file"}},
      {"\x0a\x00\x00\x00\x00\x00\x00\x00\xae\xa3\xbf\x3a"s + "abc"s, {"a TFRecord file", "JSON Lines"}},
      {"%PDF-1.7\n%\xe2\xe3"s, {"a PDF document", "pdftotext "}},
      {"\x7f"
       "ELF\2\1\1"s,
       {"a program"}},
      {"\x89PNG\r\n\x1a\n\0\0"s, {"a picture (PNG)"}},
      {"\xff\xd8\xff\xe0\0\x10JFIF"s, {"a picture (JPEG)"}},
      {"\x58\0\0\0\0\0\0\0{\"__metadata__\""s, {"a file of weights (safetensors)"}},
      {"GGUF\3\0\0\0"s, {"a file of weights (GGUF)"}},
      {"ENGTOKEN\1\0\0\0\2\0\0\0"s, {"a file of token ids", "plugin = \"tokens\""}},
      {numbers({20240520, 1, 2}), {"a file of token ids (llm.c)"}},
      {numbers({20240801, 7, 2}), {"a file of token ids (llm.c)"}},
      {numbers({278895051, 1, 2, 4}), {"a file of token ids (NeMo)"}},
      {"MMIDIDX\0\0\1\0"s, {"the index of Megatron's"}},
      {"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12\n", {"a Git LFS pointer", "git lfs pull"}},
      {"{\\rtf1\\ansi hello}", {"a document in RTF"}},
  };
  for (const auto& [bytes, words] : cases) {
    CAPTURE(words[0]);
    for (const char* name : {"d.txt", "D.JSONL", "d", "d.md"}) refuse(name, bytes, words);
    for (const char* format : {"text", "jsonl"}) refuse("d.txt", bytes, words, format);
    std::vector<std::string> inside = words;
    inside.push_back(", inside gzip");
    for (const char* name : {"d.txt.gz", "D.TXT.GZIP", "d"}) refuse(name, gzip(bytes), inside);
    CHECK(read("d.txt", bytes, "bytes") == bytes);
  }
  // The lines can be copied: from which file into which.
  refuse("a b.jsonl.bz2", "BZh91AY&SY\x9a\xb1\x02\x33",
         {"\n  bzip2 -dc < '" + (folder.path() / "a b.jsonl.bz2").string() + "' > '" +
          (folder.path() / "a b.jsonl").string() + "'"});
  refuse("c.tar.gz", gzip(tar_of("hello")),
         {"\n  gzip -dc < " + (folder.path() / "c.tar.gz").string() + " > " + (folder.path() / "c.tar").string() +
          "\n  tar -xf " + (folder.path() / "c.tar").string()});
}

TEST_CASE_METHOD(Sniff, "text that begins like something else is text") {
  for (const std::string text : {"PK is short for",
                                 "x^2 + y^2 = z^2, as everybody knows",
                                 "BZh9 is how bzip2 begins",
                                 "ORCA whales",
                                 "GGUF is a format",
                                 "RIFF and RAFF",
                                 "MZ",
                                 "ID3 tags",
                                 "PAR1 is a gene",
                                 "II* and MM",
                                 "7z",
                                 "{ a brace",
                                 "[1] A. Author: A title. 2001.\n[2] B. Author: A title.",
                                 "[link](https://example.com)",
                                 "{{ jinja }}",
                                 "{}",
                                 "[]",
                                 "{ \"quoted\" } is no JSON",
                                 "<p align=\"center\">centered</p>",
                                 "<!-- comment --> text",
                                 "<htmlish>",
                                 "xml <?xml",
                                 "version 3",
                                 "a\tb,c",
                                 "-----",
                                 "ftyp",
                                 "Obj",
                                 "\"a string\"",
                                 "[x] done\n[ ] not done"}) {
    CAPTURE(text);
    CHECK(read("d.txt", text) == text);
    CHECK(read("d", gzip(text)) == text);
  }
}

TEST_CASE_METHOD(Sniff, "gzip and zstd are read under any name, with zeros after them") {
  const std::string line = "{\"text\": \"one\"}\n", two = "{\"text\": \"two\"}\n";
  for (const char* name : {"d.jsonl.gz", "D.JSONL.GZ", "d.jsonl.gzip", "d.jsonl", "d.zst", "d"}) {
    CAPTURE(name);
    for (const std::string& bytes :
         {gzip(line + two), gzip(line) + gzip(two), gzip(line + two) + std::string(1000, '\0'),
          gzip(line) + std::string(512, '\0') + gzip(two), gzip(line + two) + '\0', zstd(line + two),
          zstd(line) + zstd(two), zstd(line + two) + std::string(64, '\0'),
          "\x50\x2a\x4d\x18\4\0\0\0skip"s + zstd(line + two)})
      CHECK(read(name, bytes) == "one|two");
  }
  CHECK(read("D.Txt.Gz", gzip("plain")) == "plain");
  CHECK(read("d.txt.gz", "not packed") == "not packed");
  refuse("d.txt.gz", gzip("text") + "more", {"is damaged", "neither gzip nor zeros"});
  refuse("d.txt.gz", gzip("text") + "\0\0more"s, {"is damaged"});
  refuse("d", gzip("some text").substr(0, 20), {"is damaged: it is cut short"});
  refuse("d.gz", gzip(gzip("text")), {"compressed by gzip, inside gzip", "gzip -dc"});
}

TEST_CASE_METHOD(Sniff, "text of another encoding is told with its conversion, and a mark is no text") {
  const std::u16string text16 = u"Plain text, \u00e9 \u4e2d\u6587 \U0001f600.\n";
  const std::u32string text32 = U"Plain text, \u00e9 \u4e2d\u6587 \U0001f600.\n";
  for (const char* name : {"d.txt", "d.jsonl", "d", "d.csv"}) {
    refuse(name, "\xff\xfe" + wide(text16, false), {"is text in UTF-16", "iconv -f UTF-16 -t UTF-8 < "});
    refuse(name, "\xfe\xff" + wide(text16, true), {"is text in UTF-16", "iconv -f UTF-16 -t UTF-8 < "});
    refuse(name, wide(text16, false), {"is text in UTF-16, little", "iconv -f UTF-16LE -t UTF-8 < "});
    refuse(name, wide(text16, true), {"is text in UTF-16, big", "iconv -f UTF-16BE -t UTF-8 < "});
    refuse(name, "\xff\xfe\0\0"s + wide(text32, false), {"is text in UTF-32", "iconv -f UTF-32 -t UTF-8 < "});
    refuse(name, wide(text32, false), {"is text in UTF-32, little", "iconv -f UTF-32LE"});
    refuse(name, wide(text32, true), {"is text in UTF-32, big", "iconv -f UTF-32BE"});
    refuse(name, gzip(wide(text16, false)), {"UTF-16", "gzip -dc < ", "iconv -f UTF-16LE"});
  }
  refuse("d.txt", wide(text16, false), {"d.utf8.txt"});
  const std::string mark = "\xef\xbb\xbf", large = repeated("A large file stays on disk. ", 3 << 20);
  CHECK(read("d.txt", mark + "text") == "text");
  CHECK(read("d.txt", gzip(mark + "text")) == "text");
  CHECK(read("d.txt", mark + "PK\3\4") == "PK\3\4");
  CHECK(read("d.txt", mark + large) == large);
  CHECK(read("d", mark + "{\"text\": \"a\"}\n{\"text\": \"b\"}\n") == "a|b");
  CHECK(read("d.txt", mark + "text", "bytes") == mark + "text");
  folder.write("marked.txt", mark + "some text");
  Settings tokens = settings("marked.txt");
  tokens.strings["tokenizer"] = golden + "gpt2";
  tokens.vocabulary = 1000;
  Source marked(folder, tokens);
  folder.write("marked.txt", "some text");
  Source plain(folder, tokens);
  REQUIRE(marked.error() == "");
  CHECK(marked.info().content_hash == std::string(plain.info().content_hash));
}

TEST_CASE_METHOD(Sniff, "text that is not UTF-8 is refused by its share, wherever it lies") {
  for (const std::string& text : {"Ceci n'est pas une pipe: l'\xe9t\xe9, c'est tr\xe8s bien."s,  // Latin-1
                                  "\xc4\xe3\xba\xc3\xa3\xac\xca\xc0\xbd\xe7\xa1\xa3"s,           // GBK
                                  "\x82\xb1\x82\xf1\x82\xc9\x82\xbf\x82\xcd\x81\x42"s,           // Shift-JIS
                                  "\xf0\xf2\xe8\xe2\xe5\xf2, \xec\xe8\xf0"s,                     // Windows-1251
                                  "\xa4\xb3\xa4\xf3\xa4\xcb\xa4\xc1\xa4\xcf"s}) {                // EUC-JP
    for (const std::size_t size : {std::size_t{1}, std::size_t{5000}, std::size_t{3} << 20}) {
      if (size > 5000 && text[0] != 'C') continue;  // once is enough
      refuse("d.txt", repeated(text, size),
             {"is not text in UTF-8", "iconv -f ENCODING -t UTF-8 < ", "format = \"bytes\""});
      refuse("d.txt.gz", gzip(repeated(text, size)), {"is not text in UTF-8"});
    }
    CHECK(read("d.txt", text, "bytes") == text);
    Settings any = settings("e.txt");
    any.strings["errors"] = "replace";
    folder.write("e.txt", text);
    CHECK(read(any) == text);
  }
  // A character is not wrong because a piece or the file ends in it.
  const std::string chinese = repeated("中文 \U0001f600", 5 << 20);
  CHECK(read("d.txt", chinese) == chinese);
  CHECK(read("d.txt", chinese.substr(1, 100)) == chinese.substr(1, 100));
  CHECK(read("d.txt", "a" + chinese.substr(0, 1000)).size() == 1001);
  // A few bytes are told; as many in another MiB are not spread over all.
  std::string large = repeated("plain text, and much of it. ", 4 << 20);
  for (std::size_t i = 0; i < 1000; ++i) large[(2 << 20) + i * 7] = '\xe9';
  logged();
  CHECK(read("few.txt", large) == large);
  CHECK(logged() == "[data] bytes of the text that are not UTF-8, or NUL: 1000; they are trained on as they are\n");
  for (std::size_t i = 1000; i < 1100; ++i) large[(2 << 20) + i * 7] = '\xe9';
  refuse("d.txt", large, {"is not text in UTF-8", "from byte 2097152 on"});
  refuse("d.txt", gzip(large), {"from byte 2097152 on"});
  refuse("d.bin", std::string(3 << 20, '\0'), {"NUL", "the first at byte 0", "format = \"bytes\""});
  refuse("d.txt", "text" + std::string(10, '\0'), {"NUL", "the first at byte 4"});
  // A tokenizer would lose the bytes.
  folder.write("b.txt", "\xff\xfe");
  Settings tokens = settings("b.txt", "bytes");
  tokens.strings["tokenizer"] = golden + "gpt2";
  tokens.vocabulary = 1000;
  CHECK_THAT(read(tokens), Contains("format = \"bytes\" is for tokenizer = \"bytes\""));
  tokens.strings["format"] = "auto";
  CHECK_THAT(read(tokens), Contains("is text in UTF-16"));
  folder.write("b.txt", "caf\xe9 noir");
  CHECK_THAT(read(tokens), Contains("is not text in UTF-8"));
}

TEST_CASE_METHOD(Sniff, "JSON is read line by line, or told how it becomes so") {
  const std::string lines = "{\"text\": \"one\"}\n\n{\"text\": \"two\", \"n\": NaN2}\n";
  for (const char* name : {"d.jsonl", "D.JSONL", "d.ndjson", "d.json", "d", "d.txt", "d.md", "d.csv"}) {
    CAPTURE(name);
    CHECK(read(name, "{\"text\": \"one\"}\n{\"text\": \"two\"}\n") == "one|two");
    CHECK(read(name, "\n {\"text\": \"one\"}") == "one");
    CHECK_THAT(read(name, lines), Contains(":3:") && Contains("not valid JSON"));
    CHECK_THAT(read(name, "{'text': 'one'}\n{'text': 'two'}\n"), Contains(":1:2: not valid JSON"));
    CHECK_THAT(read(name, "{\"error\": \"not found\"}"), Contains("no field \"text\"; the line has \"error\""));
    CHECK(read(name, "[{\"text\": \"one\"}, {\"text\": \"two\"}]") == "one|two");
    CHECK(read(name, "[\n  {\"text\": \"one\"}\n]\n") == "one");
    refuse(name, "[\"one\", {\"text\": \"two\"}]", {"is one JSON array", "\n  jq -c '.[]' < "});
    refuse(name, "[{\"text\": \"one\"}]", {"is one JSON array", "\n  jq -c '.[]' < "}, "jsonl");
    refuse(name, "{\n  \"text\": \"one\"\n}\n", {"do not stand on a line each", "\n  jq -c . < "});
    refuse(name, "{\"text\": \"one\"}{\"text\": \"two\"}", {"do not stand on a line each", "\n  jq -c . < "});
    refuse(name, "[\"one\"]\n[\"two\"]\n", {"an array on each line"});
    const std::string item = "{\"text\": \"" + std::string(100, 'a') + "\"}";
    const std::string many = repeated(item + ",\n", 200000);
    CHECK(read(name, "[" + many + item + "]").size() == (many.size() / (item.size() + 2) + 1) * 101 - 1);
    refuse(name, gzip("{\"rows\":\n[" + repeated(item + ",\n", 200000) + item + "]}"), {"do not stand on a line each"});
    CHECK(read(name, "[1, 2]", "text") == "[1, 2]");
  }
  logged();
  read("told.txt", "{\"text\": \"one\"}\n");
  CHECK_THAT(logged(), Contains("told.txt is read as JSON Lines") && Contains("format = \"text\""));
  read("told.JSONL", "{\"text\": \"one\"}\n");
  read("told.json", "[{\"text\": \"one\"}]");
  CHECK(logged() == "");
  read("told.txt", "[{\"text\": \"one\"}]");
  CHECK_THAT(logged(), Contains("told.txt is read as an array of rows") && Contains("format = \"text\""));
  refuse("d.json", "{\n\"text\": \"one\"}\n", {(folder.path() / "d.jsonl").string(), "format = \"text\""});
}

TEST_CASE_METHOD(Sniff, "a web page in place of a file is reported") {
  for (const std::string page :
       {"<!DOCTYPE html>\n<html><body>404</body></html>", "\n  <html lang=\"en\"><head></head>", "<HTML>\n<BODY>",
        "<!-- saved -->\n<!doctype HTML >", "<head><title>Log in</title>"}) {
    for (const char* name : {"d.txt", "d.jsonl", "d.html", "d.jsonl.gz"})
      refuse(name, page, {"is a web page (HTML)", "download it again"});
    refuse("d.gz", gzip(page), {"is a web page (HTML), inside gzip"});
    refuse("d.txt", page, {"is a web page"}, "jsonl");
    CHECK(read("d.html", page, "text") == page);
  }
  refuse("d.txt", "<?xml version=\"1.0\"?>\n<mediawiki>", {"is XML", "format = \"text\""});
  refuse("d.svg", "<svg xmlns=\"x\">", {"is XML"});
  refuse("d.warc", "WARC/1.0\r\nWARC-Type: warcinfo\r\n", {"a web archive (WARC)", "format = \"text\""});
}
