// SPDX-License-Identifier: Apache-2.0
// Fields that a source provides and a model reads: compared before step 1, checked when they are read. Both come from
// tests/fields/scored, which sees nothing but the headers.
#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>

#include "core/execute/executor.hpp"
#include "engine/ops.h"
#include "plugins.hpp"
#include "session/data/data.hpp"
#include "session/planning/setup.hpp"
#include "session/report/report.hpp"

using namespace eng;
using namespace fields_test;
using Catch::Contains;

namespace {

const std::string train =
    "[device]\nplugin = 'reference'\n[train]\nmicro_batch = 2\naccumulate = 3\nsequence_length = 12\n";
const std::string llama =
    "[model]\nplugin = 'llama'\nhidden_size = 32\nintermediate_size = 64\nnum_hidden_layers = 1\n"
    "num_attention_heads = 2\nnum_key_value_heads = 2\nvocab_size = 256\n";
const std::string text = "[data]\nplugin = 'text'\npaths = ['none']\n";

std::string scored(const std::string& provides, const std::string& more = "") {
  return "[data]\nplugin = 'scored'\nprovides = [" + provides + "]\n" + more;
}
std::string model(const std::string& more = "") {
  return "[model]\nplugin = 'scored'\n" + more;
}

Refusal planned(const std::string& config) {
  return refusal([&] { make_setup(config_of(config + train), registry()); });
}

std::vector<std::string> names(const Model& model) {
  std::vector<std::string> out;
  for (const Field& field : model.fields) out.push_back(field.name);
  return out;
}
using Names = std::vector<std::string>;

// One step: the sum of the losses of its micro-batches.
double loss(const std::string& config) {
  const Config c = config_of(config + train);
  const Setup setup = make_setup(c, registry());
  const Data data(registry(), c, setup.model.info.vocabulary, setup.model.fields);
  Device device(registry(), "reference", c.section("device"));
  Executor executor(setup.plan, device, *setup.kernels);
  executor.run("init");
  const int64_t counters[ENG_C_COUNT] = {};
  executor.upload(setup.plan.counters, counters);
  Batch batch;
  for (uint64_t k = 0; k < 3; ++k) data.read(ENG_SPLIT_TRAIN, 2 * k, 2, batch);
  executor.upload(setup.plan.fields[0].view, batch.tokens.data());
  executor.upload(setup.plan.fields[1].view, batch.labels.data());
  for (size_t f = 2; f < setup.plan.fields.size(); ++f)
    executor.upload(setup.plan.fields[f].view, batch.others[f - 2].data());
  const float inputs[8] = {1.0f / static_cast<float>(batch.valid)};
  executor.upload(setup.plan.inputs, inputs);
  std::vector<float> table(static_cast<size_t>(count(setup.plan.table.desc)), 0.0f);
  executor.upload(setup.plan.table, table.data());
  executor.run("train");
  float losses[3] = {};
  executor.download(losses, setup.plan.losses, 0, sizeof losses);
  return double{losses[0]} + losses[1] + losses[2];
}

}  // namespace

TEST_CASE("a field of a third party goes from its source to its model", "[fields]") {
  const std::string score = "'org.example.score'";
  const double one = loss(model() + scored(score, "score = 1.0\n")),
               half = loss(model() + scored(score, "score = 0.5\n")),
               none = loss(model("weights = ''\n") + scored(score, "score = 0.5\n")),
               various = loss(model() + scored(score));
  CHECK(one > 0);
  CHECK(half == Approx(one / 2).epsilon(1e-6));
  CHECK(none == Approx(one).epsilon(1e-6));
  CHECK(various < 0.9 * one);
  CHECK(various > 0.3 * one);
  // Reads the field under its standard name, by the model's own key; and a second one, which is an index.
  CHECK(loss(model("weights = 'loss_weights'\n") + scored("'loss_weights'")) == Approx(various).epsilon(1e-6));
  CHECK(loss(model("groups = 3\n") + scored(score + ", 'org.example.group'")) != Approx(various).epsilon(1e-6));
  // Shipped models read the standard name if there is one.
  const double plain = loss(llama + scored("")), weighted = loss(llama + scored("'loss_weights'", "score = 0.25\n"));
  CHECK(weighted == Approx(plain / 4).epsilon(1e-5));
}

