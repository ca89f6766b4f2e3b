//! Our own program as a container sees it: one file, or, where it is not static, with what it is loaded by and with.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use super::layout::{INSIDE, MARKER};
use crate::container::ContainerError;

/// The rights that every user needs on a file that is executed.
const EXECUTABLE: u32 = 0o005;
/// The size of the head of a 64-bit ELF file, and of one entry in its table.
const HEAD: usize = 64;
const ENTRY: usize = 56;
/// The most entries of that table, and the longest path of a loader.
const ENTRIES_MAX: u16 = 64;
const LOADER_MAX: u64 = 256;
/// The kind of the entry that names the loader.
const INTERPRETER: u32 = 3;

/// The files of our own program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OwnProgram {
    /// Paths on the host, and the names below [`INSIDE`].
    pub(crate) files: Vec<(PathBuf, String)>,
    /// True if there is a loader among them.
    pub(crate) loaded: bool,
}

impl OwnProgram {
    /// Finds the files of an executable. One that is not static is loaded with what this process was loaded with: it is the
    /// same program, or one that was built beside it.
    pub(crate) fn find_files(exe: &Path) -> Result<Self, ContainerError> {
        let fault = |why: String| ContainerError::Program { program: exe.to_owned(), why };
        let path = fs::canonicalize(exe).map_err(|why| fault(why.to_string()))?;
        let loader = read_loader(&path).map_err(|why| fault(why.to_string()))?;
        let mut files = vec![(path, "program".to_owned())];
        if let Some(loader) = &loader {
            files.push((loader.clone(), "loader".to_owned()));
            let maps = fs::read_to_string("/proc/self/maps").map_err(|why| fault(why.to_string()))?;
            files.extend(loaded_libraries(&maps));
        }
        for (path, _) in &files {
            let refused = |why: String| ContainerError::Program { program: path.clone(), why };
            let mode = fs::metadata(path).map_err(|why| refused(why.to_string()))?.permissions().mode();
            // Libraries are read alone, and many have no right to be executed.
            let wanted = if path.to_string_lossy().contains(".so") { 0o004 } else { EXECUTABLE };
            if mode & wanted != wanted {
                return Err(refused(format!("its mode is {:o}", mode & 0o777)));
            }
        }
        Ok(Self { files, loaded: loader.is_some() })
    }

    /// Returns the program that the container begins with, and its arguments.
    pub(crate) fn command_line(&self) -> (String, Vec<String>) {
        let inside = |name: &str| format!("{INSIDE}/{name}");
        if self.loaded {
            let args = ["--library-path".into(), inside("lib"), inside("program"), MARKER.into()];
            (inside("loader"), args.into())
        } else {
            (inside("program"), vec![MARKER.into()])
        }
    }
}

/// Returns the libraries that a process has in memory, and their names inside.
fn loaded_libraries(maps: &str) -> Vec<(PathBuf, String)> {
    let mut found: Vec<(PathBuf, String)> = maps
        .lines()
        .filter_map(|line| {
            let path = Path::new(line.get(line.find('/')?..)?);
            let name = path.file_name()?.to_str()?;
            // The loader brings itself.
            (name.contains(".so") && !name.starts_with("ld-"))
                .then(|| (path.to_owned(), format!("lib/{name}")))
        })
        .collect();
    found.sort();
    found.dedup();
    found
}

/// Reads the path of the loader of a program; `None`: it is static, or no 64-bit ELF file of this byte order.
fn read_loader(path: &Path) -> io::Result<Option<PathBuf>> {
    let mut file = File::open(path)?;
    let mut head = [0; HEAD];
    file.read_exact(&mut head)?;
    let Some((table, count)) = read_head(&head) else { return Ok(None) };
    file.seek(SeekFrom::Start(table))?;
    for _ in 0..count {
        let mut entry = [0; ENTRY];
        file.read_exact(&mut entry)?;
        let Some((place, length)) = read_entry(&entry) else { continue };
        let mut path = Vec::new();
        file.seek(SeekFrom::Start(place))?;
        // The path ends with a zero byte.
        file.take(length.min(LOADER_MAX).saturating_sub(1)).read_to_end(&mut path)?;
        let path = String::from_utf8(path).map_err(io::Error::other)?;
        return fs::canonicalize(path).map(Some);
    }
    Ok(None)
}

/// Returns the place of the table in a file and the number of its entries.
fn read_head(head: &[u8; HEAD]) -> Option<(u64, u16)> {
    // The class is 64 bits, the order little endian.
    if !head.starts_with(b"\x7fELF\x02\x01") || number_at::<2>(head, 54)? != u64::try_from(ENTRY).ok()? {
        return None;
    }
    Some((number_at::<8>(head, 32)?, u16::try_from(number_at::<2>(head, 56)?).ok()?.min(ENTRIES_MAX)))
}

/// Returns the place and length of the loader's path, if an entry is the one that has it.
fn read_entry(entry: &[u8; ENTRY]) -> Option<(u64, u64)> {
    (number_at::<4>(entry, 0)? == u64::from(INTERPRETER))
        .then(|| Some((number_at::<8>(entry, 8)?, number_at::<8>(entry, 32)?)))
        .flatten()
}

fn number_at<const SIZE: usize>(bytes: &[u8], at: usize) -> Option<u64> {
    let mut number = [0; 8];
    number.get_mut(..SIZE)?.copy_from_slice(bytes.get(at..at.checked_add(SIZE)?)?);
    Some(u64::from_le_bytes(number))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_shown_with_what_it_is_loaded_by() {
        let own = OwnProgram::find_files(Path::new("/proc/self/exe")).unwrap();
        let (first, rest) = own.command_line();
        assert_eq!(rest.last().map(String::as_str), Some(MARKER));
        let libraries = own.files.iter().filter(|(_, name)| name.starts_with("lib/")).count();
        assert_eq!((first.ends_with("/loader"), libraries > 0), (own.loaded, own.loaded), "{own:?}");
        let maps = "7f0-7f1 r-xp 0 fe:00 1 /usr/lib/libc.so.6\n7f1-7f2 rw-p 0 fe:00 1 /usr/lib/libc.so.6\n\
                    7f3-7f4 r-xp 0 fe:00 2 /usr/lib/ld-linux-x86-64.so.2\n7f5-7f6 rw-p 0 00:00 0\n7f7-7f8 r-xp 0 fe:00 3 /opt/writ\n";
        assert_eq!(
            loaded_libraries(maps),
            [(PathBuf::from("/usr/lib/libc.so.6"), "lib/libc.so.6".to_owned())]
        );
    }

    #[test]
    fn a_program_that_others_cannot_execute_or_that_is_none_is_refused() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("writ");
        fs::write(&path, [b'a'; 200]).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(OwnProgram::find_files(&path).map(|own| own.loaded).ok(), Some(false));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o750)).unwrap();
        assert!(matches!(OwnProgram::find_files(&path), Err(ContainerError::Program { .. })));
        fs::write(&path, b"\x7fELF").unwrap();
        assert!(matches!(OwnProgram::find_files(&path), Err(ContainerError::Program { .. })));
        assert!(OwnProgram::find_files(&temp.path().join("gone")).is_err());
        // A table that points beyond the end of the file is an error, and not a loop.
        let mut bad = [0_u8; 200];
        bad[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bad[32] = 190;
        bad[54] = 56;
        bad[56] = 9;
        fs::write(&path, bad).unwrap();
        assert!(OwnProgram::find_files(&path).is_err());
    }
}
