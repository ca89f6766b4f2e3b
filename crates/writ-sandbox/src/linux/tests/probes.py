"""Probes of the sandbox from inside: what a hostile program tries, and the error that each attempt must have.

Standard library only. Called as `probes.py HOME PID`: a folder of the host that was not given, and a process of the host.
Prints one line for each probe that did not end as it must, and one with the numbers of each group: attempts, twins.
"""

import ctypes
import errno
import os
import resource
import signal
import socket
import sys

HOME, PID = sys.argv[1], int(sys.argv[2])
LIBC = ctypes.CDLL(None, use_errno=True)
PROBES = []


def probe(group, name, wanted, attempt, *args):
    """`wanted`: names of errors, one of which must come; `ok` for a twin, which must succeed."""
    PROBES.append((group, name, wanted.split("|"), attempt, args))


def call(number, *args):
    args = [ctypes.c_void_p(arg) if isinstance(arg, int) else arg for arg in args]
    found = LIBC.syscall(ctypes.c_long(number), *args)
    if found < 0:
        raise OSError(ctypes.get_errno(), "call")
    return found


def read(path):
    number = os.open(path, os.O_RDONLY)
    try:
        return os.listdir(number) if os.path.isdir(path) else os.read(number, 64)
    finally:
        os.close(number)


def seen(path):
    """What is hidden is as good as not there."""
    if read(path) == b"":
        raise OSError(errno.ENOENT, "nothing in it")


def write(path, data=b"x"):
    number = os.open(path, os.O_WRONLY)
    try:
        os.write(number, data)
    finally:
        os.close(number)


def make(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))
    os.unlink(path)


# Files of the host that were not given.
for path in [
    HOME, HOME + "/marker", HOME + "/.ssh", HOME + "/.ssh/id_ed25519",
    *["/".join(["", "root", name]) for name in (".ssh", ".bashrc", ".aws/credentials", ".config")], "/home/user/.ssh", "/home/user/.netrc",
    "/etc/shadow", "/etc/gshadow", "/etc/sudoers", "/etc/ssh/sshd_config", "/etc/machine-id", "/etc/crontab",
    "/var/log/syslog", "/var/lib/dpkg/status", "/var/run/docker.sock", "/run/docker.sock", "/run/containerd/containerd.sock",
    "/run/user/0", "/run/user/1000/bus", "/run/dbus/system_bus_socket", "/run/systemd/private", "/var/run/secrets",
    "/boot", "/mnt", "/media", "/srv", "/.dockerenv", "/lost+found", "/swapfile", "/snap",
]:
    probe("files", "read " + path, "ENOENT|EACCES", read, path)
for path in ["/proc/1/root", "/proc/self/root", "/proc/thread-self/root", "/proc/1/cwd"]:
    probe("files", "through %s" % path, "ENOENT|EACCES|EPERM", read, path + HOME + "/marker")
for depth in (1, 3, 8, 64):
    probe("files", "climb %d" % depth, "ENOENT|EACCES", read, "/work/" + "../" * depth + HOME.lstrip("/") + "/marker")
for name, target in [("a", HOME + "/marker"), ("b", "../../../../../../.." + HOME + "/marker"), ("c", "/proc/1/root" + HOME)]:
    os.symlink(target, "link-" + name)
    probe("files", "link to " + target, "ENOENT|EACCES|EPERM", read, "link-" + name)
probe("files", "twin: read the project", "ok", read, "/work/README.md")
probe("files", "twin: list the project", "ok", read, "/work/src")
probe("files", "twin: a link inside", "ok", read, "/work/link")
probe("files", "twin: a program of the system", "ok", read, "/usr/bin/env")

# Places where nothing is written.
for path in ["/", "/usr", "/usr/bin", "/usr/lib", "/usr/local/bin", "/bin", "/lib", "/etc", "/sys", "/proc", "/proc/sys"]:
    probe("writes", "make a file in " + path, "EROFS|EACCES|EPERM|ENOENT", make, path + "/writ-probe")
