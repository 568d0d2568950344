"""An HTTPS server that takes checkpoints: a webhook with a bearer token, and an object store that verifies AWS Signature Version 4
by its own reading of the specification. Arguments: certificate, key, directory, bearer token, access key, secret."""

import hashlib
import hmac
import http.server
import pathlib
import ssl
import sys
import urllib.parse

CERTIFICATE, KEY, DIRECTORY, TOKEN, ACCESS, SECRET = sys.argv[1:]
PLACE = pathlib.Path(DIRECTORY)


def tag(key, text):
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def is_signed(request, body):
    scheme, _, rest = request.headers.get("authorization", "").partition(" ")
    if scheme != "AWS4-HMAC-SHA256":
        return False
    parts = dict(part.strip().split("=", 1) for part in rest.split(","))
    access, day, region, service, end = parts["Credential"].split("/")
    names = parts["SignedHeaders"].split(";")
    date = request.headers["x-amz-date"]
    digest = hashlib.sha256(body).hexdigest()
    required = {"host", "x-amz-date", "x-amz-content-sha256"}
    if access != ACCESS or end != "aws4_request" or service != "s3" or not date.startswith(day):
        return False
    if names != sorted(names) or not required <= set(names) or request.headers["x-amz-content-sha256"] != digest:
        return False
    path, _, query = request.path.partition("?")
    canonical = "\n".join(
        [request.command, urllib.parse.quote(urllib.parse.unquote(path)), query]
        + [f"{name}:{' '.join(request.headers[name].split())}" for name in names]
        + ["", ";".join(names), digest]
    )
    hashed = hashlib.sha256(canonical.encode()).hexdigest()
    key = ("AWS4" + SECRET).encode()
    for word in (day, region, "s3", "aws4_request"):
        key = tag(key, word)
    text = "\n".join(["AWS4-HMAC-SHA256", date, f"{day}/{region}/s3/aws4_request", hashed])
    return hmac.compare_digest(tag(key, text).hex(), parts["Signature"])


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, text=""):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def body(self):
        return self.rfile.read(int(self.headers["content-length"]))

    def do_POST(self):
        body = self.body()
        if self.headers.get("authorization") != f"Bearer {TOKEN}":
            return self.answer(401)
        (PLACE / "posted.json").write_bytes(body)
        return self.answer(204)

    def do_PUT(self):
        body = self.body()
        if not is_signed(self, body):
            return self.answer(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>")
        name = self.path.strip("/").replace("/", "_")
        (PLACE / name).write_bytes(body)
        return self.answer(200)

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain(CERTIFICATE, KEY)
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], flush=True)
server.serve_forever()
