//! What a TLS server offers and prefers, found out by asking.

use std::time::Duration;

use sallyport_bench::Talk;
use sallyport_ca::Described;
use sallyport_sal::compatibility::{group_name, scheme_name, version_name};
use sallyport_sal::tls::rustls::crypto::{SupportedKxGroup, aws_lc_rs::kx_group};
use sallyport_wire::tls_probe::{
    Agreement, Answer, Hello, Proof, SUITES, Suite, TLS_1_0, TLS_1_1, TLS_1_2, TLS_1_3, suite,
};
use serde::Serialize;

use super::handshake::{self, Client, Offer};
use super::line::{Caller, Trouble};
use super::shaken::Shaken;

/// Cipher suites of one version that a quick scan looks for.
const QUICK_SUITES: usize = 4;
/// Groups that a quick scan looks for.
const QUICK_GROUPS: usize = 3;

/// Groups of TLS 1.3 that are asked for, as a careful client would order them.
const GROUPS: &[u16] = &[
    0x11ec, 0x11eb, 0x11ed, 0x0201, 0x0202, 0x0200, 0x001d, 0x0017, 0x0018, 0x0019, 0x001e, 0x0100, 0x0101,
    0x0102, 0x0103, 0x0104,
];
/// Groups of TLS 1.2.
const OLD_GROUPS: &[u16] = &[0x001d, 0x0017, 0x0018, 0x0019, 0x001e];
/// Signature schemes, SHA-1 last.
const SCHEMES: &[u16] = &[
    0x0403, 0x0503, 0x0603, 0x0807, 0x0808, 0x0804, 0x0805, 0x0806, 0x0401, 0x0501, 0x0601, 0x0904, 0x0905,
    0x0906, 0x0402, 0x0202, 0x0203, 0x0201,
];
/// Schemes with SHA-1: ECDSA, RSA, DSA.
const SHA_1: &[u16] = &[0x0203, 0x0201, 0x0202];

/// Whose order decides.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The server's.
    Server,
    /// The client's.
    Client,
    /// There are not two to choose from, or it was not found out.
    Unknown,
}

/// One version of TLS.
#[derive(Debug, Clone, Serialize)]
pub struct Version {
    /// Its name.
    pub name: String,
    /// Its cipher suites, in the order in which the server takes them.
    pub suites: Vec<&'static str>,
    /// Whose order decides.
    pub order: Order,
    /// Whether there may be more.
    pub incomplete: bool,
    #[serde(skip)]
    pub(crate) code: u16,
    #[serde(skip)]
    pub(crate) known: Vec<Suite>,
}

/// What one kind of client meets with its first hello.
#[derive(Debug, Clone, Serialize)]
pub struct FirstHello {
    /// The clients.
    pub client: &'static str,
    /// The groups of which it sends shares.
    pub shares: Vec<String>,
    /// The group that comes out.
    pub group: Option<String>,
    /// Whether the server asks for another hello, which is a round trip more.
    pub retry: bool,
}

/// A chain of certificates, and who gets it.
#[derive(Debug, Clone)]
pub(crate) struct Chain {
    /// DER, the server's own first.
    pub(crate) der: Vec<Vec<u8>>,
    /// What they say, as far as they can be read.
    pub(crate) certificates: Vec<Described>,
    /// What it was signed with, when it was shown: schemes, or the proofs of cipher suites.
    pub(crate) by: Vec<String>,
}

/// All that was found out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Survey {
    pub(crate) versions: Vec<Version>,
    pub(crate) groups: Vec<u16>,
    pub(crate) group_order: Option<Order>,
    pub(crate) groups_incomplete: bool,
    pub(crate) first_hellos: Vec<FirstHello>,
    pub(crate) chains: Vec<Chain>,
    /// The handshake that a browser makes; none when it fails.
    pub(crate) browser: Option<Shaken>,
    /// Why it fails.
    pub(crate) browser_fails: Option<String>,
    pub(crate) alpn: Vec<String>,
    pub(crate) resumed: Option<bool>,
    pub(crate) tickets: u32,
    pub(crate) asks_for_certificate: bool,
    pub(crate) requires_certificate: bool,
    pub(crate) stapled: bool,
    /// Of TLS 1.2 and older; none when these are not spoken.
    pub(crate) secure_renegotiation: Option<bool>,
    pub(crate) extended_master_secret: Option<bool>,
    pub(crate) compression: bool,
    pub(crate) prime_bits: Option<usize>,
    pub(crate) sha1_signatures: bool,
    /// The suites with which a downgrade was met: an answer with another version than asked for.
    pub(crate) software: Option<String>,
    pub(crate) notes: Vec<String>,
}

