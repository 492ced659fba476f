// SPDX-License-Identifier: Apache-2.0
// ZeRO++ and MiCS.
#include "converted.hpp"

using namespace eng;
using namespace eng::test;
using Catch::Contains;

namespace {

std::string file(const std::string& zero, const std::string& precision = "bf16", int stage = 3) {
  return R"({"train_batch_size": 8, ")" + precision + R"(": {"enabled": true}, "zero_optimization": {"stage": )" +
         std::to_string(stage) + ", " + zero + "}}";
}

}  // namespace

TEST_CASE("convert: hpZ, quantised weights and gradients") {
  const Converted made = converted(file(R"("zero_hpz_partition_size": 8, "zero_quantized_weights": true,
                                           "zero_quantized_gradients": true, "zeropp_loco_param": {"err_beta": 0.8})"),
                                   "--preset tiny");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  const Section& zero = config.section("zero");
  CHECK(zero.string("plugin") == "hpz");
  CHECK(zero.integer("group") == 8);
  CHECK(zero.string("gather") == "int8");
  CHECK(zero.string("sum") == "int8");
  CHECK_THAT(line_of(made, "plugin = \"hpz\""), Contains("zero_hpz_partition_size"));
  CHECK_THAT(notes_of(made), Contains("only what crosses groups has 8 bits") && Contains("there 4 bits") &&
                                 Contains("zero.sum adds all that it rounds off") && !Contains("not understood"));
}

TEST_CASE("convert: MiCS") {
  const Converted made =
      converted(file(R"("mics_shard_size": 4, "mics_hierarchical_params_gather": true, "zero_hpz_partition_size": 1)"),
                "--preset tiny");
  INFO(made.text << notes_of(made));
  const Config config = built_config(made.text);
  const Section& zero = config.section("zero");
  CHECK(zero.string("plugin") == "mics");
  CHECK(zero.integer("group") == 4);
  CHECK(zero.string("gather") == "exact");
  CHECK(zero.string("sum") == "exact");
  CHECK_THAT(notes_of(made), Contains("a group gathers its weights within itself"));
}

TEST_CASE("convert: what of ZeRO++ is off, or not read, or has no counterpart") {
  const Converted off = converted(
      file(R"("zero_hpz_partition_size": 1, "mics_shard_size": -1, "zero_quantized_weights": false)"), "--preset tiny");
  INFO(off.text << notes_of(off));
  CHECK(built_config(off.text).section("zero").string("plugin") == "zero3");
  const Converted second = converted(file(R"("zero_hpz_partition_size": 8, "mics_shard_size": 4)", "bf16", 2));
  CHECK_THAT(notes_of(second), Contains("stage 2 does not read mics_shard_size, zero_hpz_partition_size") ||
                                   Contains("stage 2 does not read zero_hpz_partition_size, mics_shard_size"));
  // A loss scale belongs to what a sum rounds off.
  const Converted scaled = converted(file(R"("zero_quantized_gradients": true)", "fp16"), "--preset tiny");
  INFO(scaled.text);
  CHECK(built_config(scaled.text).section("zero").string("sum") == "exact");
  CHECK_THAT(notes_of(scaled), Contains("zero_quantized_gradients` is not converted"));
  const std::string both = file(R"("zero_hpz_partition_size": 8, "mics_shard_size": 4)");
  CHECK_THAT(refusal(both), Contains("asks for another strategy, mics") && Contains("--ignore"));
  CHECK_THAT(refusal(file(R"("zero_hpz_partition_size": "many")")), Contains("must be a whole number, not \"many\""));
  CHECK_THAT(refusal(file(R"("zero_quantized_weights": 3)")), Contains("must be true or false, not 3"));
}
