"""Signing in at an OpenID Connect provider: authorization code with PKCE, state and nonce.

What the browser carries between the two steps lies in a cookie of its own, so nothing is remembered here. The ID token
is believed only with a signature by one of the provider's keys, for us, now, and with our nonce."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import math
import secrets
import ssl
import time
from collections.abc import Mapping
from functools import cache, partial
from typing import Annotated, Any
from urllib.parse import urlencode

import httpx
import jwt
from fastapi.requests import Request
from starlette.responses import RedirectResponse, Response

from fedforget.console.permissions import Permission
from fedforget.console.security import drop_cookie, set_cookie
from fedforget.console.settings import OidcSettings
from fedforget.console.sign_in import check_attempts, let_in, local_address
from fedforget.console.visitors import Visitor, allow, guarded_router, refuse
from fedforget.errors import InputError
from fedforget.ledger.accounts import Person
from fedforget.ledger.book import Ledger
from fedforget.ledger.core import SYSTEM
from fedforget.ledger.errors import MissingError
from fedforget.ledger.states import Role

router = guarded_router(include_in_schema=False)
Stranger = Annotated[Visitor, allow(Permission.OPEN_TO_ALL)]
COOKIE = "-oidc"
COOKIE_SECONDS = 600
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Signatures by a private key alone: never "none", never a shared secret."""
KEPT_SECONDS = 3600.0
LEEWAY_SECONDS = 60
FETCH_SECONDS = 5.0
"""For one fetch from the provider, name resolution and all."""
FAILURE_SECONDS = 5.0
"""So long after a fetch that failed nobody tries it again: who comes then hears it at once."""
MOST_EXCHANGES = 8
"""Codes exchanged at once. Each is a connection of its own, and whoever comes back with a code starts one."""


class OidcError(Exception):
    """The provider, or what came back from it, is not to be believed; why, in a few words for the ledger."""


class Provider:
    """What a provider publishes about itself, fetched when needed and kept for an hour.

    It may hang, and must hold up nobody else then: every fetch is awaited in the event loop, never blocks it, and has
    `FETCH_SECONDS`. What it publishes is fetched once for all who wait, and a failure is theirs together."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._kept: dict[str, tuple[float, dict[str, Any] | OidcError]] = {}
        self._lock = asyncio.Lock()
        self._exchanges = 0

    async def about(self) -> dict[str, Any]:
        found = await self._get(f"{self.settings.issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != self.settings.issuer:
            raise OidcError("the provider names another issuer")
        return found

    async def keys(self, *, fresh: bool = False) -> jwt.PyJWKSet:
        about = await self.about()
        try:
            return jwt.PyJWKSet.from_dict(await self._get(str(about["jwks_uri"]), fresh=fresh))
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            raise OidcError("the provider publishes no keys") from None

    async def _get(self, address: str, *, fresh: bool = False) -> dict[str, Any]:
        async with self._lock:
            then, found = self._kept.get(address, (-math.inf, {}))
            age = time.monotonic() - then
            if isinstance(found, OidcError) and age < FAILURE_SECONDS:
                raise OidcError(str(found))
            if isinstance(found, dict) and age < (10.0 if fresh else KEPT_SECONDS):
                return found
            try:
                answer = await _json("GET", address)
            except OidcError as error:
                self._kept[address] = (time.monotonic(), error)
                raise
            self._kept[address] = (time.monotonic(), answer)
            return answer

    async def exchange(self, code: str, verifier: str, redirect: str) -> str:
        """The ID token for a code."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        secret, client_id = self.settings.client_secret, self.settings.client_id
        sign = None if secret is None else httpx.BasicAuth(client_id, secret)
        if sign is None:
            form["client_id"] = client_id
        address = str((await self.about()).get("token_endpoint"))
        if self._exchanges >= MOST_EXCHANGES:
            raise OidcError("too many wait for the provider")
        self._exchanges += 1
        try:
            found = await _json("POST", address, data=form, auth=sign)
        finally:
            self._exchanges -= 1
        token = found.get("id_token")
        if not isinstance(token, str):
            raise OidcError("the provider sent no ID token")
        return token

    async def claims(self, token: str, nonce: str) -> dict[str, Any]:
        """What the token says, if the provider said it, to us, now, and in answer to our own question."""
        try:
            head = jwt.get_unverified_header(token)
            if head.get("alg") not in ALGORITHMS:
                raise OidcError("the ID token has no signature that counts")
            claims: dict[str, Any] = jwt.decode(
                token, await self._key(head.get("kid")), algorithms=[head["alg"]], audience=self.settings.client_id,
                issuer=[self.settings.issuer, self.settings.issuer + "/"], leeway=LEEWAY_SECONDS,
                options={"require": ["exp", "iat", "iss", "aud", "sub"]},
            )  # fmt: skip
        except jwt.PyJWTError as error:
            raise OidcError(f"the ID token is not genuine ({type(error).__name__})") from None
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
            raise OidcError("the ID token answers another question (nonce)")
        if isinstance(claims["aud"], list) and len(claims["aud"]) > 1 and claims.get("azp") != self.settings.client_id:
            raise OidcError("the ID token is for somebody else")
        return claims

    async def _key(self, kid: str | None) -> Any:
        """The key of this name; a provider that changed its keys is asked again."""
        for fresh in (False, True):
            for key in (await self.keys(fresh=fresh)).keys:
                if kid is None or key.key_id == kid:
                    return key.key
        raise OidcError("the ID token was signed with a key that the provider does not publish")


