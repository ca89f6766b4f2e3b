//! Threat 20: system calls. The probes run inside, in our own code, so that no program's manners hide the answer.

use super::super::spec::{HostFolder, JobEnd, SandboxJob, Walls, WorkMount};
use super::super::sys::raw;
use super::*;

/// A probe: name, system call, arguments, and the error that must come; 0: it must succeed.
type Probe = (&'static str, i64, [u64; 6], i32);

const EPERM: i32 = libc::EPERM;
const ENOSYS: i32 = libc::ENOSYS;

fn number(value: i32) -> u64 {
    u64::try_from(value).unwrap()
}

fn probes() -> Vec<Probe> {
    let none = [0; 6];
    let first = |value: u64| [value, 0, 0, 0, 0, 0];
    let socket = |family: i32| [number(family), number(libc::SOCK_DGRAM), 0, 0, 0, 0];
    let user = number(libc::CLONE_NEWUSER);
    let mut probes = vec![
        ("unshare user", libc::SYS_unshare, first(user), EPERM),
        ("unshare mount", libc::SYS_unshare, first(number(libc::CLONE_NEWNS)), EPERM),
        ("unshare net", libc::SYS_unshare, first(number(libc::CLONE_NEWNET)), EPERM),
        ("clone user", libc::SYS_clone, first(user | number(libc::SIGCHLD)), EPERM),
        ("clone3", libc::SYS_clone3, none, ENOSYS),
        ("io_uring_setup", libc::SYS_io_uring_setup, first(1), ENOSYS),
        ("io_uring_enter", libc::SYS_io_uring_enter, none, ENOSYS),
        ("io_uring_register", libc::SYS_io_uring_register, none, ENOSYS),
        ("personality", libc::SYS_personality, first(0x0004_0000), EPERM),
        ("personality query", libc::SYS_personality, first(0xffff_ffff), 0),
        ("vsock", libc::SYS_socket, socket(libc::AF_VSOCK), EPERM),
        ("netlink", libc::SYS_socket, socket(libc::AF_NETLINK), EPERM),
        ("packet", libc::SYS_socket, socket(libc::AF_PACKET), EPERM),
        ("bluetooth", libc::SYS_socket, socket(libc::AF_BLUETOOTH), EPERM),
        ("alg", libc::SYS_socket, socket(libc::AF_ALG), EPERM),
        ("unix", libc::SYS_socket, socket(libc::AF_UNIX), 0),
        ("inet", libc::SYS_socket, socket(libc::AF_INET), 0),
        ("inet6", libc::SYS_socket, socket(libc::AF_INET6), 0),
        ("tiocsti", libc::SYS_ioctl, [0, libc::TIOCSTI, 0, 0, 0, 0], EPERM),
        ("tioclinux", libc::SYS_ioctl, [0, libc::TIOCLINUX, 0, 0, 0, 0], EPERM),
        ("x32 getpid", libc::SYS_getpid | 0x4000_0000, none, ENOSYS),
        ("getpid", libc::SYS_getpid, none, 0),
    ];
    let forbidden = [
        ("ptrace", libc::SYS_ptrace),
        ("process_vm_readv", libc::SYS_process_vm_readv),
        ("bpf", libc::SYS_bpf),
        ("keyctl", libc::SYS_keyctl),
        ("add_key", libc::SYS_add_key),
        ("request_key", libc::SYS_request_key),
        ("perf_event_open", libc::SYS_perf_event_open),
        ("userfaultfd", libc::SYS_userfaultfd),
        ("mount", libc::SYS_mount),
        ("umount2", libc::SYS_umount2),
        ("pivot_root", libc::SYS_pivot_root),
        ("chroot", libc::SYS_chroot),
        ("open_tree", libc::SYS_open_tree),
        ("move_mount", libc::SYS_move_mount),
        ("fsopen", libc::SYS_fsopen),
        ("mount_setattr", libc::SYS_mount_setattr),
        ("setns", libc::SYS_setns),
        ("kexec_load", libc::SYS_kexec_load),
        ("init_module", libc::SYS_init_module),
        ("finit_module", libc::SYS_finit_module),
        ("delete_module", libc::SYS_delete_module),
        ("swapon", libc::SYS_swapon),
        ("swapoff", libc::SYS_swapoff),
        ("reboot", libc::SYS_reboot),
        ("open_by_handle_at", libc::SYS_open_by_handle_at),
        ("name_to_handle_at", libc::SYS_name_to_handle_at),
    ];
    probes.extend(forbidden.map(|(name, call)| (name, call, none, EPERM)));
    probes
}

/// Runs inside a sandbox.
pub(crate) fn probe(_: &str) -> i32 {
    let wrong: Vec<String> = probes()
        .into_iter()
        .filter_map(|(name, call, args, wanted)| {
            let found = raw(call, args);
            let fine = if wanted == 0 { found >= 0 } else { found == -i64::from(wanted) };
            (!fine).then(|| format!("{name}: {found}, not {}", -wanted))
        })
        .collect();
    super::super::init::write_reply(wrong.join("\n").as_bytes())
}

#[tokio::test]
async fn forbidden_calls_have_exactly_the_errors_that_are_promised() {
    let fixture = Fixture::new().await;
    let inner = &fixture.native;
    // In one that is made for it, and in one that waited: two for files are there already.
    for waiting in [2, 4] {
        inner.pool.filled(waiting).await;
        let work =
            WorkMount::Folder { path: HostFolder::of(&fixture.project).unwrap(), access: FolderAccess::Read };
        let launch = super::super::run::Launch {
            spec: inner.spec(Walls::Full, SandboxJob::Probe("calls".into()), work),
            stdin: None,
            time: PATIENCE,
            memory: 1024 * MIB,
            keep: MIB,
            kill_above: MIB,
            disk: None,
            options: ExecOptions::default(),
            again: true,
            hold: None,
            talk: None,
        };
        let finished = inner.run_launch(launch).await.unwrap();
        assert_eq!(finished.stdout.text_output().text, "");
        assert_eq!(finished.event, JobEnd::Exited(0));
    }
}

/// The sandbox is our own in place of Docker's: what its orders say there, the kernel says here.
///
/// Rows: WIN-410 (in part: there is no direct mode)
/// Rows: WIN-149
#[tokio::test]
async fn a_program_has_no_capability_and_no_way_to_one() {
    let fixture = Fixture::new().await;
    let status = fixture.sh("grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").await;
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(status.contains(&format!("{set}:\t0000000000000000")), "{status}");
    }
    assert!(status.contains("NoNewPrivs:\t1"), "{status}");
    assert!(status.contains("Seccomp:\t2"), "{status}");
    let raw = "import socket\ntry: socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)\n\
               except PermissionError: print('refused')";
    let result = fixture.exec(&["python3", "-c", raw]).await;
    assert_eq!(result.stdout.text.trim(), "refused", "{result:?}");
    for mount in ["mount -t tmpfs none /tmp", "mount --bind /usr /tmp", "mount -o remount,rw /"] {
        fixture.refused(mount).await;
    }
    // A set-user-id program of one's own gives nothing.
    assert_eq!(fixture.sh("cp $(command -v id) own && chmod 4755 own && ./own -u").await, "1000");
    // Nor does one that lies in memory.
    let script = "import os,shutil\nf=os.memfd_create('x',0)\nos.write(f,open(shutil.which('id'),'rb').read())\n\
                  os.fchmod(f,0o4755)\nos.execv(f'/proc/self/fd/{f}',['id','-u'])";
    let result = fixture.exec(&["python3", "-c", script]).await;
    assert_eq!(result.stdout.text.trim(), "1000", "{result:?}");
}

#[tokio::test]
async fn only_three_descriptors_and_a_session_of_its_own() {
    let fixture = Fixture::new().await;
    assert_eq!(fixture.sh("ls /proc/self/fd | tr '\\n' ' '").await, "0 1 2 3");
    assert_eq!(
        fixture.sh("test $(cut -d' ' -f6 /proc/self/stat) = $$ && readlink /proc/self/fd/0").await,
        "/dev/null"
    );
}
