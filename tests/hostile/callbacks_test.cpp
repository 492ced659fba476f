// SPDX-License-Identifier: Apache-2.0
// Every function of a plugin fails in turn: with a text, without one, with too much of it.
#include "hostile.hpp"

namespace hostile {
namespace {

struct Callback {
  Who who;
  const char* name;
  int exit;
};

const Callback callbacks[] = {
    {in_run, "model.create", 2},
    {in_run, "model.describe", 3},
    {in_run, "model.declare", 2},
    {in_run, "model.trace", 2},
    {in_run, "op.infer", 3},
    {in_run, "op.grad", 3},
    {in_generate, "op.step", 3},
    {in_run, "kernel.workspace", 3},
    {in_run, "kernel.prepare", 3},
    {in_run, "kernel.bind", 3},
    {in_run, "kernel.launch", 3},
    {in_run, "optimizer.create", 2},
    {in_run, "optimizer.states", 3},
    {in_run, "optimizer.scalars", 3},
    {in_run, "optimizer.scalars later", 3},
    {in_run, "optimizer.update", 3},
    {in_run, "precision.create", 2},
    {in_run, "precision.place", 3},
    {in_run, "precision.place of a unit", 3},
    {in_run, "precision.move", 3},
    {in_run, "precision.states", 3},
    {in_run, "precision.update", 3},
    {in_run, "precision.begin", 3},
    {in_strategy, "zero.create", 2},
    {in_strategy, "zero.place", 3},
    {in_strategy, "zero.move", 3},
    {in_source, "data.create", 4},
    {in_source, "data.describe", 4},
    {in_source, "data.read", 4},
    {in_source, "data.read later", 4},
    {in_source, "data.read held out", 4},
    {in_source, "data.build", 4},
    {in_inspect, "data.inspect", 4},
    {in_tokenizer, "tokenizer.create", 4},
    {in_tokenizer, "tokenizer.describe", 4},
    {in_tokenizer, "tokenizer.encode", 4},
    {in_tokenizer, "tokenizer.decode", 4},
    {on_device, "device.describe", 3},
    {on_device, "device.create", 3},
    {on_device, "device.alloc", 5},
    {on_device, "device.upload", 3},
    {on_device, "device.download", 3},
    {on_device, "device.sync", 3},
    {on_device, "device kernel.workspace", 3},
    {on_device, "device kernel.prepare", 3},
    {on_device, "device kernel.bind", 3},
    {on_device, "device kernel.launch", 3},
    {between_ranks, "comm.create", 3},
    {between_ranks, "comm.group", 8},
    {between_ranks, "comm.exchange", 8},
    {between_ranks, "collective.workspace", 3},
    {between_ranks, "collective.prepare", 3},
    {between_ranks, "collective.bind", 3},
    {between_ranks, "collective.launch", 8},
};

void check_all(const std::string& how, const char* said) {
  for (const Callback& c : callbacks) {
    const std::string fault = how + " " + c.name;
    check({{c.who, fault.c_str(), c.exit, said}});
  }
}

}  // namespace

TEST_CASE("every function that fails is told with its plugin and its text", "[hostile][.slow]") {
  check_all("fail", "out of luck");
}

TEST_CASE("every function that fails without a text is told with its status", "[hostile][.slow]") {
  check_all("mute", "failed with status 13 and no text");
}

TEST_CASE("texts and statuses of any kind are reported", "[hostile][.slow]") {
  for (const char* name : {"model.create", "op.infer", "op.grad", "kernel.launch", "optimizer.update"})
    for (const auto& [how, said] : {std::pair("long", "xxxxxxxx"),
                                    {"odd", "odd ?[31m??\n"},
                                    {"twice", "second text"},
                                    {"code", "failed with status -77 and no text"}})
      check({{in_run, (std::string(how) + " " + name).c_str(), has(name, "create") ? 2 : 3, said}});
  for (const char* name : {"data.create", "data.read", "data.describe"})
    for (const auto& [how, said] : {std::pair("long", "xxxxxxxx"),
                                    {"odd", "odd ?[31m??\n"},
                                    {"twice", "second text"},
                                    {"code", "failed with status -77 and no text"}})
      check({{in_source, (std::string(how) + " " + name).c_str(), 4, said}});
}

}  // namespace hostile
