#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""store_test.py ENGINE [--slow | --without-curl]: checkpoint.second = "s3://..." and `engine ckpt get`, with a store on the loopback
interface that checks every signature. Nothing here reaches another network."""
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
from server import KEY, SECRET, TOKEN, Store  # noqa: E402

ENGINE = pathlib.Path(sys.argv[1]).resolve()
SECOND = "checkpoint.second='s3://copies/a b/c'"
PLACE = "a b/c/run"
CONFIG = """
[model]
plugin = "llama"
vocab_size = 256
hidden_size = 32
intermediate_size = 64
num_hidden_layers = 1
num_attention_heads = 2
num_key_value_heads = 2
[data]
paths = ["text.txt"]
tokenizer = "bytes"
[train]
steps = 6
micro_batch = 1
sequence_length = 16
eval_every = 0
[optimizer]
learning_rate = 1e-3
[checkpoint]
every = 2
keep = 2
[device]
threads = 1
"""


def expect(condition, *about):
    if not condition:
        raise AssertionError(about)


class Folder:
    """A working folder with a configuration, and the command in it."""

    def __init__(self, store=None, config=CONFIG):
        self.path, self.store = pathlib.Path(tempfile.mkdtemp(prefix="store-test-")), store
        (self.path / "config.toml").write_text(config)
        (self.path / "text.txt").write_text("The quick brown fox jumps over the lazy dog. " * 200)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def engine(self, *words, **more):
        """(exit code, stdout, stderr)"""
        here = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        all_of = {**here, **(self.store.environment() if self.store else {}), **more}
        done = subprocess.run([ENGINE, *words], cwd=self.path, env={k: v for k, v in all_of.items() if v is not None},
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=200, check=False)
        expect(SECRET not in done.stderr + done.stdout and TOKEN not in done.stderr + done.stdout, done)
        return done.returncode, done.stdout, done.stderr

    def good(self, *words, **more):
        code, out, err = self.engine(*words, **more)
        expect(code == 0, words, code, err)
        return out, err

    def refused(self, code, text, *words, **more):
        got, out, err = self.engine(*words, **more)
        expect(got == code and text in err, words, got, text, err, out)
        return err

    def train(self, *more):
        return self.good("run", "config.toml", "--out", "run", SECOND, *more)


def steps_of(store, run=PLACE):
    """The complete checkpoints of a run."""
    return sorted(int(found[1]) for key in store.objects
                  if (found := re.fullmatch(re.escape(run) + r"/checkpoints/step-(\d+)/manifest\.json", key)))


def name_of(step):
    return f"step-{step:08}"


def same(here, a, b, step):
    code, out, err = here.engine("ckpt", "diff", f"{a}/checkpoints/{name_of(step)}", f"{b}/checkpoints/{name_of(step)}")
    expect(code == 0, a, b, out, err)


def copies_and_back():
    with Store(page=3) as store, Folder(store) as here:
        here.good("run", "config.toml", "--out", "whole", "train.steps=10")
        _, err = here.train()
        expect("not copied" not in err and not store.bad, err, store.bad)
        expect(steps_of(store) == [4, 6], sorted(store.objects))
        for step in (4, 6):
            folder = here.path / "run/checkpoints" / name_of(step)
            for file in folder.iterdir():
                expect(store.objects[f"{PLACE}/checkpoints/{name_of(step)}/{file.name}"] == file.read_bytes(), file)
        expect(f"{PLACE}/config.resolved.toml" in store.objects and f"{PLACE}/run.json" in store.objects, sorted(store.objects))
        # The manifest of a checkpoint comes last, and goes first.
        for step in (2, 4, 6):
            of_it = [(method, key.rpartition("/")[2]) for method, key, _ in store.requests
                     if method in ("PUT", "DELETE") and f"/{name_of(step)}/" in key]
            put, gone = [k for m, k in of_it if m == "PUT"], [k for m, k in of_it if m == "DELETE"]
            expect(put[-1] == "manifest.json" and len(put) == 3 and put.count("manifest.json") == 1, of_it)
            expect(not gone or gone[0] == "manifest.json" and len(gone) == 3, of_it)
        # Nothing of the keys is in the run's directory.
        for file in (here.path / "run").rglob("*"):
            if file.is_file():
                text = file.read_bytes()
                expect(not any(word.encode() in text for word in (KEY, SECRET, TOKEN)), file)
        out, _ = here.good("ckpt", "ls", f"s3://copies/{PLACE}")
        expect([line.split()[0] for line in out.splitlines()] == [name_of(4), name_of(6)], out)
        # The newest checkpoint is lost; then all of the run.
        shutil.rmtree(here.path / "run/checkpoints" / name_of(6))
        _, err = here.good("run", "run", "train.steps=8")
        expect(f"{name_of(6)} was brought from the second place" in err and f"resumes from {name_of(6)}" in err, err)
        expect(steps_of(store) == [6, 8], sorted(store.objects))
        shutil.rmtree(here.path / "run")
        out, err = here.good("ckpt", "get", f"s3://copies/{PLACE}")
        expect(out == "run\n" and name_of(8) in err, out, err)
        expect(not (here.path / "run/.engine-store").exists(), "the record stays")
        _, err = here.good("run", "run", "train.steps=10")
        expect(f"resumes from {name_of(8)}" in err and steps_of(store) == [8, 10], err, sorted(store.objects))
        same(here, "run", "whole", 10)
        # From an earlier step: later copies are set aside, and what is made again takes their place.
        here.good("run", "run", "--resume", "8", "train.steps=9", "checkpoint.every=0")
        expect(steps_of(store) == [8, 9], sorted(store.objects))
        expect(f"{PLACE}/checkpoints/{name_of(10)}/aside-manifest.json" in store.objects, sorted(store.objects))
        # A file of the earlier step 10 that the one made again does not have.
        other = f"{PLACE}/checkpoints/{name_of(10)}/model-00001.safetensors"
        store.objects[other], store.etags[other] = b"of another number of ranks", "1"
        here.good("run", "run", "train.steps=10")
        expect(steps_of(store) == [9, 10] and other not in store.objects, sorted(store.objects))
        expect(not any("aside" in key for key in store.objects), sorted(store.objects))
        # Tools make objects for folders; they, and a manifest that was being set aside, are no files of a checkpoint.
        for key in ("", "checkpoints/", f"checkpoints/{name_of(9)}/", f"checkpoints/{name_of(9)}/aside-manifest.json"):
            store.objects[f"{PLACE}/{key}"], store.etags[f"{PLACE}/{key}"] = b"", "1"
        here.good("ckpt", "get", f"s3://copies/{PLACE}", "--to", "older", "--step", "9")
        expect([p.name for p in (here.path / "older/checkpoints").iterdir()] == [name_of(9)], "older")
        expect(json.loads((here.path / "older/second.json").read_text())["aside"].keys() == {name_of(10)}, "aside")


def refusals():
    with Store() as store, Folder(store) as here:
        words = ("run", "config.toml", "--out", "run", SECOND)
        here.refused(3, "AWS_SECRET_ACCESS_KEY is not set", *words, AWS_SECRET_ACCESS_KEY=None)
        here.refused(3, "the region of the bucket is not known", *words, AWS_REGION=None, AWS_ENDPOINT_URL=None)
        here.refused(3, "AWS_ENDPOINT_URL is no address", *words, AWS_ENDPOINT_URL="ftp://x")
        here.refused(2, "names no bucket", "run", "config.toml", "--out", "run", "checkpoint.second=s3://x")
        expect(not store.requests and not store.bad, store.bad)
        here.refused(3, "SignatureDoesNotMatch", *words, AWS_SECRET_ACCESS_KEY="other")
        here.refused(3, "InvalidAccessKeyId", *words, AWS_ACCESS_KEY_ID="other")
        here.refused(3, "InvalidToken", *words, AWS_SESSION_TOKEN="other")
        here.refused(3, "AuthorizationHeaderMalformed", *words, AWS_REGION="us-east-1")
        here.refused(3, "there is no bucket nothing", "run", "config.toml", "--out", "run", "checkpoint.second=s3://nothing/x")
        err = here.refused(3, "AWS_ENDPOINT_URL names a user", *words, AWS_ENDPOINT_URL="http://me:unprinted@127.0.0.1:1")
        expect("unprinted" not in err, err)
        # Something that is no store.
        for status, body, headers, text in ((200, b"<html>Welcome</html>", {}, "what answers is no store"),
                                            (200, b"", {}, "what answers is no store"),
                                            (404, b"<html>Not found</html>", {}, "there is no bucket copies"),
                                            (301, b"", {"Location": "http://127.0.0.1:1/there"}, "it is elsewhere: http://127.0.0.1:1/there"),
                                            (405, b"", {}, "the store lacks this request")):
            store.rules = [lambda handler, *_: store.send(handler, status, body, **headers) or True]
            here.refused(3, text, *words)
        store.rules = []
        expect(not (here.path / "run").exists(), "a run was made")
        store.rules = [lambda handler, method, *_: method == "PUT" and (store.send(handler, 200) or True)]
        _, err = here.train()
        # The oldest of those that wait is left out if the place would not keep it either.
        expect("no ETag in the answer to PUT" in err and re.search("[23] of 3 checkpoints were not copied", err) and not store.objects, err)
        store.rules = []
        shutil.rmtree(here.path / "run")
        here.train()
        shutil.rmtree(here.path / "run")
        here.refused(2, "it is of another run", *words)
        err = here.refused(9, "has no complete checkpoint", "ckpt", "get", "s3://copies/a b/c", "--to", "x")
        expect(f"s3://copies/{PLACE}" in err and not (here.path / "x").exists(), err)
        (here.path / "full").mkdir()
        (here.path / "full/file").write_text("")
        here.refused(2, "is not empty", "ckpt", "get", f"s3://copies/{PLACE}", "--to", "full")


def faults():
    with Store() as store, Folder(store) as here:
        here.good("run", "config.toml", "--out", "whole")
        left = {"slow": 2, "cut": 1}

        def troubled(handler, method, key, query, body):
            if method == "PUT" and key.endswith(".safetensors") and left["slow"]:
                left["slow"] -= 1
                return store.error(handler, 503, "SlowDown", "Reduce your request rate.", Retry_After="0")
            if method == "PUT" and key.endswith("manifest.json") and left["cut"]:
                left["cut"] -= 1
                handler.close_connection = True  # without an answer
                return True
            return False
        store.rules = [troubled]
        _, err = here.train()
        expect(steps_of(store) == [4, 6] and "not copied" not in err and left == {"slow": 0, "cut": 0}, err, left)
        # A download that ends early goes on where it stopped.
        store.rules, cut, ranges = [], set(), []

        def half(handler, method, key, query, body):
            if method != "GET" or not key.endswith(".safetensors"):
                return False
            ranges.append(handler.headers.get("Range"))
            if key in cut:
                return False
            cut.add(key)
            send_half(store, handler, key)
            return True
        store.rules = [half]
        here.good("ckpt", "get", f"s3://copies/{PLACE}", "--to", "back")
        expect(len(cut) == 2 and [r for r in ranges if r and not r.startswith("bytes=0-")], ranges)
        same(here, "back", "whole", 6)
        # A store that refuses what it took before: training goes on, and the end says what is not there.
        store.rules = [lambda handler, method, *_: method == "PUT" and store.error(handler, 403, "AccessDenied", "no more")]
        _, err = here.good("run", "run", "train.steps=8")
        expect("training goes on" in err and "AccessDenied" in err and "1 of 1 checkpoints were not copied to s3://copies/" in err, err)
        expect(json.loads((here.path / "run/state.json").read_text())["status"] == "done" and steps_of(store) == [4, 6], err)
        # The missing one is copied when the run goes on.
        store.rules = []
        here.good("run", "run", "train.steps=8")
        expect(steps_of(store) == [6, 8], sorted(store.objects))
        # A store that answers nonsense ends no run that has a checkpoint of its own.
        store.rules = [lambda handler, *_: store.send(handler, 200, b"<ListBucketResult><Contents></ListBucketResult>") or True]
        _, err = here.good("run", "run", "train.steps=8")
        expect(f"resumes from {name_of(8)}" in err and "<Contents> does not end" in err, err)
        store.rules = []
        # Damage at rest: the older one is taken.
        key = f"{PLACE}/checkpoints/{name_of(8)}/model-00000.safetensors"
        store.objects[key] = store.objects[key][:-7] + bytes([store.objects[key][-7] ^ 1]) + store.objects[key][-6:]
        _, err = here.good("ckpt", "get", f"s3://copies/{PLACE}", "--to", "undamaged")
        expect(f"{name_of(8)} is passed over" in err and [p.name for p in (here.path / "undamaged/checkpoints").iterdir()] == [name_of(6)], err)


def send_half(store, handler, key):
    """The connection is cut in the middle of the object."""
    data = store.objects[key]
    store.send(handler, 200, data, most=len(data) // 2)


def interrupted():
    """A run that could not bring all of its checkpoint goes on with it at the next attempt."""
    with Store() as store, Folder(store) as here:
        here.train()
        shutil.rmtree(here.path / "run/checkpoints")
        ranges = []

        def half(handler, method, key, query, body):
            if method != "GET" or not key.endswith(".safetensors"):
                return False
            ranges.append(handler.headers.get("Range"))
            if len(ranges) > 1:
                return len(store.rules) == 1 and store.error(handler, 403, "AccessDenied", "no more")
            send_half(store, handler, key)
            return True
        store.rules = [half]
        here.refused(3, "AccessDenied", "run", "run", "train.steps=8")
        expect([p.name for p in (here.path / "run/checkpoints").iterdir()] == [f"bring-{name_of(6)}"] and len(ranges) == 2, ranges)
        store.rules.append(lambda *_: False)
        _, err = here.good("run", "run", "train.steps=8")
        expect(f"resumes from {name_of(6)}" in err and ranges[2] == ranges[1] and ranges[2] != "bytes=0-", ranges, err)
        expect(sorted(p.name for p in (here.path / "run/checkpoints").iterdir()) == [name_of(6), name_of(8)], "a folder stays")


def stopped_at_the_start():
    """A run that has not begun, and waits for a store that takes connections and says nothing, ends with the first signal."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}"
        for words in ([], ["--out", "run"]):  # the second looks at the store before it makes the directory
            with Folder() as here:
                run = subprocess.Popen([ENGINE, "run", "config.toml", SECOND, *words], cwd=here.path, stderr=subprocess.PIPE, text=True,
                                       env={**os.environ, "AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_ENDPOINT_URL": place})
                silent.settimeout(60)
                with silent.accept()[0]:
                    asked = time.monotonic()
                    run.send_signal(signal.SIGINT)
                    err = run.communicate(timeout=100)[1]
                took = time.monotonic() - asked
                expect(run.returncode == 75 and "stopped" in err, run.returncode, err)
                expect(took < 3, took, err)


