// SPDX-License-Identifier: Apache-2.0
// Formats of plugins claim files by their descriptions alone.
#include "session/data/formats.hpp"

#include <catch2/catch.hpp>

#include "session/plugins/plugin_file.hpp"

namespace formats_test {

using namespace eng;
using Names = std::vector<std::string>;

namespace {

std::string description(const std::string& formats) {
  return "[plugin]\nid = 'org.example.formats'\nname = 'formats'\nversion = '1'\nlicense = 'Apache-2.0'\n" + formats;
}

std::string format(const std::string& name, const std::string& keys) {
  return "[[provides]]\nkind = '" ENG_DOCUMENTS_DRAFT "'\nname = '" + name + "'\n" + keys + "\n";
}

}  // namespace

TEST_CASE("a format claims files by their first bytes and by their names", "[formats]") {
  Candidate candidate;
  candidate.path = "formats.eng.so";
  const std::string text =
      description(format("bytes4", "begins = ['50415231', 'ff00']") + format("named", "endings = ['.Rec', '.tar.x']") +
                  format("both", "begins = ['5A5A']\nendings = ['.rec']") + format("asked", ""));
  REQUIRE(parse_description(text, candidate.description) == "");
  Registry registry({});
  registry.add(candidate);
  const Section data("data", {});
  const FormatsInUse formats(registry, data);
  const auto claim = [&](const char* file, std::string_view head) { return formats.claiming(file, head); };
  CHECK(claim("/a/x.txt", "PAR1...") == Names{"bytes4"});
  CHECK(claim("/a/x.txt", {"\xff\0!", 3}) == Names{"bytes4"});
  CHECK(claim("/a/x.txt", "PAR").empty());
  CHECK(claim("/a/x.rec.txt", "").empty());
  CHECK(claim("/a/x.REC", "text") == Names{"named"});
  CHECK(claim("/a/x.TAR.x", "text") == Names{"named"});
  CHECK(claim("/a/x", "ZZ").empty());
  CHECK(claim("/a/x.rec", "ZZ") == Names{"both", "named"});
  CHECK(claim("/a/asked", "asked").empty());
}

TEST_CASE("begins and endings that cannot be are refused", "[formats]") {
  Description out;
  for (const auto& [keys, said] : std::vector<std::pair<std::string, std::string>>{
           {"begins = ['5']", "begins: '5' is not 1 to 64 bytes in hexadecimal"},
           {"begins = ['']", "is not 1 to 64 bytes"},
           {"begins = ['PAR1x']", "is not 1 to 64 bytes"},
           {"begins = ['" + std::string(130, '0') + "']", "is not 1 to 64 bytes"},
           {"endings = ['rec']", "endings: 'rec' does not begin with a dot"}}) {
    INFO(keys);
    CHECK_THAT(parse_description(description(format("a", keys)), out), Catch::Contains(said));
  }
  CHECK(parse_description(description(format("a", "begins = ['00']\nendings = ['.a']")), out) == "");
}

TEST_CASE("a format that no plugin provides is reported", "[formats]") {
  Registry registry({});
  const Section data("data", {});
  FormatsInUse formats(registry, data);
  CHECK_THROWS_WITH(formats.get("none"), Catch::Contains("no plugin provides a format `none`"));
}

}  // namespace formats_test
