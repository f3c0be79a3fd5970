/* memory KIND:MIB:PARAMETER ..: makes memory of these kinds, prints "ready" and waits.
 *
 *   memory --disable full|advised COMMAND ..   starts COMMAND with THP disabled
 *
 * SIGUSR1: collapses all that madvise(MADV_COLLAPSE) can, and prints "collapsed". If its output has
 * no reader, it kills its process group. -DOWN_MALLOC: uses a malloc other than glibc's. Each kind
 * is one function below; scripts/promised/cases.py documents the parameters. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define PAGE 4096ul
#define BLOCK (2ul << 20)
#define COLLAPSE 25
#define PAGEOUT 21
#define GUARD 102
#define RW (PROT_READ | PROT_WRITE)

static const char *folder;

static void need(int is_good, const char *what) {
  if (!is_good) { printf("%s: %s\n", what, strerror(errno)); exit(3); }
}

#ifdef OWN_MALLOC
static char *next, *end;
void *malloc(size_t n) {
  n = (n + 15) & ~15ul;
  if (!next || next + n > end) {
    size_t size = (8ul << 20) + (64ul << 10) + (n > 8ul << 20 ? n : 0);
    next = mmap(0, size, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = next + size;
  }
  char *found = next;
  next += n;
  return found;
}
void free(void *p) { (void)p; }
void *calloc(size_t a, size_t b) { return malloc(a * b); }
void *realloc(void *p, size_t n) {
  char *q = malloc(n);
  for (size_t i = 0; p && i < n && (char *)p + i < end; i++) q[i] = ((char *)p)[i];
  return q;
}
#endif

static char *map(size_t n, int protection, int flags, int fd) {
  char *p = mmap(0, n, protection, flags, fd, 0);
  need(p != MAP_FAILED, "mmap");
  return p;
}

static char *private(size_t n) { return map(n, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1); }

/* Touches every `step`-th page, each with distinct content. */
static void touch(char *p, size_t n, size_t step) {
  for (size_t at = 0; at < n; at += step * PAGE) {
    *(uint64_t *)(p + at) = at + 1;
    *(uint64_t *)(p + at + 64) = (at + 1) * 0x9e3779b97f4a7c15ul;
  }
}

static void fork_children(long nr, char *p, size_t n) {
  for (long i = 0; i < nr; i++) {
    int ends[2];
    char done;
    need(pipe(ends) == 0, "pipe");
    pid_t pid = fork();
    need(pid >= 0, "fork");
    if (!pid) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      signal(SIGTERM, SIG_DFL);
      sigset_t none;
      sigemptyset(&none);
      sigprocmask(SIG_SETMASK, &none, 0);
      for (size_t at = 0; p && at < n; at += PAGE) (void)*(volatile char *)(p + at);
      need(write(ends[1], "x", 1) == 1, "write");
      for (;;) pause();
    }
    need(read(ends[0], &done, 1) == 1, "read");
    close(ends[0]);
    close(ends[1]);
  }
}

