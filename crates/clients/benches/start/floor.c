// The floor of a start: what a C program needs for the first result of a command in the namespaces and mounts of a machine.
// It has no guest, no protocol, no Landlock and no seccomp: a child in new namespaces builds the same file tree, starts `true`,
// waits for it and says so.
//
//   floor DIR once    one start; exits when the command has ended
//   floor DIR serve   for each line `one`, `many COUNT` or `row COUNT` on standard input: nanoseconds on standard output
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define IDS 65536
#define AGENT 1000

static void must(int ok, const char *what) {
    if (ok) return;
    fprintf(stderr, "floor: %s: %s\n", what, strerror(errno));
    _exit(1);
}

static int64_t now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void text(const char *path, const char *value) {
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
    must(fd >= 0, path);
    must(write(fd, value, strlen(value)) == (ssize_t)strlen(value), path);
    close(fd);
}

// A mount of the host's file or directory at the same path below the new root, read-only if asked for.
static void show(const char *host, const char *inside, unsigned long flags) {
    int fd = syscall(SYS_open_tree, AT_FDCWD, host, 1 /* CLONE */ | O_CLOEXEC | 0x8000 /* AT_RECURSIVE */);
    must(fd >= 0, host);
    uint64_t attributes[4] = {flags, 0, 0, 0};
    must(!syscall(SYS_mount_setattr, fd, "", 0x1000 | 0x8000, attributes, sizeof attributes), host);
    must(!syscall(SYS_move_mount, fd, "", AT_FDCWD, inside, 4 /* F_EMPTY_PATH */), inside);
    close(fd);
}

#define RO (1 | 2 | 4)

