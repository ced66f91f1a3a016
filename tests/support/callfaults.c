/* Makes one call of the C library fail in one process, when and how a block of shared memory says. For LD_PRELOAD.
 *
 * The block is the file that MESHRT_TEST_FAULTS names; forked children share it. The tests write it (callfaults.py), and
 * read from it how often the call was made. It also moves the clock of the day for every process.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

/* How each one tells of a failure: MINUS (-1 and errno), NUMBER (returns it), NOTHING (a null pointer and errno). */
#define FUNCTIONS(X) \
    X(accept4, MINUS) X(bind, MINUS) X(connect, MINUS) X(dup, MINUS) X(dup2, MINUS) X(epoll_create1, MINUS) \
    X(epoll_ctl, MINUS) X(epoll_wait, MINUS) X(eventfd, MINUS) X(fcntl64, MINUS) X(fdopendir, NOTHING) \
    X(fopen64, NOTHING) X(fork, MINUS) X(fstat64, MINUS) X(ftruncate64, MINUS) X(getsockopt, MINUS) \
    X(ioctl, MINUS) X(kill, MINUS) X(listen, MINUS) X(madvise, MINUS) X(memfd_create, MINUS) X(mkdir, MINUS) \
    X(mmap64, MINUS) X(open64, MINUS) X(openat64, MINUS) X(opendir, NOTHING) X(pipe2, MINUS) X(poll, MINUS) \
    X(posix_fallocate64, NUMBER) X(pread64, MINUS) X(pthread_create, NUMBER) X(pwrite64, MINUS) X(read, MINUS) \
    X(readdir64, NOTHING) X(recv, MINUS) X(recvmsg, MINUS) X(rename, MINUS) X(send, MINUS) X(sendmsg, MINUS) \
    X(setsockopt, MINUS) X(socket, MINUS) X(socketpair, MINUS) X(stat64, MINUS) X(lstat64, MINUS) X(unlink, MINUS) \
    X(vfork, MINUS) X(waitpid, MINUS) X(wait4, MINUS) X(write, MINUS) X(writev, MINUS) X(mkdirat, MINUS) \
    X(renameat, MINUS) X(unlinkat, MINUS) X(fstatat64, MINUS) X(fsync, MINUS) X(flock, MINUS) X(fallocate, MINUS) \
    X(epoll_pwait, MINUS) X(rmdir, MINUS) X(readlinkat, MINUS) X(mkfifo, MINUS) X(truncate64, MINUS) \
    X(utimensat, MINUS) X(futimens, MINUS) X(fchmodat, MINUS) X(fchmod, MINUS) X(preadv64v2, MINUS)

/* Those that Python reaches by their number. */
#define NUMBERED(X) X(pidfd_open) X(pidfd_send_signal)

enum kind { MINUS, NUMBER, NOTHING };
enum function {
#define X(name, kind) F_##name,
    FUNCTIONS(X)
#undef X
#define X(name) F_##name,
    NUMBERED(X)
#undef X
    F_COUNT
};

struct control {
    int armed;          /* 1: calls of `process` are counted, and `function` fails */
    int process;        /* a pid, or, negative, that of the parent of all who are meant */
    int function;       /* -1: none fails */
    int error;
    int skip;           /* this many calls of it succeed first */
    int times;          /* then this many fail */
    int seen;
    int failed;
    int files;          /* 1: reads and writes count, and fail, only of regular files */
    long long shift;    /* seconds that the clock of the day is off */
    int counts[F_COUNT];
};

static struct control *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("MESHRT_TEST_FAULTS");
    int file = path ? (int)syscall(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0)
        return;
    void *found = (void *)syscall(SYS_mmap, 0, sizeof(struct control), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0L);
    if ((long)found > 0 || (long)found < -4095)
        control = found;
    syscall(SYS_close, file);
}

static int is_of_file(int function, long number) {
    struct stat found;
    switch (function) {
    case F_pread64: case F_preadv64v2: case F_pwrite64: case F_read: case F_write: case F_writev:
        return !syscall(SYS_fstat, number, &found) && S_ISREG(found.st_mode);
    }
    return 1;
}

/* Whether a call that has several uses has one that takes something: the others cannot fail. */
static int takes(int function, long use) {
    switch (function) {
    case F_epoll_ctl: return use == EPOLL_CTL_ADD;
    case F_fcntl64: return use == F_DUPFD || use == F_DUPFD_CLOEXEC;
    }
    return 1;
}

/* Returns what this call, whose first arguments are given, fails with; 0: it does not. */
static int fails(int function, long first, long second) {
    struct control *c = control;
    if (!takes(function, second))
        return 0;
    if (!c || !__atomic_load_n(&c->armed, __ATOMIC_ACQUIRE))
        return 0;
    int process = c->process;
    if (process != (process < 0 ? -getppid() : getpid()))
        return 0;
    if (c->files && !is_of_file(function, first))
        return 0;
    __atomic_add_fetch(&c->counts[function], 1, __ATOMIC_RELAXED);
    if (function != c->function)
        return 0;
    int number = __atomic_fetch_add(&c->seen, 1, __ATOMIC_RELAXED);
    if (number < c->skip || number >= c->skip + c->times)
        return 0;
    __atomic_add_fetch(&c->failed, 1, __ATOMIC_RELAXED);
    return c->error;
}

/* In place of vfork, which would return twice here; as there, no library is told of it. */
#define FORK "_Fork"

/* Any of them, by its registers: no argument is a floating point number. */
typedef long (*any)(long, long, long, long, long, long);

#define X(name, kind) \
    long fail_##name(long a, long b, long c, long d, long e, long f) __asm__(#name); \
    long fail_##name(long a, long b, long c, long d, long e, long f) { \
        static any real; \
        if (!real) \
            real = (any)dlsym(RTLD_NEXT, F_##name == F_vfork ? FORK : #name); \
        int error = fails(F_##name, a, b); \
        if (!error) \
            return real(a, b, c, d, e, f); \
        if (kind == NUMBER) \
            return error; \
        errno = error; \
        return kind == NOTHING ? 0 : -1; \
    }
FUNCTIONS(X)
#undef X

long fail_syscall(long number, ...) __asm__("syscall");
long fail_syscall(long number, ...) {
    static long (*real)(long, ...);
    if (!real)
        real = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
    __builtin_va_list list;
    __builtin_va_start(list, number);
    long a[6];
    for (int i = 0; i < 6; i++)
        a[i] = __builtin_va_arg(list, long);
    __builtin_va_end(list);
    int error = 0;
#define X(name) \
    if (number == SYS_##name) \
        error = fails(F_##name, a[0], a[1]);
    NUMBERED(X)
#undef X
    if (error) {
        errno = error;
        return -1;
    }
    return real(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static long long shift(void) { return control ? __atomic_load_n(&control->shift, __ATOMIC_RELAXED) : 0; }

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int result = real(clock, now);
    if (result == 0 && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
        now->tv_sec += shift();
    return result;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec found;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &found);
    now->tv_sec = found.tv_sec;
    now->tv_usec = found.tv_nsec / 1000;
    return result;
}

time_t time(time_t *into) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (into)
        *into = found.tv_sec;
    return found.tv_sec;
}
