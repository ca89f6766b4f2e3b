//! The seccomp filters: one answers «not permitted», one «not there», one shuts the second system call table, and one takes
//! the Unix sockets from agents.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    TargetArch, sock_filter,
};

use super::spec::{SetupFault, Walls};

/// Calls that no confined program needs: other processes' memory, kernel keys, mounts, modules, namespaces.
const FORBIDDEN: &[i64] = &[
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_kcmp,
    libc::SYS_pidfd_getfd,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_open_tree,
    libc::SYS_move_mount,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_setns,
    libc::SYS_kexec_load,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_open_by_handle_at,
    libc::SYS_name_to_handle_at,
    libc::SYS_acct,
    libc::SYS_quotactl,
    libc::SYS_syslog,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_vhangup,
    libc::SYS_lookup_dcookie,
    libc::SYS_nfsservctl,
    libc::SYS_migrate_pages,
    libc::SYS_move_pages,
    libc::SYS_fanotify_init,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_kexec_file_load,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_ioperm,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_iopl,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_modify_ldt,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_uselib,
];

/// Calls that programs try and do without: `clone3` hides its flags from filters, io_uring goes around them.
const ABSENT: &[i64] =
    &[libc::SYS_clone3, libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register];

/// Flags of `clone` and `unshare` that make namespaces.
const NAMESPACE_FLAGS: &[i32] = &[
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    // CLONE_NEWTIME
    0x80,
];

/// Terminal requests that type into, or read from, another terminal.
const FORBIDDEN_IOCTLS: &[u64] = &[libc::TIOCSTI, libc::TIOCLINUX, libc::TIOCCONS];

/// The bits that are the kind of a socket.
const SOCKET_KIND: u64 = 0xf;

/// `personality` with this argument only asks.
const PERSONALITY_QUERY: u64 = 0xffff_ffff;

/// The bit that marks a call of the x32 table.
#[cfg(target_arch = "x86_64")]
const X32_BIT: u32 = 0x4000_0000;

/// The compiled filters, made once in the zygote.
#[derive(Debug)]
pub(crate) struct Filters {
    full: BpfProgram,
    reduced: BpfProgram,
    absent: BpfProgram,
    tables: BpfProgram,
    paired: BpfProgram,
}

impl Filters {
    /// Compiles them.
    pub(crate) fn compile_filters() -> Result<Self, SetupFault> {
        Ok(Self {
            full: build_filter(forbidden_calls(Walls::Full)?, libc::EPERM)?,
            reduced: build_filter(forbidden_calls(Walls::Reduced)?, libc::EPERM)?,
            absent: build_filter(ABSENT.iter().map(|call| (*call, Vec::new())).collect(), libc::ENOSYS)?,
            tables: tables(),
            paired: build_filter(addressed_sockets()?, libc::EPERM)?,
        })
    }

    /// Installs them in the calling thread; they cannot be removed. `only_pairs`: Unix sockets without an address alone.
    pub(crate) fn install_filters(&self, walls: Walls, only_pairs: bool) -> Result<(), SetupFault> {
        let forbidden = match walls {
            Walls::Full => &self.full,
            Walls::Reduced => &self.reduced,
        };
        let paired = only_pairs.then_some(&self.paired);
        for program in [&self.tables, &self.absent, forbidden].into_iter().chain(paired) {
            if !program.is_empty() {
                seccompiler::apply_filter(program)
                    .map_err(|why| SetupFault::new("seccomp", why.to_string()))?;
            }
        }
        Ok(())
    }
}

/// Compiles one filter. A call of the 32-bit table ends the program: it has no business there.
fn build_filter(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, SetupFault> {
    let arch = TargetArch::try_from(std::env::consts::ARCH).map_err(filter_fault)?;
    let errno = SeccompAction::Errno(u32::try_from(errno).unwrap_or_default());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, errno, arch).map_err(filter_fault)?;
    BpfProgram::try_from(filter).map_err(filter_fault)
}

