//! Git's index, narrowed to a subfolder: entries outside are marked as files that are not checked out (skip-worktree), so that git
//! does not take them for deleted. The format is that of `gitformat-index`, versions 2 to 4.

use sha1::Digest as _;

/// The largest index that is read, in bytes: one of two million files has about 200 MB.
pub(crate) const BYTES_MAX: u64 = 256 * 1024 * 1024;

/// The bytes of an entry before its object id.
const STAT: usize = 40;
/// The bit of the flags that says that extended flags follow.
const EXTENDED: u16 = 0x4000;
/// The bits of the flags that hold the stage of a merge.
const STAGE: u16 = 0x3000;
/// The extended flag of a file that is not checked out.
const SKIP: u16 = 0x4000;

/// The hash of a repository's object ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    Sha1,
    Sha256,
}

impl Hash {
    const fn take_bytes(self) -> usize {
        match self {
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn of(self, content: &[u8]) -> Vec<u8> {
        match self {
            Self::Sha1 => sha1::Sha1::digest(content).to_vec(),
            Self::Sha256 => sha2::Sha256::digest(content).to_vec(),
        }
    }
}

/// The reason why an index cannot be narrowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum IndexError {
    #[error("the index is cut off or not well formed")]
    Malformed,
    #[error("the index has a version other than 2, 3 and 4")]
    Version,
    #[error("the index is split; `git update-index --no-split-index` makes it one file")]
    Split,
    #[error("the index needs an extension that is not known")]
    Extension,
}

/// Narrows an index to the entries at and below a path of the work tree.
///
/// # Errors
///
/// If it is not well formed, or of a kind that cannot be narrowed.
pub(crate) fn narrow_index(index: &[u8], path: &[u8], hash: Hash) -> Result<Vec<u8>, IndexError> {
    let body_end = index.len().checked_sub(hash.take_bytes()).ok_or(IndexError::Malformed)?;
    let (body, checksum) = index.split_at(body_end);
    let mut from = IndexReader { rest: body };
    if from.take_part(4)? != b"DIRC" {
        return Err(IndexError::Malformed);
    }
    let version = from.read_u32()?;
    if !(2..=4).contains(&version) {
        return Err(IndexError::Version);
    }
    let count = from.read_u32()?;
    let mut to = b"DIRC".to_vec();
    // Only version 2 has no place for the mark.
    to.extend_from_slice(&version.max(3).to_be_bytes());
    to.extend_from_slice(&count.to_be_bytes());
    let mut name = Vec::new();
    for _ in 0..count {
        read_entry(&mut from, &mut to, version, path, hash, &mut name)?;
    }
    read_extensions(&mut from, &mut to)?;
    // With `index.skipHash` the checksum is all zeros.
    if checksum.iter().all(|byte| *byte == 0) {
        to.extend_from_slice(checksum);
    } else {
        let checksum = hash.of(&to);
        to.extend_from_slice(&checksum);
    }
    Ok(to)
}

/// Copies one entry, with the mark if it lies outside `path`. `name` is that of the entry before.
fn read_entry(
    from: &mut IndexReader<'_>,
    to: &mut Vec<u8>,
    version: u32,
    path: &[u8],
    hash: Hash,
    name: &mut Vec<u8>,
) -> Result<(), IndexError> {
    let fixed = from.take_part(STAT + hash.take_bytes())?;
    let flags = from.read_u16()?;
    let is_long = flags & EXTENDED != 0;
    if is_long && version < 3 {
        return Err(IndexError::Malformed);
    }
    let mut extended = if is_long { from.read_u16()? } else { 0 };
    let spelled =
        if version == 4 { from.shorten_path(name)? } else { from.padded_length(fixed.len(), is_long, name)? };
    let below = name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"));
    if !below && flags & STAGE == 0 {
        extended |= SKIP;
    }
    let flags = if extended == 0 { flags & !EXTENDED } else { flags | EXTENDED };
    to.extend_from_slice(fixed);
    to.extend_from_slice(&flags.to_be_bytes());
    if extended != 0 {
        to.extend_from_slice(&extended.to_be_bytes());
    }
    to.extend_from_slice(spelled);
    if version < 4 {
        let zeros = padding(fixed.len(), extended != 0, spelled.len());
        to.resize(to.len() + zeros, 0);
    }
    Ok(())
}

/// The zeros after a name before version 4: one to eight, so that the next entry begins at a multiple of eight.
const fn padding(fixed: usize, is_long: bool, name: usize) -> usize {
    let used = fixed + 2 + if is_long { 2 } else { 0 } + name;
    8 - used % 8
}

/// Copies the extensions that still hold. Caches of the host's file system, and tables of places in the file, do not.
fn read_extensions(from: &mut IndexReader<'_>, to: &mut Vec<u8>) -> Result<(), IndexError> {
    while !from.rest.is_empty() {
        let signature = from.take_part(4)?;
        let bytes = from.read_u32()?;
        let data = from.take_part(usize::try_from(bytes).map_err(|_| IndexError::Malformed)?)?;
        match signature {
            b"TREE" | b"REUC" | b"sdir" => {
                to.extend_from_slice(signature);
                to.extend_from_slice(&bytes.to_be_bytes());
                to.extend_from_slice(data);
            }
            b"link" => return Err(IndexError::Split),
            [b'A'..=b'Z', ..] => {}
            _ => return Err(IndexError::Extension),
        }
    }
    Ok(())
}

/// The bytes that are not read yet.
struct IndexReader<'a> {
    rest: &'a [u8],
}

