/* Runs a script: a program of memory and file calls for `folio-lab crosscheck run`.
 *
 *   script FOLDER 'STEP; STEP; ..'
 *
 * A step is a word and its arguments. Areas and files have numbers from 0 to 15. Sizes are bytes, with K
 * or M. Calls that fail are ignored, and an access is cut to its area. crates/lab/scripts.toml describes the
 * steps. The program touches little memory of its own, and always the same. */
#include "sys.h"
#include "thread.h"

#if defined(__x86_64__)
enum { SYS_mprotect = 10, SYS_brk = 12, SYS_readv = 19, SYS_writev = 20, SYS_mremap = 25,
       SYS_msync = 26, SYS_shmget = 29, SYS_shmat = 30, SYS_shmctl = 31, SYS_sendfile = 40,
       SYS_shmdt = 67, SYS_fdatasync = 75, SYS_getcwd = 79, SYS_mlock = 149,
       SYS_munlock = 150, SYS_mlockall = 151, SYS_munlockall = 152, SYS_readahead = 187,
       SYS_fstatat = 262, SYS_renameat = 264,
       SYS_readlinkat = 267, SYS_splice = 275, SYS_tee = 276, SYS_sync_file_range = 277,
       SYS_vmsplice = 278, SYS_pipe2 = 293, SYS_preadv = 295, SYS_pwritev = 296,
       SYS_prlimit = 302, SYS_process_vm_readv = 310, SYS_getrandom = 318, SYS_memfd_create = 319,
       SYS_mlock2 = 325, SYS_copy_file_range = 326, SYS_mbind = 237, SYS_set_mempolicy = 238 };
#define O_DIRECT 040000
#else
enum { SYS_getcwd = 17, SYS_renameat = 38, SYS_pipe2 = 59, SYS_readv = 65,
       SYS_writev = 66, SYS_preadv = 69, SYS_pwritev = 70, SYS_sendfile = 71, SYS_vmsplice = 75,
       SYS_splice = 76, SYS_tee = 77, SYS_readlinkat = 78, SYS_fstatat = 79, SYS_fdatasync = 83,
       SYS_sync_file_range = 84, SYS_shmget = 194,
       SYS_shmctl = 195, SYS_shmat = 196, SYS_shmdt = 197, SYS_readahead = 213, SYS_brk = 214,
       SYS_mremap = 216, SYS_mprotect = 226, SYS_msync = 227, SYS_mlock = 228, SYS_munlock = 229,
       SYS_mlockall = 230, SYS_munlockall = 231, SYS_prlimit = 261, SYS_process_vm_readv = 270,
       SYS_getrandom = 278, SYS_memfd_create = 279, SYS_mlock2 = 284, SYS_copy_file_range = 285,
       SYS_mbind = 235, SYS_set_mempolicy = 237 };
#define O_DIRECT 0200000
#endif

#define NR_SLOTS 16
#define SIGCHLD 17
#define STACK_PAGES 12
#define BORROWING 0x4100
struct area { u64 at, bytes; };
static struct area areas[NR_SLOTS];
/* Descriptors plus 1; 0 for a file that is not open. */
static int files[NR_SLOTS];
static const char *self, *folder;
static int held_pid, held_pipe[2];
/* Descriptors plus 1 of a pipe that holds pages. */
static int full_pipe[2];
static volatile int thread_id;

static const char *word;
static u64 word_len;

/* Moves to the next word of the step; an empty word ends it. */
static void next(const char **at)
{
    const char *p = *at;
    while (*p == ' ' || *p == ',') { p++; }
    word = p;
    while (*p && *p != ' ' && *p != ';' && *p != ',') { p++; }
    word_len = (u64)(p - word);
    *at = p;
}

static int is(const char *name)
{
    return length(name) == word_len && begins(word, name, 0);
}

static u64 num(const char **at)
{
    next(at);
    const char *p = word;
    u64 value = decimal(&p);
    return *p == 'K' ? value << 10 : *p == 'M' ? value << 20 : value;
}

static u64 slot(const char **at) { return num(at) % NR_SLOTS; }
static int file_at(const char **at) { return files[slot(at)] - 1; }

/* Parses `A OFFSET LEN` and cuts it to the area. */
static struct area range(const char **at)
{
    struct area *area = &areas[slot(at)];
    u64 offset = num(at), bytes = num(at);
    if (offset > area->bytes) { offset = area->bytes; }
    if (bytes > area->bytes - offset) { bytes = area->bytes - offset; }
    return (struct area){ area->at + offset, bytes };
}

