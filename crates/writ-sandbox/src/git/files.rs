//! The files of a commit, read without a work tree: no link is followed, no filter runs.

use super::process::{GitProcess, split_nul, to_line};
use super::{CommitId, GitFault, GitProject};

/// The most files that are read at once.
pub const FILES_MAX: usize = 256;
/// The largest file that is read, in bytes.
pub const FILE_BYTES_MAX: u64 = 128 * 1024;

/// A file of a commit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommitFile {
    /// Its path, as the bytes that git has.
    pub path: Vec<u8>,
    /// The id of its content.
    blob: String,
    /// Set for a plain file; links and submodules are none.
    pub is_plain: bool,
}

/// Lists the files of a commit in the order of their paths, by bytes.
///
/// # Errors
///
/// If the commit is not there, or has more files than git's output may have bytes for.
pub async fn list_files(project: &GitProject, commit: &CommitId) -> Result<Vec<CommitFile>, GitFault> {
    let git = GitProcess::in_own(project, "list files");
    let listed = git.with_args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str()]).run_well().await?;
    Ok(split_nul(&listed).filter_map(read_entry).collect())
}

/// Lists the files of a commit that lie in a folder, in the order of their paths, by bytes. A folder that is not there has none.
///
/// # Errors
///
/// As [`list_files`].
pub async fn list_files_in(
    project: &GitProject,
    commit: &CommitId,
    folder: &str,
) -> Result<Vec<CommitFile>, GitFault> {
    let git = GitProcess::in_own(project, "list files of a folder");
    // Without the slash a link of that name would be listed itself.
    let inside = format!("{folder}/");
    let listed = git
        .with_args(["ls-tree", "-r", "-z", "--full-tree", commit.as_str(), "--", &inside])
        .run_well()
        .await?;
    Ok(split_nul(&listed).filter_map(read_entry).collect())
}

/// Finds what keeps these folders of a commit from being folders: links, submodules and files that have the path of one, or of a folder above one.
///
/// # Errors
///
/// If the commit is not there.
pub async fn find_non_folders(
    project: &GitProject,
    commit: &CommitId,
    folders: &[&str],
) -> Result<Vec<CommitFile>, GitFault> {
    let mut paths: Vec<&str> = Vec::new();
    for folder in folders {
        paths.extend(folder.match_indices('/').filter_map(|(at, _)| folder.get(..at)));
        paths.push(folder);
    }
    let git = GitProcess::in_own(project, "find folders");
    let listed = git
        .with_args(["ls-tree", "-z", "--full-tree", commit.as_str(), "--"])
        .with_args(paths.iter().copied())
        .run_well()
        .await?;
    let is_folder = |entry: &&[u8]| entry.starts_with(b"040000 ");
    // Where git looks into a folder for one of the paths, it lists what else is in there.
    let is_asked = |file: &CommitFile| paths.iter().any(|path| path.as_bytes() == file.path);
    let others = split_nul(&listed).filter(|entry| !is_folder(entry)).filter_map(read_entry);
    Ok(others.filter(is_asked).collect())
}

/// Finds one file of a commit by its path.
///
/// # Errors
///
/// If the commit is not there.
pub async fn find_file(
    project: &GitProject,
    commit: &CommitId,
    path: &str,
) -> Result<Option<CommitFile>, GitFault> {
    let git = GitProcess::in_own(project, "find a file");
    let listed =
        git.with_args(["ls-tree", "-z", "--full-tree", commit.as_str(), "--", path]).run_well().await?;
    // A folder of that name is another entry.
    let found = split_nul(&listed).filter_map(read_entry).find(|file| file.path == path.as_bytes());
    Ok(found)
}

/// Reads `100644 blob ID<TAB>PATH`.
fn read_entry(entry: &[u8]) -> Option<CommitFile> {
    let tab = entry.iter().position(|byte| *byte == b'\t')?;
    let (head, path) = entry.split_at_checked(tab)?;
    let head = std::str::from_utf8(head).ok()?;
    let mut fields = head.split(' ');
    let (mode, kind, blob) = (fields.next()?, fields.next()?, fields.next()?);
    let is_plain = kind == "blob" && mode.starts_with("100");
    Some(CommitFile { path: path.get(1..)?.to_vec(), blob: blob.to_owned(), is_plain })
}

/// Reads plain files, each with its content in the order in which they are named; `None` for one that is none, or larger than
/// [`FILE_BYTES_MAX`]. Beyond [`FILES_MAX`] none is read.
///
/// # Errors
///
/// If git cannot be run.
pub async fn read_files(
    project: &GitProject,
    files: &[&CommitFile],
) -> Result<Vec<Option<Vec<u8>>>, GitFault> {
    let run = |flag: &'static str, ids: Vec<&str>| {
        let input = ids.iter().map(|id| format!("{id}\n")).collect::<String>().into_bytes();
        GitProcess::in_own(project, "read files").with_args(["cat-file", flag]).with_input(input).run_well()
    };
    let plain: Vec<&CommitFile> =
        files.iter().take(FILES_MAX).copied().filter(|file| file.is_plain).collect();
    // Their sizes first, so that a huge one is never read.
    let sizes =
        run("--batch-check=%(objectsize)", plain.iter().map(|file| file.blob.as_str()).collect()).await?;
    let sizes = to_line(&sizes);
    let sizes = sizes.lines().map(|size| size.parse::<u64>().ok());
    let small: Vec<&CommitFile> = plain
        .into_iter()
        .zip(sizes)
        .filter(|(_, size)| size.is_some_and(|size| size <= FILE_BYTES_MAX))
        .map(|(file, _)| file)
        .collect();
    let read = run("--batch=%(objectsize)", small.iter().map(|file| file.blob.as_str()).collect()).await?;
    let mut contents = split_contents(&read).into_iter();
    let mut all = Vec::with_capacity(files.len());
    for file in files {
        let is_read = small.iter().any(|other| std::ptr::eq(*other, *file));
        all.push(if is_read { contents.next() } else { None });
    }
    Ok(all)
}

/// Splits `SIZE<LF>CONTENT<LF>…`.
fn split_contents(mut bytes: &[u8]) -> Vec<Vec<u8>> {
    let mut contents = Vec::new();
    while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
        let size = bytes.get(..end).map(to_line).and_then(|size| size.parse::<usize>().ok());
        let Some(content) = size.and_then(|size| bytes.get(end + 1..end + 1 + size)) else { break };
        contents.push(content.to_vec());
        // The line break behind the content.
        bytes = bytes.get(end + 2 + content.len()..).unwrap_or_default();
    }
    contents
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_and_contents_are_split_at_their_own_signs() {
        let file = read_entry(b"100755 blob abc\ta\tb\xff.rs").unwrap();
        assert_eq!(
            (file.path.as_slice(), file.blob.as_str(), file.is_plain),
            (&b"a\tb\xff.rs"[..], "abc", true)
        );
        assert!(!read_entry(b"120000 blob abc\tlink").unwrap().is_plain);
        assert!(!read_entry(b"160000 commit abc\tsub").unwrap().is_plain);
        assert_eq!(read_entry(b"100644 blob abc"), None);
        assert_eq!(split_contents(b"3\na\nb\n0\n\n2\nxy\n"), [b"a\nb".to_vec(), Vec::new(), b"xy".to_vec()]);
        assert_eq!(split_contents(b"9\nab"), Vec::<Vec<u8>>::new());
        assert_eq!(split_contents(b"x missing\n"), Vec::<Vec<u8>>::new());
    }
}