for path in ["/usr/bin/env", "/etc/passwd", "/etc/hosts", "/etc/resolv.conf", "/etc/ld.so.cache"]:
    probe("writes", "write " + path, "EROFS|EACCES|EPERM|ENOENT|ETXTBSY", write, path)
    probe("writes", "chmod " + path, "EROFS|EPERM|ENOENT", os.chmod, path, 0o777)
    probe("writes", "unlink " + path, "EROFS|EACCES|EPERM|EBUSY|ENOENT", os.unlink, path)
probe("writes", "rename /usr", "EROFS|EACCES|EPERM|EBUSY", os.rename, "/usr", "/usr2")
probe("writes", "rename the work folder", "EROFS|EACCES|EPERM|EBUSY|EXDEV", os.rename, "/work", "/work2")
probe("writes", "hard link out of the system", "EXDEV|EPERM|EROFS", os.link, "/usr/bin/env", "/work/env")
probe("writes", "hard link into the system", "EXDEV|EPERM|EROFS", os.link, "/work/README.md", "/usr/bin/readme")
probe("writes", "symlink in the system", "EROFS|EACCES", os.symlink, "x", "/usr/bin/writ-probe")
probe("writes", "folder in the root", "EROFS|EACCES|EPERM", os.mkdir, "/writ-probe")
probe("writes", "owner of a file of the system", "EROFS|EPERM", os.chown, "/usr/bin/env", 0, 0)
probe("writes", "owner of one's own file", "EPERM|EINVAL", os.chown, "/work/README.md", 0, 0)
probe("writes", "a privileged attribute", "EPERM|ENOTSUP|EOPNOTSUPP", os.setxattr, "/work/README.md", "security.capability", b"\0\0\0\2" + bytes(16))
probe("writes", "a trusted attribute", "EPERM|ENOTSUP|EOPNOTSUPP", os.setxattr, "/work/README.md", "trusted.x", b"\1")
probe("writes", "twin: make a file in the project", "ok", make, "/work/writ-probe")
probe("writes", "twin: make a file in /tmp", "ok", make, "/tmp/writ-probe")

# What the kernel shows and takes below /proc and /sys.
for name in ["kcore", "kmsg", "kpagecount", "kpageflags", "kpagecgroup", "timer_list", "sched_debug", "latency_stats", "keys"]:
    probe("proc", "read /proc/" + name, "ENOENT|EACCES|EPERM|EIO", seen, "/proc/" + name)
for path in [
    "/proc/sysrq-trigger", "/proc/sys/kernel/core_pattern", "/proc/sys/kernel/modprobe", "/proc/sys/kernel/hotplug",
    "/proc/sys/vm/overcommit_memory", "/proc/sys/kernel/randomize_va_space", "/proc/sys/fs/binfmt_misc/register",
    "/proc/sys/kernel/yama/ptrace_scope", "/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/net/ipv4/ip_forward",
    "/proc/sys/user/max_user_namespaces", "/proc/sys/kernel/dmesg_restrict", "/proc/irq/default_smp_affinity",
    "/proc/1/oom_score_adj", "/proc/1/uid_map", "/proc/1/gid_map", "/proc/self/uid_map", "/proc/self/gid_map", "/proc/self/setgroups",
    "/proc/1/mem", "/proc/1/attr/current", "/proc/bus/pci/00/00.0", "/proc/fs/ext4", "/proc/scsi/scsi",
]:
    probe("proc", "write " + path, "EROFS|EACCES|EPERM|ENOENT|EISDIR|EINVAL|EIO", write, path, b"0")
for path in [
    "/sys/kernel", "/sys/fs/cgroup", "/sys/firmware", "/sys/class", "/sys/devices", "/sys/module", "/sys/kernel/security",
    "/sys/kernel/debug", "/sys/fs/bpf", "/sys/power/state", "/sys/kernel/uevent_helper",
]:
    probe("proc", "read " + path, "ENOENT|EACCES", read, path)
for path in ["/proc/%d" % PID, "/proc/%d/environ" % PID, "/proc/%d/root" % PID, "/proc/%d/fd" % PID]:
    probe("proc", "a process of the host: " + path.replace(str(PID), "PID"), "ENOENT", read, path)
