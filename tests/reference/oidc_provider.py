"""A tiny OpenID Connect provider on 127.0.0.1: real HTTP, real signatures, and it can be told to lie."""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa


@cache
def key(name: str) -> rsa.RSAPrivateKey:
    """The same key for the same name: making one takes longer than a test."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """`person` is who signs in there; `lies` changes what it says."""

    def __init__(self) -> None:
        self.key, self.other = key("first"), key("other")
        self.kid = "first"
        self.client_id, self.secret = "fedforget", "provider-secret"
        self.person: dict[str, Any] = {"sub": "42", "preferred_username": "Petra"}
        self.lies: dict[str, Any] = {}
        self.codes: dict[str, dict[str, str]] = {}
        self.url = ""
        self.asked: list[str] = []

    def about(self) -> dict[str, Any]:
        return {
            "issuer": self.lies.get("about_issuer", self.url), "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/keys",
        }  # fmt: skip

    def keys(self) -> dict[str, Any]:
        public = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**public, "kid": self.kid, "use": "sig", "alg": "RS256"}]}

    def authorize(self, query: dict[str, str]) -> str:
        """Where the browser goes next: everybody is let in at once."""
        if self.lies.get("refuse"):
            return f"{query['redirect_uri']}?{urlencode({'error': 'access_denied', 'state': query['state']})}"
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        said = {"code": code, "state": self.lies.get("state", query["state"])}
        if "iss" in self.lies:
            said["iss"] = self.lies["iss"]
        return f"{query['redirect_uri']}?{urlencode(said)}"

    def token(self, form: dict[str, str], authorization: str) -> dict[str, Any] | None:
        """An ID token for a code: once, for the client that asked, with the right verifier."""
        asked = self.codes.pop(form.get("code", ""), None)
        expected = "Basic " + base64.b64encode(f"{self.client_id}:{self.secret}".encode()).decode()
        if asked is None or authorization != expected or form["redirect_uri"] != asked["redirect_uri"]:
            return None
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != asked["code_challenge"]:
            return None
        return {"access_token": "x", "token_type": "Bearer", "id_token": self.id_token(asked["nonce"])}

    def id_token(self, nonce: str) -> str:
        now = int(time.time())
        claims = {"iss": self.url, "aud": self.client_id, "iat": now, "exp": now + 300, "nonce": nonce, **self.person}
        claims |= self.lies.get("claims", {})
        claims = {name: value for name, value in claims.items() if value is not None}
        if self.lies.get("unsigned"):
            return jwt.encode(claims, None, algorithm="none")
        if self.lies.get("shared_secret"):
            return jwt.encode(claims, "x" * 40, algorithm="HS256", headers={"kid": self.kid})
        key = self.other if self.lies.get("other_key") else self.key
        token = jwt.encode(claims, key, algorithm="RS256", headers={"kid": self.lies.get("kid", self.kid)})
        if self.lies.get("tampered"):
            head, body, signature = token.split(".")
            said = json.loads(base64.urlsafe_b64decode(body + "=="))
            body = base64.urlsafe_b64encode(json.dumps({**said, "sub": "1"}).encode()).rstrip(b"=").decode()
            token = f"{head}.{body}.{signature}"
        return token


@contextmanager
def oidc_provider() -> Iterator[Provider]:
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            provider.asked.append(parts.path)
            if parts.path == "/.well-known/openid-configuration":
                self._json(provider.about())
            elif parts.path == "/keys":
                self._json(provider.keys())
            elif parts.path == "/authorize":
                query = {name: values[0] for name, values in parse_qs(parts.query).items()}
                self.send_response(302)
                self.send_header("location", provider.authorize(query))
                self.end_headers()
            else:
                self.send_error(404)

        def do_POST(self) -> None:
            data = self.rfile.read(int(self.headers["content-length"])).decode()
            form = {name: values[0] for name, values in parse_qs(data).items()}
            found = provider.token(form, self.headers.get("authorization", ""))
            self._json(found or {"error": "invalid_grant"}, 200 if found else 400)

        def _json(self, values: dict[str, Any], status: int = 200) -> None:
            body = json.dumps(values).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
