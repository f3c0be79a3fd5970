/* System calls, text and numbers without a C library.
 *
 * The probe must touch only memory that it names: no loader, no libc, no heap. Everything here is
 * static and small; memory beyond the stack comes from mmap. */
#ifndef LARGEFOLIO_SYS_H
#define LARGEFOLIO_SYS_H

typedef unsigned long u64;
typedef long s64;
typedef unsigned char u8;

#define FAIL(result) ((u64)(result) > -4096UL)
#define AT_FDCWD (-100)
#define O_RDONLY 0
#define O_WRONLY 1
#define O_RDWR 2
#define O_CREAT 0100
#define O_TRUNC 01000
#define PROT_READ 1
#define PROT_WRITE 2
#define PROT_EXEC 4
#define MAP_SHARED 1
#define MAP_PRIVATE 2
#define MAP_ANONYMOUS 0x20
#define MAP_FIXED_NOREPLACE 0x100000
#define MS_MOVE 0x2000

#if defined(__x86_64__)
enum { SYS_read = 0, SYS_write = 1, SYS_close = 3, SYS_lseek = 8, SYS_mmap = 9, SYS_munmap = 11,
       SYS_pread = 17, SYS_pwrite = 18, SYS_mincore = 27, SYS_madvise = 28, SYS_nanosleep = 35,
       SYS_clone = 56, SYS_execve = 59, SYS_exit = 231, SYS_wait4 = 61, SYS_uname = 63,
       SYS_fsync = 74, SYS_ftruncate = 77, SYS_getrusage = 98, SYS_mount = 165, SYS_sync = 162,
       SYS_reboot = 169, SYS_dup3 = 292, SYS_fadvise = 221, SYS_openat = 257, SYS_mkdirat = 258,
       SYS_fallocate = 285, SYS_finit_module = 313, SYS_sched_setaffinity = 203, SYS_umount2 = 166,
       SYS_prctl = 157, SYS_statx = 332, SYS_getcpu = 309, SYS_ioctl = 16, SYS_getpid = 39,
       SYS_chdir = 80, SYS_chroot = 161, SYS_unlinkat = 263 };
static s64 call6(s64 nr, s64 a, s64 b, s64 c, s64 d, s64 e, s64 f)
{
    register s64 r10 __asm__("r10") = d;
    register s64 r8 __asm__("r8") = e;
    register s64 r9 __asm__("r9") = f;
    __asm__ volatile("syscall" : "+a"(nr) : "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return nr;
}
__asm__(".globl _start\n_start: xor %ebp,%ebp\nmov %rsp,%rdi\nand $-16,%rsp\ncall start\n");
#define ARCH "x86-64"
#elif defined(__aarch64__)
enum { SYS_read = 63, SYS_write = 64, SYS_close = 57, SYS_lseek = 62, SYS_mmap = 222,
       SYS_munmap = 215, SYS_pread = 67, SYS_pwrite = 68, SYS_mincore = 232, SYS_madvise = 233,
       SYS_nanosleep = 101, SYS_clone = 220, SYS_execve = 221, SYS_exit = 94, SYS_wait4 = 260,
       SYS_uname = 160, SYS_fsync = 82, SYS_ftruncate = 46, SYS_getrusage = 165, SYS_mount = 40,
       SYS_sync = 81, SYS_reboot = 142, SYS_dup3 = 24, SYS_fadvise = 223, SYS_openat = 56,
       SYS_mkdirat = 34, SYS_fallocate = 47, SYS_finit_module = 273, SYS_sched_setaffinity = 122,
       SYS_umount2 = 39, SYS_prctl = 167, SYS_statx = 291, SYS_getcpu = 168, SYS_ioctl = 29,
       SYS_getpid = 172, SYS_chdir = 49, SYS_chroot = 51, SYS_unlinkat = 35 };
static s64 call6(s64 nr, s64 a, s64 b, s64 c, s64 d, s64 e, s64 f)
{
    register s64 x8 __asm__("x8") = nr;
    register s64 x0 __asm__("x0") = a;
    register s64 x1 __asm__("x1") = b;
    register s64 x2 __asm__("x2") = c;
    register s64 x3 __asm__("x3") = d;
    register s64 x4 __asm__("x4") = e;
    register s64 x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5)
                     : "memory");
    return x0;
}
__asm__(".globl _start\n_start: mov x29,#0\nmov x0,sp\nbl start\n");
#define ARCH "arm64"
#else
#error "the probe knows x86-64 and arm64"
#endif

static s64 sys1(s64 nr, s64 a) { return call6(nr, a, 0, 0, 0, 0, 0); }
static s64 sys2(s64 nr, s64 a, s64 b) { return call6(nr, a, b, 0, 0, 0, 0); }
static s64 sys3(s64 nr, s64 a, s64 b, s64 c) { return call6(nr, a, b, c, 0, 0, 0); }
static s64 sys4(s64 nr, s64 a, s64 b, s64 c, s64 d) { return call6(nr, a, b, c, d, 0, 0); }

/* gcc may turn loops into calls of these. */
void *memset(void *to, int byte, u64 n)
{
    u8 *p = to;
    while (n--) { *p++ = (u8)byte; __asm__ volatile("" ::: "memory"); }
    return to;
}
void *memcpy(void *to, const void *from, u64 n)
{
    u8 *p = to;
    const u8 *q = from;
    while (n--) { *p++ = *q++; __asm__ volatile("" ::: "memory"); }
    return to;
}

