"""Slow, obvious twins of the fast computations: one sample, one weight or one client at a time, in double precision.

Nothing here is clever, and nothing here uses the code it checks: only the draws (hash coefficients, initial weights)
are made by the same named generators, since a draw cannot be derived."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence

import numpy as np
import torch
from torch import Tensor, nn

from fedforget.data.samples import Samples
from fedforget.models import fresh_copy
from fedforget.seeds import derive_generator, derive_seed

PRIME = 2147483647


# Hashes


def hash_value(sample_id: int, count: int, seed: int, purpose: str) -> int:
    """A polynomial with `count` random coefficients, highest power first, modulo the prime, in big integers."""
    generator = derive_generator(seed, "hash", purpose)
    coefficients = [int(c) for c in torch.randint(0, PRIME, (count,), generator=generator, dtype=torch.int64)]
    highest = count - 1
    return sum(c * sample_id ** (highest - power) for power, c in enumerate(coefficients)) % PRIME


def bucket(sample_id: int, rows: int, seed: int) -> int:
    return hash_value(sample_id, 2, seed, "bucket") % rows


def sign(sample_id: int, seed: int) -> int:
    return +1 if hash_value(sample_id, 4, seed, "sign") % 2 == 0 else -1


def uniform(sample_id: int, seed: int) -> float:
    return hash_value(sample_id, 4, seed, "uniform") / PRIME


def explicit_s(ids: Sequence[int], rows: int, seed: int) -> Tensor:
    """S, [s, n]: column i has one entry, sigma(i), in row h(i)."""
    s = torch.zeros(rows, len(ids), dtype=torch.float64)
    for column, sample_id in enumerate(ids):
        s[bucket(sample_id, rows, seed), column] = sign(sample_id, seed)
    return s


# Per-sample gradients


def sampled_label(probabilities: Sequence[float], u: float) -> int:
    """The class in whose part of [0, 1] u falls."""
    reached = 0.0
    for label, p in enumerate(probabilities):
        reached += p
        if u < reached:
            return label
    return len(probabilities) - 1


def sample_loss(logits: Tensor, label: int, u: float, kind: str) -> Tensor:
    """The scalar whose gradient is a row of J, for the logits [C] of one sample."""
    p = torch.exp(logits) / torch.exp(logits).sum()
    if kind == "mas":
        return (p * p).sum()
    if kind == "sampled":
        label = sampled_label(p.tolist(), u)
    return -torch.log(p[label])


def explicit_j(model: nn.Module, samples: Samples, kind: str, seed: int) -> Tensor:
    """J, [n, m]: one backward pass for each sample, in double precision and evaluation mode."""
    model = copy.deepcopy(model).double().eval()
    rows = []
    for i in range(len(samples)):
        model.zero_grad(set_to_none=True)
        logits = model(samples.features[i : i + 1].double())[0]
        u = uniform(int(samples.ids[i]), seed)
        sample_loss(logits, int(samples.labels[i]), u, kind).backward()
        row = []
        for parameter in model.parameters():
            if parameter.requires_grad:
                gradient = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                row.append(gradient.flatten())
        rows.append(torch.cat(row))
    return torch.stack(rows)


def explicit_sketch(model: nn.Module, samples: Samples, kind: str, rows: int, seed: int) -> Tensor:
    """J^ = S J as a matrix product."""
    return explicit_s(samples.ids.tolist(), rows, seed) @ explicit_j(model, samples, kind, seed)


def gram(j: Tensor) -> Tensor:
    """J^T J as a sum of outer products."""
    total = torch.zeros(j.shape[1], j.shape[1], dtype=j.dtype)
    for row in j:
        total += torch.outer(row, row)
    return total


def fisher_diagonal(model: nn.Module, samples: Samples, kind: str, seed: int) -> Tensor:
    """The mean over samples of the squared gradient."""
    total = 0.0
    for row in explicit_j(model, samples, kind, seed):
        total = total + row**2
    return total / len(samples)


# The quadratic penalty (lambda/2) d^T A d around the anchor, A given as a dense matrix


def quadratic(curvature: Tensor, anchor: Tensor, theta: Tensor, strength: float) -> float:
    d = theta - anchor
    return float(0.5 * strength * d @ curvature @ d)


def quadratic_gradient_step(curvature: Tensor, anchor: Tensor, theta: Tensor, strength: float, lr: float) -> Tensor:
    return theta - lr * strength * curvature @ (theta - anchor)


def quadratic_minimiser(curvature: Tensor, anchor: Tensor, v: Tensor, strength: float, lr: float) -> Tensor:
    """argmin of ||theta - v||^2/(2 lr) + (lambda/2)(theta - anchor)^T A (theta - anchor).

    Its gradient is zero where (I/lr + lambda A) theta = v/lr + lambda A anchor."""
    left = torch.eye(len(v), dtype=v.dtype) / lr + strength * curvature
    return torch.linalg.solve(left, v / lr + strength * curvature @ anchor)


# Memories


def softmax(logits: Sequence[float]) -> list[float]:
    top = max(logits)
    powers = [math.exp(z - top) for z in logits]
    return [p / sum(powers) for p in powers]


def teacher_labels(model: nn.Module, features: Tensor, teachers: int, seed: int) -> list[list[float]]:
    """The mean of the untrained copies' softmaxes, one sample at a time (for networks without batch statistics)."""
    rows = []
    for x in features:
        total = None
        for q in range(teachers):
            teacher = fresh_copy(model, derive_seed(seed, q)).double().eval()
            p = softmax(teacher(x[None].double())[0].tolist())
            total = p if total is None else [a + b for a, b in zip(total, p, strict=True)]
        rows.append([t / teachers for t in total])
    return rows


