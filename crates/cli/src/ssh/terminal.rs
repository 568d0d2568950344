//! The local terminal: raw while a session has it, and itself again however the program ends.

use std::io::IsTerminal;

use parking_lot::Mutex;
use rustix::stdio::stdin;
use rustix::termios::{
    ControlModes, InputModes, LocalModes, OptionalActions, OutputModes, SpecialCodeIndex, Termios, tcgetattr,
    tcgetwinsize, tcsetattr,
};
use sallyport_ssh::client::{Terminal, TerminalMode as Mode, WindowSize};

use crate::error::{CliResult, Context};

/// What the terminal was before it became raw. Global, because a panic or a signal must find it.
static BEFORE: Mutex<Option<Termios>> = Mutex::new(None);

/// Makes the terminal raw until it is dropped.
#[derive(Debug)]
pub(super) struct Raw(());

impl Raw {
    /// Standard input must be a terminal.
    pub(super) fn enter() -> CliResult<Self> {
        let before = tcgetattr(stdin()).doing("read the terminal's modes")?;
        let mut raw = before.clone();
        raw.make_raw();
        {
            let mut slot = BEFORE.lock();
            if slot.is_none() {
                let earlier = std::panic::take_hook();
                std::panic::set_hook(Box::new(move |info| {
                    restore();
                    earlier(info);
                }));
            }
            *slot = Some(before);
        }
        tcsetattr(stdin(), OptionalActions::Now, &raw).doing("make the terminal raw")?;
        Ok(Self(()))
    }

    /// Gives the terminal back, lets the shell have it, and takes it again when this program goes on.
    pub(super) fn suspend(&self) -> CliResult {
        let before = BEFORE.lock().clone();
        restore();
        nix::sys::signal::raise(nix::sys::signal::Signal::SIGTSTP).doing("suspend")?;
        if let Some(before) = before {
            let mut raw = before.clone();
            raw.make_raw();
            *BEFORE.lock() = Some(before);
            tcsetattr(stdin(), OptionalActions::Now, &raw).doing("make the terminal raw")?;
        }
        Ok(())
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        restore();
    }
}

/// Gives the terminal the modes it had. Does nothing when it is not raw.
pub(super) fn restore() {
    let before = BEFORE.lock().take();
    if let Some(before) = before {
        let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
    }
}

/// Whether a person sits at standard input.
pub(super) fn is_terminal() -> bool {
    std::io::stdin().is_terminal()
}

/// The size of the window, or the usual one where there is none.
pub(super) fn window_size() -> WindowSize {
    match tcgetwinsize(stdin()).or_else(|_| tcgetwinsize(rustix::stdio::stdout())) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => WindowSize {
            columns: size.ws_col.into(),
            rows: size.ws_row.into(),
            width: size.ws_xpixel.into(),
            height: size.ws_ypixel.into(),
        },
        _ => WindowSize::default(),
    }
}

/// What to ask the node for: a terminal like this one.
pub(super) fn like_this() -> Terminal {
    let term =
        std::env::var("TERM").ok().filter(|term| !term.is_empty()).unwrap_or_else(|| "dumb".to_owned());
    let modes = tcgetattr(stdin()).map(|termios| encode(&termios)).unwrap_or_default();
    let modes = modes.into_iter().map(|(mode, value)| (mode as u8, value)).collect();
    Terminal { term, size: window_size(), modes }
}

/// Modes as RFC 4254 §8 numbers them.
fn encode(termios: &Termios) -> Vec<(Mode, u32)> {
    const DISABLED: u32 = 255;
    let mut modes =
        vec![(Mode::TTY_OP_ISPEED, termios.input_speed()), (Mode::TTY_OP_OSPEED, termios.output_speed())];
    for (mode, index) in [
        (Mode::VINTR, SpecialCodeIndex::VINTR),
        (Mode::VQUIT, SpecialCodeIndex::VQUIT),
        (Mode::VERASE, SpecialCodeIndex::VERASE),
        (Mode::VKILL, SpecialCodeIndex::VKILL),
        (Mode::VEOF, SpecialCodeIndex::VEOF),
        (Mode::VEOL, SpecialCodeIndex::VEOL),
        (Mode::VEOL2, SpecialCodeIndex::VEOL2),
        (Mode::VSTART, SpecialCodeIndex::VSTART),
        (Mode::VSTOP, SpecialCodeIndex::VSTOP),
        (Mode::VSUSP, SpecialCodeIndex::VSUSP),
        (Mode::VREPRINT, SpecialCodeIndex::VREPRINT),
        (Mode::VWERASE, SpecialCodeIndex::VWERASE),
        (Mode::VLNEXT, SpecialCodeIndex::VLNEXT),
        (Mode::VDISCARD, SpecialCodeIndex::VDISCARD),
    ] {
        let code = termios.special_codes[index];
        modes.push((mode, if code == 0 { DISABLED } else { u32::from(code) }));
    }
    for (mode, flag) in [
        (Mode::IGNPAR, InputModes::IGNPAR),
        (Mode::PARMRK, InputModes::PARMRK),
        (Mode::INPCK, InputModes::INPCK),
        (Mode::ISTRIP, InputModes::ISTRIP),
        (Mode::INLCR, InputModes::INLCR),
        (Mode::IGNCR, InputModes::IGNCR),
        (Mode::ICRNL, InputModes::ICRNL),
        (Mode::IXON, InputModes::IXON),
        (Mode::IXANY, InputModes::IXANY),
        (Mode::IXOFF, InputModes::IXOFF),
        (Mode::IMAXBEL, InputModes::IMAXBEL),
        (Mode::IUTF8, InputModes::IUTF8),
    ] {
        modes.push((mode, termios.input_modes.contains(flag).into()));
    }
    for (mode, flag) in [
        (Mode::ISIG, LocalModes::ISIG),
        (Mode::ICANON, LocalModes::ICANON),
        (Mode::ECHO, LocalModes::ECHO),
        (Mode::ECHOE, LocalModes::ECHOE),
        (Mode::ECHOK, LocalModes::ECHOK),
        (Mode::ECHONL, LocalModes::ECHONL),
        (Mode::NOFLSH, LocalModes::NOFLSH),
        (Mode::TOSTOP, LocalModes::TOSTOP),
        (Mode::IEXTEN, LocalModes::IEXTEN),
        (Mode::ECHOCTL, LocalModes::ECHOCTL),
        (Mode::ECHOKE, LocalModes::ECHOKE),
    ] {
        modes.push((mode, termios.local_modes.contains(flag).into()));
    }
    for (mode, flag) in [
        (Mode::OPOST, OutputModes::OPOST),
        (Mode::ONLCR, OutputModes::ONLCR),
        (Mode::OCRNL, OutputModes::OCRNL),
        (Mode::ONOCR, OutputModes::ONOCR),
        (Mode::ONLRET, OutputModes::ONLRET),
    ] {
        modes.push((mode, termios.output_modes.contains(flag).into()));
    }
    for (mode, flag) in [
        (Mode::CS7, ControlModes::CS7),
        (Mode::CS8, ControlModes::CS8),
        (Mode::PARENB, ControlModes::PARENB),
        (Mode::PARODD, ControlModes::PARODD),
    ] {
        modes.push((mode, termios.control_modes.contains(flag).into()));
    }
    modes
}
