//! The directory at the end of a zip archive.

use std::io::{BufReader, Read, Seek, SeekFrom};

use sandbar_machine::tar::Kind;

use super::record::{ELSEWHERE_16, ELSEWHERE_32, Fault, Fields, judge_flags, widen};

const ENTRY_MARK: u32 = 0x0201_4b50;
const ENTRY: usize = 46;
const END_MARK: u32 = 0x0605_4b50;
const END: usize = 22;
const END64_MARK: u32 = 0x0606_4b50;
const END64: u64 = 56;
const LOCATOR_MARK: u32 = 0x0706_4b50;
const LOCATOR: u64 = 20;
/// Longest comment that can follow the end record.
const COMMENT: u64 = 0xffff;
/// Longest name, and memory limit for all entries.
const NAME_LIMIT: usize = 4095;
const NAMES_LIMIT: usize = 256 << 20;

/// The name is UTF-8.
const UTF8: u16 = 1 << 11;
const UNIX: u8 = 3;
const DARWIN: u8 = 19;
const DOS_DIRECTORY: u32 = 0x10;

/// Location of the directory.
#[derive(Debug)]
pub(super) struct Directory {
    pub(super) start: u64,
    size: u64,
    pub(super) count: u64,
}

/// A directory entry: describes one member.
#[derive(Debug)]
pub(super) struct Entry {
    /// Name as it is in the archive.
    pub(super) raw_name: Vec<u8>,
    /// Name in UTF-8.
    pub(super) name: Vec<u8>,
    pub(super) kind: Kind,
    pub(super) mode: u32,
    pub(super) modified: u64,
    pub(super) flags: u16,
    pub(super) method: u16,
    pub(super) crc: u32,
    pub(super) packed: u64,
    pub(super) size: u64,
    pub(super) offset: u64,
}

impl Directory {
    /// Finds the end record. There must be exactly one, at the very end, with the directory right before it.
    pub(super) fn find(input: &mut (impl Read + Seek)) -> Result<Self, Fault> {
        let length = input.seek(SeekFrom::End(0))?;
        let start = length.saturating_sub(END as u64 + COMMENT);
        input.seek(SeekFrom::Start(start))?;
        let mut tail = Vec::new();
        input.take(END as u64 + COMMENT).read_to_end(&mut tail)?;
        let mut found = tail.windows(END).enumerate().filter(|(at, record)| is_end(record, tail.len() - at - END));
        let Some((at, record)) = found.next() else {
            return Err(Fault::Wrong("is not a zip archive, ends early, or has data after its end"));
        };
        if found.next().is_some() {
            return Err(Fault::Wrong("has more than one end record"));
        }
        let end = start + at as u64;
        let (directory, before) = Self::parse(input, record, end)?;
        if directory.start.checked_add(directory.size) != Some(before) {
            return Err(Fault::Wrong("has data before its beginning or between its parts"));
        }
        Ok(directory)
    }

    /// The directory, and the offset of the first end record that describes it.
    fn parse(input: &mut (impl Read + Seek), record: &[u8], end: u64) -> Result<(Self, u64), Fault> {
        let broken = || Fault::Wrong("has a broken end record");
        let mut fields = Fields(record.get(4..).ok_or_else(broken)?);
        let mut number = |width| fields.number(width).ok_or_else(broken);
        let (disk, first_disk, here, count) = (number(2)?, number(2)?, number(2)?, number(2)?);
        let (size, start) = (number(4)?, number(4)?);
        if let Some(wide) = Self::wide(input, end)? {
            let agrees = |short: u64, long: u64, elsewhere| short == elsewhere || short == long;
            let directory = wide.0;
            let same = agrees(count, directory.count, ELSEWHERE_16)
                && agrees(size, directory.size, ELSEWHERE_32)
                && agrees(start, directory.start, ELSEWHERE_32);
            return if same { Ok((directory, wide.1)) } else { Err(Fault::Wrong("has two end records that disagree")) };
        }
        if disk != 0 || first_disk != 0 || here != count {
            return Err(Fault::Wrong("is one of several parts"));
        }
        Ok((Self { start, size, count }, end))
    }

    /// The directory by the zip64 records, if there are any.
    fn wide(input: &mut (impl Read + Seek), end: u64) -> Result<Option<(Self, u64)>, Fault> {
        let Some(at) = end.checked_sub(LOCATOR) else { return Ok(None) };
        let mut locator = [0; LOCATOR as usize];
        input.seek(SeekFrom::Start(at))?;
        input.read_exact(&mut locator)?;
        let mut fields = Fields(&locator);
        if fields.long() != Some(LOCATOR_MARK) {
            return Ok(None);
        }
        let broken = || Fault::Wrong("has a broken zip64 end record");
        let mut number = |width| fields.number(width).ok_or_else(broken);
        let (disk, record_at, disks) = (number(4)?, number(8)?, number(4)?);
        if disk != 0 || disks > 1 || record_at.checked_add(END64) != Some(at) {
            return Err(broken());
        }
        let mut record = [0; END64 as usize];
        input.seek(SeekFrom::Start(record_at))?;
        input.read_exact(&mut record)?;
        let mut fields = Fields(&record);
        let mut number = |width| fields.number(width).ok_or_else(broken);
        let (mark, own_size) = (number(4)?, number(8)?);
        let (_versions, disk, first_disk) = (number(4)?, number(4)?, number(4)?);
        let (here, count, size, start) = (number(8)?, number(8)?, number(8)?, number(8)?);
        if mark != u64::from(END64_MARK) || own_size != END64 - 12 || disk != 0 || first_disk != 0 || here != count {
            return Err(broken());
        }
        Ok(Some((Self { start, size, count }, record_at)))
    }