impl<'a> IndexReader<'a> {
    fn take_part(&mut self, bytes: usize) -> Result<&'a [u8], IndexError> {
        let (taken, rest) = self.rest.split_at_checked(bytes).ok_or(IndexError::Malformed)?;
        self.rest = rest;
        Ok(taken)
    }

    fn read_u16(&mut self) -> Result<u16, IndexError> {
        let bytes = self.take_part(2)?.try_into().map_err(|_| IndexError::Malformed)?;
        Ok(u16::from_be_bytes(bytes))
    }

    fn read_u32(&mut self) -> Result<u32, IndexError> {
        let bytes = self.take_part(4)?.try_into().map_err(|_| IndexError::Malformed)?;
        Ok(u32::from_be_bytes(bytes))
    }

    /// The bytes before the next zero, which is passed.
    fn read_text(&mut self) -> Result<&'a [u8], IndexError> {
        let end = self.rest.iter().position(|byte| *byte == 0).ok_or(IndexError::Malformed)?;
        let text = self.take_part(end)?;
        self.take_part(1)?;
        Ok(text)
    }

    /// Reads a name with its padding, and returns its bytes.
    fn padded_length(
        &mut self,
        fixed: usize,
        is_long: bool,
        name: &mut Vec<u8>,
    ) -> Result<&'a [u8], IndexError> {
        let text = self.read_text()?;
        self.take_part(padding(fixed, is_long, text.len()) - 1)?;
        name.clear();
        name.extend_from_slice(text);
        Ok(text)
    }

    /// Reads a name that says only in what it differs from the one before, and returns it as it is written.
    fn shorten_path(&mut self, name: &mut Vec<u8>) -> Result<&'a [u8], IndexError> {
        let began = self.rest;
        let mut byte = self.take_part(1)?.first().copied().unwrap_or_default();
        let mut cut = usize::from(byte & 0x7f);
        while byte & 0x80 != 0 {
            byte = self.take_part(1)?.first().copied().unwrap_or_default();
            let more = cut.checked_add(1).and_then(|cut| cut.checked_mul(128));
            cut = more.ok_or(IndexError::Malformed)? + usize::from(byte & 0x7f);
        }
        let keep = name.len().checked_sub(cut).ok_or(IndexError::Malformed)?;
        let text = self.read_text()?;
        name.truncate(keep);
        name.extend_from_slice(text);
        began.get(..began.len() - self.rest.len()).ok_or(IndexError::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An index with these names, of a version, and the extension given.
    fn index(version: u32, names: &[(&str, u16)], extension: &[u8]) -> Vec<u8> {
        let mut bytes = b"DIRC".to_vec();
        bytes.extend_from_slice(&version.to_be_bytes());
        bytes.extend_from_slice(&u32::try_from(names.len()).unwrap().to_be_bytes());
        let mut before = "";
        for (name, flags) in names {
            bytes.extend_from_slice(&[7; STAT + 20]);
            bytes.extend_from_slice(&flags.to_be_bytes());
            if version == 4 {
                let same = before.bytes().zip(name.bytes()).take_while(|(a, b)| a == b).count();
                bytes.push(u8::try_from(before.len() - same).unwrap());
                bytes.extend_from_slice(&name.as_bytes()[same..]);
                bytes.push(0);
            } else {
                bytes.extend_from_slice(name.as_bytes());
                bytes.resize(bytes.len() + padding(STAT + 20, false, name.len()), 0);
            }
            before = name;
        }
        bytes.extend_from_slice(extension);
        let checksum = Hash::Sha1.of(&bytes);
        bytes.extend_from_slice(&checksum);
        bytes
    }

    const NAMES: [(&str, u16); 5] =
        [("README", 0), ("a/b", 0), ("a/b/c", 0), ("a/bc", 0), ("z/conflict", 0x1000)];

    #[test]
    fn entries_outside_a_folder_are_marked_and_a_second_time_changes_nothing() {
        for version in [2, 4] {
            let narrowed = narrow_index(&index(version, &NAMES, b""), b"a/b", Hash::Sha1).unwrap();
            let mut from = IndexReader { rest: &narrowed[12..] };
            let (mut name, mut marked) = (Vec::new(), Vec::new());
            for _ in NAMES {
                let mut copied = Vec::new();
                let before = from.rest;
                read_entry(&mut from, &mut copied, version.max(3), b"", Hash::Sha1, &mut name).unwrap();
                let flags = u16::from_be_bytes(before[STAT + 20..STAT + 22].try_into().unwrap());
                marked.push((String::from_utf8(name.clone()).unwrap(), flags & EXTENDED != 0));
            }
            let told: Vec<(&str, bool)> = marked.iter().map(|(name, skip)| (name.as_str(), *skip)).collect();
            assert_eq!(
                told,
                [("README", true), ("a/b", false), ("a/b/c", false), ("a/bc", true), ("z/conflict", false)]
            );
            assert_eq!(narrow_index(&narrowed, b"a/b", Hash::Sha1).unwrap(), narrowed);
        }
    }

    #[test]
    fn what_cannot_be_narrowed_is_an_error_and_nothing_panics() {
        let whole = index(2, &NAMES, b"TREE\0\0\0\x02ab");
        assert!(narrow_index(&whole, b"a", Hash::Sha1).unwrap().windows(6).any(|bytes| bytes == b"TREE\0\0"));
        let cache = index(2, &NAMES, b"UNTR\0\0\0\x02ab");
        assert!(!narrow_index(&cache, b"a", Hash::Sha1).unwrap().windows(4).any(|bytes| bytes == b"UNTR"));
        for (extension, why) in [
            (&b"link\0\0\0\0"[..], IndexError::Split),
            (b"abcd\0\0\0\0", IndexError::Extension),
            (b"TREE\0\xff\0\0", IndexError::Malformed),
        ] {
            assert_eq!(narrow_index(&index(2, &NAMES, extension), b"a", Hash::Sha1), Err(why));
        }
        assert_eq!(narrow_index(&index(5, &[], b""), b"a", Hash::Sha1), Err(IndexError::Version));
        for version in [2, 4] {
            let whole = index(version, &NAMES, b"");
            for end in 0..whole.len() - 20 {
                let mut cut = whole[..end].to_vec();
                cut.extend_from_slice(&[1; 20]);
                // An index that was cut off is refused, even between two entries, because its header has their number.
                assert!(narrow_index(&cut, b"a", Hash::Sha1).is_err(), "{version} {end}");
            }
        }
    }
}
