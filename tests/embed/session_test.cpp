// SPDX-License-Identifier: Apache-2.0
// A session against `engine run`: the same bits and files, alone and beside another one.
#include <catch2/catch.hpp>
#include <cmath>
#include <thread>

#include "support.hpp"

using namespace embed;
using Catch::Matchers::Contains;

TEST_CASE("embed: a session to the end is engine run, bit for bit", "[embed]") {
  const Folder folder;
  const fs::path run = folder.run("run");
  engine::Session session(folder.options("own"));
  int64_t steps = 0;
  double eval = NAN;
  while (const auto step = session.step()) {
    CHECK(step->step == ++steps);
    CHECK((step->saved == 1) == (steps % 3 == 0));
    if (steps % 3 == 0) eval = step->eval_loss;
    CHECK(std::isnan(step->eval_loss) == (steps % 3 != 0));
  }
  CHECK(steps == 6);
  CHECK(session.evaluate({}, 8).loss == eval);
  session.close();
  const fs::path own = folder / "own";
  CHECK(losses(own).size() == 6);
  CHECK(losses(own) == losses(run));
  CHECK(checkpoint(own, "step-00000003") == checkpoint(run, "step-00000003"));
  CHECK(checkpoint(own, "step-00000006") == checkpoint(run, "step-00000006"));
  CHECK_THAT(read(own / "state.json"), Contains("\"done\""));
  CHECK(read(own / "plan.txt") == read(run / "plan.txt"));
  CHECK(read(own / "config.resolved.toml") == read(run / "config.resolved.toml"));
}

TEST_CASE("embed: stopped, closed, resumed, saved in between", "[embed]") {
  const Folder folder;
  const fs::path run = folder.run("run");
  {
    engine::Session session(folder.options("own"));
    CHECK(session.step());
    session.save();  // where none is due
    CHECK(fs::exists(folder / "own/checkpoints/step-00000001"));
    CHECK(session.step());
    session.stop();
    CHECK_FALSE(session.step());
    CHECK_FALSE(session.step());
    CHECK(fs::exists(folder / "own/checkpoints/step-00000002"));
  }
  CHECK_THAT(read(folder / "own/state.json"), Contains("\"stopped\""));
  engine::Options again((folder / "own").string());
  engine::Session session(again);
  session.start();
  CHECK(session.info().step == 2);
  CHECK(session.info().directory == (folder / "own").string());
  while (session.step()) {
  }
  session.close();
  CHECK(losses(folder / "own") == losses(run));
  CHECK(checkpoint(folder / "own", "step-00000006") == checkpoint(run, "step-00000006"));
}

TEST_CASE("embed: two sessions at once give the bits of two runs", "[embed]") {
  const Folder folder;
  const fs::path one = folder.run("one"), two = folder.run("two", "train.seed=2 optimizer.learning_rate=2e-3");
  const auto train = [](engine::Options options) {
    engine::Session session(options);
    while (session.step()) {
    }
    session.close();
  };
  std::thread other([&] { train(folder.options("b", {"train.seed=2", "optimizer.learning_rate=2e-3"})); });
  train(folder.options("a"));
  other.join();
  CHECK(losses(folder / "a") == losses(one));
  CHECK(losses(folder / "b") == losses(two));
  CHECK(losses(one) != losses(two));
  CHECK(checkpoint(folder / "a", "step-00000006") == checkpoint(one, "step-00000006"));
  CHECK(checkpoint(folder / "b", "step-00000006") == checkpoint(two, "step-00000006"));

  // And in turn, in one thread.
  engine::Session x(folder.options("x")), y(folder.options("y", {"train.seed=2", "optimizer.learning_rate=2e-3"}));
  while (x.step() && y.step()) {
  }
  y.step();
  CHECK(losses(folder / "x") == losses(one));
  CHECK(losses(folder / "y") == losses(two));
}

