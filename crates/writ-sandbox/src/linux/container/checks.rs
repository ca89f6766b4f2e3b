//! The look at a container from outside, before a program begins in it: the engine's word is not enough, since some
//! leave out what this machine does not offer, and say so in a warning or not at all.

use std::fs;
use std::io;

use super::super::cgroup::OtherGroup;

/// The capabilities of a process, all of which are to be empty.
const CAPABILITIES: [&str; 5] = ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"];
/// The kinds of file system that have nothing of the host's disks.
const VIRTUAL: [&str; 8] = ["proc", "sysfs", "tmpfs", "devpts", "mqueue", "cgroup", "cgroup2", "devtmpfs"];
/// The folders of such file systems.
const SYSTEM: [&str; 3] = ["/proc", "/sys", "/dev"];
/// The files that engines lay into a container, and the folders of our own.
const LAID: [&str; 8] = [
    "/etc/hosts",
    "/etc/hostname",
    "/etc/resolv.conf",
    "/etc/passwd",
    "/etc/group",
    "/run/.containerenv",
    "/work",
    "/.writ",
];

/// The limits that were ordered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerBounds {
    /// Memory, in bytes.
    pub(crate) memory: u64,
    /// Processes.
    pub(crate) processes: u64,
}

/// Looks at the first process of a container. Returns the lacks that an agent may be started with, or the wall that is not there.
pub(crate) fn check_container(
    pid: i32,
    group: &OtherGroup,
    bounds: ContainerBounds,
) -> Result<Vec<String>, String> {
    let read = |name: &str| read_file(pid, name).map_err(|why| format!("/proc/{pid}/{name}: {why}"));
    check_status(&read("status")?)?;
    check_mounts(&read("mountinfo")?)?;
    for name in ["net", "mnt", "ipc", "uts"] {
        let of = |pid: &str| fs::read_link(format!("/proc/{pid}/ns/{name}"));
        // Another user's cannot be looked at: what is inside of it says the same.
        if of(&pid.to_string()).is_ok_and(|theirs| of("self").is_ok_and(|ours| theirs == ours)) {
            return Err(format!("it has this machine's own namespace '{name}'"));
        }
    }
    let new = match read_file(pid, "net/ipv6_route") {
        // A kernel without IPv6 has no list of its routes.
        Err(why) if why.kind() == io::ErrorKind::NotFound => String::new(),
        other => other.map_err(|why| format!("its routes cannot be read: {why}"))?,
    };
    check_routes(&read("net/route")?, &new)?;
    check_bounds(group.bounds(), bounds)?;
    let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
    let swapped = swaps.lines().count() > 1 && !group.bounds_swap(bounds.memory);
    let lack = swapped.then(|| "without a bound of swapped memory: this kernel does not count it".to_owned());
    Ok(lack.into_iter().collect())
}

fn read_file(pid: i32, name: &str) -> io::Result<String> {
    fs::read_to_string(format!("/proc/{pid}/{name}"))
}

/// Checks the kernel's own record of a process: no capability, no way to get one, filters, and not root.
fn check_status(status: &str) -> Result<(), String> {
    let field = |name: &str| {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
            .unwrap_or_default()
    };
    for set in CAPABILITIES {
        if u64::from_str_radix(field(set), 16) != Ok(0) {
            return Err(format!("{set} is not empty"));
        }
    }
    for (name, wanted) in [("NoNewPrivs", "1"), ("Seccomp", "2")] {
        if field(name) != wanted {
            return Err(format!("{name} is not {wanted}"));
        }
    }
    // Its own number in each of the namespaces that it is in, the innermost last.
    let ids: Vec<&str> = field("NSpid").split_whitespace().collect();
    if ids.len() < 2 || ids.last() != Some(&"1") {
        return Err("it is not the first process of a namespace of its own".into());
    }
    for name in ["Uid", "Gid", "Groups"] {
        let mut ids = field(name).split_whitespace();
        if (name != "Groups" && field(name).is_empty())
            || ids.any(|id| id.parse().map_or(true, |id: u32| id == 0))
        {
            return Err(format!("{name} has root's"));
        }
    }
    Ok(())
}

