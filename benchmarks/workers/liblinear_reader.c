/* LIBSVM text straight into the arrays LIBLINEAR's library wants, because its Python reader is several times slower. */

#include "libsvm_text.h"

struct node { int index; double value; };
struct problem_arrays { int rows, width; double *label; struct node **row; };

/* Each row ends with the constant feature `bias` and the terminator -1. A width above 0 is a model's, the bias included:
   features it has never seen are left out. Returns 0, or 1 when the file cannot be read. */
int read_problem(const char *path, double bias, int width, struct problem_arrays *out) {
    struct reader r = open_text(path);
    struct node *nodes = NULL;
    size_t used = 0, rows = 0, room_nodes = 0, room_labels = 0, room_starts = 0, *start = NULL;
    double *label = NULL, value, y;
    int index, most = width ? width - 1 : 0, fixed = width > 0;
    if (!r.file) return 1;
    while (next_row(&r, &y)) {
        label = with_room(label, rows, &room_labels, sizeof *label);
        start = with_room(start, rows, &room_starts, sizeof *start);
        label[rows] = y;
        start[rows++] = used;
        while (next_feature(&r, &index, &value)) {
            if (index > most) {
                if (fixed) continue;
                most = index;
            }
            nodes = with_room(nodes, used + 2, &room_nodes, sizeof *nodes);
            nodes[used++] = (struct node){index, value};
        }
        nodes = with_room(nodes, used + 2, &room_nodes, sizeof *nodes);
        used += 2;
    }
    close_text(&r);
    if (r.bad || !rows) return 1;
    out->rows = (int)rows;
    out->width = most + 1;
    out->label = label;
    out->row = malloc(rows * sizeof *out->row);
    for (size_t i = 0; i < rows; i++) {
        size_t end = i + 1 < rows ? start[i + 1] : used;
        nodes[end - 2] = (struct node){most + 1, bias};
        nodes[end - 1] = (struct node){-1, 0};
        out->row[i] = nodes + start[i];
    }
    free(start);
    return 0;
}
