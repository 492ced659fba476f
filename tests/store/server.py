# SPDX-License-Identifier: Apache-2.0
"""A store on the loopback interface that speaks S3 as far as the engine needs it, checks every signature (version 4) by itself,
and fails as it is told."""
import hashlib
import hmac
import pathlib
import sys
import urllib.parse
from xml.sax.saxutils import escape

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "hub"))
from loopback import Loopback  # noqa: E402

KEY, SECRET, TOKEN, REGION = "AKIDTEST", "secret/+key", "session+token/=", "eu-test-1"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def expected_signature(method, path, query, headers, names, payload, date, region, secret):
    """As Amazon's documentation of "Authenticating Requests: Using the Authorization Header" describes it."""
    pairs = sorted((urllib.parse.quote(k, safe="-_.~"), urllib.parse.quote(v, safe="-_.~"))
                   for k, v in urllib.parse.parse_qsl(query, keep_blank_values=True))
    canonical = "\n".join([
        method, urllib.parse.quote(urllib.parse.unquote(path), safe="/-_.~"), "&".join(f"{k}={v}" for k, v in pairs),
        "".join(f"{name}:{' '.join(headers[name].split())}\n" for name in names), ";".join(names), payload])
    scope = f"{date[:8]}/{region}/s3/aws4_request"
    text = "\n".join(["AWS4-HMAC-SHA256", date, scope, sha256(canonical.encode())])
    key = ("AWS4" + secret).encode()
    for part in (date[:8], region, "s3", "aws4_request"):
        key = hmac.new(key, part.encode(), hashlib.sha256).digest()
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()