static int prot_of(void)
{
    int prot = 0;
    for (u64 i = 0; i < word_len; i++) {
        prot |= word[i] == 'r' ? PROT_READ : word[i] == 'w' ? PROT_WRITE : word[i] == 'x' ? PROT_EXEC : 0;
    }
    return prot;
}

struct name { const char *name; int value; };
static int named(const struct name *names, u64 nr)
{
    for (u64 i = 0; i < nr; i++) { if (is(names[i].name)) { return names[i].value; } }
    return -1;
}
#define NAMED(names) named(names, sizeof names / sizeof *names)

static const struct name MAP_FLAGS[] = {
    { "shared", 1 }, { "private", 2 }, { "noreserve", 0x4000 }, { "populate", 0x8000 },
    { "locked", 0x2000 }, { "stack", 0x20000 }, { "huge", 0x40000 }, { "grows", 0x100 },
};
static const struct name ADVICE[] = {
    { "normal", 0 }, { "random", 1 }, { "sequential", 2 }, { "willneed", 3 }, { "dontneed", 4 },
    { "free", 8 }, { "remove", 9 }, { "dontfork", 10 }, { "dofork", 11 }, { "mergeable", 12 },
    { "unmergeable", 13 },
    { "hugepage", 14 }, { "nohugepage", 15 }, { "wipeonfork", 18 }, { "keeponfork", 19 },
    { "cold", 20 }, { "pageout", 21 }, { "populate_read", 22 }, { "populate_write", 23 },
    { "collapse", 25 },
};
static const struct name FILE_ADVICE[] = {
    { "normal", 0 }, { "random", 1 }, { "sequential", 2 }, { "willneed", 3 }, { "dontneed", 4 },
    { "noreuse", 5 },
};
static const struct name LIMITS[] = { { "data", 2 }, { "stack", 3 }, { "memlock", 8 }, { "as", 9 } };

/* map A BYTES PROT FLAGS.. [file F POS] */
static void map(const char **at)
{
    u64 nr = slot(at), bytes = num(at), pos = 0;
    int flags = 0, fd = -1;
    next(at);
    int prot = prot_of();
    for (next(at); word_len; next(at)) {
        if (is("file")) { fd = file_at(at); pos = num(at); } else { flags |= NAMED(MAP_FLAGS); }
    }
    if (fd < 0) { flags |= MAP_ANONYMOUS; }
    s64 result = call6(SYS_mmap, 0, (s64)bytes, prot, flags, fd, (s64)pos);
    areas[nr] = FAIL(result) ? (struct area){ 0, 0 } : (struct area){ (u64)result, bytes };
}

/* remap A BYTES [move|dontunmap] [from OFFSET BYTES TO] */
static void remap(const char **at)
{
    struct area *area = &areas[slot(at)];
    u64 bytes = num(at), old = area->bytes;
    int flags = 0;
    for (next(at); word_len; next(at)) {
        flags |= is("move") ? 1 : is("dontunmap") ? 5 : 0;
        if (is("copy")) { old = 0; flags |= 1; }
    }
    s64 result = call6(SYS_mremap, (s64)area->at, (s64)old, (s64)bytes, flags, 0, 0);
    if (!FAIL(result)) { *area = (struct area){ (u64)result, bytes }; }
}

static void touch(const char **at, int stores)
{
    struct area r = range(at);
    u64 step = num(at);
    if (!step) { step = 4096; }
    for (u64 done = 0; done < r.bytes; done += step) {
        volatile u8 *p = (volatile u8 *)(r.at + done);
        if (stores) { *p = 1; } else { (void)*p; }
    }
}

/* Copies with the processor, forward. */
static void copy(const char **at)
{
    struct area to = range(at), from = range(at);
    for (u64 i = 0; i + 8 <= to.bytes && i + 8 <= from.bytes; i += 64) {
        *(volatile u64 *)(to.at + i) = *(volatile u64 *)(from.at + i);
    }
}

/* OP F POS A OFFSET LEN */
static void transfer(const char **at, int nr)
{
    int fd = file_at(at);
    u64 pos = num(at);
    struct area r = range(at);
    sys4(nr, fd, (s64)r.at, (s64)r.bytes, (s64)pos);
}

/* The same with two buffers, the second half first in memory order. */
static void transfer_v(const char **at, int nr)
{
    int fd = file_at(at);
    u64 pos = num(at);
    struct area r = range(at);
    u64 half = r.bytes / 2, v[4] = { r.at, half, r.at + half, r.bytes - half };
    call6(nr, fd, (s64)v, 2, (s64)pos, 0, 0);
}

