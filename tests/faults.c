/* A file system that fails on demand: loaded before libc by LD_PRELOAD, armed by a test.

   Calls for files below one directory are noted and counted. What the chosen one does is one of the `actions`; all
   others do what they always do. Before `faults_arm` nothing is counted, and nothing fails. */

#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>
#undef open64
#undef openat64
#undef pwrite64
#undef ftruncate64

enum actions { NOTHING, FAIL, FAIL_FROM_HERE, SHORTEN, SHORTEN_THEN_FAIL, END_BEFORE, END_HALFWAY, END_AFTER };
enum fates { UNHARMED, REFUSED, HALVED, LAST };

static char root[4096], notes[1 << 17], names[1024][256];
static char watched[1024]; /* descriptors of files below the root */
static int action, place, code, seen, hits, full;

void faults_arm(const char *directory, int what, int at, int error) {
    snprintf(root, sizeof root, "%s", directory);
    action = what, place = at, code = error;
    seen = hits = full = 0;
    notes[0] = 0;
}

void faults_disarm(void) { root[0] = 0; }
int faults_seen(void) { return seen; } /* calls so far */
int faults_hits(void) { return hits; } /* those among them that did not do what they always do */
const char *faults_notes(void) { return notes; }

static int below(const char *path) {
    size_t length = strlen(root);
    return length && !strncmp(path, root, length) && (path[length] == 0 || path[length] == '/');
}

static int open_below(int fd) { return root[0] && fd >= 0 && fd < 1024 && watched[fd]; }

static const char *name_of(const char *path) { return path[strlen(root)] ? path + strlen(root) + 1 : "."; }

/* Note a call, and decide what becomes of it. After SHORTEN_THEN_FAIL the next write is refused. */
static enum fates fate(const char *call, const char *name, int writes, size_t size) {
    size_t used = strlen(notes);
    snprintf(notes + used, sizeof notes - used, "%s %s %zu\n", call, name, size);
    seen++;
    int here = seen == place, refused = (here && action == FAIL) || (seen >= place && action == FAIL_FROM_HERE);
    if (refused || (full && writes)) {
        full = 0, hits++, errno = code;
        return REFUSED;
    }
    if (here && action == END_BEFORE) _exit(137);
    if (here && writes && (action == SHORTEN || action == SHORTEN_THEN_FAIL)) {
        hits++, full = action == SHORTEN_THEN_FAIL;
        return HALVED;
    }
    if (here && writes && action == END_HALFWAY) return LAST;
    return here && action == END_AFTER ? LAST : UNHARMED;
}

/* The amount that a write may write. */
static size_t allowed(enum fates what, size_t size) {
    return what == HALVED || (what == LAST && action == END_HALFWAY) ? (size + 1) / 2 : size;
}

static long after(enum fates what, long result) {
    if (what == LAST) _exit(137);
    return result;
}

#define DONE(what, doing) ((what) == REFUSED ? -1 : after(what, doing))

#define REAL(name) ((__typeof__(&name))real(#name))

static void *real(const char *name) {
    void *found = dlsym(RTLD_NEXT, name);
    if (!found) abort();
    return found;
}

/* Opening. */

static int opened(int directory, const char *path, int flags, mode_t mode) {
    flags |= O_LARGEFILE;
    if (!below(path)) return REAL(openat)(directory, path, flags, mode);
    enum fates what = fate(flags & O_CREAT ? "create" : "open", name_of(path), 0, 0);
    int fd = DONE(what, REAL(openat)(directory, path, flags, mode));
    if (fd >= 0 && fd < 1024) {
        watched[fd] = 1;
        snprintf(names[fd], sizeof names[fd], "%s", name_of(path));
    }
    return fd;
}

