"""Random sequences of operations in which one rank deviates: every rank learns which calls differ.

PROVE_COUNT and PROVE_SEED choose how many sequences are drawn, and from which seed.
"""

import array
import os
import random
import unittest

import remuda
from test_group import on_ranks

#: Formats of buffers, of which no two have the same element type.
FORMATS = "fdiqB"
LENGTH_MAX = 5000


class Call:
    """An operation with its arguments, the same on every rank."""

    OPERATIONS = ("all_reduce", "reduce", "broadcast", "all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "barrier")
    ROOTED = ("reduce", "broadcast", "gather", "scatter")
    REDUCING = ("all_reduce", "reduce", "reduce_scatter")

    def __init__(self, draw, ranks):
        self.ranks = ranks
        self.operation = draw.choice(self.OPERATIONS)
        self.format = draw.choice(FORMATS)
        self.length = draw.randint(1, LENGTH_MAX)
        self.root = draw.randrange(ranks)
        self.reduction = draw.choice(("sum", "min", "max"))

    def key(self):
        """What the other ranks must call as well."""
        if self.operation == "barrier":
            return (self.operation,)
        root = self.root if self.operation in self.ROOTED else None
        reduction = self.reduction if self.operation in self.REDUCING else None
        return self.operation, self.format, self.length, root, reduction

    def run(self, group):
        """Calls it with ones, blocking; returns an element of the result and what it must be."""
        def ones(parts=1):
            return array.array(self.format, [1]) * (self.length * parts)

        def zeros(parts=1):
            return array.array(self.format, [0]) * (self.length * parts)

        own, is_root = ones(), group.rank == self.root
        total = self.ranks if self.reduction == "sum" else 1
        if self.operation == "all_reduce":
            group.all_reduce(own, self.reduction)
            return own[-1], total
        if self.operation == "reduce":
            group.reduce(own, self.root, self.reduction)
            return (own[-1], total) if is_root else (1, 1)
        if self.operation == "broadcast":
            data = own if is_root else zeros()
            group.broadcast(data, self.root)
            return data[-1], 1
        if self.operation == "all_gather":
            output = zeros(self.ranks)
            group.all_gather(own, output)
            return output[-1], 1
        if self.operation == "reduce_scatter":
            output = zeros()
            group.reduce_scatter(ones(self.ranks), output, self.reduction)
            return output[-1], total
        if self.operation == "gather":
            output = zeros(self.ranks) if is_root else None
            group.gather(own, output, self.root)
            return (output[-1], 1) if is_root else (1, 1)
        if self.operation == "scatter":
            output = zeros()
            group.scatter(ones(self.ranks) if is_root else None, output, self.root)
            return output[-1], 1
        if self.operation == "all_to_all":
            output = zeros(self.ranks)
            group.all_to_all(ones(self.ranks), output)
            return output[-1], 1
        group.barrier()
        return 1, 1


class Sequence:
    """Calls, of which one rank makes another one at one place."""

    def __init__(self, draw):
        self.ranks = draw.randint(2, 4)
        self.calls = [Call(draw, self.ranks) for _ in range(draw.randint(1, 10))]
        self.place = draw.randrange(len(self.calls))
        self.rank = draw.randrange(self.ranks)
        self.other = Call(draw, self.ranks)
        while self.other.key() == self.calls[self.place].key():
            self.other = Call(draw, self.ranks)

    def run(self):
        """The error of every rank, and the number of calls that it made before."""

        def body(group):
            for at, call in enumerate(self.calls):
                deviates = at == self.place and group.rank == self.rank
                try:
                    found, expected = (self.other if deviates else call).run(group)
                except remuda.RemudaError as error:
                    return at, error
                if at < self.place and found != expected:
                    raise AssertionError(f"{call.key()} gave {found} instead of {expected}")
            return len(self.calls), None

        return on_ranks(body, self.ranks)

    def __str__(self):
        calls = ", ".join(str(call.key()) for call in self.calls)
        return f"{self.ranks} ranks; {calls}; rank {self.rank} calls {self.other.key()} at {self.place}"


class Deviations(unittest.TestCase):
    def test_every_rank_learns_which_calls_differ(self):
        seed, count = int(os.environ.get("PROVE_SEED", "22")), int(os.environ.get("PROVE_COUNT", "25"))
        for number in range(seed, seed + count):
            sequence = Sequence(random.Random(number))
            for rank, (at, error) in enumerate(sequence.run()):
                with self.subTest(seed=number, rank=rank, sequence=str(sequence)):
                    self.assertEqual(at, sequence.place, error)
                    self.assertIsInstance(error, remuda.Mismatch)
                    self.assertIn(sequence.other.operation, str(error))
                    self.assertIn(sequence.calls[sequence.place].operation, str(error))