static u64 length(const char *text)
{
    u64 n = 0;
    while (text[n]) { n++; }
    return n;
}

/* Returns whether `text` begins with `prefix`; `rest` then points after it. */
static int begins(const char *text, const char *prefix, const char **rest)
{
    while (*prefix) {
        if (*text++ != *prefix++) { return 0; }
    }
    if (rest) { *rest = text; }
    return 1;
}

static int equal(const char *a, const char *b)
{
    const char *rest;
    return begins(a, b, &rest) && !*rest;
}

/* Returns the first occurrence of `part` in `text` before the end of the line, or 0. */
static const char *within(const char *text, const char *part)
{
    for (; *text && *text != '\n'; text++) {
        if (begins(text, part, 0)) { return text + length(part); }
    }
    return 0;
}

/* Parses the number at `*text` (decimal, or hexadecimal after 0x or when `base` is 16). */
static u64 number(const char **text, u64 base)
{
    const char *p = *text;
    u64 value = 0;
    if (p[0] == '0' && p[1] == 'x') { base = 16; p += 2; }
    for (;; p++) {
        u64 digit = *p >= '0' && *p <= '9' ? (u64)(*p - '0')
            : base == 16 && *p >= 'a' && *p <= 'f' ? (u64)(*p - 'a' + 10) : 99;
        if (digit >= base) { break; }
        value = value * base + digit;
    }
    *text = p;
    return value;
}

static u64 as_number(const char *text) { return number(&text, 10); }

/* Parses the decimal number at `*text`; an `x` ends it. */
static u64 decimal(const char **text)
{
    u64 value = 0;
    for (; **text >= '0' && **text <= '9'; (*text)++) { value = value * 10 + (u64)(**text - '0'); }
    return value;
}

/* Buffered output, written in one call. */
static char out_text[1 << 16];
static u64 out_len;
static void flush_to(int fd)
{
    for (u64 done = 0; done < out_len;) {
        s64 n = sys3(SYS_write, fd, (s64)(out_text + done), (s64)(out_len - done));
        if (n <= 0) { break; }
        done += (u64)n;
    }
    out_len = 0;
}
static void put_char(char c)
{
    if (out_len == sizeof out_text) { flush_to(1); }
    out_text[out_len++] = c;
}
static void put(const char *text)
{
    while (*text) { put_char(*text++); }
}
static void put_number(u64 value, u64 base)
{
    char digits[24];
    int n = 0;
    do {
        digits[n++] = "0123456789abcdef"[value % base];
        value /= base;
    } while (value);
    while (n) { put_char(digits[--n]); }
}
static void put_pair(const char *key, u64 value)
{
    put(" ");
    put(key);
    put("=");
    put_number(value, 10);
}

static void quit(int status) __attribute__((noreturn));
static void quit(int status)
{
    for (;;) { sys1(SYS_exit, status); }
}

/* Ends the program with an error message and the error number. */
static void fatal(const char *what, const char *which, s64 error) __attribute__((noreturn));
static void fatal(const char *what, const char *which, s64 error)
{
    out_len = 0;
    put("probe: ");
    put(what);
    put(" ");
    put(which);
    put(": error ");
    put_number((u64)(error < 0 ? -error : error), 10);
    put("\n");
    flush_to(2);
    quit(2);
}

static s64 must(s64 result, const char *what, const char *which)
{
    if (FAIL(result)) { fatal(what, which, result); }
    return result;
}

static int open_file(const char *path, int flags)
{
    return (int)sys4(SYS_openat, AT_FDCWD, (s64)path, flags, 0644);
}

static void *anonymous(u64 bytes)
{
    s64 at = call6(SYS_mmap, 0, (s64)bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                   -1, 0);
    must(at, "memory for", "buffers");
    return (void *)at;
}

/* Writes `text` to the file at `path`; returns false on failure. */
static int write_file(const char *path, const char *text)
{
    int fd = open_file(path, O_WRONLY);
    if (fd < 0) { return 0; }
    s64 n = sys3(SYS_write, fd, (s64)text, (s64)length(text));
    sys1(SYS_close, fd);
    return n == (s64)length(text);
}

/* Reads a whole file into `to`; returns -1 if it cannot be opened. Always ends with a NUL. */
static s64 read_file(const char *path, char *to, u64 room)
{
    int fd = open_file(path, O_RDONLY);
    if (fd < 0) { return -1; }
    u64 len = 0;
    for (s64 n; len + 1 < room; len += (u64)n) {
        n = sys3(SYS_read, fd, (s64)(to + len), (s64)(room - 1 - len));
        if (n <= 0) { break; }
    }
    sys1(SYS_close, fd);
    to[len] = 0;
    return (s64)len;
}

/* Returns the LRU in use: generations or lists. */
static const char *lists_in_use(void)
{
    static char value[32];
    s64 n = read_file("/sys/kernel/mm/lru_gen/enabled", value, sizeof value);
    const char *text = value;
    return n > 0 && number(&text, 16) ? "generations" : "lists";
}

static void sleep_us(u64 us)
{
    s64 time[2] = { (s64)(us / 1000000), (s64)(us % 1000000 * 1000) };
    sys2(SYS_nanosleep, (s64)time, 0);
}

/* `dir` + "/" + `name`. */
static const char *path_of(char *to, const char *dir, const char *name)
{
    u64 n = length(dir);
    memcpy(to, dir, n);
    to[n] = '/';
    memcpy(to + n + 1, name, length(name) + 1);
    return to;
}
#endif