/// Checks that a container has nothing of this machine in it but what was ordered, and may write its temporary folder alone.
fn check_mounts(mountinfo: &str) -> Result<(), String> {
    let (mut root, mut tmp) = (false, false);
    for line in mountinfo.lines() {
        let (before, after) = line.split_once(" - ").ok_or("its mounts cannot be read")?;
        let mut before = before.split(' ').skip(4);
        let (Some(point), Some(options)) = (before.next(), before.next()) else {
            return Err("its mounts cannot be read".into());
        };
        let kind = after.split(' ').next().unwrap_or_default();
        let read_only = options.split(',').any(|option| option == "ro");
        let below = |folder: &&str| {
            point.strip_prefix(*folder).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let ordered = match point {
            "/" => {
                root = true;
                read_only
            }
            "/tmp" => {
                tmp = true;
                kind == "tmpfs"
            }
            _ if SYSTEM.iter().any(&below) => VIRTUAL.contains(&kind),
            _ => LAID.iter().any(&below) && read_only,
        };
        if !ordered {
            let how = if read_only { "" } else { ", which can be written" };
            return Err(format!("it has a mount at {point} that was not ordered{how}"));
        }
    }
    if root && tmp { Ok(()) } else { Err("it has no root or no temporary folder of its own".into()) }
}

/// Checks that no way leads out of a network.
fn check_routes(old: &str, new: &str) -> Result<(), String> {
    let old = old.lines().skip(1).find_map(|line| line.split_whitespace().next());
    let new = new.lines().filter_map(|line| line.split_whitespace().last()).find(|device| *device != "lo");
    match old.or(new) {
        None => Ok(()),
        Some(device) => Err(format!("its network has a way out over {device}")),
    }
}

/// Checks the limits that the kernel holds it to.
fn check_bounds(found: [Option<u64>; 2], wanted: ContainerBounds) -> Result<(), String> {
    let pairs = [(wanted.memory, "memory"), (wanted.processes, "processes")];
    for (found, (wanted, name)) in found.into_iter().zip(pairs) {
        match found {
            Some(found) if found <= wanted => {}
            Some(found) => return Err(format!("its limit of {name} is {found}, not {wanted}")),
            None => return Err(format!("nothing limits its {name}")),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str = "NSpid:\t7124\t1\nUid:\t60801\t60801\t60801\t60801\nGid:\t60801\t60801\t60801\t60801\nGroups:\t60801 \n\
        CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n\
        CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t1\n";
    const MOUNTS: &str = "522 499 254:0 /data/vfs / ro,relatime master:1 - ext4 /dev/vda rw\n\
        523 522 0:97 / /proc rw,nosuid - proc proc rw\n524 522 0:98 / /dev rw,nosuid - tmpfs tmpfs rw\n\
        526 522 0:100 / /sys ro - sysfs sysfs ro\n538 522 0:102 / /tmp rw,nosuid - tmpfs tmpfs rw,size=1024k\n\
        547 522 254:0 /usr/bin/writ /.writ/program ro - ext4 /dev/vda rw\n550 522 254:0 /hosts /etc/hosts ro - ext4 /dev/vda rw\n";

    #[test]
    fn each_right_that_an_engine_leaves_is_found() {
        assert_eq!(check_status(STATUS), Ok(()));
        for (from, to) in [
            ("CapBnd:\t0000000000000000", "CapBnd:\t00000000a80425fb"),
            ("CapEff:\t0000000000000000", "CapEff:\t0000000000000001"),
            ("NoNewPrivs:\t1", "NoNewPrivs:\t0"),
            ("Seccomp:\t2", "Seccomp:\t0"),
            ("Uid:\t60801\t60801", "Uid:\t0\t60801"),
            ("Uid:\t60801\t60801\t60801\t60801", "Uid:"),
            ("Gid:\t60801", "Gid:\t0"),
            ("Groups:\t60801", "Groups:\t60801 0"),
            ("CapAmb", "CapNot"),
            ("NSpid:\t7124\t1", "NSpid:\t7124"),
            ("NSpid:\t7124\t1", "NSpid:\t7124\t12"),
        ] {
            assert!(check_status(&STATUS.replace(from, to)).is_err(), "{to}");
        }
        assert!(check_status("").is_err());
    }

    #[test]
    fn each_mount_that_was_not_ordered_is_found() {
        assert_eq!(check_mounts(MOUNTS), Ok(()));
        for more in [
            "1 2 0:1 / /run/docker.sock ro - tmpfs tmpfs rw",
            "1 2 0:1 / /var/lib/data rw - ext4 /dev/vda rw",
            "1 2 0:1 / /run/secrets ro - tmpfs tmpfs rw",
            "1 2 0:1 / /dev/shm/host rw - ext4 /dev/vda rw",
            "1 2 0:1 / /work rw - ext4 /dev/vda rw",
            "1 2 0:1 / /workshop ro - ext4 /dev/vda rw",
            "1 2 0:1 / /.writ/../x",
            "nonsense",
        ] {
            assert!(check_mounts(&format!("{MOUNTS}{more}\n")).is_err(), "{more}");
        }
        assert!(check_mounts(&MOUNTS.replace("/ ro,", "/ rw,")).is_err());
        assert!(check_mounts(&MOUNTS.replace(" /tmp rw", " /srv ro")).is_err());
        assert!(check_mounts("").is_err());
    }

    #[test]
    fn a_way_out_and_a_limit_that_is_not_there_are_found() {
        let head = "Iface\tDestination\tGateway\n";
        let own =
            "00000000000000000000000000000001 80 00 00 00 00000000 00000002 00000000 80200001       lo\n";
        assert_eq!(check_routes(head, own), Ok(()));
        assert_eq!(check_routes("", ""), Ok(()));
        assert!(check_routes(&format!("{head}eth0\t00000000\t010011AC\n"), own).is_err());
        assert!(check_routes(head, &own.replace("lo", "eth0")).is_err());
        let wanted = ContainerBounds { memory: 1024, processes: 8 };
        assert_eq!(check_bounds([Some(1024), Some(8)], wanted), Ok(()));
        for found in [[None, Some(8)], [Some(1024), None], [Some(1025), Some(8)], [Some(1024), Some(9)]] {
            assert!(check_bounds(found, wanted).is_err(), "{found:?}");
        }
    }
}