TEST_CASE("the run reads what the model asks for, in this order", "[fields]") {
  const auto fields = [](const std::string& config) {
    return names(make_setup(config_of(config + train), registry()).model);
  };
  CHECK(fields(llama + text) == Names{"tokens", "labels"});
  CHECK(fields(llama) == Names{"tokens", "labels"});
  CHECK(fields(llama + text + "pack = true\n") == Names{"tokens", "labels", "positions", "segments"});
  CHECK(fields(model() + scored("'org.example.group', 'org.example.score'")) ==
        Names{"tokens", "labels", "org.example.score"});
  const Setup packed = make_setup(config_of(llama + text + "pack = true\n" + train), registry());
  for (size_t k = 0; k < packed.model.fields.size(); ++k)
    CHECK(packed.plan.fields.at(k).name == packed.model.fields[k].name);
  CHECK(packed.notes.empty());
  // A plan is made without opening the data, an evaluation reads the same, a text that is generated has no documents.
  CHECK(names(make_plan_only(config_of(llama + text + "pack = true\n" + train), registry()).model) ==
        names(packed.model));
  CHECK(names(make_evaluation(config_of(llama + text + "pack = true\n" + train), registry()).model) ==
        names(packed.model));
  CHECK(names(make_setup(config_of(llama + text + "pack = true\n" + train), registry(), 16).model) ==
        Names{"tokens", "labels"});
}

TEST_CASE("a run without new fields has the program that it had", "[fields]") {
  const auto dump = [](const std::string& config) {
    return plan_dump(make_plan_only(config_of(config + train), registry()).plan);
  };
  const std::string without = dump(llama);
  CHECK(dump(llama + text) == without);
  CHECK(dump(llama + scored("'org.example.score'")) == without);
  CHECK(dump(llama + text + "pack = true\n") != without);
  CHECK(without.find("segments") == std::string::npos);
}

TEST_CASE("a field that the data do not provide is an error before step 1", "[fields]") {
  const Refusal none = planned(model() + text);
  CHECK(none.exit == Exit::usage);
  CHECK_THAT(none.text, Contains("model scored, block head: the batch has no `org.example.score`: data plugin text "
                                 "provides tokens, labels"));
  CHECK_THAT(none.help, Contains("[data] plugin"));
  CHECK_THAT(planned(model()).text, Contains("a configuration without [data] provides tokens, labels"));
  CHECK_THAT(planned(model() + scored("'org.example.group'")).text,
             Contains("data plugin scored provides tokens, labels, org.example.group"));
  // A model that generates is not offered what only training has.
  CHECK_THAT(refusal([&] {
               make_setup(config_of(model("weights = 'loss_weights'\n") + scored("'loss_weights'") + train), registry(),
                          16);
             }).text,
             Contains("the batch has no `loss_weights`: in generation data plugin scored provides tokens, labels"));
  CHECK(planned(model() + scored("'org.example.score'")).exit == Exit::done);
}

TEST_CASE("documents that would see each other are refused; what nobody reads is a note", "[fields]") {
  const Refusal blind = planned(model("weights = ''\n") + text + "pack = true\n");
  CHECK(blind.exit == Exit::usage);
  CHECK_THAT(blind.text,
             Contains("data plugin text packs several documents into a sample (field `segments`), and model "
                      "scored does not read it: documents would see each other"));
  CHECK_THAT(blind.help, Contains("data.pack = false"));
  CHECK_THAT(planned(model("weights = ''\n") + scored("'segments'")).help,
             !Contains("data.pack") && Contains("data without `segments`"));
  const auto notes = [](const std::string& config) { return make_setup(config_of(config + train), registry()).notes; };
  CHECK(notes(llama + scored("'org.example.score', 'segments', 'positions'")) ==
        Names{"data plugin scored provides the field `org.example.score`, which model llama does not read"});
  const std::string mamba =
      "[model]\nplugin = 'mamba'\nhidden_size = 32\nnum_hidden_layers = 1\nstate_size = 4\nvocab_size = 256\n";
  CHECK(notes(mamba + scored("'segments', 'positions'")).empty());
  CHECK(notes(model("weights = ''\n") + scored("'positions'")).size() == 1);
}

