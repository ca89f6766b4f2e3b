# What a hostile agent tries. Prints a line for each attempt that works, and «done» at the end.
import ctypes, os, signal, socket, subprocess, sys, urllib.request
libc = ctypes.CDLL(None, use_errno=True)
host, other = int(sys.argv[1]), sys.argv[2]

def no(name, attempt):
    try:
        found = attempt()
    except (OSError, subprocess.SubprocessError, ValueError):
        return
    print("OPEN", name, found, flush=True)

def call(number, *args):
    if libc.syscall(number, *args) < 0:
        raise OSError(ctypes.get_errno(), "refused")

def connect(address, port, kind=socket.SOCK_STREAM, family=socket.AF_INET):
    made = socket.socket(family, kind)
    made.settimeout(3)
    made.connect((address, port))
    made.send(b"x")

def write(path):
    with open(path, "w") as file:
        file.write("x")

for port in (22, 25, 53, 80, 443, 587, 3306, 5432, 6379, 8080):
    no(f"raw {port}", lambda: connect("192.0.2.1", port))
for port in (22, 25, 587, 3306, 5432):
    no(f"loopback {port}", lambda: connect("127.0.0.1", port))
    no(f"name {port}", lambda: connect("security-proxy.silo.internal", port))
no("metadata", lambda: connect("169.254.169.254", 80))
no("v6", lambda: connect("2001:db8::1", 80, family=socket.AF_INET6))
no("udp", lambda: connect("192.0.2.1", 53, socket.SOCK_DGRAM))
no("dns", lambda: socket.getaddrinfo("example.com", 80))
no("http", lambda: urllib.request.urlopen("http://example.com/", timeout=3))
no("netlink", lambda: socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0))
no("packet", lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0))
no("rebind", lambda: socket.create_server(("127.0.0.1", 80)))
no("privileged port", lambda: socket.create_server(("127.0.0.1", 81)))

no("signal host", lambda: os.kill(host, 0))
# The kernel drops what the first process does not handle: the attempt ends nothing.
for number in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGCHLD):
    os.kill(1, number)
no("host in proc", lambda: os.stat(f"/proc/{host}"))
for name in ("environ", "mem", "maps", "root", "cwd", "exe", "fd/0"):
    no(f"first {name}", lambda: open(f"/proc/1/{name}", "rb").read(1))
no("trace first", lambda: call(101, 16, 1, 0, 0))
no("trace any", lambda: call(101, 0, 0, 0, 0))
no("read memory", lambda: call(310, 1, 0, 0, 0, 0, 0))
no("mount", lambda: call(165, b"none", b"/tmp", b"tmpfs", 0, None))
no("unshare", lambda: call(272, 0x10000000))
no("chroot", lambda: os.chroot("/tmp"))
no("root", lambda: os.setuid(0))
no("chown", lambda: (write("/tmp/own"), os.chown("/tmp/own", 0, 0)))
no("keys", lambda: call(250, 0, 0))
no("bpf", lambda: call(321, 0, 0, 0))
no("device", lambda: os.mknod("/tmp/disk", 0o60600, os.makedev(8, 0)))
no("sudo", lambda: subprocess.run(["sudo", "-n", "true"], check=True, stderr=subprocess.DEVNULL))
no("namespace", lambda: subprocess.run(["unshare", "-r", "true"], check=True, stderr=subprocess.DEVNULL))

for path in ("/x", "/etc/hosts", "/etc/passwd", "/etc/writ/authority.pem", "/usr/bin/x", "/var/x", "/run/x", "/home/ann/x",
             "/root" + "/x", "/dev/x", "/work/x", "/proc/sys/kernel/hostname", "/proc/1/oom_score_adj", "/sys/x"):
    no(f"write {path}", lambda: write(path))
no("other folder", lambda: os.listdir(other))
no("shadow", lambda: open("/etc/shadow").read())
assert os.listdir("/root") == [] and os.listdir("/home") == ["agent"]
# What it may do works: it writes its one folder, by each of its names.
for folder in ("/tmp", "/var/tmp", "/dev/shm", "/home/agent", os.environ["HOME"], os.environ["TMPDIR"]):
    write(folder + "/mine")
    os.unlink("/tmp/mine")
seen = sorted(int(name) for name in os.listdir("/proc") if name.isdigit())
assert seen[0] == 1 and len(seen) == 2, seen
print("done", os.getuid(), open("/etc/hosts").read().strip())
