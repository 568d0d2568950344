//! Terminals of sessions.

use std::io;
use std::os::fd::OwnedFd;

use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, Winsize,
};

/// The size of a terminal. Default: 80 by 24.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Characters across.
    pub columns: u32,
    /// Characters down.
    pub rows: u32,
    /// Pixels across; 0 when unknown.
    pub width: u32,
    /// Pixels down; 0 when unknown.
    pub height: u32,
}

impl Default for Size {
    fn default() -> Self {
        Self { columns: 80, rows: 24, width: 0, height: 0 }
    }
}

impl Size {
    fn winsize(self) -> Winsize {
        let narrow = |value: u32| u16::try_from(value).unwrap_or(u16::MAX);
        Winsize {
            ws_row: narrow(self.rows),
            ws_col: narrow(self.columns),
            ws_xpixel: narrow(self.width),
            ws_ypixel: narrow(self.height),
        }
    }
}

/// The terminal that a client asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Terminal {
    /// The value for `TERM`.
    pub term: String,
    /// Its first size.
    pub size: Size,
    /// Modes, numbered as in RFC 4254 §8; unknown ones are passed over.
    pub modes: Vec<(u8, u32)>,
}

/// Both ends of a new pseudo-terminal, and the path of the process's end.
pub(super) struct Pair {
    pub(super) controller: OwnedFd,
    pub(super) user: OwnedFd,
    pub(super) path: String,
}

/// Opens a pseudo-terminal with the modes and size asked for. As root, `owner` gets it, group `tty`, mode 0620.
pub(super) fn open(terminal: &Terminal, owner: Option<u32>) -> io::Result<Pair> {
    let pair = rustix_openpty::openpty(None, Some(&terminal.size.winsize()))?;
    let mut termios = rustix::termios::tcgetattr(&pair.user)?;
    for (code, value) in &terminal.modes {
        apply(&mut termios, *code, *value);
    }
    rustix::termios::tcsetattr(&pair.user, OptionalActions::Now, &termios)?;
    if let Some(uid) = owner {
        let group =
            nix::unistd::Group::from_name("tty").ok().flatten().map(|group| group.gid.as_raw()).unwrap_or(0);
        rustix::fs::fchown(
            &pair.user,
            Some(rustix::fs::Uid::from_raw(uid)),
            Some(rustix::fs::Gid::from_raw(group)),
        )?;
        rustix::fs::fchmod(&pair.user, rustix::fs::Mode::from_raw_mode(0o620))?;
    }
    let path = rustix::termios::ttyname(&pair.user, Vec::new())?.to_string_lossy().into_owned();
    Ok(Pair { controller: pair.controller, user: pair.user, path })
}

/// Tells the processes of a terminal that its size has changed.
pub(super) fn resize(controller: &OwnedFd, size: Size) -> io::Result<()> {
    Ok(rustix::termios::tcsetwinsize(controller, size.winsize())?)
}

/// Sets one mode of RFC 4254 §8.
fn apply(termios: &mut Termios, code: u8, value: u32) {
    use SpecialCodeIndex as Code;
    let special = match code {
        1 => Some(Code::VINTR),
        2 => Some(Code::VQUIT),
        3 => Some(Code::VERASE),
        4 => Some(Code::VKILL),
        5 => Some(Code::VEOF),
        6 => Some(Code::VEOL),
        7 => Some(Code::VEOL2),
        8 => Some(Code::VSTART),
        9 => Some(Code::VSTOP),
        10 => Some(Code::VSUSP),
        12 => Some(Code::VREPRINT),
        13 => Some(Code::VWERASE),
        14 => Some(Code::VLNEXT),
        18 => Some(Code::VDISCARD),
        _ => None,
    };
    if let Some(index) = special {
        // 255 means "none" on the wire; the system's own value for that is 0 (_POSIX_VDISABLE).
        let value = u8::try_from(value).unwrap_or(u8::MAX);
        termios.special_codes[index] = if value == u8::MAX { 0 } else { value };
        return;
    }
    let on = value != 0;
    let input = match code {
        30 => InputModes::IGNPAR,
        31 => InputModes::PARMRK,
        32 => InputModes::INPCK,
        33 => InputModes::ISTRIP,
        34 => InputModes::INLCR,
        35 => InputModes::IGNCR,
        36 => InputModes::ICRNL,
        37 => InputModes::IUCLC,
        38 => InputModes::IXON,
        39 => InputModes::IXANY,
        40 => InputModes::IXOFF,
        41 => InputModes::IMAXBEL,
        42 => InputModes::IUTF8,
        _ => InputModes::empty(),
    };
    termios.input_modes.set(input, on);
    let local = match code {
        50 => LocalModes::ISIG,
        51 => LocalModes::ICANON,
        52 => LocalModes::XCASE,
        53 => LocalModes::ECHO,
        54 => LocalModes::ECHOE,
        55 => LocalModes::ECHOK,
        56 => LocalModes::ECHONL,
        57 => LocalModes::NOFLSH,
        58 => LocalModes::TOSTOP,
        59 => LocalModes::IEXTEN,
        60 => LocalModes::ECHOCTL,
        61 => LocalModes::ECHOKE,
        62 => LocalModes::PENDIN,
        _ => LocalModes::empty(),
    };
    termios.local_modes.set(local, on);
    let output = match code {
        70 => OutputModes::OPOST,
        71 => OutputModes::OLCUC,
        72 => OutputModes::ONLCR,
        73 => OutputModes::OCRNL,
        74 => OutputModes::ONOCR,
        75 => OutputModes::ONLRET,
        _ => OutputModes::empty(),
    };
    termios.output_modes.set(output, on);
    match code {
        90 if on => {
            termios.control_modes.remove(ControlModes::CSIZE);
            termios.control_modes.insert(ControlModes::CS7);
        }
        91 if on => {
            termios.control_modes.remove(ControlModes::CSIZE);
            termios.control_modes.insert(ControlModes::CS8);
        }
        92 => termios.control_modes.set(ControlModes::PARENB, on),
        93 => termios.control_modes.set(ControlModes::PARODD, on),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_has_the_size_and_modes_asked_for() {
        let size = Size { columns: 132, rows: 43, width: 0, height: 0 };
        // ECHO off, ICRNL off, erase is ^H, quit disabled, and a mode that is not defined.
        let modes = vec![(53, 0), (36, 0), (3, 8), (2, 255), (99, 7)];
        let pair = open(&Terminal { term: "xterm".to_owned(), size, modes }, None).unwrap();
        let termios = rustix::termios::tcgetattr(&pair.user).unwrap();
        assert!(!termios.local_modes.contains(LocalModes::ECHO));
        assert!(!termios.input_modes.contains(InputModes::ICRNL));
        assert_eq!(termios.special_codes[SpecialCodeIndex::VERASE], 8);
        assert_eq!(termios.special_codes[SpecialCodeIndex::VQUIT], 0);
        assert!(pair.path.starts_with("/dev/pts/"));
        let seen = rustix::termios::tcgetwinsize(&pair.controller).unwrap();
        assert_eq!((seen.ws_col, seen.ws_row), (132, 43));
        resize(&pair.controller, Size { columns: 70_000, rows: 20, width: 0, height: 0 }).unwrap();
        let seen = rustix::termios::tcgetwinsize(&pair.user).unwrap();
        assert_eq!((seen.ws_col, seen.ws_row), (u16::MAX, 20));
    }
}