    /// All entries. Their number must be the announced one.
    pub(super) fn entries(&self, input: &mut (impl Read + Seek)) -> Result<Vec<Entry>, Fault> {
        if self.size / (ENTRY as u64) < self.count {
            return Err(Fault::Wrong("announces more members than its directory can hold"));
        }
        input.seek(SeekFrom::Start(self.start))?;
        let mut input = BufReader::new(input.take(self.size));
        let (mut entries, mut names) = (Vec::new(), 0);
        for _ in 0..self.count {
            let entry = Entry::read(&mut input)?;
            names += entry.raw_name.len() + entry.name.len() + size_of::<Entry>();
            if names > NAMES_LIMIT {
                return Err(Fault::Wrong("has more names than fit into memory"));
            }
            entries.push(entry);
        }
        match input.read(&mut [0])? {
            0 => Ok(entries),
            _ => Err(Fault::Wrong("has more data in its directory than it announces")),
        }
    }
}

/// Whether this is an end record whose comment has `after` bytes.
fn is_end(record: &[u8], after: usize) -> bool {
    let mut fields = Fields(record);
    let mark = fields.long() == Some(END_MARK);
    mark && Fields(&record[END - 2..]).short().map(usize::from) == Some(after)
}

impl Entry {
    fn read(input: &mut impl Read) -> Result<Self, Fault> {
        let mut fixed = [0; ENTRY];
        input.read_exact(&mut fixed)?;
        let broken = || Fault::Wrong("has a broken directory");
        let mut fields = Fields(&fixed);
        if fields.long() != Some(ENTRY_MARK) {
            return Err(broken());
        }
        let mut short = || fields.short().ok_or_else(broken);
        let (made_by, _needed, flags, method) = (short()?, short()?, short()?, short()?);
        let (time, date) = (short()?, short()?);
        let mut number = |width| fields.number(width).ok_or_else(broken);
        let (crc, mut packed, mut size) = (number(4)?, number(4)?, number(4)?);
        let (name, extra, comment) = (number(2)? as usize, number(2)? as usize, number(2)? as usize);
        let (disk, _internal, external, mut offset) = (number(2)?, number(2)?, number(4)?, number(4)?);
        let mut rest = vec![0; name + extra + comment];
        input.read_exact(&mut rest)?;
        let raw_name = rest[..name].to_vec();
        if name > NAME_LIMIT {
            return Err(Fault::Wrong("has a name longer than any system allows"));
        }
        judge_flags(flags).map_err(|_reason| Fault::Wrong("has an encrypted or patched member"))?;
        widen(&rest[name..name + extra], &mut [&mut size, &mut packed, &mut offset]).map_err(Fault::Wrong)?;
        if disk != 0 {
            return Err(Fault::Wrong("is one of several parts"));
        }
        let name = decode(&raw_name, flags)?;
        // The upper byte of the version is the system that wrote the entry.
        let [_version, system] = made_by.to_le_bytes();
        let (kind, mode) = kind_and_mode(system, u32::try_from(external).unwrap_or(0), &name);
        let (crc, modified) = (u32::try_from(crc).unwrap_or(0), seconds(date, time));
        Ok(Self { raw_name, name, kind, mode, modified, flags, method, crc, packed, size, offset })
    }
}

/// Kind and permissions of a member. The upper half of the attributes is read as a Unix mode on every system.
fn kind_and_mode(system: u8, external: u32, name: &[u8]) -> (Kind, u32) {
    let unix = external >> 16;
    let slash = name.ends_with(b"/");
    let kind = match unix & 0o170_000 {
        0o120_000 => Kind::Symlink,
        0o040_000 => Kind::Dir,
        0 if slash || external & DOS_DIRECTORY != 0 => Kind::Dir,
        0o100_000 if slash => Kind::Dir,
        0 | 0o100_000 => Kind::File,
        0o010_000 => Kind::Other(b'6'),
        0o020_000 | 0o060_000 => Kind::Other(b'3'),
        _ => Kind::Other(0),
    };
    let usual = if kind == Kind::Dir { 0o755 } else { 0o644 };
    let known = matches!(system, UNIX | DARWIN) && unix & 0o777 != 0;
    (kind, if known { unix & 0o777 } else { usual })
}

