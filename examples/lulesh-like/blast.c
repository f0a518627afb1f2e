/* A blast wave in one dimension: blast CELLS STEPS [MEMBERS]. See blast.py, which is the same program; the order of
   operations is kept equal, so that both print the same digits. */

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const double GAMMA = 1.4, COURANT = 0.4;

struct state { double density, momentum, total; };
struct flow { double mass, momentum, energy, speed; };
struct told { double time, front, peak, energy; };

static struct told blast(int cells, int steps, double energy, struct state *at, struct flow *flow)
{
    double width = 1.0 / cells, time = 0.0;
    for (int i = 0; i < cells; i++)
        at[i] = (struct state){1.0, 0.0, 1e-5 / (GAMMA - 1.0)};
    for (int i = 0; i < 3; i++)
        at[i].total += energy / (3.0 * width);
    for (int n = 0; n < steps; n++) {
        double fastest = 0.0;
        for (int i = 0; i < cells; i++) {
            struct state s = at[i];
            double u = s.momentum / s.density;
            double p = (GAMMA - 1.0) * (s.total - 0.5 * s.momentum * u);
            double a = fabs(u) + sqrt(GAMMA * p / s.density);
            fastest = a > fastest ? a : fastest;
            flow[i] = (struct flow){s.momentum, s.momentum * u + p, (s.total + p) * u, a};
        }
        double step = COURANT * width / fastest, ratio = step / width;
        /* the mirror at the left lets only pressure through */
        double f0 = 0.0, f1 = flow[0].momentum - flow[0].speed * at[0].momentum, f2 = 0.0;
        for (int i = 0; i < cells; i++) {
            double g0 = flow[i].mass, g1 = flow[i].momentum, g2 = flow[i].energy;
            if (i + 1 < cells) {
                double a = flow[i].speed > flow[i + 1].speed ? flow[i].speed : flow[i + 1].speed;
                g0 = 0.5 * (g0 + flow[i + 1].mass - a * (at[i + 1].density - at[i].density));
                g1 = 0.5 * (g1 + flow[i + 1].momentum - a * (at[i + 1].momentum - at[i].momentum));
                g2 = 0.5 * (g2 + flow[i + 1].energy - a * (at[i + 1].total - at[i].total));
            }
            at[i].density -= ratio * (g0 - f0);
            at[i].momentum -= ratio * (g1 - f1);
            at[i].total -= ratio * (g2 - f2);
            f0 = g0, f1 = g1, f2 = g2;
        }
        time += step;
    }
    int front = cells - 1;
    while (front > 0 && at[front].density < 1.5)
        front--;
    double inside = at[front].density, outside = at[front + 1 < cells ? front + 1 : front].density;
    double beyond = inside > outside ? (inside - 1.5) / (inside - outside) : 0.0, peak = 0.0, sum = 0.0;
    for (int i = 0; i < cells; i++) {
        peak = at[i].density > peak ? at[i].density : peak;
        sum += at[i].total;
    }
    return (struct told){time, (front + 0.5 + beyond) * width, peak, sum * width};
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        fprintf(stderr, "usage: %s CELLS STEPS [MEMBERS]\n", argv[0]);
        return 2;
    }
    int cells = atoi(argv[1]), steps = atoi(argv[2]), members = argc > 3 ? atoi(argv[3]) : 1;
    if (cells < 4 || steps < 1 || members < 1) {
        fprintf(stderr, "%s: at least 4 cells, 1 step and 1 member\n", argv[0]);
        return 2;
    }
    struct state *at = malloc(cells * sizeof *at);
    struct flow *flow = malloc(cells * sizeof *flow);
    if (!at || !flow)
        return 1;
    struct told first = {0};
    for (int member = 0; member < members; member++) {
        struct told told = blast(cells, steps, 1.0 + 0.001 * member, at, flow);
        if (member == 0)
            first = told;
    }
    printf("%d %d %.6f %.6f %.6f %.6f\n", cells, steps, first.time, first.front, first.peak, first.energy);
    free(at);
    free(flow);
    return 0;
}
