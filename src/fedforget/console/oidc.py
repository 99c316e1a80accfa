"""Signing in at an OpenID Connect provider: authorization code with PKCE, state and nonce.

What the browser carries between the two steps lies in a cookie of its own, so nothing is remembered here. The ID token
is believed only with a signature by one of the provider's keys, for us, now, and with our nonce."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

import httpx
import jwt
from fastapi.requests import Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import RedirectResponse, Response

from fedforget.console.permissions import Permission
from fedforget.console.security import drop_cookie, set_cookie
from fedforget.console.settings import OidcSettings
from fedforget.console.sign_in import let_in, local_address
from fedforget.console.visitors import Visitor, address_of, allow, guarded_router, refuse, too_often
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


class OidcError(Exception):
    """The provider, or what came back from it, is not to be believed; why, in a few words for the ledger."""


class Provider:
    """What a provider publishes about itself, fetched when needed and kept for an hour."""

    def __init__(self, settings: OidcSettings) -> None:
        self.settings = settings
        self._kept: dict[str, tuple[float, dict[str, Any]]] = {}
        self._lock = threading.Lock()

    def about(self) -> dict[str, Any]:
        found = self._get(f"{self.settings.issuer}/.well-known/openid-configuration")
        if str(found.get("issuer", "")).rstrip("/") != self.settings.issuer:
            raise OidcError("the provider names another issuer")
        return found

    def keys(self, *, fresh: bool = False) -> jwt.PyJWKSet:
        try:
            return jwt.PyJWKSet.from_dict(self._get(str(self.about()["jwks_uri"]), fresh=fresh))
        except (jwt.PyJWTError, KeyError, TypeError, ValueError):
            raise OidcError("the provider publishes no keys") from None

    def _get(self, address: str, *, fresh: bool = False) -> dict[str, Any]:
        with self._lock:
            then, found = self._kept.get(address, (0.0, {}))
            age = time.monotonic() - then
            if found and age < (10.0 if fresh else KEPT_SECONDS):
                return found
            found = _json(lambda client: client.get(address))
            self._kept[address] = (time.monotonic(), found)
            return found

    def exchange(self, code: str, verifier: str, redirect: str) -> str:
        """The ID token for a code."""
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect, "code_verifier": verifier}
        secret, client_id = self.settings.client_secret, self.settings.client_id
        sign = None if secret is None else httpx.BasicAuth(client_id, secret)
        if sign is None:
            form["client_id"] = client_id
        address = str(self.about().get("token_endpoint"))
        found = _json(lambda client: client.post(address, data=form, auth=sign))
        token = found.get("id_token")
        if not isinstance(token, str):
            raise OidcError("the provider sent no ID token")
        return token

    def claims(self, token: str, nonce: str) -> dict[str, Any]:
        """What the token says, if the provider said it, to us, now, and in answer to our own question."""
        try:
            head = jwt.get_unverified_header(token)
            if head.get("alg") not in ALGORITHMS:
                raise OidcError("the ID token has no signature that counts")
            claims: dict[str, Any] = jwt.decode(
                token, self._key(head.get("kid")), algorithms=[head["alg"]], audience=self.settings.client_id,
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

    def _key(self, kid: str | None) -> Any:
        """The key of this name; a provider that changed its keys is asked again."""
        for fresh in (False, True):
            for key in self.keys(fresh=fresh).keys:
                if kid is None or key.key_id == kid:
                    return key.key
        raise OidcError("the ID token was signed with a key that the provider does not publish")


def _json(call: Any) -> dict[str, Any]:
    try:
        with httpx.Client(timeout=10.0, follow_redirects=False, headers={"accept": "application/json"}) as client:
            answer = call(client)
            answer.raise_for_status()
            found = answer.json()
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise OidcError(f"the provider does not answer as it should ({type(error).__name__})") from None
    if not isinstance(found, dict):
        raise OidcError("the provider does not answer as it should")
    return found


def provider_of(visitor: Visitor) -> Provider:
    provider = visitor.console.provider
    if provider is None:
        raise MissingError("There is nothing here.")
    return provider


@router.get("/oidc/start")
def start(visitor: Stranger, request: Request, next: str = "/") -> Response:
    """Off to the provider."""
    provider = provider_of(visitor)
    wait = visitor.console.sign_in_limit.take(f"address {address_of(request)}")
    if wait:
        raise too_often(wait, "Too many attempts to sign in; wait a minute.")
    trip = {name: secrets.token_urlsafe(32) for name in ("state", "nonce", "verifier")} | {"next": local_address(next)}
    challenge = base64.urlsafe_b64encode(hashlib.sha256(trip["verifier"].encode()).digest()).rstrip(b"=").decode()
    asked = {
        "response_type": "code", "client_id": provider.settings.client_id, "redirect_uri": redirect_address(visitor),
        "scope": provider.settings.scope, "state": trip["state"], "nonce": trip["nonce"],
        "code_challenge": challenge, "code_challenge_method": "S256",
    }  # fmt: skip
    try:
        address = str(provider.about()["authorization_endpoint"])
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
        person = await run_in_threadpool(_arrive, visitor, provider, trip, dict(request.query_params))
    except OidcError as error:
        said = {"by": "oidc", "why": str(error)}
        await refuse(request, SYSTEM, said, 403, "The sign-in provider could not vouch for you; start again.")
        raise AssertionError from None  # refuse raises
    response = await run_in_threadpool(let_in, visitor, person, "oidc", trip["next"])
    drop_cookie(response, visitor.console.settings, COOKIE)
    return response


def _trip(packed: str | None) -> dict[str, str]:
    try:
        found = json.loads(base64.urlsafe_b64decode(packed or ""))
        trip = {name: str(found[name]) for name in ("state", "nonce", "verifier", "next")}
    except (ValueError, KeyError, TypeError):
        raise OidcError("this browser did not start here") from None
    return trip | {"next": local_address(trip["next"])}


def _arrive(visitor: Visitor, provider: Provider, trip: Mapping[str, str], query: Mapping[str, str]) -> Person:
    if not hmac.compare_digest(query.get("state", "").encode(errors="replace"), trip["state"].encode()):
        raise OidcError("the answer is to another question (state)")
    if query.get("iss", provider.settings.issuer).rstrip("/") != provider.settings.issuer:
        raise OidcError("the answer is another provider's")
    if "code" not in query:
        raise OidcError("the provider refused")
    token = provider.exchange(query["code"], trip["verifier"], redirect_address(visitor))
    return person_of(visitor.ledger, provider.settings, provider.claims(token, trip["nonce"]))


def person_of(ledger: Ledger, settings: OidcSettings, claims: Mapping[str, Any]) -> Person:
    """The account of who the provider vouches for; a new one where newcomers are let in."""
    identity = f"{settings.issuer} {claims['sub']}"
    if len(identity) > 300 or not identity.isprintable():
        raise OidcError("the provider's name for this person cannot be kept")
    known, role = ledger.account_of_identity(identity), _role(settings, claims)
    if role is None and (known is None or settings.role_claim is not None):
        raise OidcError("no account, or no role, for this person")
    if known is None:
        assert role is not None
        name = str(claims.get("preferred_username") or claims.get("email") or claims["sub"])
        try:
            ledger.add_account(name, role, identity=identity)
        except InputError:
            raise OidcError("no account can be made: its name is taken, or is none") from None
    elif settings.role_claim is not None and role != known.role:
        ledger.change_account(known.name, role=role, actor=SYSTEM)
    found = ledger.account_of_identity(identity)
    if found is None:
        raise OidcError("the account is disabled")
    return found


def _role(settings: OidcSettings, claims: Mapping[str, Any]) -> Role | None:
    """What the provider says, by the first line of the table that fits; else what newcomers are."""
    said = claims.get(settings.role_claim) if settings.role_claim else None
    words = set(map(str, said)) if isinstance(said, list) else {str(said)}
    return next((role for word, role in settings.roles.items() if word in words), settings.newcomers)
