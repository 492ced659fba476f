#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""hub_test.py ENGINE [--without-curl]: `engine model get` and `engine data get` from a hub on the loopback interface. Nothing
here reaches another network."""
import email.utils
import hashlib
import json
import os
import pathlib
import pty
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

sys.dont_write_bytecode = True
from server import COMMIT, Hub, Repository  # noqa: E402

ENGINE = pathlib.Path(sys.argv[1]).resolve()
RECORD = ".engine-hub.json"
random.seed(1)
WEIGHTS = random.randbytes(3_000_000)
MODEL = {".gitattributes": b"*.safetensors filter=lfs\n", "README.md": b"# A model\n", "config.json": b'{"model_type": "llama"}',
         "model.safetensors": WEIGHTS, "pytorch_model.bin": random.randbytes(2000), "tokenizer.json": b'{"model": {}}',
         "tokenizer_config.json": b"", "onnx/model.onnx": b"x", "original/consolidated.safetensors": b"x",
         "consolidated.safetensors": b"x"}
READ = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
DATA = {"README.md": b"# Rows\n", "dataset_infos.json": b"{}", "data/train-00000 of 1.jsonl": b'{"text": "a"}\n' * 200,
        "data/test.csv": b"text\nb\n", "data/été.txt": b"summer\n", "script.py": b"pass\n"}


class Folder:
    """A working folder, and the command in it."""

    def __init__(self):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="hub-test-"))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)

    def environment(self, hub, more):
        return {"PATH": "/usr/bin:/bin", "HOME": str(self.path / "home"), "HF_ENDPOINT": hub.address if hub else "", **more}

    def start(self, hub, *words, **more):
        return subprocess.Popen([ENGINE, *words], cwd=self.path, env=self.environment(hub, more), stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def engine(self, hub, *words, **more):
        """(exit code, stdout, stderr)"""
        child = self.start(hub, *words, **more)
        out, err = child.communicate(timeout=100)
        return child.returncode, out, err

    def good(self, hub, *words, **more):
        code, out, err = self.engine(hub, *words, **more)
        expect(code == 0, words, code, err)
        return out, err

    def refused(self, code, text, hub, *words, **more):
        got, out, err = self.engine(hub, *words, **more)
        expect(got == code and text in err and out == "", words, got, text, err)
        return err

    def names(self, folder):
        """Files below a folder, without the record."""
        top = self.path / folder
        return sorted(str(p.relative_to(top)) for p in top.rglob("*") if p.is_file() and p.name != RECORD)

    def holds(self, folder, files):
        for name in self.names(folder):
            expect((self.path / folder / name).read_bytes() == files[name], folder, name)

    def record(self, folder):
        return json.loads((self.path / folder / RECORD).read_text())


def expect(condition, *about):
    if not condition:
        raise AssertionError(about)


def models(files=None, **how):
    return {"models/org/small": Repository(MODEL if files is None else files, **how)}


def first_time(answer):
    """A rule that answers the first request for each file."""
    seen = set()

    def rule(handler, kind, path):
        if kind != "file" or path in seen:
            return False
        seen.add(path)
        return answer(handler, path)
    return rule


def whole_model():
    with Hub(models()) as hub, Folder() as here:
        out, err = here.good(hub, "model", "get", "org/small")
        expect(out == "org/small\n" and "4 of 4 files downloaded" in err and "\r" not in err, out, err)
        expect(here.names("org/small") == READ, here.names("org/small"))
        here.holds("org/small", MODEL)
        record = here.record("org/small")
        expect(record["commit"] == COMMIT and record["parts"] == {} and record["repository"] == "org/small", record)
        expect(record["files"]["model.safetensors"]["content"] == "sha256:" + hashlib.sha256(WEIGHTS).hexdigest(), record)
        expect(record["files"]["config.json"]["content"].startswith("git-sha1:"), record)
        expect(hub.requests[0][0] == "/api/models/org/small/revision/main?blobs=True", hub.requests[0])
        expect(all(f"/resolve/{COMMIT}/" in path for path in hub.files_asked()), hub.files_asked())
        # A second one downloads nothing, and neither does one without the record, which reads the files.
        for _ in range(2):
            del hub.requests[:]
            out, err = here.good(hub, "model", "get", "org/small")
            expect("0 of 4 files" in err and len(hub.requests) == 1, err, hub.requests)
            (here.path / "org/small" / RECORD).unlink()
        # One file is missing: it alone is downloaded.
        (here.path / "org/small/config.json").unlink()
        out, _ = here.good(hub, "model", "get", "org/small", "--json")
        told = json.loads(out)
        expect([f["path"] for f in told["files"] if f["downloaded"]] == ["config.json"] and
               told["bytes"] == len(MODEL["config.json"]) and told["folder"] == "org/small", told)


def globs_and_revisions():
    with Hub(models()) as hub, Folder() as here:
        here.good(hub, "model", "get", "org/small", "--to", "a", "--include", "*.json", "onnx/", "--exclude", "tok*")
        expect(here.names("a") == ["config.json", "onnx/model.onnx"], here.names("a"))
        here.good(hub, "model", "get", "org/small", "--to", "b", "--include", "pytorch_model.bin", "--revision", "v1/x")
        expect(here.names("b") == ["pytorch_model.bin"], here.names("b"))
        expect(any("/revision/v1%2Fx?" in path for path, _ in hub.requests), hub.requests)
        here.refused(2, "the revision `none`", hub, "model", "get", "org/small", "--revision", "none")
        here.refused(4, "leave no file", hub, "model", "get", "org/small", "--include", "*.gguf")
        here.refused(2, "is no name of a repository", hub, "model", "get", "../small")
        here.refused(2, "is no name of a repository", hub, "model", "get", "a/b/c")
        here.refused(2, "--revision", hub, "model", "get", "org/small", "--revision", "a/../b")
        hub.repositories["models/org/small"] = Repository({"pytorch_model.bin": b"x", "README.md": b"x"})
        err = here.refused(4, "no file that the engine reads as a model", hub, "model", "get", "org/small", "--to", "c")
        expect("pickle" in err and "--include" in err and not (here.path / "c").exists(), err)


def data_sets():
    with Hub({"datasets/org/rows": Repository(DATA)}) as hub, Folder() as here:
        here.good(hub, "data", "get", "org/rows", "--to", "rows")
        expect(here.names("rows") == sorted(n for n in DATA if n.startswith("data/")), here.names("rows"))
        here.holds("rows", DATA)
        expect(hub.requests[0][0].startswith("/api/datasets/org/rows/revision/main"), hub.requests[0])
        expect(all(path.startswith("/datasets/org/rows/resolve/") for path in hub.files_asked()), hub.files_asked())
        hub.repositories["models/org/small"] = Repository(MODEL)
        here.refused(2, "rows has data set org/rows in it", hub, "model", "get", "org/small", "--to", "rows")


def cut_connections():
    # Cut in the middle, again and again: each try goes on where the last one ended.
    with Hub(models()) as hub, Folder() as here:
        hub.rules.append(lambda handler, kind, path: path == "model.safetensors" and
                         (hub.send_file(handler, WEIGHTS, most=1_200_000), True)[1])
        _, err = here.good(hub, "model", "get", "org/small")
        here.holds("org/small", MODEL)
        ranges = [h.get("Range") for p, h in hub.requests if p.endswith("model.safetensors")]
        expect(ranges == [None, "bytes=1200000-", "bytes=2400000-"], ranges)
        expect(all("If-Range" in h for p, h in hub.requests if "Range" in h), hub.requests)
        expect("next try in" in err, err)


def resumes_after_a_signal():
    with Hub(models()) as hub, Folder() as here:
        def stall(handler, kind, path):
            if path != "model.safetensors" or "Range" in handler.headers:
                return False
            handler.send_response(200)
            handler.send_header("ETag", '"one"')
            handler.send_header("Content-Length", str(len(WEIGHTS)))
            handler.end_headers()
            handler.wfile.write(WEIGHTS[:1_000_000])
            handler.wfile.flush()
            time.sleep(100)
            return True
        hub.rules += [stall, lambda handler, kind, path: path == "model.safetensors" and
                      (hub.send_file(handler, WEIGHTS, etag='"one"'), True)[1]]
        child = here.start(hub, "model", "get", "org/small")
        part = here.path / "org/small/model.safetensors.engine-part"
        until(lambda: part.exists() and part.stat().st_size == 1_000_000)
        child.send_signal(signal.SIGINT)
        _, err = child.communicate(timeout=60)
        expect(child.returncode == 130 and "goes on from there" in err, child.returncode, err)
        expect(not (here.path / "org/small/model.safetensors").exists() and part.exists(), here.names("org/small"))
        out, _ = here.good(hub, "model", "get", "org/small", "--json")
        expect(json.loads(out)["bytes"] < 2_000_100, out)
        here.holds("org/small", MODEL)
        expect(hub.requests[-3][1].get("Range") == "bytes=1000000-" or
               any(h.get("Range") == "bytes=1000000-" and h.get("If-Range") == '"one"' for _, h in hub.requests), hub.requests)


def changed_files():
    # The ETag changes between two parts: the file begins again.
    with Hub(models()) as hub, Folder() as here:
        hub.rules.append(first_time(lambda handler, path: path == "model.safetensors" and
                                    (hub.send_file(handler, b"y" * 3_000_000, most=1_000_000, etag='"old"'), True)[1]))
        here.good(hub, "model", "get", "org/small")
        here.holds("org/small", MODEL)
    # A server without ETags: the hash finds it, and the file is downloaded anew.
    with Hub(models()) as hub, Folder() as here:
        hub.rules.append(first_time(lambda handler, path: path == "model.safetensors" and
                                    (hub.send_file(handler, b"y" * 3_000_000, most=1_000_000, etag="W/weak"), True)[1]))
        _, err = here.good(hub, "model", "get", "org/small")
        expect("it is downloaded anew" in err, err)
        here.holds("org/small", MODEL)
    # A new commit replaces what it changes; a file of somebody else is not replaced.
    with Hub(models()) as hub, Folder() as here:
        here.good(hub, "model", "get", "org/small")
        changed = {**MODEL, "config.json": b'{"model_type": "other"}', "model.safetensors": WEIGHTS[::-1]}
        del changed["tokenizer_config.json"]
        hub.repositories["models/org/small"] = Repository(changed, commit="b" * 40)
        _, err = here.good(hub, "model", "get", "org/small")
        expect("2 of 3 files" in err and "tokenizer_config.json" in err and "earlier commit" in err, err)
        (here.path / "org/small/tokenizer_config.json").unlink()
        here.holds("org/small", changed)
        (here.path / "org/small/config.json").write_text("my own")
        here.refused(2, "is not the file of the hub", hub, "model", "get", "org/small")
        expect((here.path / "org/small/config.json").read_text() == "my own")


def bare_listings():
    # A mirror that lists names alone: nothing can be compared, and parts are of one file only if the ETag says so.
    for etag, ranges in (('"strong"', [None, "bytes=1200000-", "bytes=2400000-"]), ("W/weak", [None] * 3)):
        with Hub(models()) as hub, Folder() as here:
            names = {"sha": COMMIT, "siblings": [{"rfilename": name} for name in MODEL]}
            hub.rules.append(lambda handler, kind, path: kind == "list" and
                             (hub.send(handler, 200, json.dumps(names).encode()), True)[1])
            sent = []

            def cut(handler, kind, path, etag=etag, sent=sent, hub=hub):
                if path != "model.safetensors":
                    return False
                sent.append(handler.headers.get("Range"))
                hub.send_file(handler, WEIGHTS, most=None if len(sent) == 3 else 1_200_000, etag=etag)
                return True
            hub.rules.append(cut)
            here.good(hub, "model", "get", "org/small")
            here.holds("org/small", MODEL)
            expect(sent == ranges, sent)
            _, err = here.good(hub, "model", "get", "org/small")
            expect("0 of 4 files" in err, err)


def wrong_content():
    for name, wrong in (("model.safetensors", b"z" * len(WEIGHTS)), ("config.json", b"z" * len(MODEL["config.json"]))):
        with Hub(models()) as hub, Folder() as here:
            hub.rules.append(lambda handler, kind, path: path == name and (hub.send_file(handler, wrong), True)[1])
            here.refused(4, "and the hub lists", hub, "model", "get", "org/small")
            expect(name not in here.names("org/small") and not any("part" in n for n in here.names("org/small")), name)
    # More bytes than listed, fewer bytes than listed.
    with Hub(models()) as hub, Folder() as here:
        hub.rules.append(lambda handler, kind, path: path == "config.json" and (hub.send_file(handler, b"z" * 5000), True)[1])
        here.refused(4, "sends more than the 23 bytes", hub, "model", "get", "org/small")
    with Hub(models()) as hub, Folder() as here:
        hub.rules.append(lambda handler, kind, path: path == "config.json" and (hub.send_file(handler, b"zz"), True)[1])
        here.refused(8, "given up after 5 tries", hub, "model", "get", "org/small", "--stall", "5")


def tokens():
    with Hub(models(), host="127.0.0.2") as cdn, Hub(models()) as hub, Folder() as here:
        def elsewhere(handler, kind, path):
            if path == "model.safetensors":
                hub.send(handler, 302, Location=cdn.address + handler.path)
            elif path == "config.json":  # and another one on the same host
                hub.send(handler, 307, Location=handler.path.replace("config.json", "tokenizer_config.json"))
            return path in ("model.safetensors", "config.json")
        files = {**MODEL, "tokenizer_config.json": MODEL["config.json"]}
        hub.repositories.update(models(files))
        hub.rules.append(elsewhere)
        here.good(hub, "model", "get", "org/small", HF_TOKEN="hf_secret")
        here.holds("org/small", files)
        expect(len(cdn.requests) == 1 and not any("hf_secret" in str(h) for _, h in cdn.requests), cdn.requests)
        expect(all(h.get("Authorization") == "Bearer hf_secret" for _, h in hub.requests), hub.requests)
        # The token of a file; none; one that is no token.
        (here.path / "home/.cache/huggingface").mkdir(parents=True)
        (here.path / "home/.cache/huggingface/token").write_text("hf_other\n")
        for more, sent in (({}, "Bearer hf_other"), ({"HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}, None)):
            del hub.requests[:]
            here.good(hub, "model", "get", "org/small", **more)
            expect(hub.requests[0][1].get("Authorization") == sent, hub.requests)
        here.refused(2, "holds no token", hub, "model", "get", "org/small", HF_TOKEN="hf_a\r\nHost: x")


def refusals():
    def status(code, **headers):
        return lambda handler, kind, path: (hub.send(handler, code, b"<html>", **headers), True)[1]

    with Hub(models()) as hub, Folder() as here:
        get = ("model", "get", "org/small", "--stall", "5")
        err = here.refused(3, "only with a token, or has none of this name", hub, "model", "get", "org/none")
        expect("set HF_TOKEN" in err and "Invalid username" in err, err)
        hub.rules[:] = [status(401)]
        here.refused(3, "does not accept the token", hub, *get, HF_TOKEN="hf_x")
        hub.rules[:] = [status(403, X_Error_Code="GatedRepo", X_Error_Message="Access is restricted\x1b[31m")]
        err = here.refused(3, "refuses model org/small", hub, *get, HF_TOKEN="hf_x")
        expect("accept its licence on " + hub.address + "/org/small" in err and "\x1b" not in err, err)
        hub.rules[:] = [status(404)]
        here.refused(2, "has no model org/small", hub, *get)
        hub.rules[:] = [status(418)]
        here.refused(8, "HTTP 418", hub, *get)
        hub.rules[:] = [status(429, Retry_After="100000")]
        err = here.refused(8, "asks to wait for 27h47m", hub, *get)
        expect("HF_TOKEN" in err and "goes on where it stopped" in err, err)
        hub.rules[:] = [status(429, Retry_After=email.utils.formatdate(time.time() + 7200, usegmt=True))]
        err = here.refused(8, "asks to wait for ", hub, *get)
        expect(re.search(r"wait for (2h00m|1h59m|120m|119m)", err), err)
        before = len(hub.requests)
        hub.rules[:] = [status(503)]
        here.refused(8, "given up after 5 tries", hub, *get)
        expect(len(hub.requests) == before + 5, len(hub.requests))
        # Once "later", then well: the wait is that of the server.
        told = []

        def once(handler, kind, path):
            told.append(time.monotonic())
            return len(told) == 1 and status(429, Retry_After="2")(handler, kind, path)
        hub.rules[:] = [once]
        here.good(hub, *get)
        expect(told[1] - told[0] >= 2, told)
        hub.rules[:] = [lambda handler, kind, path: (hub.send(handler, 302, Location=handler.path), True)[1]]
        here.refused(8, "more than 10 times", hub, *get)
        for address in ("file:///etc/passwd", "ftp://127.0.0.1/x", "http://user:pass@127.0.0.1/"):
            hub.rules[:] = [lambda handler, kind, path, to=address: (hub.send(handler, 302, Location=to), True)[1]]
            here.refused(8, "is no address", hub, *get)
        for text in (b"<html>", b"[]", b'{"sha": "main", "siblings": []}', b'{"sha": "%s"}' % (b"a" * 40), b"[" * 100000):
            hub.rules[:] = [lambda handler, kind, path, text=text: (hub.send(handler, 200, text), True)[1]]
            here.refused(4, "does not answer as a hub", hub, *get)
        here.refused(2, "HF_HUB_OFFLINE", hub, *get, HF_HUB_OFFLINE="1")
        here.refused(2, "HF_ENDPOINT", hub, *get, HF_ENDPOINT="ftp://x")
        # A port on which nobody listens.
        hub.rules[:] = []
        here.refused(8, "given up after 5 tries", hub, *get, HF_ENDPOINT="http://127.0.0.1:1")


def stalled():
    with Hub(models()) as hub, Folder() as here:
        def stall(handler, path):
            if path != "config.json":
                return False
            handler.send_response(200)
            handler.send_header("Content-Length", "23")
            handler.end_headers()
            handler.wfile.flush()
            time.sleep(100)
            return True
        hub.rules.append(first_time(stall))
        begin = time.monotonic()
        _, err = here.good(hub, "model", "get", "org/small", "--stall", "3")
        expect("next try in" in err and 3 <= time.monotonic() - begin < 60, err)
        here.holds("org/small", MODEL)


def terminal():
    # A terminal shows progress, and the line is gone at the end.
    with Hub(models()) as hub, Folder() as here:
        ours, its = pty.openpty()
        child = subprocess.Popen([ENGINE, "model", "get", "org/small"], cwd=here.path, stdin=subprocess.DEVNULL, stderr=its,
                                 stdout=subprocess.DEVNULL, env=here.environment(hub, {"TERM": "xterm"}))
        os.close(its)
        shown = b""
        try:
            while piece := os.read(ours, 65536):
                shown += piece
        except OSError:  # the other end is closed
            pass
        os.close(ours)
        expect(child.wait(timeout=60) == 0 and b" of 2.9MiB  file 1 of 4" in shown, shown)
        expect(b"\r\x1b[Korg/small at commit" in shown, shown)


def hostile_names():
    for name in ("../x.safetensors", "a/../../x.safetensors", "/tmp/x.safetensors", "a//x.safetensors", "a\nb.safetensors",
                 "\x1b[31m.safetensors", "a\\..\\x.safetensors", "./x.safetensors", "x" * 300 + ".safetensors", RECORD,
                 "model.safetensors.engine-part", "..", ""):
        with Hub(models({"config.json": b"{}", name: b"x"})) as hub, Folder() as here:
            err = here.refused(4, "nothing is downloaded", hub, "model", "get", "org/small", "--include", "*")
            expect("\x1b" not in err and not hub.files_asked() and not (here.path / "org").exists(), name, err)
            here.good(hub, "model", "get", "org/small", "--include", "*", "--exclude", "[!c]*") if name else None
    # Listed twice; a folder that is a file; links in the folder.
    with Hub(models()) as hub, Folder() as here:
        twice = Repository(MODEL).listing()
        twice["siblings"] *= 2
        hub.rules.append(lambda handler, kind, path: kind == "list" and (hub.send(handler, 200, json.dumps(twice).encode()), True)[1])
        here.refused(4, "listed twice", hub, "model", "get", "org/small")
        for key, value in (("size", 1 << 60), ("size", -1), ("size", 1.5), ("lfs", {"sha256": "zz"})):
            one = Repository(MODEL).listing()
            one["siblings"][3][key] = value
            hub.rules[:] = [lambda handler, kind, path: kind == "list" and (hub.send(handler, 200, json.dumps(one).encode()), True)[1]]
            here.refused(4, "model.safetensors", hub, "model", "get", "org/small")
        one = Repository(MODEL).listing()
        one["siblings"][3]["size"] = one["siblings"][3]["lfs"]["size"] = 1 << 49
        here.refused(10, "more, and ", hub, "model", "get", "org/small")
        expect(not hub.files_asked(), hub.files_asked())
        hub.rules[:] = []
        outside = here.path / "outside"
        outside.mkdir()
        (here.path / "links").mkdir()
        (here.path / "links/onnx").symlink_to(outside)
        here.refused(10, "is a symbolic link", hub, "model", "get", "org/small", "--to", "links", "--include", "onnx/*")
        (here.path / "links/config.json").symlink_to(outside / "config.json")
        here.refused(10, "is no regular file", hub, "model", "get", "org/small", "--to", "links", "--include", "config.json")
        (here.path / "links/tokenizer.json.engine-part").symlink_to(outside / "tokenizer.json")
        here.good(hub, "model", "get", "org/small", "--to", "links", "--include", "tokenizer.json")
        expect(not any(outside.iterdir()), list(outside.iterdir()))


def other_folders():
    with Hub(models()) as hub, Folder() as here:
        go_on = threading.Event()

        def slow(handler, kind, path):
            if path == "config.json":
                go_on.wait(60)
            return False
        hub.rules.append(slow)
        child = here.start(hub, "model", "get", "org/small")
        until(lambda: any(p.endswith("/config.json") for p, _ in hub.requests))
        here.refused(2, "another `engine model get`", hub, "model", "get", "org/small")
        go_on.set()
        expect(child.communicate(timeout=60)[1] and child.returncode == 0)
        (here.path / "org/small" / RECORD).write_text("{")
        here.refused(10, "is no record of downloads", hub, "model", "get", "org/small")
        # No run downloads: a name of a hub is an error that tells the command.
        (here.path / "c.toml").write_text('[model]\nfrom = "org/else"\n[data]\npaths = ["c.toml"]\n')
        del hub.requests[:]
        (here.path / "org").rename(here.path / "away")
        here.refused(2, "engine model get org/else\n", hub, "check", "c.toml")
        expect(not hub.requests, hub.requests)


def without_curl():
    with Folder() as here:
        here.refused(3, "built without libcurl", None, "model", "get", "org/small")


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        expect(time.monotonic() < end, "nothing happens")
        time.sleep(0.05)


CASES = [whole_model, globs_and_revisions, data_sets, cut_connections, resumes_after_a_signal, changed_files, bare_listings, wrong_content, tokens,
         refusals, stalled, terminal, hostile_names, other_folders]


def main():
    if "--without-curl" in sys.argv:
        return without_curl()
    chosen = sys.argv[2:]
    for case in CASES:
        if not chosen or case.__name__ in chosen:
            begin = time.monotonic()
            case()
            print(f"{case.__name__}: {time.monotonic() - begin:.1f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
