"""The draws of Go's math/rand/v2, so that the reference starts, watches and orders what
the Go fit does: PCG with 128 bits of state and DXSM output (O'Neill), numbers below n by
Lemire's multiplication, Fisher-Yates permutations, and normal numbers by the ziggurat of
Marsaglia and Tsang (2000), whose tables are computed by the recurrence of that paper.
gorand_test.go compares them with Go's own.
"""

import math
import struct

MASK = (1 << 64) - 1
MULTIPLIER, INCREMENT = (2549297995355413924 << 64) | 4865540595714422341, (6364136223846793005 << 64) | 1442695040888963407
CHEAP = 0xDA942042E4DD58B5
STRIPS, RIGHT, AREA, SCALE = 128, 3.442619855899, 9.91256303526217e-3, float(1 << 31)


def f32(x):
    """x as a float32 holds it."""
    return struct.unpack("f", struct.pack("f", x))[0]


def ziggurat():
    """Of each strip of equal area under e^(-x²/2): the highest 31-bit number that is
    surely inside, the width per number, and the density at its edge. Strip 0 is the
    base with the tail; edges are computed from the right one inwards."""
    density = lambda x: math.exp(-0.5 * x * x)
    edge = [0.0] * STRIPS
    edge[-1] = RIGHT
    for i in range(STRIPS - 2, 0, -1):
        edge[i] = math.sqrt(-2 * math.log(AREA / edge[i + 1] + density(edge[i + 1])))
    base = AREA / density(RIGHT)
    inside = [int(RIGHT / base * SCALE), 0] + [int(edge[i - 1] / edge[i] * SCALE) for i in range(2, STRIPS)]
    return inside, [f32(x / SCALE) for x in [base] + edge[1:]], [f32(density(x)) for x in edge]


INSIDE, WIDTH, DENSITY = ziggurat()


class Rand:
    """rand.New(rand.NewPCG(seed, stream))."""

    def __init__(self, seed, stream):
        self.state = seed << 64 | stream

    def uint64(self):
        self.state = (self.state * MULTIPLIER + INCREMENT) & ((1 << 128) - 1)
        hi, lo = self.state >> 64, self.state & MASK
        hi = (hi ^ hi >> 32) * CHEAP & MASK
        return (hi ^ hi >> 48) * (lo | 1) & MASK

    def below(self, n):
        """IntN and Uint64N on a machine of 64 bits."""
        if n & (n - 1) == 0:
            return self.uint64() & (n - 1)
        product = self.uint64() * n
        if product & MASK < n:
            while product & MASK < (1 << 64) % n:
                product = self.uint64() * n
        return product >> 64

    def perm(self, n):
        p = list(range(n))
        for i in range(n - 1, 0, -1):
            j = self.below(i + 1)
            p[i], p[j] = p[j], p[i]
        return p

    def float64(self):
        return (self.uint64() & ((1 << 53) - 1)) / (1 << 53)

    def normal(self):
        """NormFloat64."""
        while True:
            u = self.uint64()
            j, i = u & 0xFFFFFFFF, u >> 32 & (STRIPS - 1)
            j -= (j >> 31) << 32  # its sign is the number's
            x = j * WIDTH[i]
            if abs(j) < INSIDE[i]:
                return x
            if i == 0:
                return math.copysign(self.tail(), j)
            rise = f32(f32(self.float64()) * f32(DENSITY[i - 1] - DENSITY[i]))
            if f32(DENSITY[i] + rise) < f32(math.exp(-0.5 * x * x)):
                return x

    def tail(self):
        """A number beyond the right edge, by Marsaglia's method of 1964."""
        while True:
            x, y = -math.log(self.float64()) / RIGHT, -math.log(self.float64())
            if y + y >= x * x:
                return RIGHT + x