probe("proc", "twin: one's own status", "ok", read, "/proc/self/status")
probe("proc", "twin: one's own maps", "ok", read, "/proc/self/maps")

# Devices.
for path in [
    "/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/loop0", "/dev/loop-control",
    "/dev/fuse", "/dev/kvm", "/dev/net/tun", "/dev/vhost-net", "/dev/uinput", "/dev/input", "/dev/snd", "/dev/dri", "/dev/video0",
    "/dev/mapper/control", "/dev/btrfs-control", "/dev/cuse", "/dev/hpet", "/dev/rtc0", "/dev/tty0", "/dev/ttyS0", "/dev/console",
    "/dev/autofs", "/dev/vsock", "/dev/userfaultfd", "/dev/ppp",
]:
    probe("devices", "open " + path, "ENOENT|EACCES|EPERM", read, path)
for name, major, minor in [("mem", 1, 1), ("kmsg", 1, 11), ("sda", 8, 0), ("fuse", 10, 229), ("null", 1, 3)]:
    for folder in ("/work", "/tmp", "/dev"):
        probe("devices", "mknod %s in %s" % (name, folder), "EPERM|EACCES|EROFS", os.mknod, folder + "/node", 0o20666, os.makedev(major, minor))
probe("devices", "no terminal", "ENXIO|ENOENT", read, "/dev/tty")
for path in ["/dev/zero", "/dev/urandom", "/dev/random"]:
    probe("devices", "twin: " + path, "ok", read, path)
probe("devices", "twin: write /dev/null", "ok", write, "/dev/null")