static void name_of(const char **at, char *to)
{
    next(at);
    u64 n = word_len < 30 ? word_len : 30;
    memcpy(to, word, n);
    to[n] = 0;
}

/* open F NAME FLAGS: r, w, rw, and c (create), t (truncate), a (append), d (direct) */
static void open_step(const char **at)
{
    char name[32];
    u64 nr = slot(at);
    name_of(at, name);
    next(at);
    int reads = 0, writes = 0, flags = 0;
    for (u64 i = 0; i < word_len; i++) {
        reads |= word[i] == 'r';
        writes |= word[i] == 'w';
        flags |= word[i] == 'c' ? O_CREAT : word[i] == 't' ? O_TRUNC : word[i] == 'a' ? 02000
            : word[i] == 'd' ? O_DIRECT : 0;
    }
    files[nr] = 1 + open_file(name, flags | (reads && writes ? O_RDWR : writes ? O_WRONLY : O_RDONLY));
}

static void memfd(const char **at)
{
    char name[32];
    u64 nr = slot(at);
    name_of(at, name);
    next(at);
    files[nr] = 1 + (int)sys2(SYS_memfd_create, (s64)name, is("huge") ? 4 : 0);
}

/* splice FROM POS TO POS LEN, through a pipe */
static void splice(const char **at)
{
    int pipe[2], from = file_at(at);
    u64 pos = num(at);
    int to = file_at(at);
    u64 out = num(at), left = num(at);
    if (FAIL(sys2(SYS_pipe2, (s64)pipe, 0))) { return; }
    while (left) {
        s64 n = call6(SYS_splice, from, (s64)&pos, pipe[1], 0, (s64)(left < 65536 ? left : 65536), 0);
        if (n <= 0) { break; }
        left -= (u64)n;
        for (s64 done = 0; done < n;) {
            s64 m = call6(SYS_splice, pipe[0], 0, to, (s64)&out, n - done, 0);
            if (m <= 0) { left = 0; break; }
            done += m;
        }
    }
    sys1(SYS_close, pipe[0]);
    sys1(SYS_close, pipe[1]);
}

/* sendfile TO FROM POS LEN; copyrange TO POS FROM POS LEN */
static void sendfile(const char **at)
{
    int to = file_at(at), from = file_at(at);
    u64 pos = num(at), left = num(at);
    while (left) {
        s64 n = sys4(SYS_sendfile, to, from, (s64)&pos, (s64)left);
        if (n <= 0) { break; }
        left -= (u64)n;
    }
}

static void copyrange(const char **at)
{
    int to = file_at(at);
    u64 out = num(at);
    int from = file_at(at);
    u64 in = num(at), left = num(at);
    call6(SYS_copy_file_range, from, (s64)&in, to, (s64)&out, (s64)left, 0);
}

/* fallocate F MODE POS LEN: alloc, keep, punch, zero, collapse, insert */
static void fallocate(const char **at)
{
    static const struct name MODES[] = { { "alloc", 0 }, { "keep", 1 }, { "punch", 3 },
                                         { "collapse", 8 }, { "zero", 16 }, { "insert", 32 } };
    int fd = file_at(at);
    next(at);
    int mode = NAMED(MODES);
    u64 pos = num(at), bytes = num(at);
    sys4(SYS_fallocate, fd, mode, (s64)pos, (s64)bytes);
}

static void heap(const char **at)
{
    u64 nr = slot(at), bytes = num(at);
    if (!areas[nr].at) { areas[nr].at = (u64)sys1(SYS_brk, 0); }
    u64 end = (u64)sys1(SYS_brk, (s64)(areas[nr].at + bytes));
    areas[nr].bytes = end - areas[nr].at;
}

static __attribute__((noinline)) u64 recurse(u64 bytes)
{
    volatile u8 frame[3072];
    frame[0] = (u8)bytes;
    u64 below = bytes > sizeof frame ? recurse(bytes - sizeof frame) : 0;
    return below + frame[0];
}

static void limit(const char **at)
{
    next(at);
    int which = NAMED(LIMITS);
    u64 value = num(at), both[2] = { value, ~0UL };
    sys4(SYS_prlimit, 0, which, (s64)both, 0);
}

static const char *run(const char *at);