async def _json(method: str, address: str, **more: Any) -> dict[str, Any]:
    """The whole of an answer in `FETCH_SECONDS`, however slowly its bytes come."""
    try:
        async with asyncio.timeout(FETCH_SECONDS), httpx.AsyncClient(verify=_authorities(), timeout=None) as client:
            answer = await client.request(method, address, headers={"accept": "application/json"}, **more)
        answer.raise_for_status()
        found = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError, ValueError) as error:
        raise OidcError(f"the provider does not answer as it should ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise OidcError("the provider does not answer as it should")
    return found


@cache
def _authorities() -> ssl.SSLContext:
    """Whose certificates count. Reading them takes longer than a page: once, not for every fetch."""
    return httpx.create_ssl_context()


def provider_of(visitor: Visitor) -> Provider:
    provider = visitor.console.provider
    if provider is None:
        raise MissingError("There is nothing here.")
    return provider


@router.get("/oidc/start")
async def start(visitor: Stranger, request: Request, next: str = "/") -> Response:
    """Off to the provider."""
    provider = provider_of(visitor)
    check_attempts(visitor, request)
    trip = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")} | {"next": local_address(next)}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(trip["verifier"].encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code", "client_id": provider.settings.client_id, "redirect_uri": redirect_address(visitor),
        "scope": provider.settings.scope, "state": trip["state"], "nonce": trip["nonce"],
        "code_challenge": challenge, "code_challenge_method": "S256",
    }  # fmt: skip
    try:
        address = str((await provider.about())["authorization_endpoint"])
    except (OidcError, KeyError):
        raise InputError("The sign-in provider does not answer; try again later, or sign in another way.") from None
    response = RedirectResponse(f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", 303)
    packed = base64.urlsafe_b64encode(json.dumps(trip).encode()).decode()
    set_cookie(response, visitor.console.settings, packed, seconds=COOKIE_SECONDS, part=COOKIE)
    return response


def redirect_address(visitor: Visitor) -> str:
    return f"{visitor.console.settings.url.rstrip('/')}/oidc/back"


@router.get("/oidc/back")
async def back(visitor: Stranger, request: Request) -> Response:
    """Back from the provider, with a code or an error."""
    provider = provider_of(visitor)
    try:
        trip = _trip(request.cookies.get(visitor.console.settings.cookie + COOKIE))
        claims = await _arrive(visitor, provider, trip, request.query_params)
        person = await visitor.console.write(partial(person_of, visitor.ledger, provider.settings, claims))
    except OidcError as error:
        said = {"by": "oidc", "why": str(error)}
        await refuse(request, SYSTEM, said, 403, "The sign-in provider could not vouch for you; start again.")
        raise AssertionError from None  # refuse raises
    response = await visitor.console.write(partial(let_in, visitor, person, "oidc", trip["next"]))
    drop_cookie(response, visitor.console.settings, COOKIE)
    return response


def _trip(packed: str | None) -> dict[str, str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(packed or ""))
        trip = {name: str(found[name]) for name in ("state", "nonce", "verifier", "next")}
    except (ValueError, KeyError, TypeError):
        raise OidcError("this browser did not start here") from None
    return trip | {"next": local_address(trip["next"])}


async def _arrive(
    visitor: Visitor, provider: Provider, trip: Mapping[str, str], query: Mapping[str, str]
) -> dict[str, Any]:
    """What the provider says of who comes back from it."""
    if not hmac.compare_digest(query.get("state", "").encode(errors="replace"), trip["state"].encode()):
        raise OidcError("the answer is to another question (state)")
    if query.get("iss", provider.settings.issuer).rstrip("/") != provider.settings.issuer:
        raise OidcError("the answer is another provider's")
    if "code" not in query:
        raise OidcError("the provider refused")
    token = await provider.exchange(query["code"], trip["verifier"], redirect_address(visitor))
    return await provider.claims(token, trip["nonce"])


def person_of(ledger: Ledger, settings: OidcSettings, claims: Mapping[str, Any]) -> Person:
    """The account of who the provider vouches for; a new one where newcomers are let in."""
    identity = f"{settings.issuer} {claims['sub']}"
    if len(identity) > 300 or not identity.isprintable():
        raise OidcError("the provider's name for this person cannot be kept")
    known, role = ledger.accounts.of_identity(identity), _role(settings, claims)
    if role is None and (known is None or settings.role_claim is not None):
        raise OidcError("no account, or no role, for this person")
    if known is None:
        assert role is not None
        name = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])
        try:
            ledger.accounts.add(name, role, identity=identity)
        except InputError:
            raise OidcError("no account can be made: its name is taken, or is none") from None
    elif settings.role_claim is not None and role != known.role:
        ledger.accounts.change(known.name, role=role, actor=SYSTEM)
    found = ledger.accounts.of_identity(identity)
    if found is None:
        raise OidcError("the account is disabled")
    return found


def _role(settings: OidcSettings, claims: Mapping[str, Any]) -> Role | None:
    """What the provider says, by the first line of the table that fits; else what newcomers are."""
    said = claims.get(settings.role_claim) if settings.role_claim else None
    words = set(map(str, said)) if isinstance(said, list) else {str(said)}
    return next((role for word, role in settings.roles.items() if word in words), settings.newcomers)