static void tree(const char *name) {
    char host[128], inside[128];
    struct stat found;
    snprintf(host, sizeof host, "/old/%s", name);
    snprintf(inside, sizeof inside, "/%s", name);
    if (lstat(host, &found)) return;
    if (S_ISLNK(found.st_mode)) {
        char target[256] = {0};
        must(readlink(host, target, sizeof target - 1) > 0 && !symlink(target, inside), host);
    } else if (S_ISDIR(found.st_mode)) {
        mkdir(inside, 0755);
        show(host, inside, RO);
    } else if (found.st_size <= 8192) {
        static char bytes[8192];
        int from = open(host, O_RDONLY | O_CLOEXEC), to = open(inside, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
        ssize_t length = from < 0 ? 0 : read(from, bytes, sizeof bytes);
        must(to >= 0 && write(to, bytes, length) == length, inside);
        close(from), close(to);
    } else {
        close(open(inside, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        show(host, inside, RO);
    }
}

static const char *const ETC[] = {"alternatives", "bash.bashrc", "ca-certificates.conf", "crypto-policies", "debian_version",
    "fonts", "gai.conf", "inputrc", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime", "magic", "mime.types",
    "os-release", "protocols", "rpc", "services", "ssl/certs", "ssl/openssl.cnf", "terminfo", "timezone", NULL};
static const char *const OWN[] = {"passwd", "group", "hosts", "nsswitch.conf", "hostname", "shells", "profile",
    "resolv.conf", NULL};
static const char *const PREFIXES[] = {"java-", "python2", "python3", "perl", NULL};
static const char *const COVERED[] = {"acpi", "asound", "bus", "cmdline", "config.gz", "diskstats", "driver", "interrupts",
    "iomem", "ioports", "irq", "kallsyms", "kcore", "key-users", "keys", "kmsg", "latency_stats", "locks", "mdstat",
    "modules", "partitions", "sched_debug", "schedstat", "scsi", "softirqs", "swaps", "sysrq-trigger", "timer_list", NULL};

static void etc(void) {
    char name[300];
    mkdir("/etc", 0755), mkdir("/etc/ssl", 0755);
    for (const char *const *at = ETC; *at; at++) snprintf(name, sizeof name, "etc/%s", *at), tree(name);
    DIR *dir = opendir("/old/etc");
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        for (const char *const *at = PREFIXES; *at; at++)
            if (!strncmp(entry->d_name, *at, strlen(*at))) snprintf(name, sizeof name, "etc/%s", entry->d_name), tree(name);
    closedir(dir);
    for (const char *const *at = OWN; *at; at++) snprintf(name, sizeof name, "/etc/%s", *at), text(name, "root:x:0:0\n");
}

static void devices(void) {
    static const char *const names[] = {"null", "zero", "full", "random", "urandom", "tty", NULL};
    char host[64], inside[64];
    mkdir("/dev", 0755);
    for (const char *const *at = names; *at; at++) {
        snprintf(host, sizeof host, "/old/dev/%s", *at), snprintf(inside, sizeof inside, "/dev/%s", *at);
        close(open(inside, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
        show(host, inside, 2 | 8);
    }
    mkdir("/dev/pts", 0755), mkdir("/dev/shm", 0755);
    must(!mount("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620"), "devpts");
    must(!mount("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, "size=1g"), "shm");
    must(!symlink("pts/ptmx", "/dev/ptmx") && !symlink("/proc/self/fd", "/dev/fd"), "links");
    must(!symlink("/proc/self/fd/0", "/dev/stdin") && !symlink("/proc/self/fd/1", "/dev/stdout"), "links");
    must(!symlink("/proc/self/fd/2", "/dev/stderr"), "links");
}

static void proc(void) {
    char path[64];
    struct stat found;
    mkdir("/proc", 0555), mkdir("/.empty", 0555);
    must(!mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL), "proc");
    text("/proc/sys/user/max_user_namespaces", "0");
    text("/proc/sys/user/max_inotify_instances", "64");
    text("/proc/sys/user/max_inotify_watches", "65536");
    for (const char *const *at = COVERED; *at; at++) {
        snprintf(path, sizeof path, "/proc/%s", *at);
        if (lstat(path, &found)) continue;
        show(S_ISDIR(found.st_mode) ? "/.empty" : "/dev/null", path, S_ISDIR(found.st_mode) ? 1 : 0);
    }
    show("/proc/sys", "/proc/sys", 1);
    text("/.boot", "00000000-0000-4000-8000-000000000000\n");
    show("/.boot", "/proc/sys/kernel/random/boot_id", 1);
    must(!unlink("/.boot") && !rmdir("/.empty"), "covers");
}

// The same tree as a machine's.
static void build(const char *dir) {
    char path[256];
    must(!mount(NULL, "/", NULL, MS_PRIVATE | MS_REC, NULL), "private");
    must(!mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=4m,mode=0755"), "root");
    snprintf(path, sizeof path, "%s", dir);
    must(!chdir("/tmp") && !mkdir("old", 0755) && !syscall(SYS_pivot_root, ".", "old") && !chdir("/"), "pivot");
    static const char *const programs[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", NULL};
    for (const char *const *at = programs; *at; at++) tree(*at);
    etc();
    devices();
    proc();
    mkdir("/tmp", 01777), mkdir("/run", 0755), mkdir("/home", 0755), mkdir("/home/agent", 0755), mkdir("/var", 0755);
    mkdir("/workspace", 0755);
    must(!mount("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, "size=1g"), "tmp");
    must(!symlink("../tmp", "/var/tmp") && !symlink("../run", "/var/run"), "links");
    snprintf(path, sizeof path, "/old%s/home", dir), show(path, "/home/agent", 2 | 4);
    snprintf(path, sizeof path, "/old%s/workspace", dir), show(path, "/workspace", 2 | 4);
    must(!umount2("/old", MNT_DETACH) && !rmdir("/old"), "old root");
    must(!mount(NULL, "/", NULL, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, NULL), "read-only");
}

static void loopback(void) {
    struct ifreq request = {.ifr_name = "lo"};
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    must(fd >= 0 && !ioctl(fd, SIOCSIFFLAGS, &request), "loopback");
    close(fd);
}

struct start {
    pid_t pid;
    int result;
    char dir[128];
};

static int number = 0;

static struct start begin(const char *base) {
    struct start start;
    char path[192], map[64], byte;
    int go[2], result[2];
    uid_t ids = 0x70000000u + (uid_t)(++number % 4096) * IDS;
    snprintf(start.dir, sizeof start.dir, "%s/%d-%d", base, getpid(), number);
    must(!mkdir(start.dir, 0700), start.dir);
    chmod(start.dir, 0711);
    for (int which = 0; which < 2; which++) {
        snprintf(path, sizeof path, "%s/%s", start.dir, which ? "home" : "workspace");
        must(!mkdir(path, 0755) && !chown(path, ids + AGENT, ids + AGENT), path);
    }
    must(!pipe2(go, O_CLOEXEC) && !pipe2(result, O_CLOEXEC), "pipes");
    int flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWNET | SIGCHLD;
    start.pid = syscall(SYS_clone, flags, NULL, NULL, NULL, 0);
    must(start.pid >= 0, "clone");
    if (start.pid == 0) {
        must(read(go[0], &byte, 1) == 1, "go");
        must(!unshare(CLONE_NEWCGROUP), "cgroup namespace");
        must(!setresgid(0, 0, 0) && !setresuid(0, 0, 0) && !sethostname("sandbar", 7), "identity");
        build(start.dir);
        loopback();
        pid_t pid = vfork();
        if (pid == 0) {
            if (setresgid(AGENT, AGENT, AGENT) || setresuid(AGENT, AGENT, AGENT) || chdir("/workspace")) _exit(1);
            execl("/usr/bin/true", "true", NULL);
            _exit(127);
        }
        int status = 1;
        must(waitpid(pid, &status, 0) == pid && status == 0, "the command");
        must(write(result[1], "x", 1) == 1, "result");
        pause();
        _exit(0);
    }
    close(go[0]), close(result[1]);
    snprintf(map, sizeof map, "0 %u %d\n", ids, IDS);
    snprintf(path, sizeof path, "/proc/%d/uid_map", start.pid), text(path, map);
    snprintf(path, sizeof path, "/proc/%d/gid_map", start.pid), text(path, map);
    must(write(go[1], "x", 1) == 1, "go");
    close(go[1]);
    start.result = result[0];
    return start;
}

static void await(struct start *start) {
    char byte;
    must(read(start->result, &byte, 1) == 1, "no result");
    close(start->result);
}

static void end(struct start *start) {
    char path[192];
    kill(start->pid, SIGKILL);
    must(waitpid(start->pid, NULL, 0) == start->pid, "wait");
    snprintf(path, sizeof path, "%s/home", start->dir), rmdir(path);
    snprintf(path, sizeof path, "%s/workspace", start->dir), rmdir(path);
    must(!rmdir(start->dir), "remove");
}

int main(int argc, char **argv) {
    must(argc == 3, "usage: floor DIR once|serve");
    umask(022);
    if (!strcmp(argv[2], "once")) {
        struct start start = begin(argv[1]);
        await(&start), end(&start);
        return 0;
    }
    char line[64];
    while (fgets(line, sizeof line, stdin)) {
        int count = 1;
        int64_t began = now(), took;
        if (sscanf(line, "row %d", &count) == 1) {
            for (int i = 0; i < count; i++) {
                struct start start = begin(argv[1]);
                await(&start), end(&start);
            }
            took = now() - began;
        } else {
            sscanf(line, "many %d", &count);
            struct start *starts = calloc(count, sizeof *starts);
            must(starts != NULL, "memory");
            began = now();
            for (int i = 0; i < count; i++) starts[i] = begin(argv[1]);
            for (int i = 0; i < count; i++) await(&starts[i]);
            took = now() - began;
            for (int i = 0; i < count; i++) end(&starts[i]);
            free(starts);
        }
        printf("%lld\n", (long long)took);
        fflush(stdout);
    }
    return 0;
}
