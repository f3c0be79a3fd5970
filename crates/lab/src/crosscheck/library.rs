//! Recordings on disk: text files, folders of them, and `.tar.xz` archives of such folders.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::open_regular;
use largefolio_trace::shown;

use super::clears::Clears;
use super::files::FileSteps;
use super::processes::Programs;
use super::recording::{Recording, RecordingBody};
use super::text::ParseError;

/// Largest text of one recording; the project's own stay below 1 MiB.
const TEXT_BYTES_MAX: u64 = 256 << 20;
const ARCHIVE_BYTES_MAX: u64 = 4 << 30;
/// Longest header entry that names or describes another entry; Linux paths have up to 4 KiB.
const HEADER_BYTES_MAX: u64 = 64 << 10;

#[derive(Debug, thiserror::Error)]
pub enum LibraryError {
    #[error("{}: {source}", shown(path))]
    Read { path: PathBuf, source: io::Error },
    #[error("{}: truncated or damaged ({source}); copy it again from its source", shown(path))]
    Archive { path: PathBuf, source: io::Error },
    #[error(transparent)]
    Parse(#[from] ParseError),
    #[error("{}: more than {max} MiB, which is too large for a \
             recording", shown(.0), max = TEXT_BYTES_MAX >> 20)]
    TooLarge(String),
    #[error("{}: there are no recordings (*.txt, or *.tar.xz archives of them)", shown(.0))]
    Empty(PathBuf),
}

/// Subfolders with recordings of processes and of clearing, which a scan for recordings of files
/// skips.
const OTHER_KINDS: [&str; 11] = [
    "balancing",
    "clear",
    "cow",
    "collapse",
    "entries",
    "hugetlb",
    "khugepaged",
    "nodes",
    "shmem",
    "swap",
    "zswap",
];

/// Second word of a recording of processes (`probe/cow.c`).
const PROCESSES: &str = "cow";
/// Second word of a recording of clearing (`probe/clear.c`).
const CLEARS: &str = "clear";

/// Callback for one text: its location, the recording's name, and the text.
type Each<'a> = dyn FnMut(&str, &str, &str) -> Result<(), LibraryError> + 'a;

/// Calls `each` for every recording at `path`: a text file, an archive, or a folder of texts,
/// archives and subfolders, sorted by name.
///
/// # Errors
/// Unreadable files and syntax errors. Nothing is skipped silently.
pub fn read_all<B: RecordingBody>(
    path: &Path,
    each: &mut dyn FnMut(Recording<B>),
) -> Result<(), LibraryError> {
    read_kinds(path, &OTHER_KINDS, &mut |name, text| {
        each(Recording::parse(name, text)?);
        Ok(())
    })
}

/// A recording of any kind.
#[derive(Clone, Debug)]
pub enum AnyRecording {
    Files(Box<Recording<FileSteps>>),
    Processes(Recording<Programs>),
    Clears(Recording<Clears>),
}

impl AnyRecording {
    /// Reads one recording; its first word tells the kind.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        let first = text.lines().next().unwrap_or_default();
        Ok(match first.split_whitespace().nth(1) {
            Some(PROCESSES) => Self::Processes(Recording::parse(name, text)?),
            Some(CLEARS) => Self::Clears(Recording::parse(name, text)?),
            _ => Self::Files(Box::new(Recording::parse(name, text)?)),
        })
    }
}

/// Like [`read_all`], for recordings of both kinds in any folder.
///
/// # Errors
/// As [`read_all`].
pub fn read_any(path: &Path, each: &mut dyn FnMut(AnyRecording)) -> Result<(), LibraryError> {
    read_kinds(path, &[], &mut |name, text| {
        each(AnyRecording::parse(name, text)?);
        Ok(())
    })
}

