/* Read LIBSVM text line by line with the C library's own number functions, as the C tools of this field do.

   struct reader r = open_text(path);
   while (next_row(&r, &label))
       while (next_feature(&r, &index, &value)) ... */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

struct reader {
    FILE *file;
    char *line, *at;
    size_t room;
    int bad; /* a line that is not LIBSVM text was met */
};

static struct reader open_text(const char *path) {
    struct reader r = {fopen(path, "rb"), NULL, NULL, 0, 0};
    return r;
}

static void close_text(struct reader *r) {
    free(r->line);
    fclose(r->file);
}

static int next_row(struct reader *r, double *label) {
    if (getline(&r->line, &r->room, r->file) <= 0) return 0;
    *label = strtod(r->line, &r->at);
    r->bad |= r->at == r->line;
    return !r->bad;
}

static int next_feature(struct reader *r, int *index, double *value) {
    char *after;
    long number = strtol(r->at, &after, 10);
    if (after == r->at) return 0; /* the end of the line */
    r->bad |= *after != ':';
    if (r->bad) return 0;
    *index = (int)number;
    *value = strtod(after + 1, &r->at);
    return 1;
}

/* Room for one more element: doubles when full, which for large blocks moves pages, not bytes. */
static void *with_room(void *array, size_t used, size_t *room, size_t element) {
    if (used < *room) return array;
    *room = *room ? 2 * *room : 4096;
    array = realloc(array, *room * element);
    if (!array) {
        fputs("out of memory\n", stderr);
        exit(1);
    }
    return array;
}
