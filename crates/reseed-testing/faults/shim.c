// Fails or kills a process at a chosen I/O call. Preloaded with LD_PRELOAD; built by the tests that use it.
//
//   RESEED_FAULT_PROGRAM   name of the process; children with another name are left alone
//   RESEED_FAULT_UNDER     only files whose path starts with this text count
//   RESEED_FAULT_CALLS     the calls that count, such as "write,fsync": open, write, fsync, rename, truncate, mkdir, unlink
//   RESEED_FAULT_AT        the call that fails, counted from 1; without it, none does
//   RESEED_FAULT_ERROR     its error number
//   RESEED_FAULT_STICKY    if set, all later calls fail too: a full disk stays full
//   RESEED_FAULT_KILL      if set, the process is killed at the call instead
//   RESEED_FAULT_LOG       file that gets a line for every call that counts
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

static const char *under, *calls, *log_path;
static long fail_at, error_number;
static int active, sticky, deadly;
static atomic_long counter;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void start(void) {
    const char *program = getenv("RESEED_FAULT_PROGRAM"), *at = getenv("RESEED_FAULT_AT");
    const char *error = getenv("RESEED_FAULT_ERROR");
    under = getenv("RESEED_FAULT_UNDER");
    calls = getenv("RESEED_FAULT_CALLS");
    log_path = getenv("RESEED_FAULT_LOG");
    fail_at = at ? atol(at) : 0;
    error_number = error ? atol(error) : EIO;
    sticky = getenv("RESEED_FAULT_STICKY") != NULL;
    deadly = getenv("RESEED_FAULT_KILL") != NULL;
    active = program && under && calls && strcmp(program, program_invocation_short_name) == 0;
}

// Whether the list of calls names this one.
static int counts(const char *call) {
    size_t length = strlen(call);
    for (const char *at = calls; (at = strstr(at, call)); at += length) {
        int starts = at == calls || at[-1] == ',';
        if (starts && (at[length] == ',' || at[length] == 0)) return 1;
    }
    return 0;
}

static void note(const char *call, const char *path, long number) {
    if (!log_path) return;
    char line[PATH_MAX + 64];
    int length = snprintf(line, sizeof line, "%ld %s %s\n", number, call, path);
    int file = REAL(open)(log_path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (file < 0) return;
    if (REAL(write)(file, line, length) != length) abort();
    close(file);
}

// Whether this call on this path fails now; sets errno.
static int fails(const char *call, const char *path) {
    if (!active || !counts(call)) return 0;
    char full[PATH_MAX + 2];
    if (path[0] != '/') {
        char folder[PATH_MAX / 2];
        if (!getcwd(folder, sizeof folder)) return 0;
        snprintf(full, sizeof full, "%s/%.*s", folder, PATH_MAX / 2, path);
        path = full;
    }
    if (strncmp(path, under, strlen(under))) return 0;
    long number = atomic_fetch_add(&counter, 1) + 1;
    note(call, path, number);
    if (!fail_at || number < fail_at || (number > fail_at && !sticky)) return 0;
    if (deadly) kill(getpid(), SIGKILL);
    errno = (int)error_number;
    return 1;
}

static int fails_open_file(const char *call, int file) {
    if (!active) return 0;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return 0;
    path[length] = 0;
    return fails(call, path);
}

static int writes(int flags) { return (flags & (O_WRONLY | O_RDWR | O_CREAT)) != 0; }

#define OPEN(name)                                           \
    int name(const char *path, int flags, ...) {             \
        va_list rest;                                        \
        va_start(rest, flags);                               \
        mode_t mode = va_arg(rest, mode_t);                  \
        va_end(rest);                                        \
        if (writes(flags) && fails("open", path)) return -1; \
        return REAL(name)(path, flags, mode);                \
    }

OPEN(open)
OPEN(open64)

ssize_t write(int file, const void *bytes, size_t count) {
    return fails_open_file("write", file) ? -1 : REAL(write)(file, bytes, count);
}

ssize_t writev(int file, const struct iovec *parts, int count) {
    return fails_open_file("write", file) ? -1 : REAL(writev)(file, parts, count);
}

ssize_t pwrite64(int file, const void *bytes, size_t count, off64_t at) {
    return fails_open_file("write", file) ? -1 : REAL(pwrite64)(file, bytes, count, at);
}

int fsync(int file) { return fails_open_file("fsync", file) ? -1 : REAL(fsync)(file); }

int fdatasync(int file) { return fails_open_file("fsync", file) ? -1 : REAL(fdatasync)(file); }

int ftruncate64(int file, off64_t length) {
    return fails_open_file("truncate", file) ? -1 : REAL(ftruncate64)(file, length);
}

int rename(const char *from, const char *to) { return fails("rename", to) ? -1 : REAL(rename)(from, to); }

int mkdir(const char *path, mode_t mode) { return fails("mkdir", path) ? -1 : REAL(mkdir)(path, mode); }

int unlink(const char *path) { return fails("unlink", path) ? -1 : REAL(unlink)(path); }

int rmdir(const char *path) { return fails("unlink", path) ? -1 : REAL(rmdir)(path); }
