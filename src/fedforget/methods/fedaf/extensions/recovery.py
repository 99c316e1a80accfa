"""Short rounds over a small share of everybody's retained data (not in the paper): for the memories, and afterwards.

The teacher whose predictions on R are the new memories is theta* that lost R abruptly (amnesia, at the client) and was
reminded by one such round of what the others know. What it then says of R ought to be what the federation supports
without R: no poisoned label, and an honest one as for unseen data. How near it comes is measured in docs/method.md. The
anchor theta* learns these memories under the preserver, so it need not go through the amnesia itself.

What other clients' data supports comes back in the recovery; what nothing supports does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from torch import Tensor

from fedforget.federation.aggregation import without_return
from fedforget.federation.rounds import run_short_round
from fedforget.methods.fedaf.extensions.planning import Plan
from fedforget.methods.fedaf.forgetting import TEACHER_KEY, Forget
from fedforget.params import State, trainable


def reminded_teacher(plan: Plan, message: State, task: Forget) -> State:
    """The teacher as it travels beside the model; nothing where the memories are of another kind."""
    settings, client = plan.settings, task.requests[0].client
    if settings.memory != "reminded":
        return {}
    with plan.federation.stage("memory"):
        amnesia = replace(task, settings=settings.amnesia, amnesia=True)
        (amnesiac,) = plan.federation.ask(amnesia, message, [client])
        teacher = _short_round(plan, amnesiac.tensors, "reminder", client)
        if settings.reminder_guard:
            teacher = without_return(message, amnesiac.tensors, teacher, trainable(plan.federation.model))
    return {f"{TEACHER_KEY}{name}": tensor for name, tensor in teacher.items()}


def guarded_recovery(plan: Plan, original: Mapping[str, Tensor], forgotten: State) -> State:
    """Rounds after the forgetting, none of which leads back to the original model."""
    current = forgotten
    with plan.federation.stage("recovery"):
        for round in range(plan.settings.recovery_rounds):
            current = _short_round(plan, current, "recovery", round)
            if plan.settings.recovery_guard:
                current = without_return(original, forgotten, current, trainable(plan.federation.model))
    return current


def _short_round(plan: Plan, state: State, purpose: str, round: int) -> State:
    """A round over `recovery_share` of the retained data, in a large federation of some of the clients."""
    settings = plan.settings
    task = replace(
        plan.schedule.train_task(round, plan.exclude), epochs=1, share=float(settings.recovery_share),
        min_samples=settings.recovery_min_samples, lr=float(settings.recovery_lr),
        momentum=settings.recovery_momentum, batch_size=settings.recovery_batch_size, purpose=purpose,
    )  # fmt: skip
    samples = settings.recovery_clients * settings.recovery_min_samples
    return run_short_round(plan.federation, state, task, clients=settings.recovery_clients, samples=samples)