#define MODE(flags, mode)                                                                                              \
    mode_t mode = 0;                                                                                                   \
    if ((flags) & (O_CREAT | __O_TMPFILE)) {                                                                           \
        va_list rest;                                                                                                  \
        va_start(rest, flags);                                                                                         \
        mode = (mode_t)va_arg(rest, int);                                                                              \
        va_end(rest);                                                                                                  \
    }

int open(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(AT_FDCWD, path, flags, mode);
}

int openat(int directory, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(directory, path, flags, mode);
}

int openat64(int directory, const char *path, int flags, ...) {
    MODE(flags, mode)
    return opened(directory, path, flags, mode);
}

int mkdir(const char *path, mode_t mode) {
    if (!below(path)) return REAL(mkdir)(path, mode);
    enum fates what = fate("mkdir", name_of(path), 0, 0);
    return DONE(what, REAL(mkdir)(path, mode));
}

/* Writing. */

ssize_t write(int fd, const void *data, size_t size) {
    if (!open_below(fd)) return REAL(write)(fd, data, size);
    enum fates what = fate("write", names[fd], 1, size);
    return DONE(what, REAL(write)(fd, data, allowed(what, size)));
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) {
    if (!open_below(fd)) return REAL(pwrite)(fd, data, size, offset);
    enum fates what = fate("write", names[fd], 1, size);
    return DONE(what, REAL(pwrite)(fd, data, allowed(what, size), offset));
}

ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return pwrite(fd, data, size, offset); }

ssize_t writev(int fd, const struct iovec *pieces, int count) {
    if (!open_below(fd)) return REAL(writev)(fd, pieces, count);
    enum fates what = fate("write", names[fd], 1, (size_t)count);
    return DONE(what, REAL(writev)(fd, pieces, (int)allowed(what, (size_t)count)));
}

int ftruncate(int fd, off_t size) {
    if (!open_below(fd)) return REAL(ftruncate)(fd, size);
    enum fates what = fate("truncate", names[fd], 0, (size_t)size);
    return DONE(what, REAL(ftruncate)(fd, size));
}

int ftruncate64(int fd, off_t size) { return ftruncate(fd, size); }

int fsync(int fd) {
    if (!open_below(fd)) return REAL(fsync)(fd);
    enum fates what = fate("fsync", names[fd], 0, 0);
    return DONE(what, REAL(fsync)(fd));
}

int fdatasync(int fd) {
    if (!open_below(fd)) return REAL(fdatasync)(fd);
    enum fates what = fate("fsync", names[fd], 0, 0);
    return DONE(what, REAL(fdatasync)(fd));
}

int close(int fd) { /* the descriptor is gone even if this fails */
    if (!open_below(fd)) {
        if (fd >= 0 && fd < 1024) watched[fd] = 0;
        return REAL(close)(fd);
    }
    enum fates what = fate("close", names[fd], 0, 0);
    int error = errno;
    watched[fd] = 0;
    int result = (int)after(what, REAL(close)(fd));
    if (what == REFUSED) errno = error;
    return what == REFUSED ? -1 : result;
}

/* Names. */

static int renamed(int from, const char *old, int to, const char *new, unsigned flags) {
    if (!below(old) && !below(new)) return REAL(renameat2)(from, old, to, new, flags);
    enum fates what = fate("rename", name_of(new), 0, 0);
    return DONE(what, REAL(renameat2)(from, old, to, new, flags));
}

int rename(const char *old, const char *new) { return renamed(AT_FDCWD, old, AT_FDCWD, new, 0); }

int renameat(int from, const char *old, int to, const char *new) { return renamed(from, old, to, new, 0); }

int renameat2(int from, const char *old, int to, const char *new, unsigned flags) {
    return renamed(from, old, to, new, flags);
}

int unlinkat(int directory, const char *path, int flags) {
    if (!below(path)) return REAL(unlinkat)(directory, path, flags);
    enum fates what = fate("unlink", name_of(path), 0, 0);
    return DONE(what, REAL(unlinkat)(directory, path, flags));
}

int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