fn read_kinds(
    path: &Path,
    skipped: &[&str],
    each: &mut dyn FnMut(&str, &str) -> Result<(), ParseError>,
) -> Result<(), LibraryError> {
    let nr = read_path(path, skipped, &mut |place, name, text| {
        each(name, text).map_err(|error| ParseError { name: place.to_owned(), ..error })?;
        Ok(())
    })?;
    if nr == 0 { Err(LibraryError::Empty(path.to_owned())) } else { Ok(()) }
}

fn damaged(path: &Path) -> impl FnOnce(io::Error) -> LibraryError {
    move |source| LibraryError::Archive { path: path.to_owned(), source }
}

fn failed(path: &Path) -> impl FnOnce(io::Error) -> LibraryError {
    move |source| LibraryError::Read { path: path.to_owned(), source }
}

fn read_path(path: &Path, skipped: &[&str], each: &mut Each<'_>) -> Result<usize, LibraryError> {
    if path.is_dir() {
        let entries = fs::read_dir(path).map_err(failed(path))?;
        let mut paths: Vec<PathBuf> = entries
            .map(|entry| entry.map(|entry| entry.path()))
            .collect::<Result<_, _>>()
            .map_err(failed(path))?;
        paths.sort();
        let is_folder =
            |path: &PathBuf| path.is_dir() && !skipped.iter().any(|kind| path.ends_with(kind));
        let is_one = |path: &&PathBuf| is_folder(path) || is_text(path) || is_archive(path);
        return paths.iter().filter(is_one).map(|path| read_path(path, skipped, each)).sum();
    }
    let file = open_regular(path).map_err(failed(path))?;
    if is_archive(path) {
        return read_archive(path, file, each);
    }
    let name = short_name(path);
    let text = text_of(&name, file, |source| match source.kind() {
        io::ErrorKind::InvalidData => {
            let (name, what) =
                (path.to_string_lossy().into_owned(), "this is not a recording: it is not text");
            ParseError { name, line: 1, what: what.to_owned() }.into()
        }
        _ => failed(path)(source),
    })?;
    each(&path.to_string_lossy(), &name, &text)?;
    Ok(1)
}

fn read_archive(path: &Path, file: File, each: &mut Each<'_>) -> Result<usize, LibraryError> {
    let unpacked = lzma_rust2::XzReader::new(io::BufReader::new(file), true);
    read_tar(path, unpacked, each)
}

fn read_tar(path: &Path, unpacked: impl Read, each: &mut Each<'_>) -> Result<usize, LibraryError> {
    let mut archive = tar::Archive::new(unpacked.take(ARCHIVE_BYTES_MAX));
    let (mut nr, mut long_name) = (0, None);
    // Raw mode: otherwise the library reads such headers itself, whatever their length.
    for entry in archive.entries().map_err(damaged(path))?.raw(true) {
        let mut entry = entry.map_err(damaged(path))?;
        let kind = entry.header().entry_type();
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || is_pax(kind) {
            let text = header_text(&mut entry).map_err(damaged(path))?;
            long_name = long_name_of(kind, &text).or(long_name);
            continue;
        }
        let inner = match long_name.take() {
            Some(name) => name,
            None => entry.path().map_err(damaged(path))?.into_owned(),
        };
        if !entry.header().entry_type().is_file() || !is_text(&inner) {
            continue;
        }
        let name = short_name(&inner);
        let text = text_of(&name, entry, damaged(path))?;
        each(&format!("{}: {}", path.display(), inner.display()), &name, &text)?;
        nr += 1;
    }
    Ok(nr)
}

/// Returns whether a tar entry describes the next entry, or all that follow.
fn is_pax(kind: tar::EntryType) -> bool {
    kind.is_pax_local_extensions() || kind.is_pax_global_extensions()
}

/// Reads an entry that describes the next one.
fn header_text(entry: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut text = Vec::new();
    entry.take(HEADER_BYTES_MAX + 1).read_to_end(&mut text)?;
    if text.len() as u64 > HEADER_BYTES_MAX {
        let what = format!("an entry's name or header has more than {HEADER_BYTES_MAX} bytes");
        return Err(io::Error::new(io::ErrorKind::InvalidData, what));
    }
    Ok(text)
}