def in_parts():
    """A file of more than 64 MiB, sent in parts; the second one fails, and only that is sent again."""
    large = CONFIG.replace("vocab_size = 256", "vocab_size = 180000").replace("steps = 6", "steps = 1")
    with Store() as store, Folder(store, large) as here:
        sent = []

        def second(handler, method, key, query, body):
            if "partNumber" not in query:
                return False
            sent.append((key.rpartition("/")[2], int(query["partNumber"])))
            return query["partNumber"] == "2" and len(store.rules) > 1 and store.error(handler, 403, "AccessDenied", "full")
        store.rules = [second, lambda *_: False]
        _, err = here.train()
        expect("1 of 1 checkpoints were not copied" in err and steps_of(store) == [] and len(store.uploads) == 1, err, sent)
        expect(sent == [("optim-00000.safetensors", 1), ("optim-00000.safetensors", 2)], sent)
        store.rules = [second]
        del sent[:]
        # The end is 200 with an error in it at first, and then from somebody else.
        ends = [b"<?xml version=\"1.0\"?>\n<Error><Code>InternalError</Code></Error>", b"<html/>"]

        def end(handler, method, key, query, body):
            return method == "POST" and "uploadId" in query and ends and (store.send(handler, 200, ends.pop(0)) or True)
        store.rules = [lambda *words: end(*words) or second(*words)]
        here.good("run", "run")
        expect(not ends, ends)
        store.rules = [second]
        expect(sent == [("optim-00000.safetensors", 2)] and steps_of(store) == [1] and not store.uploads, sent, sorted(store.objects))
        file = here.path / "run/checkpoints" / name_of(1) / "optim-00000.safetensors"
        expect(file.stat().st_size > 64 << 20 and store.objects[f"{PLACE}/checkpoints/{name_of(1)}/{file.name}"] == file.read_bytes(), file)
        # Nothing is sent that is there, also of a file in parts.
        del sent[:]
        key = f"{PLACE}/checkpoints/{name_of(1)}/manifest.json"
        del store.objects[key]
        here.good("run", "run")
        expect(not sent and steps_of(store) == [1], sent)
        # An older object of this size is not what was sent.
        del store.objects[key]
        data = f"{PLACE}/checkpoints/{name_of(1)}/{file.name}"
        good, store.etags[data] = store.objects[data], "0-2"
        store.rules = [lambda handler, method, key, query, _: method == "POST" and "uploadId" in query and
                       store.error(handler, 404, "NoSuchUpload")]
        _, err = here.good("run", "run")
        expect("was sent in parts, but is not there" in err and steps_of(store) == [], err)
        store.rules = []
        here.good("run", "run")
        expect(steps_of(store) == [1] and store.objects[data] == good and store.etags[data] != "0-2", store.etags)

        # Tries that bring something are not counted.
        tries = []

        def little(handler, method, key, query, _):
            if method != "GET" or key != data:
                return False
            first = int((handler.headers.get("Range") or "bytes=0-")[len("bytes="):-1])
            tries.append(first)
            handler.send_response(206 if first else 200)
            if first:
                handler.send_header("Content-Range", f"bytes {first}-{len(good) - 1}/{len(good)}")
            handler.send_header("Content-Length", str(len(good) - first))
            handler.end_headers()
            handler.wfile.write(good[first:first + (9 << 20)])
            handler.close_connection = True
            return True
        store.rules = [little]
        here.good("ckpt", "get", f"s3://copies/{PLACE}", "--to", "back")
        expect(len(tries) > 7, tries)
        here.good("ckpt", "verify", "back")


