"""Forgetting inside a Flower federation: the same tasks and methods, on a SuperLink with SuperNodes.

    FlowerFederation    the server's side: `forget`, `train` and `measure` run on it as on a LocalFederation
    build_client_app    the nodes' side
    APP                 our own federation as a Flower app, for `flwr run`
    attach, retained    teach a client app of yours to forget
    Forget              a wrapper around the strategy of a server app of yours

Needs the extra: pip install 'fedforget[flower]'."""

from pathlib import Path

from fedforget.errors import ClientError, RefusedError
from fedforget.flower.attach import attach, retained
from fedforget.flower.client_app import build_client_app
from fedforget.flower.federation import FlowerFederation
from fedforget.flower.strategy import Forget

APP = Path(__file__).parent / "app" / "bundle"

__all__ = [
    "APP",
    "ClientError",
    "FlowerFederation",
    "Forget",
    "RefusedError",
    "attach",
    "build_client_app",
    "retained",
]