class Store(Loopback):
    """`objects`: {key: bytes} of the one bucket. `requests`: (method, key, query as a dict) of each request that was signed
    rightly. `rules`: functions that see (handler, method, key, query, body) before the store answers, and return True if they have."""

    def __init__(self, bucket="copies", page=1000):
        super().__init__()
        self.bucket, self.page, self.objects, self.uploads, self.requests, self.rules = bucket, page, {}, {}, [], []
        self.etags, self.bad, self.number = {}, [], 0

    def environment(self, **more):
        return {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": TOKEN, "AWS_REGION": REGION,
                "AWS_ENDPOINT_URL": self.address, **more}

    def error(self, handler, status, code, message="", **headers):
        self.send(handler, status, f"<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error>".encode(),
                  **headers)
        return True

    def refusal(self, handler, path, query, body):
        """(status, code, message) if a request is not signed rightly."""
        headers = {name.lower(): value for name, value in handler.headers.items()}
        words = dict(word.strip().split("=", 1) for word in headers.get("authorization", "").partition(" ")[2].split(",") if word)
        if set(words) != {"Credential", "SignedHeaders", "Signature"}:
            return 403, "AccessDenied", "no signature"
        key, _, scope = words["Credential"].partition("/")
        names, date = words["SignedHeaders"].split(";"), headers.get("x-amz-date", "")
        if key != KEY:
            return 403, "InvalidAccessKeyId", "there is no such key"
        if scope != f"{date[:8]}/{REGION}/s3/aws4_request":
            return 400, "AuthorizationHeaderMalformed", f"the region is wrong; expecting '{REGION}'"
        if headers.get("x-amz-security-token") != TOKEN:
            return 403, "InvalidToken", "the session token is wrong"
        if names != sorted(names) or not {"host", "x-amz-date", "x-amz-content-sha256", "x-amz-security-token"} <= set(names):
            return 403, "AccessDenied", "headers are not signed"
        payload = headers["x-amz-content-sha256"]
        if payload != sha256(body):
            return 400, "XAmzContentSHA256Mismatch", "the body is another one"
        good = expected_signature(handler.command, path, query, headers, names, payload, date, REGION, SECRET)
        return None if hmac.compare_digest(good, words["Signature"]) else (403, "SignatureDoesNotMatch", "calculate it again")

    def answer(self, handler):
        path, _, query_text = handler.path.partition("?")
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        refused = self.refusal(handler, path, query_text, body)
        if refused:
            self.bad.append((handler.command, handler.path, refused))
            return self.error(handler, *refused)
        query = dict(urllib.parse.parse_qsl(query_text, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(path).lstrip("/").partition("/")
        with self.lock:
            self.requests.append((handler.command, key, query))
        for rule in list(self.rules):
            if rule(handler, handler.command, key, query, body):
                return True
        if bucket != self.bucket:
            return self.error(handler, 404, "NoSuchBucket", "there is no such bucket")
        with self.lock:
            return getattr(self, "do_" + handler.command)(handler, key, query, body)

    def do_GET(self, handler, key, query, _):
        if key and "uploadId" in query:
            parts = self.uploads[query["uploadId"]][1]
            rows = "".join(f"<Part><PartNumber>{n}</PartNumber><Size>{len(data)}</Size><ETag>&quot;{hashlib.md5(data).hexdigest()}&quot;"
                           "</ETag></Part>" for n, data in sorted(parts.items()))
            return self.xml(handler, "ListPartsResult", rows + "<IsTruncated>false</IsTruncated>")
        if key:
            if key not in self.objects:
                return self.error(handler, 404, "NoSuchKey", "there is no such key")
            data, wanted = self.objects[key], handler.headers.get("Range")
            if not wanted:
                return self.send(handler, 200, data, ETag=f'"{self.etags[key]}"')
            first = int(wanted[len("bytes="):-1])
            return self.send(handler, 206, data[first:], ETag=f'"{self.etags[key]}"',
                             Content_Range=f"bytes {first}-{len(data) - 1}/{len(data)}")
        if "uploads" in query:
            rows = "".join(f"<Upload><Key>{escape(name)}</Key><UploadId>{upload}</UploadId></Upload>"
                           for upload, (name, _) in sorted(self.uploads.items()) if name.startswith(query["prefix"]))
            return self.xml(handler, "ListMultipartUploadsResult", rows + "<IsTruncated>false</IsTruncated>")
        after = query.get("continuation-token", "")
        names = [name for name in sorted(self.objects) if name.startswith(query["prefix"]) and name > after]
        rows = "".join(f"<Contents><Key>{escape(name)}</Key><Size>{len(self.objects[name])}</Size><ETag>&quot;{self.etags[name]}&quot;"
                       "</ETag></Contents>" for name in names[:self.page])
        more = len(names) > self.page
        return self.xml(handler, "ListBucketResult", rows + f"<IsTruncated>{str(more).lower()}</IsTruncated>" +
                        (f"<NextContinuationToken>{escape(names[self.page - 1])}</NextContinuationToken>" if more else ""))

    def xml(self, handler, name, body):
        self.send(handler, 200, f'<?xml version="1.0" encoding="UTF-8"?>\n<{name} xmlns="http://s3.amazonaws.com/doc/2006-03-01/">{body}</{name}>'
                  .encode(), Content_Type="application/xml")
        return True

    def do_PUT(self, handler, key, query, body):
        etag = hashlib.md5(body).hexdigest()
        if "uploadId" in query:
            self.uploads[query["uploadId"]][1][int(query["partNumber"])] = body
        else:
            self.objects[key], self.etags[key] = body, etag
        self.send(handler, 200, ETag=f'"{etag}"')

    def do_POST(self, handler, key, query, body):
        if "uploads" in query:
            self.number += 1
            self.uploads[f"upload-{self.number}"] = (key, {})
            return self.xml(handler, "InitiateMultipartUploadResult", f"<UploadId>upload-{self.number}</UploadId>")
        if query["uploadId"] not in self.uploads:
            return self.error(handler, 404, "NoSuchUpload", "there is no such upload")
        parts = self.uploads[query["uploadId"]][1]
        etags = [hashlib.md5(parts[n]).hexdigest() for n in sorted(parts)]
        asked = body.decode().replace("&quot;", "").replace('"', "")
        wanted = "".join(f"<Part><PartNumber>{n}</PartNumber><ETag>{e}</ETag></Part>" for n, e in zip(sorted(parts), etags))
        if asked != f"<CompleteMultipartUpload>{wanted}</CompleteMultipartUpload>" or any(
                len(parts[n]) < 5 << 20 for n in sorted(parts)[:-1]):
            return self.error(handler, 400, "InvalidPart", "parts are missing, or are too small")
        self.objects[key] = b"".join(parts[n] for n in sorted(parts))
        self.etags[key] = hashlib.md5(b"".join(bytes.fromhex(e) for e in etags)).hexdigest() + f"-{len(etags)}"
        del self.uploads[query["uploadId"]]
        return self.xml(handler, "CompleteMultipartUploadResult", f"<ETag>&quot;{self.etags[key]}&quot;</ETag>")

    def do_DELETE(self, handler, key, query, _):
        if "uploadId" in query:
            self.uploads.pop(query["uploadId"], None)
        else:
            self.objects.pop(key, None)
        self.send(handler, 204)
