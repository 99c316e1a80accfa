"""`python -m benchmarks.stacked_training`: models trained as one stack against the same models one after another.

Both ways in one run, on the same data and the machine at hand; a ratio above 1 is what the stack gains. The images are
noise, since speed does not depend on what they show, so it runs where no data set is."""

from __future__ import annotations

import argparse
from dataclasses import replace

import torch

from fedforget.data.own import from_arrays
from fedforget.experiments.benchmarks.measuring import Work, in_turns, median
from fedforget.federation.local import LocalFederation
from fedforget.federation.rounds import Schedule, train
from fedforget.federation.stacked import stack, train_stacked, unstack
from fedforget.models import build_model, fresh_copy
from fedforget.params import State, distance, state_of

CASES: dict[str, tuple[str, tuple[int, ...], int, int]] = {
    "MNIST, CNN": ("cnn", (1, 28, 28), 64, 40),
    "digits, CNN": ("cnn", (1, 8, 8), 16, 40),
    "digits, MLP": ("mlp", (1, 8, 8), 16, 40),
    "CIFAR-10, ResNet-10": ("resnet10", (3, 32, 32), 64, 10),
}
"""The network, an image's shape, the batch size, and how many full batches a client has."""
CLIENTS = 2


def measure(case: str, models: int, device: str, threads: int, repeats: int) -> tuple[float, float, float]:
    """(seconds of one round one after another, seconds of it stacked, how far the models are apart afterwards).

    The distance is the largest of any model, relative to how far training moved it: rounding, which grows where it
    pushes a ReLU across zero."""
    network, shape, batch_size, batches = CASES[case]
    samples = CLIENTS * batches * batch_size
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (samples, *shape), dtype=torch.uint8, generator=generator)
    data = from_arrays(images, torch.arange(samples) % 10, images[:10], torch.arange(10))
    parts = list(torch.arange(samples).chunk(CLIENTS))
    federation = LocalFederation(data, parts, build_model(network, shape, 10, 0), device=device)
    schedule = Schedule(rounds=1, batch_size=batch_size, threads=threads)
    starts = [state_of(fresh_copy(federation.model, seed)) for seed in range(models)]
    stacked_start = stack(starts)

    def alone() -> list[State]:
        return [train(federation, start, replace(schedule, seed=seed)) for seed, start in enumerate(starts)]

    def together() -> list[State]:
        return unstack(train_stacked(federation, stacked_start, schedule, range(models)))

    apart = max(distance(a, b) / distance(a, start) for a, b, start in zip(alone(), together(), starts, strict=True))
    times = in_turns({"alone": Work(alone), "together": Work(together)}, repeats, device)
    return median(times["alone"]), median(times["together"]), apart


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--models", type=int, default=16)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cases", nargs="*", choices=list(CASES), default=list(CASES)[:3])
    chosen = parser.parse_args()
    torch.set_num_threads(chosen.threads)  # also for what is not a task's: averaging
    where = torch.cuda.get_device_name() if chosen.device.startswith("cuda") else f"CPU, {chosen.threads} threads"
    print(f"{chosen.models} models, one round at {CLIENTS} clients, {where}")
    print(f"{'':22s}{'one by one':>12s}{'stacked':>12s}{'ratio':>8s}{'apart':>10s}")
    for case in chosen.cases:
        alone, together, apart = measure(case, chosen.models, chosen.device, chosen.threads, chosen.repeats)
        print(f"{case:22s}{alone:10.2f} s{together:10.2f} s{alone / together:8.2f}{apart:10.1e}", flush=True)


if __name__ == "__main__":
    main()
