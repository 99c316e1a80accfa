"""How a console is set up: by the options of `fedforget serve`, and by console.toml in the home folder with the parts
[limits], [session] and [oidc], as docs/console.md shows it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fedforget.errors import InputError
from fedforget.ledger.checks import is_loopback
from fedforget.ledger.recorded import SETTINGS_FILE, load_settings
from fedforget.ledger.states import Role

DEFAULT_PORT = 8765


@dataclass(frozen=True)
class Limits:
    """How much one visitor may ask for before being told to wait."""

    sign_ins_per_minute: int = 10
    """From one address, and for one account."""
    submissions_per_minute: int = 30
    """By one account."""
    denials_per_minute: int = 60
    """To one visitor, before it is turned away unheard."""
    connections_per_address: int = 100
    """At once, where the console speaks TLS itself."""
    body_bytes: int = 2_000_000


@dataclass(frozen=True)
class OidcSettings:
    """An OpenID Connect provider that may vouch for people."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    """From `client_secret_file`, or $FEDFORGET_OIDC_SECRET; a public client has none."""
    label: str = "Sign in with your organisation"
    newcomers: Role | None = None
    """The role of people who have no account yet; without it they are refused."""
    role_claim: str | None = None
    """Where the provider says people's roles, by the words of `roles`."""
    roles: Mapping[str, Role] = field(default_factory=dict)
    scope: str = "openid profile email"


@dataclass(frozen=True)
class ConsoleSettings:
    """`url` is what people type into a browser; a proxy in front may be what speaks https there."""

    url: str = f"http://127.0.0.1:{DEFAULT_PORT}"
    behind_proxy: bool = False
    limits: Limits = Limits()
    session_hours: float = 12.0
    oidc: OidcSettings | None = None

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/") or parts.query:
            raise InputError(f"'{self.url}' is no address for a console; write https://HOST or https://HOST:PORT.")
        if parts.scheme == "http" and not is_loopback(parts.hostname):
            raise InputError(
                f"At {self.url} passwords and sessions would travel in the clear; put a TLS proxy in front and name "
                "its address with --url https://HOST, or give --certificate and --key."
            )

    @property
    def secure(self) -> bool:
        """By https: cookies get the Secure flag and the __Host- prefix. Plain http is for loopback alone, where
        nothing travels; some browsers would drop a Secure cookie there and lock a new user out."""
        return self.url.startswith("https:")

    @property
    def origins(self) -> frozenset[str]:
        """Where our own pages come from. On loopback, the same place has three names."""
        parts = urlsplit(self.url)
        port = "" if parts.port is None or parts.port == {"http": 80, "https": 443}[parts.scheme] else f":{parts.port}"
        host = f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname
        names = {f"{parts.scheme}://{host}{port}"}
        if is_loopback(parts.hostname or ""):
            names |= {f"{parts.scheme}://{name}{port}" for name in ("localhost", "127.0.0.1", "[::1]")}
        return frozenset(names)

    @property
    def hosts(self) -> frozenset[str]:
        """What a browser may say in the Host header; the default port may be said or not."""
        names = {origin.partition("://")[2] for origin in self.origins}
        default = ":443" if self.secure else ":80"
        return frozenset(names | {name + default for name in names if not re.search(r":\d+$", name)})

    @property
    def cookie(self) -> str:
        """Cookies do not care for ports, so two consoles on one machine need two names."""
        return "__Host-fedforget" if self.secure else f"fedforget-{urlsplit(self.url).port or 80}"


def read_settings(home: Path, *, url: str, behind_proxy: bool = False) -> ConsoleSettings:
    """The settings in `home`/console.toml, if there is one, for a console at `url`."""
    path, values = home / SETTINGS_FILE, load_settings(home) or {}
    known = {"limits", "session", "oidc"}
    if unknown := values.keys() - known:
        raise InputError(f"{path} has the unknown part '{min(unknown)}'; there are {', '.join(sorted(known))}.")
    names = {item.name for item in fields(Limits)}
    given = _numbers(values.get("limits", {}), names | {"streams_per_account"}, path)  # older consoles had streams
    limits = Limits(**{name: value for name, value in given.items() if name in names})
    session = _numbers(values.get("session", {}), {"hours"}, path)
    oidc = _oidc(values["oidc"], path) if "oidc" in values else None
    return ConsoleSettings(
        url=url, behind_proxy=behind_proxy, limits=limits, session_hours=session.get("hours", 12.0), oidc=oidc
    )


def _numbers(values: Any, names: set[str], path: Path) -> dict[str, Any]:
    """A part of the file, whose settings are all numbers."""
    if not isinstance(values, dict) or not values.keys() <= names:
        raise InputError(f"{path}: choose from the settings {', '.join(sorted(names))}.")
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 1e9:
            raise InputError(f"{path}: '{name}' is {value!r}, but it must be a number above 0.")
    return values


def _oidc(values: Any, path: Path) -> OidcSettings:
    allowed = {item.name for item in fields(OidcSettings)} - {"client_secret"} | {"client_secret_file"}
    if not isinstance(values, dict) or not values.keys() <= allowed or not {"issuer", "client_id"} <= values.keys():
        raise InputError(f"{path}: [oidc] needs issuer and client_id, and may have {', '.join(sorted(allowed))}.")
    values = dict(values)
    issuer = str(values.pop("issuer")).rstrip("/")
    parts = urlsplit(issuer)
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname or "")):
        raise InputError(f"{path}: the issuer '{issuer}' must be an https address.")
    try:
        newcomers = Role(values.pop("newcomers")) if "newcomers" in values else None
        roles = {str(word): Role(role) for word, role in dict(values.pop("roles", {})).items()}
    except (ValueError, TypeError):
        raise InputError(f"{path}: a role in [oidc] is one of {', '.join(Role)}.") from None
    secret = os.environ.get("FEDFORGET_OIDC_SECRET")
    if "client_secret_file" in values:
        file = Path(values.pop("client_secret_file"))
        try:
            secret = file.read_text().strip()
        except OSError as error:
            raise InputError(f"The OIDC secret {file} cannot be read: {error.strerror}.") from None
    if not all(isinstance(value, str) for value in values.values()):
        raise InputError(f"{path}: client_id, label, role_claim and scope in [oidc] are texts.")
    return OidcSettings(issuer=issuer, client_secret=secret or None, newcomers=newcomers, roles=roles, **values)
