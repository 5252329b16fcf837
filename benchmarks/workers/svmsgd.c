/* The classic SVM-SGD loop on rows held in RAM: how fast a plain C program makes a pass.

   minimise  l2/2 |w|^2 + mean max(0, 1 - y (w.x + bias)),   one row at a time:

       eta = 1 / (l2 (t + t0))
       w   = (1 - eta l2) w            by changing one number: w = scale * v
       w  += eta y x                   when y (w.x + bias) < 1

   usage: svmsgd TRAIN PASSES L2 [TEST]      prints one JSON object; reading and testing are outside the clock. */

#include "libsvm_text.h"

#include <stdint.h>
#include <time.h>

struct pair { int32_t index; float value; };
struct rows { size_t count, features, *start; float *label; struct pair *pairs; int width; };
struct model { double *v, scale, bias, l2, t; };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

static struct rows read_rows(const char *path) {
    struct rows d = {0};
    size_t room_rows = 0, room_labels = 0, room_pairs = 0;
    struct reader r = open_text(path);
    double label, value;
    int index;
    if (!r.file) { perror(path); exit(1); }
    d.start = with_room(d.start, 0, &room_rows, sizeof *d.start);
    d.start[0] = 0;
    while (next_row(&r, &label)) {
        d.label = with_room(d.label, d.count, &room_labels, sizeof *d.label);
        d.label[d.count++] = label > 0 ? 1.0f : -1.0f;
        while (next_feature(&r, &index, &value)) {
            d.pairs = with_room(d.pairs, d.features, &room_pairs, sizeof *d.pairs);
            d.pairs[d.features++] = (struct pair){index, (float)value};
            if (index >= d.width) d.width = index + 1;
        }
        d.start = with_room(d.start, d.count, &room_rows, sizeof *d.start);
        d.start[d.count] = d.features;
    }
    if (r.bad) { fprintf(stderr, "%s: not LIBSVM text\n", path); exit(1); }
    close_text(&r);
    return d;
}

static double dot(const double *v, const struct pair *p, const struct pair *end) {
    double sum = 0;
    for (; p < end; p++) sum += v[p->index] * p->value;
    return sum;
}

static void one_pass(struct model *m, const struct rows *d) {
    for (size_t i = 0; i < d->count; i++) {
        const struct pair *p = d->pairs + d->start[i], *end = d->pairs + d->start[i + 1];
        double label = d->label[i], eta = 1 / (m->l2 * m->t++);
        double score = m->scale * dot(m->v, p, end) + m->bias;
        m->scale *= 1 - eta * m->l2;
        if (m->scale < 1e-9) {
            for (int j = 0; j < d->width; j++) m->v[j] *= m->scale;
            m->scale = 1;
        }
        if (label * score < 1) {
            double step = eta * label / m->scale;
            for (; p < end; p++) m->v[p->index] += step * p->value;
            m->bias += 0.01 * eta * label; /* slower: the bias is part of every row, and not penalised */
        }
    }
}

static double error_on(const struct model *m, int width, const struct rows *d) {
    size_t wrong = 0;
    for (size_t i = 0; i < d->count; i++) {
        double score = m->bias;
        for (size_t k = d->start[i]; k < d->start[i + 1]; k++) /* features never seen in training say nothing */
            if (d->pairs[k].index < width) score += m->scale * m->v[d->pairs[k].index] * d->pairs[k].value;
        wrong += (score > 0) != (d->label[i] > 0);
    }
    return (double)wrong / d->count;
}

int main(int argc, char **argv) {
    if (argc < 4) { fputs("usage: svmsgd TRAIN PASSES L2 [TEST]\n", stderr); return 2; }
    int passes = atoi(argv[2]);
    double l2 = atof(argv[3]), started = now();
    struct rows train = read_rows(argv[1]);
    struct model m = {calloc(train.width, sizeof(double)), 1, 0, l2, 1 / l2}; /* t0 = 1/l2: the first step is 1 */
    printf("{\"rows\": %zu, \"features\": %zu, \"load_seconds\": %.6f, \"pass_seconds\": [", train.count,
           train.features, now() - started);
    for (int pass = 0; pass < passes; pass++) {
        double from = now();
        one_pass(&m, &train);
        printf(pass ? ", %.6f" : "%.6f", now() - from);
    }
    printf("]");
    if (argc > 4) {
        struct rows test = read_rows(argv[4]);
        printf(", \"error\": %.6f", error_on(&m, train.width, &test));
    }
    puts("}");
    return 0;
}
