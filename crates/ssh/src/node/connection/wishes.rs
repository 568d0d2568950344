//! What a session has asked for before it starts, as far as it may have it.

use sallyport_audit::Code;

use super::shared::Shared;
use crate::node::backend::DisplayAsked;
use crate::node::wanted::Wanted;
use crate::session::{Kind, Signal, Terminal};

/// Bounds of the variables that one session may set.
#[derive(Clone, Copy)]
struct Bounds {
    count: usize,
    /// Of names and values altogether.
    kibibytes: usize,
}

const BOUNDS: Bounds = Bounds { count: 64, kibibytes: 32 };
/// Where another server has the say, it says which it takes: for as long as memory is there.
const BOUNDS_ELSEWHERE: Bounds = Bounds { count: 1024, kibibytes: 256 };
/// Names of variables past those bounds that are told.
const MOST_NAMED: usize = 3;
/// Longest of these names that is told whole.
const MOST_NAME_CHARS: usize = 40;
/// Longest name of a terminal.
const MAX_TERM_BYTES: usize = 256;

/// What a session has asked for. Each method says whether it has it.
#[derive(Default)]
pub(super) struct Wishes {
    variables: Vec<(String, String)>,
    variable_bytes: usize,
    left_out: LeftOut,
    terminal: Option<Terminal>,
    agent: bool,
    lends_agent: bool,
    display: Option<DisplayAsked>,
}

impl Wishes {
    pub(super) fn terminal(&mut self, terminal: Terminal) -> bool {
        let fine = terminal.term.len() <= MAX_TERM_BYTES && !terminal.term.contains('\0');
        if fine {
            self.terminal = Some(terminal);
        }
        fine
    }

    pub(super) fn variable(&mut self, shared: &Shared, name: &str, value: &str) -> bool {
        let accepted =
            shared.server.config.accepts(name) && !value.contains('\0') && !name.contains(['\0', '=']);
        let bytes = self.variable_bytes + name.len() + value.len();
        let bounds = if shared.is_decided_elsewhere() { BOUNDS_ELSEWHERE } else { BOUNDS };
        let fits = self.variables.len() < bounds.count && bytes <= bounds.kibibytes * 1024;
        if accepted && fits {
            self.variable_bytes = bytes;
            self.variables.push((name.to_owned(), value.to_owned()));
            return true;
        }
        // As sshd does, what the setting does not name is left out without a word to the person: clients send variables
        // by configuration, and not because the person wants each of them.
        tracing::debug!(name, accepted, fits, "a variable is left out");
        if accepted {
            self.left_out.add(name, bounds);
        }
        false
    }

    /// `early` is true before the program was started.
    pub(super) fn display(&mut self, shared: &Shared, asked: Option<DisplayAsked>, early: bool) -> bool {
        let allowed = shared.is_decided_elsewhere()
            || shared.granted().is_some_and(|granted| granted.permit.options().x11_forwarding);
        if !allowed && shared.granted().is_some() {
            let message = "X11 forwarding: the roles do not allow it (options.permit_x11_forwarding)";
            shared.refused(shared.event(Code::SessionRefused).message(message));
        }
        let asked = asked.filter(|_| allowed && early);
        let given = asked.is_some();
        if given {
            self.display = asked;
        }
        given
    }

    /// `early` is true before the program was started.
    pub(super) fn agent(&mut self, shared: &Shared, early: bool) -> bool {
        let allowed = shared.is_decided_elsewhere()
            || shared.granted().is_some_and(|granted| granted.permit.options().forward_agent);
        let needed = shared.granted().is_some_and(|granted| granted.place.wants_agent());
        if !allowed && !needed && shared.granted().is_some() {
            let message = "agent forwarding: the roles do not allow it (options.forward_agent)";
            shared.refused(shared.event(Code::SessionRefused).message(message));
        }
        self.agent = allowed && early;
        self.lends_agent = needed && early;
        self.agent || self.lends_agent
    }

    /// The session, with what it runs.
    pub(super) fn want(self, kind: Kind) -> Wanted {
        let Self { variables, left_out, terminal, agent, lends_agent, display, .. } = self;
        let notice = left_out.notice();
        Wanted { kind, terminal, variables, notice, agent, lends_agent, display }
    }
}

/// Variables that a session may set, and that are too many or too long.
#[derive(Default)]
struct LeftOut {
    names: Vec<String>,
    count: usize,
    bounds: Option<Bounds>,
}

impl LeftOut {
    fn add(&mut self, name: &str, bounds: Bounds) {
        self.bounds = Some(bounds);
        self.count += 1;
        if self.names.len() < MOST_NAMED {
            self.names.push(name.chars().take(MOST_NAME_CHARS).collect());
        }
    }

    /// What the person reads.
    fn notice(self) -> Option<String> {
        let Self { names, count, bounds } = self;
        let Bounds { count: most, kibibytes } = bounds?;
        let more = match count.checked_sub(names.len()) {
            None | Some(0) => String::new(),
            Some(more) => format!(" and {more} more"),
        };
        Some(format!(
            "a session takes {most} variables of {kibibytes} KiB altogether, so these of yours are not set: {}{more}; send fewer \
             (SendEnv)",
            names.join(", "),
        ))
    }
}

/// The signals of RFC 4254 §6.10, and the one more that people use, by their names without `SIG`.
pub(super) fn system_signal(name: &str) -> Option<Signal> {
    Some(match name {
        "ABRT" => Signal::ABORT,
        "ALRM" => Signal::ALARM,
        "FPE" => Signal::FPE,
        "HUP" => Signal::HUP,
        "ILL" => Signal::ILL,
        "INT" => Signal::INT,
        "KILL" => Signal::KILL,
        "PIPE" => Signal::PIPE,
        "QUIT" => Signal::QUIT,
        "SEGV" => Signal::SEGV,
        "TERM" => Signal::TERM,
        "USR1" => Signal::USR1,
        "USR2" => Signal::USR2,
        _ => return None,
    })
}
