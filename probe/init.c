/* First process of a recording kernel: mounts, makes the files, runs the list, returns the results.
 *
 * /list has one command per line:
 *   module PATH | mount DEVICE TYPE DIR | make PATH BYTES | sparse PATH BYTES | mkdir PATH |
 *   remove PATH | set PATH VALUE | require PATH VALUE | show PATH | result DEVICE |
 *   run NAME ARG... | enter DIR PROGRAM ARG...
 * `require` is a `set` without which nothing may be recorded.
 * Every `run` starts /probe and appends `=== NAME STATUS BYTES` and its output to the device named
 * by `result DEVICE`, a disk or a serial port. `enter` makes DIR the root and waits for the program; this process reaps the
 * orphans. The machine is switched off at the end of the list. */
#include "sys.h"

#define TCSETS 0x5402
#define TCSBRK 0x5409
/* 115200 baud, eight bits, no modem lines. */
#define RAW_LINE 0x18b2

#define POWER_OFF 0x4321fedc
#define RESTART 0x1234567

static int result_fd = -1;
/* How the machine ends. A kernel that only has a serial port cannot switch it off; the recorder's
 * machine ends instead of starting again. */
static u64 ending = POWER_OFF;
static char list[1 << 20];
static char line_copy[1 << 14];
static char *words[64];
static u64 nr_words;

/* The kernel numbers namespaces in discovery order: `@3` in the list is the disk with namespace id
 * 3, whatever its name. */
static char disk_of[10];
static char disk(char id)
{
    static char path[] = "/sys/block/nvme0n?/nsid", value[16];
    for (int tries = 0; tries < 200 && !disk_of[id - '0']; tries++) {
        for (char name = '1'; name <= '9'; name++) {
            path[17] = name;
            if (read_file(path, value, sizeof value) > 0) { disk_of[value[0] - '0'] = name; }
        }
        if (!disk_of[id - '0']) { sleep_us(50000); }
    }
    return disk_of[id - '0'];
}

static void say(const char *what)
{
    put(what);
    put("\n");
    flush_to(1);
}

static int run_probe(char **argv, const char *output)
{
    s64 pid = call6(SYS_clone, 17, 0, 0, 0, 0, 0);
    if (pid == 0) {
        int fd = open_file(output, O_WRONLY | O_CREAT | O_TRUNC);
        sys3(SYS_dup3, fd, 1, 0);
        sys3(SYS_dup3, fd, 2, 0);
        char *environment[] = { 0 };
        sys3(SYS_execve, (s64)argv[0], (s64)argv, (s64)environment);
        quit(127);
    }
    int status = 0;
    sys4(SYS_wait4, pid, (s64)&status, 0, 0);
    return status >> 8 & 255 ? status >> 8 & 255 : status & 127;
}

/* Runs the program with `root` as `/`; this process keeps its own root. */
static void enter(const char *root, char **argv)
{
    static char *environment[] = { "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", 0 };
    s64 pid = call6(SYS_clone, 17, 0, 0, 0, 0, 0);
    if (pid == 0) {
        must(sys1(SYS_chdir, (s64)root), "cannot enter", root);
        must(call6(SYS_mount, (s64)".", (s64)"/", 0, MS_MOVE, 0, 0), "cannot move", root);
        must(sys1(SYS_chroot, (s64)"."), "cannot make a root of", root);
        sys3(SYS_execve, (s64)argv[0], (s64)argv, (s64)environment);
        quit(127);
    }
    int status = 0;
    while (sys4(SYS_wait4, -1, (s64)&status, 0, 0) != pid) { }
    put("ended ");
    put(argv[0]);
    put(" ");
    put_number((u64)(status >> 8 & 255 ? status >> 8 & 255 : status & 127), 10);
    say("");
}

static void copy_result(const char *name, int status, const char *from)
{
    static char chunk[1 << 16];
    int fd = open_file(from, O_RDONLY);
    s64 bytes = sys3(SYS_lseek, fd, 0, 2), n;
    sys3(SYS_lseek, fd, 0, 0);
    put("=== ");
    put(name);
    put(" ");
    put_number((u64)status, 10);
    put(" ");
    put_number((u64)bytes, 10);
    put("\n");
    flush_to(result_fd);
    while ((n = sys3(SYS_read, fd, (s64)chunk, sizeof chunk)) > 0) {
        sys3(SYS_write, result_fd, (s64)chunk, n);
    }
    /* Nothing of it is under way when the next program runs. */
    sys3(SYS_ioctl, result_fd, TCSBRK, 1);
    sys1(SYS_close, fd);
}

static void make(const char *path, u64 bytes)
{
    static u8 chunk[1 << 20];
    for (u64 i = 0; i < sizeof chunk; i += 4) {
        /* Each page begins with a return instruction, so that it can be called. */
        chunk[i] = 0xc3;
#if defined(__aarch64__)
        chunk[i] = 0xc0, chunk[i + 1] = 0x03, chunk[i + 2] = 0x5f, chunk[i + 3] = 0xd6;
#endif
    }
    int fd = (int)must(open_file(path, O_RDWR | O_CREAT), "cannot make", path);
    for (u64 done = 0; done < bytes;) {
        u64 n = bytes - done < sizeof chunk ? bytes - done : sizeof chunk;
        done += (u64)must(sys3(SYS_write, fd, (s64)chunk, (s64)n), "cannot fill", path);
    }
    sys1(SYS_fsync, fd);
    sys1(SYS_close, fd);
}

