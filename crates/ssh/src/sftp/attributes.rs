//! File attributes on the wire (draft-ietf-secsh-filexfer-02 §5) and in the system.

use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;

use nix::unistd::{Gid, Group, Uid, User};
use rustix::fs::{Timespec, Timestamps};
use time::OffsetDateTime;

use super::packet::{Fields, Reply};

const SIZE: u32 = 0x1;
const OWNER: u32 = 0x2;
const PERMISSIONS: u32 = 0x4;
const TIMES: u32 = 0x8;
const EXTENDED: u32 = 0x8000_0000;

/// What a client asks a file to have; what is absent stays as it is.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) size: Option<u64>,
    pub(super) owner: Option<(u32, u32)>,
    pub(super) permissions: Option<u32>,
    /// Access and modification time, seconds since 1970.
    pub(super) times: Option<(u32, u32)>,
}

impl Wanted {
    pub(super) fn read(fields: &mut Fields<'_>) -> io::Result<Self> {
        let flags = fields.u32()?;
        let mut wanted = Self::default();
        if flags & SIZE != 0 {
            wanted.size = Some(fields.u64()?);
        }
        if flags & OWNER != 0 {
            wanted.owner = Some((fields.u32()?, fields.u32()?));
        }
        if flags & PERMISSIONS != 0 {
            wanted.permissions = Some(fields.u32()?);
        }
        if flags & TIMES != 0 {
            wanted.times = Some((fields.u32()?, fields.u32()?));
        }
        if flags & EXTENDED != 0 {
            for _ in 0..fields.u32()? {
                fields.string()?;
                fields.string()?;
            }
        }
        Ok(wanted)
    }

    pub(super) fn timestamps(&self) -> Option<Timestamps> {
        let at = |seconds: u32| Timespec { tv_sec: i64::from(seconds), tv_nsec: 0 };
        self.times
            .map(|(access, modified)| Timestamps { last_access: at(access), last_modification: at(modified) })
    }

    /// For reports.
    pub(super) fn describe(&self) -> String {
        let mut parts = Vec::new();
        if let Some(size) = self.size {
            parts.push(format!("size {size}"));
        }
        if let Some((uid, gid)) = self.owner {
            parts.push(format!("owner {uid}:{gid}"));
        }
        if let Some(permissions) = self.permissions {
            parts.push(format!("mode {:04o}", permissions & 0o7777));
        }
        if self.times.is_some() {
            parts.push("times".to_owned());
        }
        parts.join(", ")
    }
}

/// Appends a file's attributes.
pub(super) fn write(reply: &mut Reply, metadata: &Metadata) {
    // The protocol's times are 32 bits wide; a file from outside that range gets the nearest end.
    let seconds = |value: i64| u32::try_from(value.max(0)).unwrap_or(u32::MAX);
    reply
        .u32(SIZE | OWNER | PERMISSIONS | TIMES)
        .u64(metadata.size())
        .u32(metadata.uid())
        .u32(metadata.gid())
        .u32(metadata.mode())
        .u32(seconds(metadata.atime()))
        .u32(seconds(metadata.mtime()));
}

/// A line as `ls -l` prints it, which some clients show to people.
pub(super) fn long_name(name: &[u8], metadata: &Metadata, names: &mut Names) -> Vec<u8> {
    let mode = metadata.mode();
    let mut line = String::new();
    line.push(match mode & 0o170_000 {
        0o040_000 => 'd',
        0o120_000 => 'l',
        0o060_000 => 'b',
        0o020_000 => 'c',
        0o010_000 => 'p',
        0o140_000 => 's',
        _ => '-',
    });
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = mode >> shift;
        line.push(if bits & 4 != 0 { 'r' } else { '-' });
        line.push(if bits & 2 != 0 { 'w' } else { '-' });
        line.push(match (mode & special != 0, bits & 1 != 0) {
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
            (false, true) => 'x',
            (false, false) => '-',
        });
    }
    let when = OffsetDateTime::from_unix_timestamp(metadata.mtime()).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let month = when.month().to_string();
    let age = OffsetDateTime::now_utc() - when;
    let clock = if age.whole_days() > 182 || age.is_negative() {
        format!("{:>5}", when.year())
    } else {
        format!("{:02}:{:02}", when.hour(), when.minute())
    };
    let (user, group) = (names.user(metadata.uid()), names.group(metadata.gid()));
    let line = format!(
        "{line} {:>4} {:<8} {:<8} {:>8} {} {:>2} {clock} ",
        metadata.nlink(),
        user,
        group,
        metadata.size(),
        month.get(..3).unwrap_or("???"),
        when.day(),
    );
    let mut bytes = line.into_bytes();
    bytes.extend_from_slice(name);
    bytes
}

/// Names of owners, asked of the system once each.
#[derive(Default)]
pub(super) struct Names {
    users: std::collections::HashMap<u32, String>,
    groups: std::collections::HashMap<u32, String>,
}

impl Names {
    fn user(&mut self, uid: u32) -> String {
        self.users
            .entry(uid)
            .or_insert_with(|| {
                let user = User::from_uid(Uid::from_raw(uid)).ok().flatten();
                user.map_or_else(|| uid.to_string(), |user| user.name)
            })
            .clone()
    }

    fn group(&mut self, gid: u32) -> String {
        self.groups
            .entry(gid)
            .or_insert_with(|| {
                let group = Group::from_gid(Gid::from_raw(gid)).ok().flatten();
                group.map_or_else(|| gid.to_string(), |group| group.name)
            })
            .clone()
    }
}
