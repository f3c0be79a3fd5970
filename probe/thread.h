/* Threads without a C library. */
#ifndef LARGEFOLIO_THREAD_H
#define LARGEFOLIO_THREAD_H
#include "sys.h"

#if defined(__x86_64__)
enum { SYS_exit_thread = 60, SYS_futex = 202 };
__asm__("thread_clone: mov %rcx, %r10\n mov $56, %eax\n syscall\n test %eax, %eax\n jnz 1f\n"
        " xor %ebp, %ebp\n pop %rdi\n pop %rax\n call *%rax\n hlt\n1: ret\n");
#else
enum { SYS_exit_thread = 93, SYS_futex = 98 };
__asm__("thread_clone: mov x4, x3\n mov x3, #0\n mov x8, #220\n svc 0\n cbnz x0, 1f\n"
        " ldp x0, x1, [sp], #16\n blr x1\n1: ret\n");
#endif
/* The new thread pops an argument and a function from `stack`. */
s64 thread_clone(s64 flags, s64 stack, s64 ptid, s64 ctid);

/* CLONE_VM, FS, FILES, SIGHAND, THREAD, SYSVSEM, CHILD_CLEARTID. */
#define THREAD_FLAGS 0x250f00
#define THREAD_STACK 65536

/* Starts `function(argument)`; returns its stack. The kernel clears `*id` when the thread ends. */
static s64 start_thread(void (*function)(const void *), const void *argument, volatile int *id)
{
    s64 stack = call6(SYS_mmap, 0, THREAD_STACK, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | 0x20000, -1, 0);
    s64 *top = (s64 *)(stack + THREAD_STACK) - 2;
    top[0] = (s64)argument;
    top[1] = (s64)function;
    *id = 1;
    if (FAIL(thread_clone(THREAD_FLAGS, (s64)top, 0, (s64)id))) { *id = 0; }
    return stack;
}

static void join_thread(s64 stack, volatile int *id)
{
    while (*id) { call6(SYS_futex, (s64)id, 0, 1, 0, 0, 0); }
    sys2(SYS_munmap, stack, THREAD_STACK);
}
#endif