/* Returns the position after the `end` of a block. */
static const char *skip(const char *at)
{
    for (int depth = 1; *at && depth;) {
        next(&at);
        depth += is("fork") || is("hold") || is("thread") ? 1 : is("end") ? -1 : 0;
        while (*at && *at != ';') { at++; }
        if (*at) { at++; }
    }
    return at;
}

static void wait_for(s64 pid) { sys4(SYS_wait4, pid, 0, 0, 0); }

/* fork .. end: the parent waits. hold .. end: the child waits until the parent's `go`. */
static const char *fork_step(const char *at, int holds)
{
    if (holds) { sys2(SYS_pipe2, (s64)held_pipe, 0); }
    s64 pid = call6(SYS_clone, SIGCHLD, 0, 0, 0, 0, 0);
    if (pid == 0) {
        char byte;
        if (holds) {
            /* So that it goes on if its parent dies. */
            sys1(SYS_close, held_pipe[1]);
            sys3(SYS_read, held_pipe[0], (s64)&byte, 1);
        }
        run(at);
        quit(0);
    }
    if (holds) { held_pid = (int)pid; } else { wait_for(pid); }
    return skip(at);
}

static void go(void)
{
    if (!held_pid) { return; }
    sys3(SYS_write, held_pipe[1], (s64)"g", 1);
    wait_for(held_pid);
    sys1(SYS_close, held_pipe[0]);
    sys1(SYS_close, held_pipe[1]);
    held_pid = 0;
}

static void run_thread(const void *at)
{
    run(at);
    for (;;) { sys1(SYS_exit_thread, 0); }
}

static const char *thread_step(const char *at)
{
    s64 stack = start_thread(run_thread, at, &thread_id);
    join_thread(stack, &thread_id);
    return skip(at);
}

/* spawn: vfork, and this program again with a script of its own. */
static void spawn(void)
{
    const char *arguments[] = { self, folder, "map 0 256K rw private; write 0 0 256K", 0 };
    s64 pid = call6(SYS_clone, BORROWING | SIGCHLD, 0, 0, 0, 0, 0);
    if (pid == 0) {
        sys3(SYS_execve, (s64)self, (s64)arguments, (s64)(arguments + 3));
        quit(1);
    }
    wait_for(pid);
}

static void sysv(const char **at)
{
    u64 nr = slot(at), bytes = num(at);
    s64 id = sys3(SYS_shmget, 0, (s64)bytes, 01600);
    if (FAIL(id)) { return; }
    s64 result = sys3(SYS_shmat, id, 0, 0);
    areas[nr] = FAIL(result) ? (struct area){ 0, 0 } : (struct area){ (u64)result, bytes };
    sys3(SYS_shmctl, id, 0, 0);
}

static void info(const char **at)
{
    next(at);
    int is_stat = is("stat"), is_cwd = is("cwd"), is_link = is("link"), is_random = is("random");
    struct area r = range(at);
    if (is_stat && r.bytes >= 144) { sys4(SYS_fstatat, AT_FDCWD, (s64)".", (s64)r.at, 0); }
    if (is_cwd) { sys2(SYS_getcwd, (s64)r.at, (s64)r.bytes); }
    if (is_link) { sys4(SYS_readlinkat, AT_FDCWD, (s64)"/proc/self/exe", (s64)r.at, (s64)r.bytes); }
    if (is_random) { sys3(SYS_getrandom, (s64)r.at, (s64)r.bytes, 0); }
}

/* vmread A OFFSET LEN B OFFSET LEN: from the second into the first. */
static void vmread(const char **at)
{
    struct area to = range(at), from = range(at);
    call6(SYS_process_vm_readv, sys1(SYS_getpid, 0), (s64)&to, 1, (s64)&from, 1, 0);
}

/* Empties the pipe of `pipe`, which then holds no page. */
static void drain(void)
{
    if (!full_pipe[0]) { return; }
    sys1(SYS_close, full_pipe[0] - 1);
    sys1(SYS_close, full_pipe[1] - 1);
    full_pipe[0] = 0;
}

/* pipe A OFFSET LEN: gives pages to a pipe, which holds them, 16 at most, until `drain`. */
static void fill_pipe(const char **at)
{
    struct area r = range(at);
    int pipe[2];
    drain();
    /* O_NONBLOCK: what does not fit is left out. */
    if (FAIL(sys2(SYS_pipe2, (s64)pipe, 04000))) { return; }
    full_pipe[0] = pipe[0] + 1;
    full_pipe[1] = pipe[1] + 1;
    sys4(SYS_vmsplice, pipe[1], (s64)&r, 1, 0);
}

