/* Lets a fault strike a process at its n-th call that changes a file. `make faults` preloads it.
 *
 * arm(n, error): error 0 kills the process at the call, another one is what the call fails with.
 * calls() is the number of calls since then.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

static volatile long target, counted;
static volatile int fault;

void arm(long at, int error) { counted = 0, fault = error, target = at; }

long calls(void) { return counted; }

/* Whether the call has to fail. */
static int strike(void) {
  if (!target) return 0;
  if (__sync_add_and_fetch(&counted, 1) != target) return 0;
  if (!fault) kill(getpid(), SIGKILL);
  errno = fault;
  return 1;
}

static int is_file(int descriptor) {
  struct stat status;
  int kept = errno, found = !fstat(descriptor, &status) && S_ISREG(status.st_mode);
  errno = kept;
  return found;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define WRAP(result, name, parameters, arguments, counts)  \
  result name parameters {                                 \
    static __typeof__(&name) real;                         \
    if (!real) real = REAL(name);                          \
    return (counts) && strike() ? (result)-1 : real arguments; \
  }
#define OPEN(name, parameters, arguments)                          \
  int name parameters {                                            \
    static __typeof__(&name) real;                                 \
    if (!real) real = REAL(name);                                  \
    mode_t mode = 0;                                               \
    if (flags & (O_CREAT | __O_TMPFILE)) {                         \
      va_list rest;                                                \
      va_start(rest, flags), mode = va_arg(rest, mode_t), va_end(rest); \
      if (strike()) return -1;                                     \
    }                                                              \
    return real arguments;                                         \
  }

OPEN(open, (const char *path, int flags, ...), (path, flags, mode))
OPEN(open64, (const char *path, int flags, ...), (path, flags, mode))
OPEN(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode))
OPEN(openat64, (int at, const char *path, int flags, ...), (at, path, flags, mode))
WRAP(ssize_t, write, (int to, const void *from, size_t size), (to, from, size), is_file(to))
WRAP(ssize_t, pwrite, (int to, const void *from, size_t size, off_t at), (to, from, size, at), is_file(to))
WRAP(ssize_t, pwrite64, (int to, const void *from, size_t size, off64_t at), (to, from, size, at), is_file(to))
WRAP(ssize_t, sendfile, (int to, int from, off_t *at, size_t size), (to, from, at, size), is_file(to))
WRAP(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t size), (to, from, at, size), is_file(to))
WRAP(int, fsync, (int descriptor), (descriptor), 1)
WRAP(int, fdatasync, (int descriptor), (descriptor), 1)
WRAP(int, ftruncate, (int descriptor, off_t size), (descriptor, size), 1)
WRAP(int, ftruncate64, (int descriptor, off64_t size), (descriptor, size), 1)
WRAP(int, rename, (const char *from, const char *to), (from, to), 1)
WRAP(int, renameat, (int at, const char *from, int in, const char *to), (at, from, in, to), 1)
WRAP(int, mkdir, (const char *path, mode_t mode), (path, mode), 1)
WRAP(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), 1)
WRAP(int, rmdir, (const char *path), (path), 1)
WRAP(int, unlink, (const char *path), (path), 1)
WRAP(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), 1)
WRAP(int, link, (const char *from, const char *to), (from, to), 1)
WRAP(int, chmod, (const char *path, mode_t mode), (path, mode), 1)
