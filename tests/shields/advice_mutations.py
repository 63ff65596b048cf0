"""Ways to damage a file: flipped bits, cuts, insertions, swaps, lies in the header."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np


def mutations(good: bytes, count: int, seed: int) -> Iterator[bytes]:
    """``count`` damaged versions of ``good``, none equal to it."""
    rng = np.random.default_rng(seed)
    header = 8 + int.from_bytes(good[:8], "little")
    made = 0
    while made < count:
        # Half the damage goes to the header, where it has most to say.
        at = int(rng.integers(header if rng.random() < 0.5 else len(good)))
        kind = rng.integers(6)
        bad = bytearray(good)
        if kind == 0:
            bad[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            bad = bad[:at]
        elif kind == 2:
            bad[at:at] = rng.bytes(int(rng.integers(1, 64)))
        elif kind == 3:
            end = at + int(rng.integers(1, 64))
            bad[at:end] = rng.bytes(len(bad[at:end]))
        elif kind == 4:
            bad[:8] = int(rng.integers(2**63)).to_bytes(8, "little")
        else:
            digits = [i for i in range(at, min(at + 200, header)) if chr(bad[i]).isdigit()]
            for i in digits[: int(rng.integers(1, 4))]:
                bad[i] = ord("0") + int(rng.integers(10))
        if bytes(bad) != good:
            made += 1
            yield bytes(bad)