/* policy MODE; bind A OFFSET LEN MODE: on the first node, if the mode needs one. */
static int mode_of(const char **at)
{
    static const struct name MODES[] = { { "default", 0 }, { "preferred", 1 }, { "bind", 2 },
                                         { "interleave", 3 }, { "local", 4 } };
    next(at);
    return NAMED(MODES);
}

static void policy(const char **at)
{
    int mode = mode_of(at);
    u64 nodes = 1;
    int has_nodes = mode >= 1 && mode <= 3;
    sys3(SYS_set_mempolicy, mode, has_nodes ? (s64)&nodes : 0, has_nodes ? 64 : 0);
}

static void bind(const char **at)
{
    struct area r = range(at);
    int mode = mode_of(at);
    u64 nodes = 1;
    int has_nodes = mode >= 1 && mode <= 3;
    call6(SYS_mbind, (s64)r.at, (s64)r.bytes, mode, has_nodes ? (s64)&nodes : 0,
          has_nodes ? 64 : 0, 0);
}

/* set FILE VALUE: a setting of transparent huge pages. In a trace, closing this descriptor marks the
 * moment: recorders leave out other files than regular ones on disks. */
#define SET_MARK 200

static void set(const char **at)
{
    static const char FOLDER[] = "/sys/kernel/mm/transparent_hugepage/";
    char path[sizeof FOLDER + 32], value[32];
    memcpy(path, FOLDER, sizeof FOLDER);
    name_of(at, path + sizeof FOLDER - 1);
    name_of(at, value);
    int fd = open_file(path, O_WRONLY);
    if (fd < 0) { return; }
    sys3(SYS_write, fd, (s64)value, (s64)length(value));
    sys3(SYS_dup3, fd, SET_MARK, 0);
    sys1(SYS_close, fd);
    sys1(SYS_close, SET_MARK);
}

static int setting_step(const char **at)
{
    if (is("thp")) {
        u64 what = num(at);
        /* 2: not for advised memory. */
        call6(SYS_prctl, 41, what != 1, what == 2 ? 2 : 0, 0, 0, 0);
    }
    else if (is("pipe")) { fill_pipe(at); }
    else if (is("drain")) { drain(); }
    else if (is("policy")) { policy(at); }
    else if (is("bind")) { bind(at); }
    else if (is("set")) { set(at); }
    else if (is("merge")) { call6(SYS_prctl, 67, (s64)num(at), 0, 0, 0, 0); }
    else { return 0; }
    return 1;
}

static int memory_step(const char **at)
{
    if (is("map")) { map(at); }
    else if (is("read")) { touch(at, 0); }
    else if (is("write")) { touch(at, 1); }
    else if (is("copy")) { copy(at); }
    else if (is("unmap")) { struct area r = range(at); sys2(SYS_munmap, (s64)r.at, (s64)r.bytes); }
    else if (is("remap")) { remap(at); }
    else if (is("protect")) {
        struct area r = range(at);
        next(at);
        sys3(SYS_mprotect, (s64)r.at, (s64)r.bytes, prot_of());
    } else if (is("advise")) {
        struct area r = range(at);
        next(at);
        sys3(SYS_madvise, (s64)r.at, (s64)r.bytes, NAMED(ADVICE));
    } else if (is("msync")) {
        struct area r = range(at);
        next(at);
        sys3(SYS_msync, (s64)r.at, (s64)r.bytes, is("async") ? 1 : 4);
    }
    else if (is("lock")) {
        struct area r = range(at);
        next(at);
        if (is("onfault")) { sys3(SYS_mlock2, (s64)r.at, (s64)r.bytes, 1); }
        else { sys2(SYS_mlock, (s64)r.at, (s64)r.bytes); }
    }
    else if (is("unlock")) { struct area r = range(at); sys2(SYS_munlock, (s64)r.at, (s64)r.bytes); }
    else if (is("lockall")) { sys1(SYS_mlockall, (s64)num(at)); }
    else if (is("unlockall")) { sys1(SYS_munlockall, 0); }
    else if (is("heap")) { heap(at); }
    else if (is("stack")) { recurse(num(at)); }
    else if (is("sysv")) { sysv(at); }
    else if (is("detach")) { struct area *a = &areas[slot(at)]; sys1(SYS_shmdt, (s64)a->at); a->bytes = 0; }
    else if (is("limit")) { limit(at); }
    else if (is("info")) { info(at); }
    else if (is("vmread")) { vmread(at); }
    else { return 0; }
    return 1;
}