impl Survey {
    pub(crate) fn speaks(&self, code: u16) -> bool {
        self.versions.iter().any(|version| version.code == code)
    }
}

/// Asks a server everything.
pub(crate) struct Asking<'a> {
    pub(crate) caller: &'a mut Caller,
    pub(crate) talk: &'a Talk,
    /// The name that is asked for, when it is one.
    pub(crate) server_name: Option<String>,
    /// The name or address that handshakes are made with.
    pub(crate) peer: String,
    pub(crate) quick: bool,
    /// Whether what is above TLS may be HTTP.
    pub(crate) web: bool,
    silences: usize,
    heard: bool,
}

/// What a question gave.
enum Reply {
    Yes(Box<Answer>),
    No,
}

impl<'a> Asking<'a> {
    pub(crate) fn new(
        caller: &'a mut Caller,
        talk: &'a Talk,
        server_name: Option<String>,
        quick: bool,
        web: bool,
    ) -> Self {
        let host = caller.host.clone();
        let is_address = host.parse::<std::net::IpAddr>().is_ok();
        let server_name = server_name.or_else(|| (!is_address).then(|| host.clone()));
        let peer = server_name.clone().unwrap_or(host);
        Self { caller, talk, server_name, peer, quick, web, silences: 0, heard: false }
    }

    /// Everything, as far as bounds allow. The first answer decides whether it is a TLS server at all.
    pub(crate) fn survey(&mut self) -> Result<Survey, Trouble> {
        let mut survey = Survey::default();
        match self.all(&mut survey) {
            Ok(()) => {}
            Err(trouble) if survey.versions.is_empty() => return Err(trouble),
            Err(trouble) => survey.notes.push(format!("stopped early: {trouble}")),
        }
        Ok(survey)
    }

    fn all(&mut self, survey: &mut Survey) -> Result<(), Trouble> {
        self.newest(survey)?;
        for version in [TLS_1_2, TLS_1_1, TLS_1_0] {
            self.older(survey, version)?;
        }
        if survey.versions.is_empty() {
            return Err(Trouble::StartTls("it takes no version of TLS from 1.0 to 1.3".to_owned()));
        }
        self.say("whole handshakes");
        self.handshakes(survey)?;
        if survey.speaks(TLS_1_3) {
            self.first_hellos(survey)?;
            self.groups(survey, TLS_1_3, GROUPS)?;
        } else {
            self.groups(survey, TLS_1_2, OLD_GROUPS)?;
        }
        if survey.speaks(TLS_1_2) {
            self.sha1(survey)?;
        }
        Ok(())
    }

    fn say(&self, what: &str) {
        self.talk.say(format!("{}: {what}, {} connections so far", self.caller.address, self.caller.made));
    }

    fn hello(&self, version: u16, suites: &[u16]) -> Hello {
        Hello {
            version,
            suites: suites.to_vec(),
            groups: if version == TLS_1_3 { GROUPS } else { OLD_GROUPS }.to_vec(),
            schemes: SCHEMES.to_vec(),
            server_name: self.server_name.clone(),
            ..Hello::default()
        }
    }

    /// Asks one question. A server that says nothing is asked no more after the second time: each costs seconds.
    fn ask(&mut self, hello: &Hello) -> Result<Reply, Trouble> {
        if self.talk.stopping() {
            return Err(Trouble::StartTls("interrupted".to_owned()));
        }
        let answer = self.caller.ask(hello);
        self.heard |= answer.is_ok();
        match answer {
            Ok(answer) => match &answer.hello {
                // What was not offered is no answer to this question.
                Some(chosen) if chosen.version == hello.version && hello.suites.contains(&chosen.suite) => {
                    Ok(Reply::Yes(Box::new(answer)))
                }
                _ => Ok(Reply::No),
            },
            Err(trouble) if trouble.is_a_no() => Ok(Reply::No),
            Err(trouble @ Trouble::Silent { .. }) => {
                self.silences += 1;
                if self.silences >= 2 || !self.heard { Err(trouble) } else { Ok(Reply::No) }
            }
            Err(trouble) => Err(trouble),
        }
    }

    fn newest(&mut self, survey: &mut Survey) -> Result<(), Trouble> {
        let suites: Vec<u16> = SUITES
            .iter()
            .filter(|suite| suite.agreement() == Agreement::Later)
            .map(|suite| suite.code)
            .collect();
        self.version(survey, TLS_1_3, &suites)
    }

