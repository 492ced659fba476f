# SPDX-License-Identifier: Apache-2.0
"""A hub on the loopback interface: lists repositories and sends files as huggingface.co does, and fails as it is told."""
import hashlib
import json
import re
import urllib.parse

from loopback import Loopback

COMMIT = "a" * 40


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class Repository:
    """The files of a repository at one commit. Those of more than 1,000 bytes are in LFS."""

    def __init__(self, files, commit=COMMIT):
        self.files, self.commit = dict(files), commit

    def listing(self):
        siblings = []
        for path, data in self.files.items():
            one = {"rfilename": path, "blobId": git_sha1(data), "size": len(data)}
            if len(data) > 1000:
                one["blobId"] = git_sha1(b"pointer")
                one["lfs"] = {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            siblings.append(one)
        return {"id": "x/y", "sha": self.commit, "siblings": siblings}


class Hub(Loopback):
    """Serves repositories {"models/org/name": Repository, "datasets/org/name": ...} until the end of a `with`.

    `requests`: (method and path, headers) of each request. `rules`: functions that see (handler, kind, path) before the hub
    answers, and return True if they have answered. `kind` is "list" or "file"."""

    def __init__(self, repositories, host="127.0.0.1"):
        super().__init__(host)
        self.repositories, self.requests, self.rules = repositories, [], []

    def files_asked(self):
        return [path for path, _ in self.requests if "/resolve/" in path]

    def answer(self, handler):
        with self.lock:
            self.requests.append((handler.path, dict(handler.headers.items())))
        url = urllib.parse.urlsplit(handler.path)
        listed = re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/revision/([^/]+)", url.path)
        file = re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", url.path)
        path = urllib.parse.unquote(file[4]) if file else ""
        for rule in self.rules:
            if rule(handler, "list" if listed else "file", path):
                return
        if listed:
            found = self.repositories.get(f"{listed[1]}/{listed[2]}")
            if found is None:
                self.send(handler, 401, b"{}", X_Error_Message="Invalid username or password.")
            elif urllib.parse.unquote(listed[3]) not in ("main", "v1/x", found.commit):
                self.send(handler, 404, b"{}", X_Error_Code="RevisionNotFound")
            else:
                self.send(handler, 200, json.dumps(found.listing()).encode())
        elif file and (found := self.repositories.get(f"{'datasets' if file[1] else 'models'}/{file[2]}")):
            if file[3] != found.commit or path not in found.files:
                self.send(handler, 404, b"Entry not found", X_Error_Code="EntryNotFound")
            else:
                self.send_file(handler, found.files[path])
        else:
            self.send(handler, 404, b"nothing")

    def send_file(self, handler, data, most=None, etag=None):
        """The file, or the range that is asked for. `most`: the connection is cut after so many bytes."""
        etag = etag or f'"{hashlib.md5(data).hexdigest()}"'
        wanted = re.fullmatch(r"bytes=(\d+)-", handler.headers.get("Range", ""))
        if wanted and handler.headers.get("If-Range", etag) != etag:
            wanted = None
        first = int(wanted[1]) if wanted else 0
        if wanted and first >= len(data):
            return self.send(handler, 416, Content_Range=f"bytes */{len(data)}")
        more = {"Content_Range": f"bytes {first}-{len(data) - 1}/{len(data)}"} if wanted else {}
        return self.send(handler, 206 if wanted else 200, data[first:], most, ETag=etag, **more)