static void file_range(const char **at, int nr)
{
    int fd = file_at(at);
    u64 pos = num(at), bytes = num(at);
    sys4(nr, fd, (s64)pos, (s64)bytes, 7);
}

static void file_step(const char **at)
{
    char name[32], other[32];
    if (is("open")) { open_step(at); }
    else if (is("close")) { sys1(SYS_close, file_at(at)); }
    else if (is("memfd")) { memfd(at); }
    else if (is("pread")) { transfer(at, SYS_pread); }
    else if (is("pwrite")) { transfer(at, SYS_pwrite); }
    else if (is("fread")) { transfer(at, SYS_read); }
    else if (is("fwrite")) { transfer(at, SYS_write); }
    else if (is("readv")) { transfer_v(at, SYS_readv); }
    else if (is("writev")) { transfer_v(at, SYS_writev); }
    else if (is("preadv")) { transfer_v(at, SYS_preadv); }
    else if (is("pwritev")) { transfer_v(at, SYS_pwritev); }
    else if (is("splice")) { splice(at); }
    else if (is("sendfile")) { sendfile(at); }
    else if (is("copyrange")) { copyrange(at); }
    else if (is("fallocate")) { fallocate(at); }
    else if (is("truncate")) { int fd = file_at(at); sys2(SYS_ftruncate, fd, (s64)num(at)); }
    else if (is("seek")) { int fd = file_at(at); sys3(SYS_lseek, fd, (s64)num(at), 0); }
    else if (is("fsync")) { sys1(SYS_fsync, file_at(at)); }
    else if (is("fdatasync")) { sys1(SYS_fdatasync, file_at(at)); }
    else if (is("readahead")) { file_range(at, SYS_readahead); }
    else if (is("syncrange")) { file_range(at, SYS_sync_file_range); }
    else if (is("fadvise")) {
        int fd = file_at(at);
        u64 pos = num(at), bytes = num(at);
        next(at);
        sys4(SYS_fadvise, fd, (s64)pos, (s64)bytes, NAMED(FILE_ADVICE));
    }
    else if (is("unlink")) { name_of(at, name); sys3(SYS_unlinkat, AT_FDCWD, (s64)name, 0); }
    else if (is("rename")) {
        name_of(at, name);
        name_of(at, other);
        sys4(SYS_renameat, AT_FDCWD, (s64)name, AT_FDCWD, (s64)other);
    }
    else if (word_len) { quit(3); }
}

/* Runs steps up to `end` or the end of the text. */
static const char *run(const char *at)
{
    while (*at) {
        next(&at);
        if (is("end")) { return at; }
        int is_fork = is("fork"), is_hold = is("hold"), is_thread = is("thread");
        if (is_fork || is_hold || is_thread) {
            while (*at && *at != ';') { at++; }
            if (*at) { at++; }
            at = is_thread ? thread_step(at) : fork_step(at, is_hold);
            continue;
        }
        if (is("go")) { go(); }
        else if (is("spawn")) { spawn(); }
        else if (!memory_step(&at) && !setting_step(&at)) { file_step(&at); }
        while (*at && *at != ';') { at++; }
        if (*at) { at++; }
    }
    return at;
}

/* Makes the same number of pages below the stack's top present in each run: the kernel puts the
 * arguments at a random place in the last ones. Only stores, of what is there or where nothing is:
 * a load first would map the zero page. The lowest page has argc, which is 3; the highest ones have the
 * strings, of which the first is an absolute path. */
static void touch_stack(volatile s64 *stack)
{
    stack[0] = 3;
    volatile u8 *string = (volatile u8 *)stack[1];
    *string = '/';
    u64 lowest = (u64)stack & ~4095UL, strings = (u64)string & ~4095UL;
    for (u64 at = lowest + 4096; at < strings; at += 4096) { *(volatile u8 *)(at + 2048) = 0; }
    volatile s64 *aux = stack + 5;
    while (*aux++) { }
    while (aux[0] != 31) { aux += 2; }
    u64 top = ((u64)aux[1] + length((const char *)aux[1]) + 8 + 4096) & ~4095UL;
    *(volatile u64 *)(top - 8) = 0;
    for (u64 at = top - STACK_PAGES * 4096; at < lowest; at += 4096) { *(volatile u8 *)at = 0; }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    touch_stack(stack);
    const char **argv = (const char **)(stack + 1);
    self = argv[0];
    folder = argv[1];
    if (FAIL(sys1(SYS_chdir, (s64)folder))) { quit(2); }
    run(argv[2]);
    quit(0);
}