# System calls (x86-64), with arguments that would do something.
if os.uname().machine == "x86_64":
    NEWS = {"time": 0x80, "mount": 0x20000, "cgroup": 0x2000000, "uts": 0x4000000, "ipc": 0x8000000, "user": 0x10000000, "pid": 0x20000000, "net": 0x40000000}
    for name, flag in NEWS.items():
        probe("calls", "unshare " + name, "EPERM", call, 272, flag)
        probe("calls", "unshare %s and user" % name, "EPERM", call, 272, flag | 0x10000000)
    for name, flag in NEWS.items():
        if name != "time":
            probe("calls", "clone " + name, "EPERM", call, 56, flag | 17, 0, 0, 0, 0)
    probe("calls", "setns", "EPERM", call, 308, 0, 0)
    for name, number in {
        "ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312, "bpf": 321, "keyctl": 250, "add_key": 248,
        "request_key": 249, "perf_event_open": 298, "userfaultfd": 323, "mount": 165, "umount2": 166, "pivot_root": 155,
        "chroot": 161, "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
        "mount_setattr": 442, "kexec_load": 246, "kexec_file_load": 320, "init_module": 175, "finit_module": 313,
        "delete_module": 176, "swapon": 167, "swapoff": 168, "reboot": 169, "acct": 163, "settimeofday": 164,
        "clock_settime": 227, "adjtimex": 159, "sethostname": 170, "setdomainname": 171, "iopl": 172, "ioperm": 173,
        "quotactl": 179, "nfsservctl": 180, "lookup_dcookie": 212, "name_to_handle_at": 303, "open_by_handle_at": 304,
        "syslog": 103, "vhangup": 153, "fanotify_init": 300, "io_uring_setup": 425, "io_uring_enter": 426,
        "io_uring_register": 427, "clone3": 435, "uselib": 134, "modify_ldt": 154, "migrate_pages": 256, "move_pages": 279,
        "mbind": 237, "pidfd_getfd": 438,
    }.items():
        probe("calls", name, "EPERM|ENOSYS", call, number, 0, 0, 0, 0, 0)
    probe("calls", "x32 table", "ENOSYS", call, 0x40000000 | 39)
    probe("calls", "personality without randomness", "EPERM", call, 135, 0x40000)
    probe("calls", "typing into a terminal", "EPERM", call, 16, 0, 0x5412, 0)
    probe("calls", "console ioctl", "EPERM", call, 16, 0, 0x541C, 0)
    probe("calls", "set-user-id root", "EPERM|EINVAL", os.setuid, 0)
    probe("calls", "set-group-id root", "EPERM|EINVAL", os.setgid, 0)
    probe("calls", "groups", "EPERM|EINVAL", os.setgroups, [0])
    probe("calls", "higher priority", "EPERM|EACCES", os.setpriority, os.PRIO_PROCESS, 0, -20)
    probe("calls", "real-time", "EPERM", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
    probe("calls", "twin: getpid", "ok", call, 39)
    probe("calls", "twin: personality query", "ok", call, 135, 0xFFFFFFFF)
    probe("calls", "twin: lower priority", "ok", os.setpriority, os.PRIO_PROCESS, 0, 19)

# Capabilities: none, and no way back.
for line in open("/proc/self/status"):
    if line.startswith("Cap"):
        name, value = line.split()
        probe("capabilities", name, "ok", lambda value: value.strip("0") == "" or int("x"), value)
for capability in (0, 1, 2, 6, 7, 8, 12, 13, 16, 18, 19, 21, 22, 23, 25, 27, 31, 38, 39):
    probe("capabilities", "raise ambient %d" % capability, "EPERM|EINVAL", lambda c: LIBC.prctl(47, 2, c, 0, 0) < 0 and fail(), capability)
probe("capabilities", "lift no_new_privs", "EINVAL|EPERM", lambda: LIBC.prctl(38, 0, 0, 0, 0) < 0 and fail())
probe("capabilities", "securebits", "EPERM", lambda: LIBC.prctl(28, 0x2F, 0, 0, 0) < 0 and fail())

probe("capabilities", "twin: ask for no_new_privs", "ok", lambda: LIBC.prctl(39, 0, 0, 0, 0) == 1 or int("x"))

# The network.
FAMILIES = {
    "netlink": 16, "packet": 17, "bluetooth": 31, "alg": 38, "vsock": 40, "can": 29, "key": 15, "rds": 21, "tipc": 30, "x25": 9,
    "ax25": 3, "ipx": 4, "appletalk": 5, "netrom": 6, "atmpvc": 8, "rose": 11, "llc": 26, "phonet": 35, "ieee802154": 36, "caif": 37,
    "nfc": 39, "kcm": 41, "qipcrtr": 42, "smc": 43, "xdp": 44, "mctp": 45,
}
for name, family in FAMILIES.items():
    probe("network", "socket " + name, "EPERM", lambda f: socket.socket(f, socket.SOCK_DGRAM, 0).close(), family)
probe("network", "raw IPv4", "EPERM", lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW, 1).close())
probe("network", "raw IPv6", "EPERM", lambda: socket.socket(socket.AF_INET6, socket.SOCK_RAW, 58).close())
for address in [
    "1.1.1.1", "8.8.8.8", "10.0.0.1", "172.17.0.1", "192.168.0.1", "169.254.169.254", "100.64.0.1", "224.0.0.1", "255.255.255.255",
    "0.0.0.1",
]:
    probe("network", "TCP to " + address, "ENETUNREACH|EACCES|EPERM|ECONNREFUSED|EINVAL|ETIMEDOUT", lambda a: dial(socket.AF_INET, (a, 80)), address)
    probe("network", "UDP to " + address, "ENETUNREACH|EACCES|EPERM|EINVAL", lambda a: datagram(a), address)
for address in ["2606:4700:4700::1111", "fd00::1", "fe80::1", "::ffff:1.1.1.1", "64:ff9b::a9fe:a9fe", "ff02::1"]:
    probe("network", "TCP to " + address, "ENETUNREACH|EACCES|EPERM|EADDRNOTAVAIL|EINVAL|ECONNREFUSED", lambda a: dial(socket.AF_INET6, (a, 80)), address)
for port in (22, 53, 80, 443, 2375, 3306, 5432, 6379, 8080, 9200):
    probe("network", "a service of the host on %d" % port, "ECONNREFUSED", lambda p: dial(socket.AF_INET, ("127.0.0.1", p)), port)
