/* Commands to a program's processes, and state shared by all parts of a worker. */
#ifndef LARGEFOLIO_COMMAND_H
#define LARGEFOLIO_COMMAND_H
#include "sys.h"

#define BASE 0x400000000000UL
#define MADV_HUGEPAGE 14
#define MADV_NOHUGEPAGE 15
#define MADV_DONTNEED 4
#define MADV_FREE 8
#define MADV_COLD 20
#define MADV_PAGEOUT 21
#define MADV_COLLAPSE 25
/* Plus an order: only kernels with kernel/text_collapse have it. */
#define MADV_COLLAPSE_TO 0x4c460000
#define MLOCK_ONFAULT 1
#define MCL_CURRENT 1
#define MCL_FUTURE 2
#define MCL_ONFAULT 4
#define EIO 5

#if defined(__x86_64__)
enum { SYS_mprotect = 10, SYS_rt_sigaction = 13, SYS_rt_sigprocmask = 14, SYS_mremap = 25,
       SYS_shmget = 29, SYS_shmat = 30, SYS_shmctl = 31, SYS_kill = 62, SYS_vmsplice = 278, SYS_pipe2 = 293, SYS_memfd_create = 319,
       SYS_munlock = 150, SYS_mlockall = 151, SYS_munlockall = 152, SYS_mlock2 = 325, SYS_mbind = 237,
       SYS_set_mempolicy = 238, SYS_migrate_pages = 256, SYS_move_pages = 279 };
/* After a permanent fault, an access continues at `access_failed`: the program counter saved in the
 * signal frame, in bytes from the start of its ucontext. */
#define SAVED_PC 168
__asm__(".globl try_load, try_store, access_failed, back_from_signal\n"
        "try_load: movb (%rdi), %al\n mov $1, %eax\n ret\n"
        "try_store: movl %esi, (%rdi)\n mov $1, %eax\n ret\n"
        "access_failed: xor %eax, %eax\n ret\n"
        "back_from_signal: mov $15, %eax\n syscall\n");
#define SA_FLAGS 0x4000004UL
/* The CPU sets accessed and dirty bits itself; where the kernel does, that is a fault too. */
#define COUNTS_FAULTS 1
#else
enum { SYS_mprotect = 226, SYS_rt_sigaction = 134, SYS_rt_sigprocmask = 135, SYS_mremap = 216,
       SYS_shmget = 194, SYS_shmctl = 195, SYS_shmat = 196, SYS_kill = 129, SYS_vmsplice = 75, SYS_pipe2 = 59, SYS_memfd_create = 279,
       SYS_munlock = 229, SYS_mlockall = 230, SYS_munlockall = 231, SYS_mlock2 = 284, SYS_mbind = 235,
       SYS_set_mempolicy = 237, SYS_migrate_pages = 238, SYS_move_pages = 239 };
#define SAVED_PC 440
__asm__(".globl try_load, try_store, access_failed, back_from_signal\n"
        "try_load: ldrb w1, [x0]\n mov w0, #1\n ret\n"
        "try_store: str w1, [x0]\n mov w0, #1\n ret\n"
        "access_failed: mov w0, #0\n ret\n"
        "back_from_signal: mov x8, #139\n svc #0\n");
#define SA_FLAGS 0x4UL
#define COUNTS_FAULTS 0
#endif
int try_load(u64 at);
int try_store(u64 at, unsigned value);
void access_failed(void);
void back_from_signal(void);

enum operation { OP_MAP, OP_READ, OP_WRITE, OP_UNMAP, OP_DROP, OP_PROTECT, OP_ADVISE, OP_REMAP,
                 OP_FORK, OP_EXIT, OP_SHARE, OP_COLLAPSE, OP_FREE, OP_PUNCH, OP_PIN, OP_UNPIN,
                 OP_LOAD, OP_OPEN, OP_CLOSE, OP_PUT, OP_SYNC, OP_TRIM, OP_SCAN, OP_IDLE, OP_COLD,
                 OP_PAGEOUT, OP_LOCK, OP_LOCKALL, OP_FILL, OP_SIZE, OP_RESERVE, OP_STUFF, OP_ZSWAP, OP_NODE,
                 OP_POLICY, OP_BIND, OP_MOVE, OP_MIGRATE, OP_HINT, OP_NONE, OP_SUM, OP_SHOW, OP_FLUSH, OP_JOIN,
                 OP_LEAVE, OP_REFRESH };
/* Pages count from BASE. `how` is a word of letters, `to` a page, a slot or a value to store. */
struct command { enum operation op; u64 first, nr, to; char how[8]; };

static u64 page = 4096;

static int has_letter(const char *word, char letter)
{
    for (; *word; word++) { if (*word == letter) { return 1; } }
    return 0;
}

static const char *next_line(const char *line)
{
    while (*line && *line++ != '\n') { }
    return line;
}

/* Returns this process's number of faults so far. */
static u64 nr_faults(void)
{
    static u64 rusage[18];
    sys2(SYS_getrusage, 0, (s64)rusage);
    return rusage[8] + rusage[9];
}
#endif
