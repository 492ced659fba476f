// SPDX-License-Identifier: Apache-2.0
// A stranger's plugin does one thing wrong at a time: plugin, fault and place are told; no crash, hang or half a file.
#include "hostile.hpp"

#include <algorithm>

namespace hostile {
namespace {
const char* const toml = R"([model]
plugin = "hostile"
[precision]
plugin = "hostile"
[optimizer]
plugin = "hostile"
learning_rate = 0.1
[data]
plugin = "hostile"
[train]
steps = 3
micro_batch = 2
sequence_length = 16
eval_every = 2
)";

struct Place : Scratch {
  Place() { write("hostile.toml", toml); }
  Result run(Args args, const Args& more = {}) const {
    args.insert(args.begin(), {"--plugin-path", HOSTILE_DIR});
    Limits limits;
    limits.more = more;
    return engine(*this, args, limits);
  }
};

Result ask(const Place& place, const Case& c) {
  const std::string fault = c.fault;
  switch (c.who) {
    case in_run:
      return place.run({"run", "hostile.toml", "--out", "out", "precision.fault=" + fault});
    case on_tier:
      return place.run(
          {"run", "hostile.toml", "--out", "out", "offload.parameters=hostile", "precision.fault=" + fault});
    case in_source:
      return place.run({"run", "hostile.toml", "--out", "out", "data.fault=" + fault});
    case in_schedule:
      return place.run({"run", "hostile.toml", "--out", "out", "schedule.kind=hostile", "schedule.fault=" + fault});
    case in_strategy:
      return place.run({"plan", "hostile.toml", "--ranks", "2", "zero.plugin=hostile", "zero.fault=" + fault});
    case on_device:
      return place.run({"run", "hostile.toml", "--out", "out", "device.plugin=void", "device.fault=" + fault});
    case between_ranks:
      return place.run(
          {"run", "hostile.toml", "--out", "out", "comm.plugin=mirror", "comm.fault=" + fault, "zero.plugin=hostile"},
          {"OMPI_COMM_WORLD_RANK=0", "OMPI_COMM_WORLD_SIZE=2", "PMIX_RANK=0"});
    case in_tokenizer:
      REQUIRE(place.run({"run", "hostile.toml", "--out", "run"}).exit == 0);
      return place.run({"generate", "run", "ab", "--tokens", "3", "--tokenizer", fault});
    case in_inspect:
      place.write(fault, "x");
      return place.run({"data", "inspect", fault});
    default: {
      REQUIRE(place.run({"run", "hostile.toml", "--out", "run"}).exit == 0);
      std::string text = read(place / "run/config.resolved.toml");
      const size_t at = text.find("fault = \"\"", text.find("[precision]"));
      REQUIRE(at != std::string::npos);
      place.write("run/config.resolved.toml", text.insert(at + 9, fault));
      return place.run({"generate", "run", "ab", "--tokens", "3", "--tokenizer", "none"});
    }
  }
}

}  // namespace

void check(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    const Place place;
    const Result r = ask(place, c);
    INFO(c.fault << "\n" << r.err);
    CHECK_FALSE(r.killed);
    CHECK(r.exit == c.exit);
    CHECK(r.err.size() < 60000);
    if (!c.exit) continue;
    check_found(c);
    CHECK(has(r.err, c.said));
    const std::string told = r.err.substr(std::min(r.err.find("error: "), r.err.size())), start = told.substr(0, 2000);
    CHECK((has(start, "hostile") || has(start, "void") || has(start, "mirror")) == c.named);
    CHECK(std::none_of(told.begin(), told.end(), [](unsigned char byte) { return byte < 32 && byte != '\n'; }));
    if (!fs::exists(place / "out")) continue;
    // It had begun: then it has failed, and has no checkpoint of what was not done.
    const Json now = state(place / "out");
    CHECK(now.at("status") == "failed");
    CHECK(now.at("exit_code") == c.exit);
    for (const std::string& name : names(place / "out/checkpoints"))
      CHECK(place.run({"ckpt", "verify", "out/checkpoints/" + name}).exit == 0);
  }
}