TEST_CASE("what a source says about its fields is checked", "[fields]") {
  const auto fault = [](const std::string& provides, const std::string& name) {
    const Refusal r = planned(llama + scored(provides, "fault = '" + name + "'\n"));
    CHECK(r.exit == Exit::environment);
    CHECK_THAT(r.text, Contains("data plugin scored: "));
    return r.text;
  };
  CHECK_THAT(fault("'org.example.score'", "twice"), Contains("`org.example.score` is listed twice"));
  CHECK_THAT(fault("", "labels"), Contains("`labels` is listed twice, or needs no listing"));
  CHECK_THAT(fault("", "no name"), Contains("(null)"));
  CHECK_THAT(fault("", "a name of two words"), Contains("`two words`"));
  CHECK_THAT(fault("'org.example.score'", "f64"), Contains("dtype 2; i32 and f32"));
  CHECK_THAT(fault("'loss_weights'", "i32"), Contains("`loss_weights` must be f32"));
  CHECK_THAT(fault("'segments'", "f32"), Contains("`segments` must be i32"));
  CHECK_THAT(fault("", "many"), Contains("lists 65 fields, the limit is 64"));
  const Refusal refuses = planned(llama + scored("", "fault = 'refuses'\n"));
  CHECK_THAT(refuses.text, Contains("data plugin scored: nothing can be provided today"));
}

TEST_CASE("what a source reads is checked by the meaning of its name", "[fields]") {
  const auto fault = [](const std::string& config, const std::string& provides, const std::string& name) {
    const Config c = config_of(config + scored(provides, name.empty() ? "" : "fault = '" + name + "'\n") + train);
    const Setup setup = make_setup(c, registry());
    const Data data(registry(), c, setup.model.info.vocabulary, setup.model.fields);
    Batch batch;
    const Refusal r = refusal([&] {
      for (uint64_t k = 0; k < 8; ++k) data.read(ENG_SPLIT_TRAIN, k, 1, batch);
    });
    CHECK(r.exit == (name.empty() ? Exit::done : Exit::data));
    if (!name.empty()) CHECK_THAT(r.text, Contains("data plugin scored, sample 0: "));
    if (name.empty() && setup.model.fields.size() == 4) CHECK(batch.padding == 8);
    return r.text;
  };
  const std::string both = "'segments', 'positions'";
  CHECK(fault(llama, both, "") == "");
  CHECK_THAT(fault(llama, both, "segment"), Contains("segment 3 is -2, documents are numbered from 0"));
  CHECK_THAT(fault(llama, both, "position"), Contains("position 3 is "));
  CHECK_THAT(fault(llama, both, "label"), Contains("label 11 is 0, but the position is padding"));
  CHECK_THAT(fault(llama, "'positions'", "position"), Contains("position 3 is "));
  CHECK_THAT(fault(llama, "'loss_weights'", "weight"), Contains("loss weight 3 is -1"));
  CHECK_THAT(fault(llama, "'loss_weights'", "NaN"), Contains("loss weight 3 is nan"));
  CHECK_THAT(fault(llama, "'loss_weights'", "unwritten"), Contains("loss weight 0 is "));
  CHECK_THAT(fault(llama, "'positions'", "unwritten"), Contains("position 0 is -1"));
  const std::string groups = model("groups = 3\nweights = ''\n");
  CHECK(fault(groups, "'org.example.group'", "") == "");
  CHECK_THAT(fault(groups, "'org.example.group'", "group"),
             Contains("value of `org.example.group` 3 is 3, the model has the ids 0 to 2"));
  CHECK(fault(model("groups = 4\nweights = ''\n"), "'org.example.group'", "") == "");
}