/// A name in UTF-8. Without the flag it should be in code page 437, but most programs write UTF-8 anyway.
fn decode(raw: &[u8], flags: u16) -> Result<Vec<u8>, Fault> {
    if std::str::from_utf8(raw).is_ok() {
        return Ok(raw.to_vec());
    }
    if flags & UTF8 != 0 {
        return Err(Fault::Wrong("has a name that is marked as UTF-8 and is not"));
    }
    let letters = raw.iter().map(|byte| match byte {
        0..0x80 => char::from(*byte),
        high => UPPER_437[usize::from(high - 0x80)],
    });
    Ok(letters.collect::<String>().into_bytes())
}

/// Upper half of code page 437.
const UPPER_437: [char; 128] = [
    'Ç', 'ü', 'é', 'â', 'ä', 'à', 'å', 'ç', 'ê', 'ë', 'è', 'ï', 'î', 'ì', 'Ä', 'Å', 'É', 'æ', 'Æ', 'ô', 'ö', 'ò', 'û',
    'ù', 'ÿ', 'Ö', 'Ü', '¢', '£', '¥', '₧', 'ƒ', 'á', 'í', 'ó', 'ú', 'ñ', 'Ñ', 'ª', 'º', '¿', '⌐', '¬', '½', '¼', '¡',
    '«', '»', '░', '▒', '▓', '│', '┤', '╡', '╢', '╖', '╕', '╣', '║', '╗', '╝', '╜', '╛', '┐', '└', '┴', '┬', '├', '─',
    '┼', '╞', '╟', '╚', '╔', '╩', '╦', '╠', '═', '╬', '╧', '╨', '╤', '╥', '╙', '╘', '╒', '╓', '╫', '╪', '┘', '┌', '█',
    '▄', '▌', '▐', '▀', 'α', 'ß', 'Γ', 'π', 'Σ', 'σ', 'µ', 'τ', 'Φ', 'Θ', 'Ω', 'δ', '∞', 'φ', 'ε', '∩', '≡', '±', '≥',
    '≤', '⌠', '⌡', '÷', '≈', '°', '∙', '·', '√', 'ⁿ', '²', '■', '\u{a0}',
];

/// A DOS date and time in seconds. It has no time zone and is read as UTC.
fn seconds(date: u16, time: u16) -> u64 {
    let (year, month, day) = (1980 + (date >> 9), (date >> 5) & 15, date & 31);
    let (hour, minute, second) = (time >> 11, (time >> 5) & 63, (time & 31) * 2);
    let parts = [month, day, hour, minute, second].map(|part| i8::try_from(part).unwrap_or(0));
    let moment = jiff::civil::DateTime::new(
        i16::try_from(year).unwrap_or(1980),
        parts[0],
        parts[1],
        parts[2],
        parts[3],
        parts[4].min(59),
        0,
    );
    let moment = moment.ok().and_then(|moment| moment.to_zoned(jiff::tz::TimeZone::UTC).ok());
    moment.and_then(|moment| u64::try_from(moment.timestamp().as_second()).ok()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_kinds_are_read_correctly() {
        assert_eq!(seconds((44 << 9) | (2 << 5) | 29, (12 << 11) | (34 << 5) | 28), 1_709_210_096);
        assert_eq!(seconds(0, 0), 0, "an impossible date");
        let unix = |mode: u32| mode << 16;
        let table = [
            (UNIX, unix(0o100_755), b"a".as_slice(), (Kind::File, 0o755)),
            (UNIX, unix(0o106_755), b"a", (Kind::File, 0o755)),
            (UNIX, unix(0o040_700), b"a", (Kind::Dir, 0o700)),
            (UNIX, unix(0o120_777), b"a", (Kind::Symlink, 0o777)),
            (0, unix(0o120_777), b"a", (Kind::Symlink, 0o644)),
            (UNIX, unix(0o010_644), b"a", (Kind::Other(b'6'), 0o644)),
            (UNIX, unix(0o020_644), b"a", (Kind::Other(b'3'), 0o644)),
            (UNIX, unix(0o140_644), b"a", (Kind::Other(0), 0o644)),
            (0, 0, b"a", (Kind::File, 0o644)),
            (0, 0, b"a/", (Kind::Dir, 0o755)),
            (0, DOS_DIRECTORY, b"a", (Kind::Dir, 0o755)),
        ];
        for (system, external, name, expected) in table {
            assert_eq!(kind_and_mode(system, external, name), expected, "{external:o} {name:?}");
        }
    }

    #[test]
    fn names_are_utf8_in_the_end() {
        let name = |raw: &[u8], flags| decode(raw, flags).ok().map(|name| String::from_utf8(name).unwrap());
        assert_eq!(name("ü".as_bytes(), UTF8).as_deref(), Some("ü"));
        assert_eq!(name("ü".as_bytes(), 0).as_deref(), Some("ü"));
        assert_eq!(name(b"\x81 \xff", 0).as_deref(), Some("ü \u{a0}"));
        assert_eq!(name(b"\x81", UTF8), None);
    }
}