TEST_CASE("without a fault the plugin of every kind trains, plans and generates", "[hostile]") {
  check({{in_run, "none", 0, ""},
         {in_strategy, "none", 0, ""},
         {in_schedule, "none", 0, ""},
         {on_device, "none", 0, ""},
         {on_tier, "none", 0, ""},
         {in_tokenizer, "none", 0, ""}});
}

TEST_CASE("some faults of a stranger's plugin", "[hostile][.slow]") {
  check({{in_run, "param: no dims", 3, "its dims is NULL, but its count is 2"},
         {in_run, "grad: all_to_all", 3, "eng.all_to_all/1 is a collective: models cannot use it"},
         {in_run, "trace: an op of an unused file", 3, "mamba.eng.so is there, but the run does not use it"},
         {in_run, "precision: whole numbers", 3, "precision hostile gives weights i32, which is no floating type"},
         {in_run, "states: 17", 3, "optimizer hostile has 17 states, the limit is 16"},
         {in_source, "data: reads half", 4, "sample 0: token 8 is -1, the model has the ids 0 to 255"},
         {in_schedule, "rate: nan", 3, "[schedule] hostile, update 3: the learning rate is nan"},
         {in_strategy, "zero: an unknown part", 3, "zero hostile keeps role 1 as part 4711, which it has not made"},
         {in_tokenizer, "tokenizer: wants more, for ever", 4, "asks for room for"}});
}

TEST_CASE("models that are wrong", "[hostile][.slow]") {
  check({
      {in_run, "options of another type", 2, "[model] vocab_size is not of type string"},
      {in_run, "options without a key", 2, "[model] has no key `nothing`"},
      {in_run, "options into NULL", 2, "options, key or out is NULL"},
      {in_run, "info: vocabulary of 0", 3, "describes itself with vocabulary 0"},
      {in_run, "info: vocabulary beyond the table", 3, "table of 256 rows, the vocabulary is 1000"},
      {in_run, "info: huge vocabulary", 3, "describes itself with vocabulary 9223372036854775807"},
      {in_run, "info: negative layers", 3, "layers -3"},
      {in_run, "info: negative width", 3, "attention_width -9223372036854775808"},
      {in_run, "info: negative length", 3, "max_length -1"},
      {in_run, "param: no attributes", 3, "its attributes is NULL, but its count is 2"},
      {in_run, "param: attribute without key", 3, "attribute 0 has no key"},
      {in_run, "param: no name", 3, "the name of a parameter is empty"},
      {in_run, "param: empty name", 3, "the name of a parameter is empty"},
      {in_run, "param: odd name", 3,
       "the name of a parameter contains control characters or is not UTF-8: `layer???.0`"},
      {in_run, "param: long name", 3, "the name of a parameter has 1048575 bytes, the limit is 1000"},
      {in_run, "param: twice", 3, "parameter embedding is declared twice"},
      {in_run, "param: 7 dimensions", 3, "parameter layer.0 is invalid: a tensor has 7 dimensions"},
      {in_run, "param: a billion dimensions", 3, "a tensor has 1000000000 dimensions"},
      {in_run, "param: negative", 3, "has a dimension out of range (0 to 2^40): f32 (-4, 16)"},
      {in_run, "param: huge", 3, "more than 2^63 elements"},
      {in_run, "param: hardly countable", 3, "more than 2^63 bytes"},
      {in_run, "param: an exabyte", 3, "all parameters have more than 2^56 elements"},
      {in_run, "param: petabytes", 3, "eng.linear/1"},
      {in_run, "param: small struct", 3, "eng_param states struct_size 8"},
      {in_run, "param: struct of nothing", 3, "eng_param states struct_size 0"},
      {in_run, "param: larger struct", 0, ""},
      {in_run, "param: filled by a linear", 3, "has an unknown init op: eng.linear/1"},
      {in_run, "param: filled by an update", 3, "has an unknown init op: eng.adamw/1"},
      {in_run, "param: filled by nobody", 3, "has an unknown init op: "},
      {in_run, "param: filled by own op", 0, ""},
      {in_run, "param: NULL", 3, "the parameter is NULL"},
      {in_run, "param: into NULL", 3, "out is NULL"},
      {in_run, "declare: nothing", 3, "declares no blocks"},
      {in_run, "declare: an op", 3, "ops are emitted in trace, not in declare"},
      {in_run, "declare: the batch", 3, "asking for the batch is not allowed in this phase"},
      {in_run, "declare: the world", 3, "asking for the world is not allowed in this phase"},
      {in_run, "declare: shape into NULL", 3, "out is NULL"},
      {in_run, "declare: shape of nothing", 3, "no such parameter"},
      {in_run, "declare: no blocks", 3, "declares no blocks"},
      {in_run, "declare: says ENG_OK after an error", 3, "model hostile: "},
      {in_run, "block: no list", 3, "the list of its parameters is NULL, but its count is 1"},
      {in_run, "block: unknown parameter", 3, "no such parameter"},
      {in_run, "block: no name", 3, "the name of a block is empty"},
      {in_run, "block: odd name", 3, "the name of a block contains control characters"},
      {in_run, "block: long name", 3, "the name of a block has 1048575 bytes"},
      {in_run, "block: a parameter of none", 3, "model hostile: block layer.1"},
  });
}