/// Returns the name that such an entry sets for the next one.
fn long_name_of(kind: tar::EntryType, text: &[u8]) -> Option<PathBuf> {
    let name = if kind.is_gnu_longname() {
        text.split(|byte| *byte == 0).next()?.to_vec()
    } else if kind.is_pax_local_extensions() {
        let mut fields = tar::PaxExtensions::new(text).flatten();
        fields.find(|field| field.key_bytes() == b"path")?.value_bytes().to_vec()
    } else {
        return None;
    };
    Some(OsString::from_vec(name).into())
}

fn text_of(
    name: &str,
    from: impl Read,
    failed: impl FnOnce(io::Error) -> LibraryError,
) -> Result<String, LibraryError> {
    let mut text = String::new();
    from.take(TEXT_BYTES_MAX + 1).read_to_string(&mut text).map_err(failed)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        return Err(LibraryError::TooLarge(name.to_owned()));
    }
    Ok(text)
}

fn is_text(path: &Path) -> bool {
    path.extension() == Some(OsStr::new("txt"))
}

fn is_archive(path: &Path) -> bool {
    path.to_string_lossy().ends_with(".tar.xz")
}

/// Shortens a path to `FOLDER/FILE`.
fn short_name(path: &Path) -> String {
    let part = |part: Option<&OsStr>| part.unwrap_or_default().to_string_lossy().into_owned();
    let folder = part(path.parent().and_then(Path::file_name));
    let file = part(path.file_name());
    if folder.is_empty() { file } else { format!("{folder}/{file}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Builds an archive from entries: kind, name in the header, bytes.
    fn archive(entries: &[(tar::EntryType, &str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (kind, name, bytes) in entries {
            let mut header = tar::Header::new_gnu();
            header.set_entry_type(*kind);
            header.set_size(bytes.len() as u64);
            header.set_path(name).unwrap();
            header.set_cksum();
            builder.append(&header, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    fn read(tar: &[u8]) -> Result<Vec<[String; 3]>, LibraryError> {
        let mut all = Vec::new();
        let mut each = |place: &str, name: &str, text: &str| {
            let place = place.rsplit(": ").next().unwrap_or_default().to_owned();
            all.push([place, name.to_owned(), text.to_owned()]);
            Ok(())
        };
        read_tar(Path::new("x.tar.xz"), tar, &mut each)?;
        Ok(all)
    }

    #[test]
    fn a_long_name_is_read_from_either_kind_of_header() {
        use tar::EntryType as Kind;
        let long = format!("{}/{}.txt", "f".repeat(90), "n".repeat(90));
        let record = format!("path={long}\n");
        let pax = format!("{} {record}", record.len() + 4);
        let gnu = [long.as_bytes(), b"\0"].concat();
        let entries: [(Kind, &str, &[u8]); 6] = [
            (Kind::GNULongName, "././@LongLink", &gnu),
            (Kind::Regular, "short", b"one"),
            (Kind::XHeader, "pax", pax.as_bytes()),
            (Kind::Regular, "short", b"two"),
            (Kind::XGlobalHeader, "pax", b"18 comment=abcdef\n"),
            (Kind::Regular, "a/b.txt", b"three"),
        ];
        let all = read(&archive(&entries)).unwrap();
        let recordings: Vec<_> = all.iter().map(|[place, _, text]| (&**place, &**text)).collect();
        assert_eq!(recordings, [(&*long, "one"), (&*long, "two"), ("a/b.txt", "three")]);
    }

    #[test]
    fn a_header_without_end_is_damage_whatever_it_describes() {
        use tar::EntryType as Kind;
        let bytes = vec![b'x'; 1 << 20];
        for kind in [Kind::GNULongName, Kind::GNULongLink, Kind::XHeader, Kind::XGlobalHeader] {
            let error = read(&archive(&[(kind, "long", &bytes)])).unwrap_err().to_string();
            assert!(error.contains("more than 65536 bytes"), "{kind:?}: {error}");
        }
    }
}