/// The rules of what is not permitted.
fn forbidden_calls(walls: Walls) -> Result<BTreeMap<i64, Vec<SeccompRule>>, SetupFault> {
    let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
        FORBIDDEN.iter().map(|call| (*call, Vec::new())).collect();
    let any_namespace: Vec<SeccompRule> = NAMESPACE_FLAGS
        .iter()
        .map(|flag| {
            let flag = u64::try_from(*flag).unwrap_or_default();
            build_rule(&[(0, SeccompCmpOp::MaskedEq(flag), flag)])
        })
        .collect::<Result<_, _>>()?;
    rules.insert(libc::SYS_unshare, any_namespace.clone());
    // CLONE_NEWTIME shares its bit with the signal number of `clone`, where it means nothing.
    rules.insert(libc::SYS_clone, any_namespace.into_iter().take(NAMESPACE_FLAGS.len() - 1).collect());
    let families: &[i32] = match walls {
        Walls::Full => &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6],
        Walls::Reduced => &[libc::AF_UNIX],
    };
    let other_family: Vec<_> = families
        .iter()
        .map(|family| (0, SeccompCmpOp::Ne, u64::try_from(*family).unwrap_or_default()))
        .collect();
    rules.insert(libc::SYS_socket, vec![build_rule(&other_family)?]);
    let ioctls = FORBIDDEN_IOCTLS.iter().map(|request| build_rule(&[(1, SeccompCmpOp::Eq, *request)]));
    rules.insert(libc::SYS_ioctl, ioctls.collect::<Result<_, _>>()?);
    let other_personality =
        build_rule(&[(0, SeccompCmpOp::Ne, 0), (0, SeccompCmpOp::Ne, PERSONALITY_QUERY)])?;
    rules.insert(libc::SYS_personality, vec![other_personality]);
    Ok(rules)
}

/// The rules of Unix sockets that could reach a path. A filter sees no path, so there are none but in pairs, as programs use
/// them between their own processes; and no pairs of messages, since each of these can be sent to any path.
fn addressed_sockets() -> Result<BTreeMap<i64, Vec<SeccompRule>>, SetupFault> {
    let number = |value: i32| u64::try_from(value).unwrap_or_default();
    let unix = build_rule(&[(0, SeccompCmpOp::Eq, number(libc::AF_UNIX))])?;
    // Raw ones are the same to the kernel. The flags of the call lie above the kind.
    let messages = [libc::SOCK_DGRAM, libc::SOCK_RAW]
        .map(|kind| build_rule(&[(1, SeccompCmpOp::MaskedEq(SOCKET_KIND), number(kind))]))
        .into_iter()
        .collect::<Result<_, _>>()?;
    Ok(BTreeMap::from([(libc::SYS_socket, vec![unix]), (libc::SYS_socketpair, messages)]))
}

/// A rule that matches when all of its conditions do; each is an argument, a comparison and a 32-bit value.
fn build_rule(conditions: &[(u8, SeccompCmpOp, u64)]) -> Result<SeccompRule, SetupFault> {
    let conditions = conditions
        .iter()
        .map(|(argument, op, value)| {
            SeccompCondition::new(*argument, SeccompCmpArgLen::Dword, op.clone(), *value)
                .map_err(filter_fault)
        })
        .collect::<Result<Vec<_>, _>>()?;
    SeccompRule::new(conditions).map_err(filter_fault)
}

/// Returns a filter that answers «not there» to every call of the x32 table: the others do not know its
/// numbers.
#[cfg(target_arch = "x86_64")]
fn tables() -> BpfProgram {
    const LOAD_WORD: u16 = 0x20;
    const JUMP_IF_AT_LEAST: u16 = 0x35;
    const RETURN: u16 = 0x06;
    let absent = libc::SECCOMP_RET_ERRNO | u32::try_from(libc::ENOSYS).unwrap_or_default();
    vec![
        // The call's number is the first word of `seccomp_data`.
        sock_filter { code: LOAD_WORD, jt: 0, jf: 0, k: 0 },
        sock_filter { code: JUMP_IF_AT_LEAST, jt: 0, jf: 1, k: X32_BIT },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: absent },
        sock_filter { code: RETURN, jt: 0, jf: 0, k: libc::SECCOMP_RET_ALLOW },
    ]
}

/// Only x86-64 has a second table of its own.
#[cfg(not(target_arch = "x86_64"))]
fn tables() -> BpfProgram {
    Vec::new()
}

fn filter_fault(why: seccompiler::BackendError) -> SetupFault {
    SetupFault::new("seccomp", why.to_string())
}
