# SPDX-License-Identifier: Apache-2.0
"""A hub on the loopback interface: lists repositories and sends files as huggingface.co does, and fails as it is told."""
import hashlib
import http.server
import json
import re
import threading
import urllib.parse

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


class Hub:
    """Serves repositories {"models/org/name": Repository, "datasets/org/name": ...} until the end of a `with`.

    `requests`: (method and path, headers) of each request. `rules`: functions that see (handler, kind, path) before the hub
    answers, and return True if they have answered. `kind` is "list" or "file"."""

    def __init__(self, repositories, host="127.0.0.1"):
        self.repositories, self.requests, self.rules, self.lock = repositories, [], [], threading.Lock()
        hub = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def do_GET(self):
                with hub.lock:
                    hub.requests.append((self.path, dict(self.headers.items())))
                try:
                    hub.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True

        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://{host}:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    def files_asked(self):
        return [path for path, _ in self.requests if "/resolve/" in path]

    def send(self, handler, status, body=b"", **headers):
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body)

    def answer(self, handler):
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
        body = data[first:]
        handler.send_response(206 if wanted else 200)
        handler.send_header("ETag", etag)
        if wanted:
            handler.send_header("Content-Range", f"bytes {first}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if most is None else body[:most])
        if most is not None:
            handler.close_connection = True
        return None