    fn older(&mut self, survey: &mut Survey, version: u16) -> Result<(), Trouble> {
        let suites: Vec<u16> = SUITES
            .iter()
            .filter(|suite| suite.agreement() != Agreement::Later)
            .map(|suite| suite.code)
            .collect();
        self.version(survey, version, &suites)
    }

    /// Takes away what the server chooses until it chooses nothing more.
    fn version(&mut self, survey: &mut Survey, version: u16, suites: &[u16]) -> Result<(), Trouble> {
        self.say(&version_name(version));
        let mut left = suites.to_vec();
        let mut found = Version {
            name: version_name(version),
            suites: Vec::new(),
            order: Order::Unknown,
            incomplete: false,
            code: version,
            known: Vec::new(),
        };
        let outcome = loop {
            if left.is_empty() {
                break Ok(());
            }
            if self.quick && found.known.len() >= QUICK_SUITES {
                found.incomplete = true;
                break Ok(());
            }
            let mut hello = self.hello(version, &left);
            hello.compression = found.known.is_empty();
            match self.ask(&hello) {
                Ok(Reply::Yes(answer)) => {
                    let Some(chosen) = answer.hello.as_ref().map(|hello| hello.suite).and_then(suite) else {
                        break Ok(());
                    };
                    left.retain(|code| *code != chosen.code);
                    found.known.push(chosen);
                    learn(survey, &answer, chosen);
                }
                Ok(Reply::No) => break Ok(()),
                Err(trouble) => {
                    found.incomplete = true;
                    break Err(trouble);
                }
            }
        };
        if found.known.is_empty() {
            return outcome;
        }
        let order = if outcome.is_ok() { self.order(version, &found.known) } else { Ok(Order::Unknown) };
        found.order = *order.as_ref().unwrap_or(&Order::Unknown);
        found.suites = found.known.iter().map(|suite| suite.name).collect();
        survey.versions.push(found);
        outcome.and(order.map(|_| ()))
    }

    /// Offers the first two the other way round. ChaCha20 is left out: OpenSSL lets clients that prefer it have it
    /// (`SSL_OP_PRIORITIZE_CHACHA`), whatever its own order.
    fn order(&mut self, version: u16, known: &[Suite]) -> Result<Order, Trouble> {
        let mut plain = known.iter().filter(|suite| !suite.name.contains("CHACHA20"));
        let (Some(first), Some(second)) = (plain.next(), plain.next()) else { return Ok(Order::Unknown) };
        Ok(match self.ask(&self.hello(version, &[second.code, first.code]))? {
            Reply::Yes(answer) if answer.hello.as_ref().is_some_and(|hello| hello.suite == first.code) => {
                Order::Server
            }
            Reply::Yes(_) => Order::Client,
            Reply::No => Order::Unknown,
        })
    }

    fn groups(&mut self, survey: &mut Survey, version: u16, groups: &[u16]) -> Result<(), Trouble> {
        let Some(found) = survey.versions.iter().find(|found| found.code == version) else { return Ok(()) };
        let wanted = |suite: &&Suite| matches!(suite.agreement(), Agreement::Curve | Agreement::Later);
        let suites: Vec<u16> = found.known.iter().filter(wanted).map(|suite| suite.code).collect();
        if suites.is_empty() {
            return Ok(());
        }
        self.say("groups");
        let mut left = groups.to_vec();
        while !left.is_empty() {
            if self.quick && survey.groups.len() >= QUICK_GROUPS {
                survey.groups_incomplete = true;
                break;
            }
            let hello = Hello { groups: left.clone(), ..self.hello(version, &suites) };
            let Some(group) = self.group(&hello)? else { break };
            if !left.contains(&group) {
                break;
            }
            left.retain(|code| *code != group);
            survey.groups.push(group);
        }
        if let [first, second, ..] = *survey.groups {
            let hello = Hello { groups: vec![second, first], ..self.hello(version, &suites) };
            let chosen = self.group(&hello)?;
            survey.group_order =
                chosen.map(|group| if group == first { Order::Server } else { Order::Client });
        }
        Ok(())
    }

    fn group(&mut self, hello: &Hello) -> Result<Option<u16>, Trouble> {
        Ok(match self.ask(hello)? {
            Reply::Yes(answer) => {
                let chosen = answer.hello.as_ref().and_then(|hello| hello.group);
                chosen.or_else(|| answer.key_exchange.as_ref().and_then(|exchange| exchange.group))
            }
            Reply::No => None,
        })
    }

