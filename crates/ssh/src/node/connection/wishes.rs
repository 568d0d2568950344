//! What a session has asked for before it starts, as far as it may have it.

use sallyport_audit::Code;

use super::shared::Shared;
use crate::node::NodeConfig;
use crate::node::backend::DisplayAsked;
use crate::node::channel::Wanted;
use crate::session::{Kind, Signal, Terminal};

/// Variables that one session may set, and their bytes altogether.
const MAX_VARIABLES: usize = 64;
const MAX_VARIABLE_BYTES: usize = 32 * 1024;
/// Longest name of a terminal.
const MAX_TERM_BYTES: usize = 256;

/// What a session has asked for. Each method says whether it has it.
#[derive(Default)]
pub(super) struct Wishes {
    variables: Vec<(String, String)>,
    variable_bytes: usize,
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

    pub(super) fn variable(&mut self, config: &NodeConfig, name: &str, value: &str) -> bool {
        let accepted = config.accepts(name) && !value.contains('\0') && !name.contains(['\0', '=']);
        let fits =
            self.variables.len() < MAX_VARIABLES && self.variable_bytes + value.len() <= MAX_VARIABLE_BYTES;
        if accepted && fits {
            self.variable_bytes += value.len();
            self.variables.push((name.to_owned(), value.to_owned()));
        }
        accepted && fits
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
        let Self { variables, terminal, agent, lends_agent, display, .. } = self;
        Wanted { kind, terminal, variables, agent, lends_agent, display }
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
