#!/usr/bin/env python3
"""A blast wave in one dimension: `blast.py CELLS STEPS [MEMBERS]` prints one line about where the shock is.

Euler's equations for an ideal gas (gamma 1.4) on the unit interval, Rusanov's flux, explicit steps; energy 1 is set free at
the left, mirrored end. `blast.c` is the same program, compiled; both give the same digits. MEMBERS runs that many, each with
a little more energy than the one before, and tells of the first.
"""

import sys
from math import sqrt

GAMMA = 1.4
COURANT = 0.4


def blast(cells, steps, energy):
    """Time, position of the shock, largest density and total energy after so many steps."""
    width = 1.0 / cells
    density = [1.0] * cells
    momentum = [0.0] * cells
    total = [1e-5 / (GAMMA - 1.0)] * cells
    for i in range(3):
        total[i] += energy / (3.0 * width)
    time = 0.0
    for _ in range(steps):
        fastest = 0.0
        speed = [0.0] * cells
        flow = [(0.0, 0.0, 0.0)] * cells
        for i in range(cells):
            rho, mom, tot = density[i], momentum[i], total[i]
            u = mom / rho
            p = (GAMMA - 1.0) * (tot - 0.5 * mom * u)
            a = abs(u) + sqrt(GAMMA * p / rho)
            speed[i] = a
            fastest = max(fastest, a)
            flow[i] = (mom, mom * u + p, (tot + p) * u)
        step = COURANT * width / fastest
        ratio = step / width
        # the mirror at the left lets only pressure through
        f0, f1, f2 = 0.0, flow[0][1] - speed[0] * momentum[0], 0.0
        for i in range(cells):
            rho, mom, tot = density[i], momentum[i], total[i]
            a0, a1, a2 = flow[i]
            if i + 1 < cells:
                b0, b1, b2 = flow[i + 1]
                a = max(speed[i], speed[i + 1])
                g0 = 0.5 * (a0 + b0 - a * (density[i + 1] - rho))
                g1 = 0.5 * (a1 + b1 - a * (momentum[i + 1] - mom))
                g2 = 0.5 * (a2 + b2 - a * (total[i + 1] - tot))
            else:
                g0, g1, g2 = a0, a1, a2
            density[i] = rho - ratio * (g0 - f0)
            momentum[i] = mom - ratio * (g1 - f1)
            total[i] = tot - ratio * (g2 - f2)
            f0, f1, f2 = g0, g1, g2
        time += step
    front = cells - 1
    while front > 0 and density[front] < 1.5:
        front -= 1
    inside, outside = density[front], density[min(front + 1, cells - 1)]
    beyond = (inside - 1.5) / (inside - outside) if inside > outside else 0.0
    return time, (front + 0.5 + beyond) * width, max(density), sum(total) * width


def main():
    cells, steps = int(sys.argv[1]), int(sys.argv[2])
    members = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    told = ()
    for member in range(members):
        one = blast(cells, steps, 1.0 + 0.001 * member)
        told = told or one
    print(f"{cells} {steps} " + " ".join(f"{number:.6f}" for number in told))


main()