    /// What the first hello of usual clients meets: those of browsers since 2024, and those before.
    fn first_hellos(&mut self, survey: &mut Survey) -> Result<(), Trouble> {
        let share = |group: &dyn SupportedKxGroup| -> Option<(u16, Vec<u8>)> {
            let exchange = group.start().ok()?;
            Some((u16::from(group.name()), exchange.pub_key().to_vec()))
        };
        let (Some(hybrid), Some(x25519)) = (share(kx_group::X25519MLKEM768), share(kx_group::X25519)) else {
            return Ok(());
        };
        let suites = [0x1301, 0x1302, 0x1303];
        for (client, groups, shares) in [
            (
                "browsers since 2024 (Chrome 131, Firefox 132, Safari 26)",
                vec![0x11ec, 0x001d, 0x0017, 0x0018],
                vec![hybrid, x25519.clone()],
            ),
            (
                "clients before that (OpenSSL 1.1.1 to 3.4, Java to 26)",
                vec![0x001d, 0x0017, 0x0018, 0x0019],
                vec![x25519],
            ),
        ] {
            let names = shares.iter().map(|(group, _)| group_name(*group)).collect();
            let hello = Hello { groups, shares, ..self.hello(TLS_1_3, &suites) };
            let chosen = match self.ask(&hello)? {
                Reply::Yes(answer) => answer.hello,
                Reply::No => None,
            };
            survey.first_hellos.push(FirstHello {
                client,
                shares: names,
                group: chosen.as_ref().and_then(|hello| hello.group).map(group_name),
                retry: chosen.is_some_and(|hello| hello.retry),
            });
        }
        Ok(())
    }

    /// Whether the server signs with SHA-1 when nothing else is offered.
    fn sha1(&mut self, survey: &mut Survey) -> Result<(), Trouble> {
        let signed = |suite: &&Suite| {
            matches!(suite.agreement(), Agreement::Curve | Agreement::Prime) && suite.proof() != Proof::None
        };
        let Some(found) = survey.versions.iter().find(|found| found.code == TLS_1_2) else { return Ok(()) };
        let suites: Vec<u16> = found.known.iter().filter(signed).map(|suite| suite.code).collect();
        if suites.is_empty() {
            return Ok(());
        }
        let hello = Hello { schemes: SHA_1.to_vec(), ..self.hello(TLS_1_2, &suites) };
        if let Reply::Yes(answer) = self.ask(&hello)? {
            let scheme = answer.key_exchange.as_ref().and_then(|exchange| exchange.scheme);
            survey.sha1_signatures = scheme.is_some_and(|scheme| SHA_1.contains(&scheme));
        }
        Ok(())
    }

    /// Whole handshakes, by the newest version: as a browser makes them, again to see whether the session goes on, and
    /// for TLS 1.3 once for each kind of certificate.
    fn handshakes(&mut self, survey: &mut Survey) -> Result<(), Trouble> {
        let tls13 = survey.speaks(TLS_1_3);
        if !tls13 && !survey.speaks(TLS_1_2) {
            survey.notes.push("sessions and protocols were not looked at: there is no TLS 1.2".to_owned());
            return Ok(());
        }
        let spoken = |suite: &Suite| {
            suite.agreement() == Agreement::Curve
                && ["AES_128_GCM", "AES_256_GCM", "CHACHA20"].iter().any(|name| suite.name.contains(name))
        };
        if !tls13 && !survey.versions.iter().any(|version| version.known.iter().any(spoken)) {
            // Browsers still speak some of them, so that nothing follows from it for those.
            survey.notes.push(
                "sessions and protocols were not looked at: none of its cipher suites is spoken here"
                    .to_owned(),
            );
            return Ok(());
        }
        let alpn = ["h2", "http/1.1"];
        let browser = Client::new(Offer { tls13, schemes: handshake::BROWSER, alpn: &alpn })?;
        match browser.shake(self.caller, &self.peer, false) {
            Ok(shaken) => {
                keep(survey, &shaken);
                survey.tickets = shaken.tickets;
                let complete = shaken.suite.is_some() && !shaken.refused;
                survey.browser = Some(shaken);
                if complete {
                    let again = browser.shake(self.caller, &self.peer, false)?;
                    survey.resumed = Some(again.resumed);
                }
            }
            Err(trouble) if trouble.is_final() => return Err(trouble),
            Err(trouble) => survey.browser_fails = Some(trouble.to_string()),
        }
        if self.web || !survey.alpn.is_empty() {
            let plain = Client::new(Offer { tls13, schemes: handshake::BROWSER, alpn: &["http/1.1"] })?;
            if let Ok(shaken) = plain.shake(self.caller, &self.peer, true) {
                keep(survey, &shaken);
                survey.software = shaken.software;
            }
        }
        if !tls13 {
            return Ok(());
        }
        for schemes in [handshake::ECDSA, handshake::RSA, handshake::ED25519, handshake::ML_DSA] {
            match Client::new(Offer { tls13, schemes, alpn: &[] })?.shake(self.caller, &self.peer, false) {
                Ok(shaken) => keep(survey, &shaken),
                Err(trouble) if trouble.is_final() => return Err(trouble),
                Err(_) => {}
            }
        }
        Ok(())
    }
}

