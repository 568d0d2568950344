//! Signals by the names that SSH gives them (RFC 4254 §6.10), without `SIG`.

use russh::Sig;

/// The signal of a name; names that are not in the RFC are said as they are.
pub(crate) fn named(name: &str) -> Sig {
    match name {
        "ABRT" => Sig::ABRT,
        "ALRM" => Sig::ALRM,
        "FPE" => Sig::FPE,
        "HUP" => Sig::HUP,
        "ILL" => Sig::ILL,
        "INT" => Sig::INT,
        "KILL" => Sig::KILL,
        "PIPE" => Sig::PIPE,
        "QUIT" => Sig::QUIT,
        "SEGV" => Sig::SEGV,
        "TERM" => Sig::TERM,
        "USR1" => Sig::USR1,
        other => Sig::Custom(other.to_owned()),
    }
}

/// The name of a signal.
pub(crate) fn name_of(signal: &Sig) -> String {
    match signal {
        Sig::Custom(name) => name.clone(),
        known => format!("{known:?}"),
    }
}