def debias(prediction: Sequence[float], label: int, sigma: float | str) -> list[float]:
    """v y^ / |v y^|_1 with v = 1 + (sigma - 1) y, for one sample."""
    average = sum(prediction) / len(prediction)
    if sigma == "auto":
        sigma = min(1.0, average / prediction[label])
    elif sigma == "literal":
        sigma = prediction[label] / average
    weighted = [(sigma if c == label else 1.0) * p for c, p in enumerate(prediction)]
    return [w / sum(weighted) for w in weighted]


def suppress(logits: Sequence[float], label: int) -> list[float]:
    """softmax after the trained label's logit became the smallest one."""
    lowered = list(logits)
    lowered[label] = min(logits)
    return softmax(lowered)


def forgetting_loss(
    logits: Sequence[Sequence[float]],
    memory: Sequence[Sequence[float]],
    labels: Sequence[int],
    ascent: str,
    cap: float,
) -> tuple[float, float, float]:
    """(L_M - L_R as minimised, L_M, L_R), sample by sample, class by class."""
    loss = towards = old = 0.0
    for z, y_new, y in zip(logits, memory, labels, strict=True):
        p = softmax(z)
        l_m = sum(-weight * math.log(q) for weight, q in zip(y_new, p, strict=True))
        l_r = -math.log(p[y])
        if ascent == "plain":
            away = -l_r
        elif ascent == "capped":
            away = -min(l_r, cap)
        else:
            away = 0.0
        loss, towards, old = loss + l_m + away, towards + l_m, old + l_r
    n = len(labels)
    return loss / n, towards / n, old / n


def papers_forgetting(
    model: nn.Module,
    batches: Sequence[tuple[Tensor, Tensor, Tensor]],
    rows: Tensor,
    weight: float,
    lr: float,
    momentum: float,
) -> nn.Module:
    """Algorithm 1, lines 5 to 7, to the letter: SGD on Eq. 13 as one loss, by autograd in double precision. Batches are
    (inputs, memories, labels); `rows` are J^, `weight` is lambda, or lambda / n."""
    model = copy.deepcopy(model).double().train()
    theta = list(model.parameters())
    anchor = torch.cat([p.detach().flatten() for p in theta])
    velocity = [torch.zeros_like(p) for p in theta]
    for x, memory, labels in batches:
        log_p = torch.log_softmax(model(x.double()), dim=1)
        l_m = -(memory.double() * log_p).sum(dim=1).mean()
        l_r = -log_p[torch.arange(len(labels)), labels].mean()
        moved = torch.cat([p.flatten() for p in theta]) - anchor
        loss = l_m - l_r + weight / 2 * (rows @ moved).square().sum()
        for p, v, g in zip(theta, velocity, torch.autograd.grad(loss, theta), strict=True):
            v.mul_(momentum).add_(g)
            p.data -= lr * v
    return model