TEST_CASE("traces that are wrong", "[hostile][.slow]") {
  check({
      {in_run, "trace: a parameter", 3, "declaring a parameter is not allowed in this phase"},
      {in_run, "trace: a block", 3, "declaring a block is not allowed"},
      {in_run, "trace: the world", 3, "asking for the world is not allowed"},
      {in_run, "trace: a group", 3, "making a group is not allowed"},
      {in_run, "trace: a part", 3, "making a part is not allowed"},
      {in_run, "trace: a slice", 3, "taking a slice is not allowed"},
      {in_run, "trace: no op", 3, "unknown op (null)"},
      {in_run, "trace: unknown op", 3, "unknown op org.example.?/1"},
      {in_run, "trace: no inputs", 3, "the list of inputs is NULL, but its count is 2"},
      {in_run, "trace: no outputs", 3, "the list of outputs is NULL, but its count is 1"},
      {in_run, "trace: no attributes", 3, "the list of attributes is NULL, but its count is 1"},
      {in_run, "trace: an attribute without key", 3, "attribute 0 has no key"},
      {in_run, "trace: too many outputs of an op", 3, "block layer.0"},
      {in_run, "trace: all_to_all", 3, "eng.all_to_all/1 is a collective: models cannot use it"},
      {in_run, "trace: all_reduce", 3, "eng.all_reduce/1 is a collective: models cannot use it"},
      {in_run, "trace: an update", 3, "eng.adamw/1 must write in place of a value that is still needed"},
      {in_run, "trace: an init op", 3, "eng.init_normal/1 can only initialise parameters"},
      {in_run, "trace: the batch of nothing", 3, "the batch has no ``"},
      {in_run, "trace: the batch into NULL", 3, "out is NULL"},
      {in_run, "trace: a constant of nothing", 3, "the description of a constant is NULL"},
      {in_run, "trace: a constant without data", 3, "its data is NULL"},
      {in_run, "trace: a constant into NULL", 3, "out is NULL"},
      {in_run, "trace: a constant of 9 dimensions", 3, "a constant is invalid: a tensor has 9 dimensions"},
      {in_run, "trace: a negative constant", 3, "a constant has a dimension out of range"},
      {in_run, "trace: a constant of bytes", 3, "constants are f32 or i32"},
      {in_run, "trace: a row of a single number", 3, "eng.get_row/1: "},
      {in_run, "trace: a loss of many", 3, "the model's last op must be eng.cross_entropy/1"},
      {in_run, "trace: no loss", 3, "the model's last op must be eng.cross_entropy/1, not eng.scale/1"},
      {in_run, "trace: says ENG_OK after an error", 3, "unknown op nothing/1"},
      {in_run, "trace: writes nothing", 3, "trace gave no output"},
      {in_run, "trace: output 0", 3, "block layer.0: output 0 is not a value of this trace"},
      {in_run, "trace: unknown output", 3, "block layer.0: output 0 is not a value of this trace"},
      {in_run, "trace: 9 outputs", 3, "trace gave 9 outputs"},
      {in_run, "trace: 4 billion outputs", 3, "trace gave 4294967295 outputs"},
      {in_run, "trace: a parameter as output", 3, "its shapes differ from the block traced for it"},
  });
}

