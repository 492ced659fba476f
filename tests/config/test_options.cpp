// SPDX-License-Identifier: Apache-2.0
#include <catch2/catch.hpp>
#include <cstring>

#include "support.hpp"

using namespace eng;

namespace {

Section section() {
  return Section("model", {{"flag", {true, "default", false}},
                           {"count", {int64_t{7}, "a.toml:1", true}},
                           {"rate", {0.5, "preset p", true}},
                           {"word", {std::string("abc"), "default", false}},
                           {"words", {std::vector<std::string>{"x", "y"}, "default", false}},
                           {"rates", {std::vector<double>{1, 2}, "default", false}},
                           {"none", {Value{}, "default", false}}});
}

}  // namespace

TEST_CASE("a plugin reads its options") {
  const Section model = section();
  const Options options(model);
  const eng_options* o = options.get();
  CHECK(o->struct_size == sizeof(eng_options));
  Sink sink;
  int32_t flag = 0;
  int64_t count = 0;
  double rate = 0;
  const char* word = nullptr;
  uint32_t size = 0;
  CHECK(o->get_bool(o, "flag", &flag, sink.get()) == ENG_OK);
  CHECK(flag == 1);
  CHECK(o->get_int(o, "count", &count, sink.get()) == ENG_OK);
  CHECK(count == 7);
  CHECK(o->get_float(o, "rate", &rate, nullptr) == ENG_OK);
  CHECK(rate == 0.5);
  CHECK(o->get_string(o, "word", &word, nullptr) == ENG_OK);
  CHECK(std::strcmp(word, "abc") == 0);
  CHECK(o->get_count(o, "words", &size, nullptr) == ENG_OK);
  CHECK(size == 2);
  CHECK(o->get_string_at(o, "words", 1, &word, nullptr) == ENG_OK);
  CHECK(std::strcmp(word, "y") == 0);
  CHECK(o->get_count(o, "rates", &size, nullptr) == ENG_OK);
  CHECK(o->get_float_at(o, "rates", 1, &rate, nullptr) == ENG_OK);
  CHECK(rate == 2);
  CHECK(o->get_count(o, "none", &size, nullptr) == ENG_OK);
  CHECK(size == 0);
  CHECK(o->is_set(o, "count") == 1);
  CHECK(o->is_set(o, "rate") == 1);
  CHECK(o->is_set(o, "flag") == 0);
  CHECK(o->is_set(o, "none") == 0);
  CHECK(o->is_set(o, "nothing") == 0);
  CHECK(o->is_set(o, nullptr) == 0);
  CHECK(sink.text().empty());
}

TEST_CASE("a plugin that asks wrongly gets an error, and nothing is written") {
  const Section model = section();
  const Options options(model);
  const eng_options* o = options.get();
  Sink sink;
  int32_t flag = 42;
  int64_t count = 42;
  double rate = 42;
  const char* word = nullptr;
  uint32_t size = 42;
  CHECK(o->get_int(o, "missing", &count, sink.get()) == ENG_NOT_FOUND);
  CHECK(sink.text() == "[model] has no key `missing`");
  CHECK(o->get_int(o, "none", &count, sink.get()) == ENG_NOT_FOUND);
  CHECK(o->get_int(o, "word", &count, sink.get()) == ENG_INVALID);
  CHECK(sink.text() == "[model] word is not of type integer");
  CHECK(o->get_bool(o, "count", &flag, sink.get()) == ENG_INVALID);
  CHECK(o->get_float(o, "count", &rate, sink.get()) == ENG_INVALID);
  CHECK(o->get_string(o, "rate", &word, sink.get()) == ENG_INVALID);
  CHECK(o->get_count(o, "word", &size, sink.get()) == ENG_INVALID);
  CHECK(o->get_float_at(o, "words", 0, &rate, sink.get()) == ENG_INVALID);
  CHECK(o->get_string_at(o, "rates", 0, &word, sink.get()) == ENG_INVALID);
  CHECK(o->get_string_at(o, "words", 2, &word, sink.get()) == ENG_OUT_OF_RANGE);
  CHECK(o->get_int(o, nullptr, &count, sink.get()) == ENG_INVALID);
  CHECK(o->get_int(o, "count", nullptr, sink.get()) == ENG_INVALID);
  CHECK((flag == 42 && count == 42 && rate == 42 && !word && size == 42));
}

TEST_CASE("the core reads a section") {
  Section model = section();
  CHECK(model.number("count") == 7.0);
  CHECK(model.boolean("flag"));
  CHECK(model.has("count"));
  CHECK_FALSE(model.has("none"));
  CHECK_FALSE(model.has("missing"));
  CHECK_THROWS_AS(model.integer("missing"), Error);
  CHECK_THROWS_AS(model.integer("word"), Error);
  CHECK_THROWS_AS(model.string("none"), Error);
  model.set("none", 3.0, "derived");
  CHECK(model.number("none") == 3.0);
  CHECK_FALSE(model.settings().at("none").given);
  model.set("count", int64_t{8}, "config.json");
  CHECK(model.settings().at("count").given);
  CHECK_THROWS_AS(model.set("count", std::string("x"), "derived"), Error);
  CHECK_THROWS_AS(model.set("missing", int64_t{1}, "derived"), Error);
}
