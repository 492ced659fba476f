// SPDX-License-Identifier: Apache-2.0
// A format: the example passes, and each fault planted in a copy of it is found.
#include <fstream>

#include "tried.hpp"

namespace plugin_test {
namespace {

// Five texts with scores; the second is longer than what the example reads at a time.
std::string records() {
  std::string out = "RECORDS1";
  const auto number = [&](uint32_t n) {
    for (int k = 0; k < 4; ++k) out += static_cast<char>(n >> 8 * k & 255);
  };
  for (const std::string& text :
       {std::string("one"), std::string(10000, 'x'), std::string(), std::string("four"), std::string("caf\xc3\xa9")}) {
    number(7), number(static_cast<uint32_t>(text.size()));
    out += text;
  }
  return out;
}

}  // namespace

TEST_CASE("the example of a format passes, and its faults are found", "[plugin_test]") {
  const Scratch place;
  const Args file = {"file=" + place.write("a.rec", records()).string()};
  const Tried good = try_plugin(place, fs::path(PLANTED_DIR) / "records.eng.so", file);
  INFO(good.text());
  CHECK(good.result.exit == 0);
  CHECK(has(good.result.out, "4 documents of 10012 bytes"));
  for (const auto& [name, said] : std::vector<std::pair<const char*, const char*>>{
           {"records_goes_on", "after a function of the source failed"},
           {"records_remembers", "when it is read again, the file has other documents"},
           {"records_without_end", "read returns inside of a document"},
       }) {
    const Tried tried = try_plugin(place, fs::path(PLANTED_DIR) / (std::string("planted_") + name + ".eng.so"), file);
    INFO(name << "\n" << tried.text());
    CHECK(tried.result.exit == 3);
    CHECK(tried.failed(said));
  }
  const Args other = {"file=" + place.write("b.rec", "no records").string()};
  const Tried refused = try_plugin(place, fs::path(PLANTED_DIR) / "records.eng.so", other);
  CHECK(refused.result.exit == 0);
  CHECK(has(refused.result.out, "the file does not begin with RECORDS1"));
}

}  // namespace plugin_test