TEST_CASE("policies that are wrong", "[hostile][.slow]") {
  check({
      {in_run, "states: 4 billion", 3, "optimizer hostile has 4294967295 states, the limit is 16"},
      {in_run, "states: no name", 3, "optimizer hostile gives states: the name of a state is empty"},
      {in_run, "states: empty name", 3, "the name of a state is empty"},
      {in_run, "states: odd name", 3, "the name of a state contains control characters or is not UTF-8"},
      {in_run, "states: the name of another role", 3, "the name parameter, which another state or the engine uses"},
      {in_run, "states: two of a name", 3, "gives a state the name momentum_buffer"},
      {in_run, "states: no such type", 3, "gives state momentum_buffer the dtype 99"},
      {in_run, "states: does not write", 3, "the name of a state is empty"},
      {in_run, "scalars: 8", 3, "optimizer hostile gave more than 7 scalars"},
      {in_run, "scalars: 4 billion", 3, "optimizer hostile gave more than 7 scalars"},
      {in_run, "scalars: more of them later", 3, "optimizer hostile gave 1 scalars for update 1 and 2 for update 2"},
      {in_run, "scalars: fewer of them later", 3, "optimizer hostile gave 1 scalars for update 1 and 0 for update 2"},
      {in_run, "update: nothing", 0, ""},
      {in_run, "update: aside", 3, "eng.sgd/1 works in place: output 0 must be input 0"},
      {in_run, "update: into the gradient", 3, "eng.sgd/1 works in place: output 0 must be input 0"},
      {in_run, "update: unknown value", 3, "optimizer hostile: no such value"},
      {in_run, "update: into an unknown value", 3, "optimizer hostile: no such value"},
      {in_run, "update: no inputs", 3, "optimizer hostile: the list of inputs is NULL"},
      {in_run, "update: the batch", 3, "optimizer hostile: asking for the batch is not allowed"},
      {in_run, "update: of the scalars", 3, "eng.scale/1: output 0 is a value that may only be read"},
      {in_run, "update: all_to_all", 3, "optimizer hostile: eng.all_to_all/1: there is one rank"},
      {in_run, "update: too few inputs", 3, "eng.sgd/1: wrong number of inputs"},
      {in_run, "update: absent inputs", 3, "eng.sgd/1: input 0 is missing"},
      {in_run, "update: a foreign length", 3, "eng.sgd/1"},
      // Whole parameters: it is asked in stages then, where what it updates is not there yet.
      {in_run, "optimizer: granularity of 0", 3, "optimizer hostile: eng.sgd/1: input 0 is missing"},
      {in_run, "optimizer: granularity of 3", 3, "optimizer hostile wants 3 elements to stay together"},
      {in_run, "optimizer: granularity of 64", 0, ""},
      {in_run, "optimizer: a small struct", 3, "states struct_size 16"},
      {in_run, "precision: asks for the world", 0, ""},
      {in_run, "precision: a parameter", 3, "[precision] hostile: the parameter is NULL"},
      {in_run, "precision: an op", 3, "[precision] hostile: emitting an op is not allowed"},
      {in_run, "precision: a shape", 2, "[precision] hostile: asking for a shape is not allowed"},
      {in_run, "precision: a group", 3, "[precision] hostile makes groups or parts"},
      {in_run, "precision: no such type", 3, "precision hostile gives weights dtype 99"},
      {in_run, "precision: no type at all", 3, "precision hostile gives activations dtype 0"},
      {in_run, "precision: another part", 3, "precision hostile changed another axis than its own"},
      {in_run, "precision: other activations", 3, "this kernel of hostile computes f32"},
      {in_run, "precision: gradients of two types", 3,
       "precision hostile: its move of role 5 leaves a part of dst unwritten"},
      {in_run, "precision: narrow partial gradients", 0, ""},
      {in_run, "precision: narrow weights alone", 0, ""},
      {in_run, "precision: a move to another type", 3, "precision hostile: eng.cast/1: output 0 is f64"},
      {in_run, "precision: a move of no type", 3,
       "precision hostile: eng.cast/1: converts between floating-point types"},
      {in_run, "precision: wide sums of gradients", 3, "precision.plugin = \"hostile\" chose these types"},
      {in_run, "precision: narrow sums of gradients", 3, "p and grad differ in type: f32 (4096), f16 (4096)"},
      {in_run, "precision: narrow masters", 3, "p must be f32, it is f16 (4096)"},
      {in_run, "precision: narrow states", 3, "p and b differ in type: f32 (4096), bf16 (4096)"},
      {in_run, "precision: wide states", 3, "p and b differ in type: f32 (4096), f64 (4096)"},
      {in_run, "precision: moves nothing", 3, "precision hostile: its move of role 1 leaves a part of dst unwritten"},
      {in_run, "precision: moves aside", 3, "precision hostile: "},
      {in_run, "precision: too many states", 3, "precision hostile has 17 states of its own; the limit is 16"},
      {in_run, "precision: a state without a name", 3, "gives states: the name of a state is empty"},
      {in_run, "precision: states of one name", 3, "precision hostile gives two states the name two"},
      {in_run, "precision: a state of no type", 3, "precision hostile, state two: "},
      {in_run, "precision: a state of 7 dimensions", 3, "precision hostile, state two: "},
      {in_run, "precision: a state of negative size", 3, "precision hostile, state two: "},
      {in_run, "precision: updates the scalars", 3, "eng.scale/1: output 0 is a value that may only be read"},
      {in_run, "precision: updates something unknown", 3, "precision hostile: "},
      {in_run, "precision: begins with a state", 3, "eng.scale/1: output 0 is a value that may only be read"},
      {in_run, "precision: writes the source", 3, "eng.scale/1: output 0 is a value that may only be read"},
      {in_strategy, "zero: the world into NULL", 2, "rank is NULL"},
      {in_strategy, "zero: a group of nobody", 2, "[zero] hostile: a group of ranks"},
      {in_strategy, "zero: a group without list", 2, "the list of ranks is NULL"},
      {in_strategy, "zero: a group of twice the same", 2,
       "a group of ranks 0, 0 is invalid: it needs distinct ranks below 2"},
      {in_strategy, "zero: a group of a stranger", 2,
       "a group of ranks 0, 9 is invalid: it needs distinct ranks below 2"},
      {in_strategy, "zero: a group into NULL", 2, "out is NULL"},
      {in_strategy, "zero: no part", 2, "the part is NULL"},
      {in_strategy, "zero: a part beyond the last", 2, "part 2 of 2 does not fit group 1"},
      {in_strategy, "zero: a part of none", 2, "part 0 of 0 does not fit group 1"},
      {in_strategy, "zero: a part of an unknown group", 2, "does not fit group 9"},
      {in_strategy, "zero: a part in a small struct", 2, "eng_part states struct_size 8"},
      {in_strategy, "zero: a part into NULL", 2, "out is NULL"},
      {in_strategy, "zero: an op", 2, "emitting an op is not allowed"},
      {in_strategy, "zero: says ENG_OK after an error", 3, "the part is NULL"},
      {in_strategy, "zero: another type", 3, "zero hostile changed another axis than its own"},
      {in_strategy, "zero: another length", 3, "zero hostile changed another axis than its own"},
      {in_strategy, "zero: moves nothing", 3, "zero hostile: its move of role"},
      {in_strategy, "zero: moves nothing of the sum", 3, "zero hostile: its move of role 5 leaves a part of dst"},
      {in_strategy, "zero: moves aside", 3, "leaves a part of dst unwritten"},
      {in_strategy, "zero: moves a half", 3, "leaves a part of dst unwritten"},
      {in_strategy, "zero: writes the source", 3, "is a value that may only be read"},
      {in_strategy, "zero: an unknown group", 3, "there is no group 5"},
      {in_strategy, "zero: a huge group", 3, "there is no group 9223372036854775807"},
      {in_strategy, "zero: no group", 3, "there is no group 0"},
      {in_strategy, "zero: an unknown value", 3, "zero hostile: no such value"},
      {in_strategy, "zero: no value", 3, "input 0 is missing"},
      {in_strategy, "zero: a slice outside", 3, "a slice reaches outside its value"},
      {in_strategy, "zero: a slice of nothing", 3, "cannot be written into"},
      {in_strategy, "zero: a slice into NULL", 3, "out is NULL"},
      {in_strategy, "zero: a group in a move", 3, "making a group is not allowed"},
      {in_strategy, "zero: a part in a move", 3, "the part is NULL"},
      {in_strategy, "zero: rows of nothing", 3, "x must be m rows of equal length"},
      {in_strategy, "zero: negative rows", 3, "x must be m rows of equal length"},
  });
}