def full_disk():
    with Store() as store, Folder(store) as here:
        here.train()
        small = here.path / "small"
        small.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=96k", "none", small], capture_output=True, check=False).returncode:
            print("no right to mount a small file system: a full disk is left out")
            return
        try:
            err = here.refused(10, "are free in", "ckpt", "get", f"s3://copies/{PLACE}", "--to", "small/run")
            expect("goes on from what is there" in err, err)
            subprocess.run(["mount", "-o", "remount,size=4m", small], check=True)
            here.good("ckpt", "get", f"s3://copies/{PLACE}", "--to", "small/run")
            here.good("ckpt", "verify", "small/run")
        finally:
            subprocess.run(["umount", small], check=False)


def without_curl():
    with Folder() as here:
        here.refused(3, "built without libcurl", "run", "config.toml", "--out", "run", SECOND, AWS_ACCESS_KEY_ID="a",
                     AWS_SECRET_ACCESS_KEY="b", AWS_ENDPOINT_URL="http://127.0.0.1:1")


def main():
    tests = {"--slow": [in_parts, full_disk], "--without-curl": [without_curl]}.get(
        sys.argv[2] if len(sys.argv) > 2 else "", [copies_and_back, refusals, faults, interrupted, stopped_at_the_start])
    for test in tests:
        test()
        print(f"{test.__name__}: ok", flush=True)


if __name__ == "__main__":
    main()
