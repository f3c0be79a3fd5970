/* Stores twenty times to each of ten pages, from two threads in turn, and executes its arguments. */
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
enum { PAGES = 10, TIMES = 20, STEP = 65536 };
static volatile char *memory;
static void *work(void *unused) {
    for (int k = 0; k < PAGES * TIMES; k++)
        memory[k % PAGES * STEP] = 1;
    return unused;
}
int main(int argc, char **argv) {
    memory = mmap(0, PAGES * STEP, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return 1;
    pthread_t thread;
    work(0);
    if (pthread_create(&thread, 0, work, 0) || pthread_join(thread, 0)) return 2;
    printf("%p\n", (void *)memory);
    fflush(stdout);
    if (argc > 1 && fork() == 0) execv(argv[1], argv + 1);
    int status = 0;
    if (argc > 1) wait(&status);
    return 7 + WEXITSTATUS(status);
}
