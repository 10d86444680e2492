"""Counter-based random bits: ThreeFry2x32 and Philox4x32 on whole arrays of counters, as XLA:CPU lays them out."""

import math

import numpy as np

from hlokit.hlo.values import Array

_LOW = np.uint64(0xFFFFFFFF)
_32 = np.uint64(32)
_THREE_FRY_PARITY = np.uint32(0x1BD11BDA)
_THREE_FRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX_MULTIPLIERS = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_PHILOX_KEY_STEPS = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def three_fry(state: Array, sizes: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """(new state, array of `sizes`: uint64 if `bits` is 64, else uint32 to be cut to `bits`); `state` is uint64[2]."""
    key, counter = state
    if bits == 64:
        count = math.prod(sizes)
        first, second = _three_fry_blocks(key, counter, count)
        data = (first.astype(np.uint64) | second.astype(np.uint64) << _32).reshape(sizes)
    elif not sizes:
        count = 1
        data = _three_fry_blocks(key, counter, count)[0].reshape(())
    else:
        split = split_dimension(sizes)
        half = (*sizes[:split], -(-sizes[split] // 2), *sizes[split + 1 :])
        count = math.prod(half)
        pairs = np.stack([word.reshape(half) for word in _three_fry_blocks(key, counter, count)], split + 1)
        doubled = pairs.reshape((*sizes[:split], 2 * half[split], *sizes[split + 1 :]))
        data = doubled[(slice(None),) * split + (slice(sizes[split]),)]
    return np.array([key, counter + np.uint64(count)]), data


def split_dimension(sizes: tuple[int, ...]) -> int:
    """The first dimension of even size, else the first of the largest (RBG-11)."""
    even = [d for d, size in enumerate(sizes) if size % 2 == 0]
    return even[0] if even else sizes.index(max(sizes))


def _three_fry_blocks(key: np.uint64, counter: np.uint64, count: int) -> tuple[Array, Array]:
    """Both words of the blocks at counter, counter + 1, ... (RBG-8, RBG-9)."""
    numbers = counter + np.arange(count, dtype=np.uint64)
    low, high = np.uint32(key & _LOW), np.uint32(key >> _32)
    keys = (low, high, low ^ high ^ _THREE_FRY_PARITY)
    x0 = (numbers & _LOW).astype(np.uint32) + keys[0]
    x1 = (numbers >> _32).astype(np.uint32) + keys[1]
    for group in range(5):
        for rotation in _THREE_FRY_ROTATIONS[group % 2]:
            x0 += x1
            x1 = (x1 << np.uint32(rotation) | x1 >> np.uint32(32 - rotation)) ^ x0
        x0 += keys[(group + 1) % 3]
        x1 += keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def philox(state: Array, sizes: tuple[int, ...], bits: int) -> tuple[Array, Array]:
    """Same as three_fry; `state` is uint64[2] or uint64[3] (RBG-16)."""
    total = math.prod(sizes)
    blocks = -(-total * (2 if bits == 64 else 1) // 4)
    key, low = state[0], state[1]
    high = state[2] if state.size == 3 else state[0]
    words = _philox_blocks(key, low, high, blocks)
    if bits == 64:
        data = np.stack([words[0] | words[1] << _32, words[2] | words[3] << _32], 1)
    else:
        data = np.stack(words, 1).astype(np.uint32)
    new_low = low + np.uint64(blocks)
    new_state = [key, new_low, high + np.uint64(new_low < low)]
    return np.array(new_state[: state.size]), data.reshape(-1)[:total].reshape(sizes)


def _philox_blocks(key: np.uint64, low: np.uint64, high: np.uint64, count: int) -> list[Array]:
    """The four words, held in uint64, of the blocks at the 128-bit counter, counter + 1, ... (RBG-13, RBG-14)."""
    lows = low + np.arange(count, dtype=np.uint64)
    highs = high + (lows < low).astype(np.uint64)
    c0, c1, c2, c3 = lows & _LOW, lows >> _32, highs & _LOW, highs >> _32
    k0, k1 = key & _LOW, key >> _32
    for _ in range(10):
        p0, p1 = c0 * _PHILOX_MULTIPLIERS[0], c2 * _PHILOX_MULTIPLIERS[1]
        c0, c1, c2, c3 = (p1 >> _32) ^ c1 ^ k0, p1 & _LOW, (p0 >> _32) ^ c3 ^ k1, p0 & _LOW
        k0 = (k0 + _PHILOX_KEY_STEPS[0]) & _LOW
        k1 = (k1 + _PHILOX_KEY_STEPS[1]) & _LOW
    return [c0, c1, c2, c3]