static void end_machine(void)
{
    call6(SYS_reboot, (s64)0xfee1dead, 672274793, (s64)ending, 0, 0, 0);
}

/* Bytes leave a serial port as they are. Returns whether it is one. */
static int make_raw(int fd)
{
    unsigned modes[16] = { 0, 0, RAW_LINE };
    return !FAIL(sys3(SYS_ioctl, fd, TCSETS, (s64)modes));
}

/* Switches the machine off; the recorder then finds no end of the results. */
static void give_up(const char *why)
{
    say(why);
    say("nothing is recorded:");
    say(words[1]);
    end_machine();
}

static void command(void)
{
    if (equal(words[0], "module")) {
        int fd = open_file(words[1], O_RDONLY);
        s64 done = sys3(SYS_finit_module, fd, (s64)"", 0);
        if (FAIL(done)) { say(words[1]); say("  was not loaded"); }
        sys1(SYS_close, fd);
    } else if (equal(words[0], "mount")) {
        sys3(SYS_mkdirat, AT_FDCWD, (s64)words[3], 0755);
        for (int tries = 0; tries < 100; tries++) {
            s64 done = call6(SYS_mount, (s64)words[1], (s64)words[3], (s64)words[2], 0, 0, 0);
            if (!FAIL(done)) { return; }
            sleep_us(50000);
        }
        give_up("mount failed");
    } else if (equal(words[0], "make")) {
        make(words[1], as_number(words[2]));
    } else if (equal(words[0], "sparse")) {
        int fd = (int)must(open_file(words[1], O_RDWR | O_CREAT), "cannot make", words[1]);
        must(sys2(SYS_ftruncate, fd, (s64)as_number(words[2])), "cannot extend", words[1]);
        sys1(SYS_close, fd);
    } else if (equal(words[0], "mkdir")) {
        sys3(SYS_mkdirat, AT_FDCWD, (s64)words[1], 0755);
    } else if (equal(words[0], "remove")) {
        sys3(SYS_unlinkat, AT_FDCWD, (s64)words[1], 0);
    } else if (equal(words[0], "require")) {
        if (!write_file(words[1], words[2])) { give_up("not set"); }
    } else if (equal(words[0], "set")) {
        if (!write_file(words[1], words[2])) { say("not set:"); say(words[1]); }
    } else if (equal(words[0], "show")) {
        static char value[1 << 14];
        read_file(words[1], value, sizeof value);
        put(words[1]);
        put(": ");
        say(value);
    } else if (equal(words[0], "result")) {
        for (int tries = 0; tries < 200 && result_fd < 0; tries++) {
            result_fd = open_file(words[1], O_RDWR);
            if (result_fd < 0) { sleep_us(50000); }
        }
        if (result_fd < 0) { say("no device for results:"); say(words[1]); }
        if (make_raw(result_fd)) { ending = RESTART; }
    } else if (equal(words[0], "enter")) {
        words[nr_words] = 0;
        enter(words[1], words + 2);
    } else if (equal(words[0], "run")) {
        char *name = words[1];
        words[1] = "/probe";
        words[nr_words] = 0;
        sys1(SYS_sync, 0);
        write_file("/proc/sys/vm/drop_caches", "3");
        int status = run_probe(words + 1, "/out");
        copy_result(name, status, "/out");
        put("ran ");
        say(name);
    }
}

void start(s64 *stack) __attribute__((noreturn, used));
void start(s64 *stack)
{
    (void)stack;
    static const char *const MOUNTS[][2] = {
        { "proc", "/proc" }, { "sysfs", "/sys" }, { "devtmpfs", "/dev" },
        { "tracefs", "/sys/kernel/tracing" }, { "debugfs", "/sys/kernel/debug" },
    };
    for (u64 i = 0; i < 5; i++) {
        sys3(SYS_mkdirat, AT_FDCWD, (s64)MOUNTS[i][1], 0755);
        call6(SYS_mount, (s64)MOUNTS[i][0], (s64)MOUNTS[i][1], (s64)MOUNTS[i][0], 0, 0, 0);
    }
    int console = open_file("/dev/console", O_RDWR);
    for (int fd = 0; fd < 3; fd++) { if (console != fd) { sys3(SYS_dup3, console, fd, 0); } }
    say("recording");
    read_file("/list", list, sizeof list);
    for (char *line = list; *line;) {
        char *to = line_copy;
        nr_words = 0;
        while (*line && *line != '\n') {
            while (*line == ' ') { line++; }
            words[nr_words++] = to;
            while (*line && *line != ' ' && *line != '\n') {
                if (line[0] == '@') {
                    memcpy(to, "nvme0n", 6);
                    to[6] = disk(line[1]);
                    to += 7;
                    line += 2;
                } else { *to++ = *line++; }
            }
            *to++ = 0;
        }
        if (*line) { line++; }
        if (nr_words && *words[0]) { command(); }
    }
    put("=== end\n");
    flush_to(result_fd);
    sys1(SYS_fsync, result_fd);
    sys3(SYS_ioctl, result_fd, TCSBRK, 1);
    sys1(SYS_sync, 0);
    say("recorded");
    end_machine();
    quit(0);
}
