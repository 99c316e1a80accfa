"""Short rounds over a small share of everybody's retained data (not in the paper): for the memories, and afterwards.

The teacher whose predictions on R are the new memories is theta* that lost R abruptly (amnesia, at the client) and was
reminded by one such round of what the others know. What it then says of R ought to be what the federation supports
without R: no poisoned label, and an honest one as for unseen data. How near it comes is measured in docs/method.md. The
anchor theta* learns these memories under the preserver, so it need not go through the amnesia itself.

What other clients' data supports comes back in the recovery; what nothing supports does not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from torch import Tensor

from fedforget.federation.aggregation import without_return
from fedforget.federation.cost import Meter
from fedforget.federation.rounds import Schedule, run_short_round
from fedforget.federation.tasks import Train
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.methods.fedaf.settings import PaperSettings
from fedforget.params import State, trainable
from fedforget.requests import ErasureRequest


def reminded_teacher(
    federation: Meter, message: State, task: Forget, schedule: Schedule, exclude: Sequence[ErasureRequest]
) -> State:
    """The teacher as it travels beside the model; nothing where the memories are of another kind."""
    settings, client = task.settings, task.requests[0].client
    if settings.memory != "reminded":
        return {}
    with federation.stage("memory"):
        amnesia = replace(task, settings=settings.amnesia, amnesia=True)
        (amnesiac,) = federation.ask(amnesia, message, [client])
        reminder = recovery_task(schedule, settings, "reminder", client, exclude)
        teacher = _short_round(federation, amnesiac.tensors, reminder, settings)
        if settings.reminder_guard:
            teacher = without_return(message, amnesiac.tensors, teacher, trainable(federation.model))
    return {f"{TEACHER_KEY}{name}": tensor for name, tensor in teacher.items()}


def recover(
    federation: Meter,
    original: Mapping[str, Tensor],
    forgotten: State,
    settings: PaperSettings,
    schedule: Schedule,
    exclude: Sequence[ErasureRequest],
) -> State:
    """Rounds after the forgetting, none of which leads back to the original model."""
    current = forgotten
    with federation.stage("recovery"):
        for round in range(settings.recovery_rounds):
            task = recovery_task(schedule, settings, "recovery", round, exclude)
            current = _short_round(federation, current, task, settings)
            if settings.recovery_guard:
                current = without_return(original, forgotten, current, trainable(federation.model))
    return current


def recovery_task(
    schedule: Schedule, settings: PaperSettings, purpose: str, round: int, exclude: Sequence[ErasureRequest]
) -> Train:
    """A round over `recovery_share` of the retained data."""
    return replace(
        schedule.train_task(round, exclude), epochs=1, share=float(settings.recovery_share),
        min_samples=settings.recovery_min_samples, lr=float(settings.recovery_lr),
        momentum=settings.recovery_momentum, batch_size=settings.recovery_batch_size, purpose=purpose,
    )  # fmt: skip


def _short_round(federation: Meter, state: State, task: Train, settings: PaperSettings) -> State:
    """In a large federation over some of the clients."""
    samples = settings.recovery_clients * settings.recovery_min_samples
    return run_short_round(federation, state, task, clients=settings.recovery_clients, samples=samples)
