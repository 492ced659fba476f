# SPDX-License-Identifier: Apache-2.0
"""A server of HTTP on the loopback interface, for tests: what it answers, a class that derives from it says."""
import http.server
import threading


class Loopback:
    """Serves until the end of a `with`. `answer(handler)`, of the derived class, answers one request of any method."""

    def __init__(self, host="127.0.0.1"):
        serving = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *words):
                pass

            def handle_request_of_any_method(self):
                try:
                    serving.answer(self)
                except (BrokenPipeError, ConnectionResetError):
                    self.close_connection = True
            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = handle_request_of_any_method

        self.lock = threading.Lock()
        self.server = http.server.ThreadingHTTPServer((host, 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://{host}:{self.server.server_port}"

    def __enter__(self):
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_):
        self.server.shutdown()
        self.server.server_close()

    @staticmethod
    def send(handler, status, body=b"", most=None, **headers):
        """`most`: the connection is cut after so many bytes of the body."""
        handler.send_response(status)
        for name, value in headers.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        handler.wfile.write(body if most is None else body[:most])
        if most is not None:
            handler.close_connection = True
