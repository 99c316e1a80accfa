"""Make a federated model forget, and show that it did.

    from fedforget import Backdoor, ErasureRequest, LocalFederation, Schedule, forget, ...

The public names are listed here and nowhere else."""

from fedforget.audit.measures import Measures, distance_to, measure
from fedforget.data import Dataset, Samples, load_dataset
from fedforget.data.backdoor import Backdoor, Trigger
from fedforget.data.own import from_arrays
from fedforget.data.partition import partition
from fedforget.errors import DivergedError, FedForgetError, InputError
from fedforget.federation.cost import Cost
from fedforget.federation.history import MemoryHistory
from fedforget.federation.local import LocalFederation
from fedforget.federation.ridge import random_ridge, ridge_on
from fedforget.federation.rounds import Schedule, run_round, train
from fedforget.federation.seam import Federation
from fedforget.federation.shards import Ensemble
from fedforget.methods import METHODS, Forgetting
from fedforget.models import MODELS, build_model
from fedforget.params import digest, state_of
from fedforget.requests import ErasureRequest
from fedforget.runs.climb import Climb
from fedforget.runs.ladder import forget

__version__ = "0.1.0"

__all__ = [
    "METHODS",
    "MODELS",
    "Backdoor",
    "Climb",
    "Cost",
    "Dataset",
    "DivergedError",
    "Ensemble",
    "ErasureRequest",
    "FedForgetError",
    "Federation",
    "Forgetting",
    "InputError",
    "LocalFederation",
    "Measures",
    "MemoryHistory",
    "Samples",
    "Schedule",
    "Trigger",
    "build_model",
    "digest",
    "distance_to",
    "forget",
    "from_arrays",
    "load_dataset",
    "measure",
    "partition",
    "random_ridge",
    "ridge_on",
    "run_round",
    "state_of",
    "train",
]