for path in ["/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket", "/run/user/1000/bus", "/tmp/.X11-unix/X0", HOME + "/data/control.sock"]:
    probe("network", "unix " + path, "ENOENT|EACCES", lambda p: dial(socket.AF_UNIX, p), path)
for name in ("@/tmp/.X11-unix/X0", "@/org/freedesktop/systemd1/private", "@/containerd-shim/x.sock", "@snapd"):
    probe("network", "abstract " + name, "ECONNREFUSED", lambda p: dial(socket.AF_UNIX, "\0" + p[1:]), name)
for name in ("example.org", "localhost.localdomain", "metadata.google.internal", "a.b.c.evil.test"):
    probe("network", "look up " + name, "GAI", lambda n: socket.getaddrinfo(n, 80), name)
probe("network", "twin: a socket pair", "ok", lambda: [one.close() for one in socket.socketpair()])
probe("network", "twin: listen inside", "ok", lambda: listen_and_dial())

# Signals to others, and limits that do not rise.
for name, number in [("KILL", signal.SIGKILL), ("STOP", signal.SIGSTOP), ("TERM", signal.SIGTERM), ("probe", 0)]:
    probe("processes", "signal %s to the host" % name, "ESRCH", os.kill, PID, number)
    probe("processes", "signal %s to a group of the host" % name, "ESRCH|EPERM", os.killpg, PID, number)
probe("processes", "priority of the host's", "ESRCH", os.setpriority, os.PRIO_PROCESS, PID, 10)
probe("processes", "affinity of the host's", "ESRCH", os.sched_setaffinity, PID, {0})
probe("processes", "limits of the host's", "ESRCH", resource.prlimit, PID, resource.RLIMIT_NOFILE)
probe("processes", "a pidfd of the host's", "ESRCH|EPERM|ENOSYS", os.pidfd_open, PID)
for name in ("NOFILE", "NPROC", "CORE", "MEMLOCK", "MSGQUEUE", "RTPRIO", "NICE"):
    which = getattr(resource, "RLIMIT_" + name)
    hard = resource.getrlimit(which)[1]
    if hard != resource.RLIM_INFINITY:
        probe("processes", "raise " + name, "EPERM|VALUE", resource.setrlimit, which, (hard + 1, hard + 1))
probe("processes", "lock memory", "EPERM|ENOMEM", lambda: LIBC.mlockall(3) < 0 and fail())
probe("processes", "twin: signal oneself", "ok", os.kill, os.getpid(), 0)
probe("processes", "twin: a child", "ok", lambda: os.waitpid(os.posix_spawn("/usr/bin/env", ["env", "true"], {"PATH": "/usr/bin:/bin"}), 0)[1] == 0 or int("x"))


def fail():
    raise OSError(ctypes.get_errno(), "call")


def dial(family, address):
    with socket.socket(family, socket.SOCK_STREAM) as one:
        one.settimeout(1)
        one.connect(address)


def datagram(address):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.sendto(b"x", (address, 53))


def listen_and_dial():
    with socket.socket() as server, socket.socket() as client:
        server.bind(("127.0.0.1", 0))
        server.listen(1)
        client.settimeout(5)
        client.connect(server.getsockname())


def ended(attempt, args):
    try:
        attempt(*args)
        return "ok"
    except socket.gaierror:
        return "GAI"
    except socket.timeout:
        return "ETIMEDOUT"
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error.errno))
    except ValueError:
        return "VALUE"


counts = {}
for group, name, wanted, attempt, args in PROBES:
    found = ended(attempt, args)
    attempts = counts.setdefault(group, [0, 0])
    attempts[name.startswith("twin: ")] += 1
    if found not in wanted:
        print("WRONG %s: %s: %s, not %s" % (group, name, found, " or ".join(wanted)))
    elif os.environ.get("PROBES_SHOW"):
        print("fine %s: %s: %s" % (group, name, found))
print(" ".join("%s=%d+%d" % (group, *numbers) for group, numbers in counts.items()))