TEST_CASE("embed: a session that could not start gives back its directory and still describes itself", "[embed]") {
  const Folder folder;
  {
    engine::Session first(folder.options("own"));
    CHECK(first.step());
    first.stop();
    CHECK_FALSE(first.step());
  }
  engine::Session changed(folder.options("own", {"train.seed=2", "train.steps=8"}));
  std::string why;
  CHECK(refused(why, [&] { changed.start(); }) != ENG_OK);
  CHECK_THAT(why, Contains("train.seed"));
  CHECK(changed.info().started == 0);
  CHECK(changed.info().steps == 8);
  CHECK(refused(why, [&] { changed.plan(1); }) != ENG_OK);
  CHECK_THAT(why, Contains("can only be closed"));
  engine::Session again(folder.options("own"));
  again.start();
  CHECK(again.info().step == 1);
}

TEST_CASE("embed: the plan without running is that of the command", "[embed]") {
  const Folder folder;
  engine::Session session(folder.options());
  for (const char* ranks : {"1", "4"}) {
    const std::string command = std::string(ENGINE_COMMAND) + " plan " + (folder / "config.toml").string() +
                                " --json --ranks " + ranks + " > " + (folder / "plan.json").string();
    REQUIRE(std::system(command.c_str()) == 0);
    CHECK(session.plan(static_cast<uint32_t>(std::atoi(ranks))) == read(folder / "plan.json"));
  }
  CHECK(session.info().started == 0);
  CHECK_FALSE(fs::exists(folder / "runs"));
}

TEST_CASE("embed: texts are those of engine generate", "[embed]") {
  const Folder folder;
  std::string text;
  engine::Session session(folder.options("own"));
  while (session.step()) {
  }
  eng_generate_request request{};
  request.struct_size = sizeof(request);
  request.prompt = "plan 1";
  request.tokens = 12, request.temperature = 0.8, request.top_p = 0.95, request.seed = 3;
  request.data = &text;
  request.token = [](void* to, int32_t, const char* bytes, uint64_t n) -> int32_t {
    static_cast<std::string*>(to)->append(bytes, n);
    return 1;
  };
  session.generate(request);
  session.close();
  const std::string command = std::string(ENGINE_COMMAND) + " generate " + (folder / "own").string() +
                              " 'plan 1' --tokens 12 --seed 3 2> /dev/null > " + (folder / "text").string();
  REQUIRE(std::system(command.c_str()) == 0);
  // The command shows what is no character as one.
  if (std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c < 127; }))
    CHECK(text + "\n" == read(folder / "text"));
  CHECK(text.size() == 12);
}