/// What an answer of TLS 1.2 or older says besides its suite.
fn learn(survey: &mut Survey, answer: &Answer, chosen: Suite) {
    let Some(hello) = &answer.hello else { return };
    if hello.version < TLS_1_3 {
        let both = |so_far: Option<bool>, now: bool| Some(so_far.unwrap_or(true) && now);
        survey.secure_renegotiation = both(survey.secure_renegotiation, hello.secure_renegotiation);
        survey.extended_master_secret = both(survey.extended_master_secret, hello.extended_master_secret);
        survey.compression |= hello.compression != 0;
        survey.stapled |= answer.stapled;
        survey.asks_for_certificate |= answer.asks_for_certificate;
    }
    if let Some(bits) = answer.key_exchange.as_ref().and_then(|exchange| exchange.modulus_bits) {
        survey.prime_bits = Some(survey.prime_bits.map_or(bits, |so_far| so_far.min(bits)));
    }
    let by = match (answer.key_exchange.as_ref().and_then(|exchange| exchange.scheme), chosen.proof()) {
        (Some(scheme), _) => scheme_name(scheme),
        (None, Proof::Ecdsa) => "ECDSA".to_owned(),
        (None, _) => "RSA".to_owned(),
    };
    chain(survey, &answer.certificates, by);
}

fn keep(survey: &mut Survey, shaken: &Shaken) {
    survey.stapled |= shaken.stapled;
    survey.asks_for_certificate |= shaken.asked;
    survey.requires_certificate |= shaken.refused;
    if let Some(alpn) = &shaken.alpn
        && !survey.alpn.contains(alpn)
    {
        survey.alpn.push(alpn.clone());
    }
    if let Some(scheme) = shaken.scheme {
        chain(survey, &shaken.chain, scheme_name(scheme));
    }
}

/// Adds a chain, or another way to get one that is there already.
fn chain(survey: &mut Survey, der: &[Vec<u8>], by: String) {
    if der.is_empty() {
        return;
    }
    match survey.chains.iter_mut().find(|chain| chain.der == der) {
        Some(chain) if chain.by.contains(&by) => {}
        Some(chain) => chain.by.push(by),
        None => {
            let certificates = der.iter().filter_map(|one| Described::read(one).ok()).collect();
            survey.chains.push(Chain { der: der.to_vec(), certificates, by: vec![by] });
        }
    }
}

/// The certificates of a server in DER, its own first, by the newest version that it speaks.
pub(crate) fn certificates(
    caller: &mut Caller,
    server_name: Option<String>,
) -> Result<Vec<Vec<u8>>, Trouble> {
    let talk = Talk::new(|_| {}, std::sync::Arc::default());
    let mut asking = Asking::new(caller, &talk, server_name, true, false);
    let all = [handshake::BROWSER, handshake::ED25519, handshake::ECDSA, handshake::ML_DSA].concat();
    let client = Client::new(Offer { tls13: true, schemes: &all, alpn: &[] })?;
    let newest = client.shake(asking.caller, &asking.peer.clone(), false);
    match newest {
        Ok(shaken) if !shaken.chain.is_empty() => return Ok(shaken.chain),
        Err(trouble)
            if trouble.is_final() || matches!(trouble, Trouble::Silent { .. } | Trouble::Garbage(_)) =>
        {
            return Err(trouble);
        }
        _ => {}
    }
    let suites: Vec<u16> =
        SUITES.iter().filter(|suite| suite.agreement() != Agreement::Later).map(|suite| suite.code).collect();
    for version in [TLS_1_2, TLS_1_1, TLS_1_0] {
        if let Reply::Yes(answer) = asking.ask(&asking.hello(version, &suites))?
            && !answer.certificates.is_empty()
        {
            return Ok(answer.certificates);
        }
    }
    Err(Trouble::StartTls("it shows no certificate".to_owned()))
}

/// How long a server that speaks first may take to do so.
pub(crate) const FIRST_WORD: Duration = Duration::from_millis(800);