# Federated averaging


def federated_average(states: Sequence[Mapping[str, Tensor]], samples: Sequence[float]) -> dict[str, list[float]]:
    """sum_k n_k theta_k / sum_k n_k, number by number; the largest of each integer."""
    result = {}
    for name, first in states[0].items():
        columns = list(zip(*(state[name].flatten().tolist() for state in states), strict=True))
        if first.is_floating_point():
            weight = sum(samples)
            result[name] = [sum(n * x for n, x in zip(samples, c, strict=True)) / weight for c in columns]
        else:
            result[name] = [max(c) for c in columns]
    return result


# Other methods, on plain lists of numbers


def length(v: Sequence[float]) -> float:
    return math.sqrt(sum(x * x for x in v))


def dot(u: Sequence[float], v: Sequence[float]) -> float:
    return sum(x * y for x, y in zip(u, v, strict=True))


def nearest_in_ball(point: Sequence[float], centre: Sequence[float], radius: float) -> list[float]:
    """PGD: the point itself inside the ball; outside, where the line to the centre meets the sphere."""
    away = [p - c for p, c in zip(point, centre, strict=True)]
    if length(away) <= radius:
        return list(point)
    return [c + radius * a / length(away) for c, a in zip(centre, away, strict=True)]


def calibrated(old: Sequence[float], new: Sequence[float]) -> list[float]:
    """FedEraser: ||old|| new / ||new||."""
    return [length(old) * x / length(new) for x in new]


def without_components(v: Sequence[float], rows: Sequence[Sequence[float]]) -> list[float]:
    """FedOSD: v less its part in the span of the rows, by Gram and Schmidt, at v's own length."""
    basis: list[list[float]] = []
    for row in rows:
        rest = list(row)
        for b in basis:
            along = dot(rest, b)
            rest = [x - along * y for x, y in zip(rest, b, strict=True)]
        if length(rest) > 1e-9 * length(row):
            basis.append([x / length(rest) for x in rest])
    left = list(v)
    for b in basis:
        along = dot(left, b)
        left = [x - along * y for x, y in zip(left, b, strict=True)]
    return [x * length(v) / length(left) for x in left]


def kl_divergence(p: Sequence[float], q: Sequence[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


# The best rows of a given rank


def principal_rows(j: Tensor, rows: int) -> Tensor:
    """diag(w) V^T, cut after `rows` lines, from numpy's singular value decomposition of the whole of J."""
    _, w, vt = np.linalg.svd(j.numpy(), full_matrices=False)
    return torch.from_numpy(np.diag(w[:rows]) @ vt[:rows])


def spectral_error(j: Tensor, rows: Tensor) -> float:
    """||J^T J - rows^T rows|| / ||J^T J|| from the m x m matrices themselves."""
    whole, kept = gram(j), gram(rows)
    return float(np.linalg.norm((whole - kept).numpy(), 2) / np.linalg.norm(whole.numpy(), 2))


# The ridge head


def ridge_head(features: Tensor, labels: Tensor, classes: int, rho: float, gain: float) -> tuple[Tensor, Tensor]:
    """(weights, biases) from the samples' features, one sample at a time; the system is inverted."""
    d = features.shape[1] + 1
    a, b = np.zeros((d, d)), np.zeros((d, classes))
    for row, label in zip(features.double().numpy(), labels.tolist(), strict=True):
        phi = np.append(row, 1.0)
        a += np.outer(phi, phi)
        b[:, label] += phi
    shift = rho * sum(a[i, i] for i in range(d)) / d
    w = gain * np.linalg.inv(a + shift * np.eye(d)) @ b
    return torch.from_numpy(w[:-1].T.copy()), torch.from_numpy(w[-1].copy())