TEST_CASE("sources, tokenizers, devices and communicators that are wrong", "[hostile][.slow]") {
  check({
      {in_source, "data: no samples", 4, "reports 0 training samples and 0 held out"},
      {in_source, "data: countless samples", 4, "reports 18446744073709551615 training samples"},
      {in_source, "data: a hash without end", 4, "its content_hash is not hexadecimal text"},
      {in_source, "data: an empty hash", 4, "its content_hash is not hexadecimal text"},
      {in_source, "data: an odd hash", 4, "its content_hash is not hexadecimal text"},
      {in_source, "data: does not describe", 4, "its content_hash is not hexadecimal text"},
      {in_source, "data: reads nothing", 4, "sample 0: token 0 is -1"},
      {in_source, "data: no labels", 4, "sample 0: label 0 is -1"},
      {in_source, "data: all ignored", 0, ""},
      {in_source, "data: a large token", 4, "sample 0: token 15 is 256, the model has the ids 0 to 255"},
      {in_source, "data: a huge token", 4, "token 0 is 2147483647"},
      {in_source, "data: a negative token", 4, "token 1 is -1"},
      {in_source, "data: a large label", 4, "label 15 is 256"},
      {in_source, "data: a negative label", 4, "label 0 is -2147483648"},
      {in_source, "data: reports more than all", 0, ""},
      {in_source, "data: reports of nothing", 0, ""},
      {in_source, "data: a path without end", 4, "does not end in NUL"},
      {in_inspect, "inspect", 0, ""},
      {in_inspect, "inspect larger", 4, "data plugin hostile returned"},
      {in_inspect, "inspect huge", 4, "data plugin hostile returned 18446744073709551615 bytes"},
      {in_tokenizer, "tokenizer: a hash without end", 4, "its content_hash does not end in NUL"},
      {in_tokenizer, "tokenizer: no vocabulary", 4, "describes itself with vocabulary 0"},
      {in_tokenizer, "tokenizer: a negative vocabulary", 4, "describes itself with vocabulary -5"},
      {in_tokenizer, "tokenizer: a huge vocabulary", 4, "describes itself with vocabulary 9223372036854775807"},
      {in_tokenizer, "tokenizer: wants all memory", 4, "asks for room for 2305843009213693951"},
      {in_tokenizer, "tokenizer: wants more than all", 4, "asks for room for 18446744073709551615"},
      {in_tokenizer, "tokenizer: no ids", 2, "the prompt is empty", false},
      {in_tokenizer, "tokenizer: a negative id", 4, "gives id -7, but its vocabulary is 256"},
      {in_tokenizer, "tokenizer: a large id", 4, "gives id 70000, but its vocabulary is 256"},
      {in_tokenizer, "tokenizer: gives more, for ever", 4, "asks for room for"},
      {in_tokenizer, "tokenizer: gives all memory", 4, "asks for room for"},
      {on_device, "device: nothing parallel", 3, "device void describes itself with parallel 0"},
      {on_device, "device: a name without end", 3, "a name without its final NUL"},
      {on_device, "device: all of memory for itself", 3, "overhead_bytes 18446744073709551615"},
      {on_device, "device: a negative peak", 3, "peak_f32 -1"},
      {on_device, "device: no peak at all", 3, "device void describes itself"},
      {on_device, "device: queues without functions", 3, "flag ENG_DEVICE_ASYNC, but lacks functions for queues"},
      {on_device, "device: graphs without functions", 3, "flag ENG_DEVICE_GRAPHS, but lacks functions"},
      {on_device, "device: a context larger than all", 3, "device_overhead_bytes 18446744073709551615"},
      {on_device, "device: a negative bandwidth", 3, "memory_bandwidth -1, which is out of range"},
      {on_device, "device: no way back", 3, "to_host"},
      {in_schedule, "fail schedule.create", 2, "[schedule] hostile: out of luck"},
      {in_schedule, "fail rate", 3, "[schedule] hostile, update 1: out of luck"},
      {in_schedule, "rate: below 0", 3, "update 3: the learning rate is -0.1; it must be a number from 0 to"},
      {in_schedule, "rate: too high", 3, "update 3: the learning rate is 0.2"},
      {in_schedule, "rate: forgotten", 3, "update 3: the learning rate is inf"},
      {on_tier, "fail tier.describe", 3, "[offload] hostile: out of luck"},
      {on_tier, "tier: not host memory", 3, "tier hostile is not host memory, but lacks read or write"},
      {on_tier, "storage", 0, ""},
      {on_tier, "fail tier.read", 10, "tier hostile, read "},
      {on_tier, "fail tier.write", 10, "tier hostile, write "},
      {on_tier, "storage: endless rate", 3, "tier hostile describes itself with a bandwidth that is out of range"},
      {on_tier, "storage: endless tables", 3, "of host memory, which is out of range"},
      {on_tier, "storage: no memory", 3, "tier hostile: its alloc gave NULL"},
      {on_tier, "fail tier.create", 3, "[offload] hostile: out of luck"},
      {on_tier, "fail tier.alloc", 6, "for the arena: out of luck"},
      {on_tier, "tier: no memory", 3, "tier hostile: its alloc gave NULL"},
      {on_tier, "tier: crooked memory", 3, "tier hostile: its alloc gave memory that is not aligned to 4096 bytes"},
      {on_device, "device: no memory", 3, "device void: its alloc gave NULL"},
      {on_device, "device: crooked memory", 3, "device void: its alloc gave memory that is not aligned"},
      {between_ranks, "comm: nobody is there", 3, "[comm] mirror makes this rank 0 of 0"},
      {between_ranks, "comm: beyond the last", 3, "[comm] mirror makes this rank 2 of 2"},
      {between_ranks, "comm: nobody is near", 3, "and rank 0 of 0 on its machine"},
      {between_ranks, "comm: does not write", 3, "[comm] mirror makes this rank 0 of 0"},
      {between_ranks, "comm: more near than all", 3, "and rank 0 of 99 on its machine"},
      {between_ranks, "comm: exchanges nothing", 8, "communicator mirror: exchange gave rank 0 bytes for itself"},
      {between_ranks, "comm: exchanges noise", 8, "communicator mirror: a rank announces"},
      {between_ranks, "comm: exchanges ones", 8, "communicator mirror: a rank announces"},
  });
}

}  // namespace hostile