TEST_CASE("embed: errors have a status and say what to change", "[embed]") {
  const Folder folder;
  std::string why;
  CHECK(refused(why, [&] { engine::Session s(engine::Options("/nowhere.toml")); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("/nowhere.toml"));
  CHECK(refused(why, [&] { engine::Session s(folder.options("", {"train.stepz=1"})); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("steps"));
  engine::Session session(folder.options());
  CHECK(refused(why, [&] { session.save(); }) == ENG_INVALID);
  CHECK(refused(why, [&] { session.take("model.norm.weigth"); }) == ENG_NOT_FOUND);
  CHECK_THAT(why, Contains("did you mean `model.norm.weight`?"));
  CHECK(refused(why, [&] { session.take("model.norm.weight", "gradient"); }) == ENG_UNSUPPORTED);
  CHECK_THAT(why, Contains("gradients=True"));
  CHECK(refused(why, [&] { session.take("layers.0.mlp", "activation"); }) == ENG_UNSUPPORTED);
  CHECK_THAT(why, Contains("no memory that lasts"));
  CHECK(refused(why, [&] { session.take("model.norm.weight", "parameter", 64); }) == ENG_INVALID);
  CHECK(refused(why, [&] { session.save(); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("no directory"));
  CHECK(refused(why, [&] { session.start(); }) == ENG_INVALID);
  CHECK(session.step());  // none of these was the end of it
  CHECK(eng_session_step(nullptr, nullptr, 0, nullptr, nullptr) == ENG_INVALID);
  CHECK(eng_session_close(nullptr, nullptr) == ENG_OK);
  CHECK(std::string(eng_session_draft()) == ENG_EMBED_DRAFT);
}

TEST_CASE("embed: a configuration as text, without data", "[embed]") {
  const Folder folder;
  engine::Options options("mine");
  options.text =
      "[model]\nplugin = 'llama'\npreset = 'tiny'\nnum_hidden_layers = 1\n[train]\nsequence_length = 8\nsteps = 3\n";
  options.flags = ENG_SESSION_NO_FILES;
  engine::Session session(options);
  std::string why;
  CHECK(refused(why, [&] { session.step(); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("was given no batch"));
  std::vector<int64_t> tokens = ids(8);
  const auto first = session.step({{"tokens", tokens.data(), {1, 8}}}),
             second = session.step({{"tokens", tokens.data(), {1, 8}}});
  REQUIRE((first && second));
  CHECK(second->loss < first->loss);
  CHECK(session.evaluate({{"tokens", tokens.data(), {1, 8}}}).tokens == 7);
  CHECK(refused(why, [&] { session.evaluate(); }) == ENG_INVALID);
}

TEST_CASE("embed: batches alone, with files: stopped and resumed", "[embed]") {
  const Folder folder;
  const std::vector<int64_t> all = ids(4 * 8);
  const auto open = [&](const std::string& out) {
    engine::Options options("mine");
    options.text =
        "[model]\nplugin = 'llama'\npreset = 'tiny'\nnum_hidden_layers = 1\n[train]\nsequence_length = 8\nsteps = 4\n";
    options.out = (folder / out).string();
    return options;
  };
  const auto steps = [&](engine::Session& run, size_t from, size_t to) {
    for (size_t k = from; k < to; ++k) CHECK(run.step({{"tokens", all.data() + k * 8, {1, 8}}}));
  };
  engine::Session whole(open("whole"));
  steps(whole, 0, 4);
  whole.close();
  {
    engine::Session run(open("parts"));
    steps(run, 0, 2);
    run.stop();
    CHECK_FALSE(run.step());
  }
  // From its folder alone, as from the text again.
  const bool by_folder = GENERATE(true, false);
  engine::Session run(by_folder ? engine::Options((folder / "parts").string()) : open("parts"));
  run.start();
  CHECK(run.info().step == 2);
  CHECK(run.info().train_samples == 0);
  steps(run, 2, 4);
  run.close();
  CHECK(losses(folder / "parts") == losses(folder / "whole"));
  CHECK(checkpoint(folder / "parts", "step-00000004") == checkpoint(folder / "whole", "step-00000004"));
}

TEST_CASE("embed: documents side by side, by their segments", "[embed]") {
  const Folder folder;
  const std::string model = GENERATE("llama", "opt", "mamba");
  INFO(model);
  std::vector<std::string> words = {"data.pack=true", "data.validation=0", "train.eval_every=0",
                                    "model.plugin=" + model};
  if (model != "llama") words.insert(words.end(), {"-model.intermediate_size"});
  if (model == "mamba") words.insert(words.end(), {"-model.num_attention_heads"});
  engine::Session run(folder.options("", words));
  // (2, 16): documents of 10, 6, 7 and 5 tokens, and 4 positions without one.
  const std::vector<std::vector<size_t>> rows = {{10, 6}, {7, 5}};
  struct Batch {
    std::vector<int64_t> tokens, labels, segments, positions;
    void add(const int64_t* ids, size_t n, int64_t segment) {
      for (size_t t = 0; t < n; ++t) {
        tokens.push_back(segment < 0 ? 0 : ids[t]), segments.push_back(segment);
        labels.push_back(segment < 0 || t + 1 == n ? ENG_IGNORE_LABEL : ids[t + 1]);
        positions.push_back(static_cast<int64_t>(t));
      }
    }
    void pad() { add(nullptr, (16 - tokens.size() % 16) % 16, -1); }
  };
  const std::vector<int64_t> all = ids(28);
  Batch packed, alone;
  size_t at = 0;
  for (const auto& row : rows) {
    int64_t segment = 0;
    for (const size_t n : row) {
      packed.add(all.data() + at, n, segment++);
      alone.add(all.data() + at, n, 0), alone.pad();
      at += n;
    }
    packed.pad();
  }
  const auto evaluate = [&](Batch b) {
    const auto n = static_cast<int64_t>(b.tokens.size() / 16);
    Foreign tokens(b.tokens, {n, 16}), labels(b.labels, {n, 16}), segments(b.segments, {n, 16}),
        positions(b.positions, {n, 16});
    std::vector<eng_tensor_in> fields = {tokens.in("tokens"), labels.in("labels"), segments.in("segments")};
    if (model != "mamba") fields.push_back(positions.old("positions"));
    eng_eval_result out{};
    out.struct_size = sizeof(out);
    engine::call(eng_session_evaluate, run.get(), fields.data(), static_cast<uint32_t>(fields.size()), int64_t{0},
                 &out);
    CHECK((tokens.deleted == 1 && segments.deleted == 1));
    return out;
  };
  const auto together = evaluate(packed), apart = evaluate(alone);
  CHECK(together.tokens == 24);
  CHECK(apart.tokens == 24);
  CHECK(together.loss == Approx(apart.loss).epsilon(1e-6));
  std::string why;
  Batch wrong = packed;
  wrong.segments[3] = -2;
  CHECK(refused(why, [&] { evaluate(wrong); }) == ENG_DATA_LOSS);
  CHECK_THAT(why, Contains("the batch, sample 0"));
  // As one document, all of a sample sees what is before it.
  for (size_t k = 0; k < packed.tokens.size(); ++k)
    packed.segments[k] = 0, packed.positions[k] = static_cast<int64_t>(k % 16);
  CHECK(evaluate(packed).loss != Approx(apart.loss).epsilon(1e-5));
  const std::vector<int64_t> tokens(4 * 16, 40);
  CHECK(refused(why, [&] { run.step({{"tokens", tokens.data(), {4, 16}}}); }) == ENG_INVALID);
  CHECK_THAT(why, Contains("has no field `") && Contains("which the model reads"));
}

TEST_CASE("embed: a session that is in use refuses others, and stays as it is", "[embed]") {
  const Folder folder;
  engine::Session run(folder.options());
  struct Seen {
    eng_session* self;
    std::string why;
    eng_status step = 0, close = 0;
    int deleted = 0;
  } seen{run.get(), {}};
  eng_generate_request request{};
  request.struct_size = sizeof(request);
  request.prompt = "plan", request.tokens = 3, request.top_p = 1, request.data = &seen;
  request.token = [](void* data, int32_t, const char*, uint64_t) -> int32_t {
    Seen& s = *static_cast<Seen*>(data);
    Foreign tokens(ids(64), {4, 16});
    const eng_tensor_in field = tokens.in("tokens");
    s.step = refused(
        s.why, [&] { engine::call(eng_session_step, s.self, &field, 1U, static_cast<eng_step_result*>(nullptr)); });
    s.deleted = tokens.deleted;  // what was given is given back
    s.close = eng_session_close(s.self, nullptr);
    return 1;
  };
  run.generate(request);
  CHECK(seen.step == ENG_PRECONDITION);
  CHECK_THAT(seen.why, Contains("`step` of a session that is in use: this thread is inside `generate`"));
  CHECK(seen.deleted == 1);
  CHECK(seen.close == ENG_PRECONDITION);
  CHECK(run.step()->step == 1);
}

TEST_CASE("embed: programs in C: deleters at the exit, and the examples, in C and in C++", "[embed]") {
  const Folder folder;
  const std::string build = fs::path(ENGINE_COMMAND).parent_path().string() + "/../tests/embed/";
  CHECK(std::system(
            (build + "embed-late " + (folder / "config.toml").string() + " > " + (folder / "said").string()).c_str()) ==
        0);
  CHECK(read(folder / "said") == "late\n");
  std::vector<std::string> said;
  for (const char* example : {"embed-train ", "embed-train-cpp "}) {
    const std::string train = build + example + (folder / "config.toml").string() + " > " + (folder / "said").string();
    CHECK(std::system(train.c_str()) == 0);
    said.push_back(read(folder / "said"));
    CHECK_THAT(said.back(), Contains("step 6"));
  }
  CHECK(said[0] == said[1]);
}