static void all(size_t n, long step) { touch(private(n), n, step > 0 ? step : 1); }
static void head(size_t n, long percent) { touch(private(n), n * percent / 100 / PAGE * PAGE, 1); }
static void holes(size_t n, long step) {
  char *p = private(n);
  touch(p, n, 1);
  for (size_t at = 0; at < n; at += step * PAGE) {
    size_t hole = (step - 1) * PAGE;
    if (at + PAGE + hole > n) hole = n - at - PAGE;
    madvise(p + at + PAGE, hole, MADV_DONTNEED);
  }
}
static void guard(size_t n, long step) {
  char *p = private(n);
  touch(p, n, 1);
  for (size_t at = 0; at < n; at += step * PAGE) need(madvise(p + at, PAGE, GUARD) == 0, "MADV_GUARD_INSTALL");
}
static void swapped(size_t n, long percent) {
  char *p = private(n);
  touch(p, n, 1);
  size_t out = n * percent / 100 / PAGE * PAGE;
  for (int i = 0; i < 3; i++) need(madvise(p, out, PAGEOUT) == 0, "MADV_PAGEOUT");
}
/* All but one of `same` consecutive pages have equal content. */
static void merged(size_t n, long same) {
  char *p = private(n);
  need(madvise(p, n, MADV_MERGEABLE) == 0, "MADV_MERGEABLE");
  memset(p, 7, n);
  touch(p, n, same);
  size_t wanted = n / PAGE - n / PAGE / same - 64, last = 0;
  for (int i = 0; i < 300; i++) {
    char text[32] = "";
    int fd = open("/proc/self/ksm_merging_pages", O_RDONLY);
    need(fd >= 0 && read(fd, text, 31) > 0, "ksm_merging_pages");
    close(fd);
    if ((last = strtoul(text, 0, 10)) >= wanted) return;
    usleep(20000);
  }
  printf("merged only %zu of %zu pages\n", last, wanted);
  exit(3);
}
static void pinned(size_t n, long step) {
  char *p = private(n);
  touch(p, n, step > 0 ? step : 1);
  struct io_uring_params parameters = {0};
  int fd = syscall(SYS_io_uring_setup, 4, &parameters);
  need(fd >= 0, "io_uring_setup");
  struct iovec half = {p, n / 2 / BLOCK * BLOCK};
  need(syscall(SYS_io_uring_register, fd, 0, &half, 1) == 0, "IORING_REGISTER_BUFFERS");
}
static void locked(size_t n, long step) {
  char *p = private(n);
  touch(p, n, step > 0 ? step : 1);
  need(mlock(p, n / 2) == 0, "mlock");
}
static void armed(size_t n, long step) {
  char *p = private(n);
  touch(p, n, step > 0 ? step : 1);
  int fd = syscall(SYS_userfaultfd, O_CLOEXEC);
  need(fd >= 0, "userfaultfd");
  struct uffdio_api api = {.api = UFFD_API};
  need(ioctl(fd, UFFDIO_API, &api) == 0, "UFFDIO_API");
  struct uffdio_register range = {.range = {(uintptr_t)p, n}, .mode = UFFDIO_REGISTER_MODE_MISSING};
  need(ioctl(fd, UFFDIO_REGISTER, &range) == 0, "UFFDIO_REGISTER");
}
static void tail(size_t n, long times) {
  char *p = map(n * times, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  need(mprotect(p, n, RW) == 0, "mprotect");
  touch(p, n, 1);
}
static void pieces(size_t n, long pages) {
  char *p = private(n);
  touch(p, n, 1);
  for (size_t at = 0; at + pages * PAGE <= n; at += 2 * pages * PAGE)
    need(mprotect(p + at, pages * PAGE, PROT_READ) == 0, "mprotect");
}
static void advised(size_t n, long when) {
  char *p = private(n);
  if (when == 1) touch(p, n, 1);
  need(madvise(p, n, when == 2 ? MADV_NOHUGEPAGE : MADV_HUGEPAGE) == 0, "madvise");
  if (when != 1) touch(p, n, 1);
}
static void small(size_t n, long bytes) {
  for (size_t at = 0; at < n; at += bytes) memset(malloc(bytes), 1, bytes);
}
static void large(size_t n, long pieces_of) {
  for (long i = 0; i < pieces_of; i++) touch(malloc(n / pieces_of), n / pieces_of - PAGE, 1);
}
static void *in_thread(void *bytes) {
  size_t n = (size_t)bytes;
  volatile char *deep = __builtin_alloca(n);
  for (size_t at = 0; at < n; at += PAGE) deep[at] = 1;
  printf(".");
  fflush(stdout);
  for (;;) pause();
  return 0;
}
static void threads(size_t n, long nr) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, n);
  for (long i = 0; i < nr; i++) {
    pthread_t one;
    need(pthread_create(&one, &attributes, in_thread, (void *)(n * 3 / 4)) == 0, "pthread_create");
  }
  usleep(200000);
}
/* `nr` views of one memfd; from 11, (nr - 10) views, of which only the first is touched. */
static void views(size_t n, long nr) {
  int fd = memfd_create("views", 0), is_first_only = nr > 10;
  need(fd >= 0 && ftruncate(fd, n) == 0, "memfd");
  for (long i = 0; i < (is_first_only ? nr - 10 : nr); i++) {
    char *p = map(n, RW, MAP_SHARED, fd);
    if (!i || !is_first_only) touch(p, n, 1);
  }
}
static void shared(size_t n, long children) {
  char *p = map(n, RW, MAP_SHARED | MAP_ANONYMOUS, -1);
  touch(p, n, 1);
  fork_children(children, p, n);
}
static void sparse_shared(size_t n, long step) { touch(map(n, RW, MAP_SHARED | MAP_ANONYMOUS, -1), n, step); }
static void forked(size_t n, long children) {
  char *p = private(n);
  touch(p, n, 1);
  fork_children(children, p, n);
}
static void on_tmpfs(size_t n, long which) {
  static const char *const huge[] = {"never", "always", "within_size", "advise"};
  static int nr;
  char path[4096];
  snprintf(path, sizeof path, "%s/tmpfs-%s/file-%d-%d", folder, huge[which % 4], getpid(), nr++);
  int fd = open(path, O_RDWR | O_CREAT, 0600);
  need(fd >= 0 && ftruncate(fd, n) == 0, path);
  touch(map(n, RW, MAP_SHARED, fd), n, which >= 4 ? 5 : 1);
}
static void hugetlb(size_t n, long percent) {
  char *p = map(n, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1);
  touch(p, n * percent / 100 / BLOCK * BLOCK, 1);
}
/* At an address that is not aligned to any of the memory's blocks. */
static void odd(size_t n, long pages) {
  char *p = map(n + 2 * BLOCK, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
  char *at = (char *)(((uintptr_t)p + BLOCK) & ~(BLOCK - 1)) + pages * PAGE;
  need(mmap(at, n, RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at, "mmap");
  touch(at, n, 1);
}

static const struct { const char *name; void (*make)(size_t, long); } KINDS[] = {
  {"private", all}, {"head", head}, {"holes", holes}, {"guard", guard}, {"swapped", swapped}, {"merged", merged},
  {"pinned", pinned}, {"locked", locked}, {"armed", armed}, {"tail", tail}, {"pieces", pieces}, {"advised", advised},
  {"small", small}, {"large", large}, {"threads", threads}, {"views", views}, {"shared", shared},
  {"sparse_shared", sparse_shared}, {"forked", forked}, {"tmpfs", on_tmpfs}, {"hugetlb", hugetlb}, {"odd", odd},
};

/* Returns how many of the 512 pages at `at` have content. */
static int nr_with_content(int pagemap, uintptr_t at) {
  uint64_t entries[BLOCK / PAGE];
  int nr = 0;
  if (pread(pagemap, entries, sizeof entries, at / PAGE * 8) != sizeof entries) return 0;
  for (size_t i = 0; i < BLOCK / PAGE; i++)
    nr += (entries[i] >> 63 & 1) || ((entries[i] >> 62 & 1) && !(entries[i] >> 58 & 1));
  return nr;
}

static void collapse(void) {
  int pagemap = open("/proc/self/pagemap", O_RDONLY);
  FILE *maps = fopen("/proc/self/maps", "r");
  struct { uintptr_t start, end; } *ranges = mmap(0, 1 << 20, RW, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  char line[8192], mode[5];
  size_t nr = 0;
  need(pagemap >= 0 && maps && ranges != MAP_FAILED, "/proc/self");
  while (fgets(line, sizeof line, maps) && nr < (1 << 20) / sizeof *ranges) {
    char *path = strchr(line, '/');
    if (sscanf(line, "%lx-%lx %4s", &ranges[nr].start, &ranges[nr].end, mode) != 3 || mode[1] != 'w') continue;
    if (path && mode[3] != 's') continue;
    nr += ranges[nr].end - ranges[nr].start >= BLOCK;
  }
  for (size_t i = 0; i < nr; i++)
    for (uintptr_t at = (ranges[i].start + BLOCK - 1) & ~(BLOCK - 1); at + BLOCK <= ranges[i].end; at += BLOCK)
      if (nr_with_content(pagemap, at))
        for (int tries = 0; tries < 3 && madvise((void *)at, BLOCK, COLLAPSE) && errno == EAGAIN; tries++) usleep(1000);
  fclose(maps);
  close(pagemap);
}

int main(int argc, char **argv) {
  if (argc > 3 && !strcmp(argv[1], "--disable")) {
    need(prctl(PR_SET_THP_DISABLE, 1, strcmp(argv[2], "full") ? 2 : 0, 0, 0) == 0, "PR_SET_THP_DISABLE");
    execv(argv[3], argv + 3);
    need(0, argv[3]);
  }
  folder = argv[1];
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  sigprocmask(SIG_BLOCK, &set, 0);
  for (int i = 2; i < argc; i++) {
    char name[32];
    unsigned long kib;
    long parameter;
    size_t kind = 0, nr_kinds = sizeof KINDS / sizeof *KINDS;
    need(sscanf(argv[i], "%31[^:]:%lu:%ld", name, &kib, &parameter) == 3, argv[i]);
    while (kind < nr_kinds && strcmp(name, KINDS[kind].name)) kind++;
    need(kind < nr_kinds, argv[i]);
    KINDS[kind].make(kib << 10, parameter);
  }
  puts("ready");
  fflush(stdout);
  struct pollfd reader = {.fd = STDOUT_FILENO};
  struct timespec second = {1, 0};
  while (poll(&reader, 1, 0) >= 0 && !(reader.revents & POLLERR)) {
    if (sigtimedwait(&set, 0, &second) != SIGUSR1) continue;
    collapse();
    puts("collapsed");
    fflush(stdout);
  }
  kill(0, SIGKILL);
}
