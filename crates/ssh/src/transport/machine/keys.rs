//! Key exchange, message by message.

use super::*;
use crate::transport::exchange::{Answer, Said, answer, conclude};
use crate::transport::message::Lists;
use crate::transport::proposal::{
    agree, agree_as_server, hears_extensions, propose, propose_as_server, user_signatures,
};

/// Exchanges one after the other with no message between them. Each costs this side a signature or two agreements, and the peer
/// next to nothing.
const MOST_IDLE_EXCHANGES: u32 = 16;

impl Transport {
    pub(super) fn propose(&mut self) -> Result<(), Breach> {
        let proposal = match &self.role {
            Role::Client => propose(self.spoken)?,
            Role::Server(host) => propose_as_server(self.spoken, &host.algorithms())?,
        };
        self.outgoing.put(&mut self.out, &proposal)?;
        self.proposal = Some(proposal);
        self.came_before = self.incoming.used.bytes;
        Ok(())
    }

    pub(super) fn exchange(&mut self, number: u8, payload: &Bytes) -> Result<Option<Step>, Breach> {
        match number {
            KEXINIT => self.proposed(payload).map(|()| None),
            ECDH_INIT => self.shared(payload).map(|()| None),
            ECDH_REPLY => self.replied(payload),
            _ => {
                let cipher = self.next_in.take().ok_or(unexpected(number, "KEXINIT"))?;
                self.incoming.rekey(cipher, self.strict);
                Ok(None)
            }
        }
    }

    fn proposed(&mut self, payload: &Bytes) -> Result<(), Breach> {
        // One exchange after the other; and the peer's NEWKEYS of the last one has come.
        if self.waiting.is_some() || self.next_in.is_some() || self.next_out.is_some() {
            return Err(unexpected(KEXINIT, "the end of the key exchange"));
        }
        let is_first = self.session.is_none();
        if !is_first {
            if matches!(self.role, Role::Server(_)) && !self.is_in {
                return Err(unexpected(KEXINIT, "the login"));
            }
            // Those that the peer began.
            self.idle_exchanges += u32::from(self.proposal.is_none());
            if self.idle_exchanges > MOST_IDLE_EXCHANGES {
                return Err(Breach::Keys("does nothing but renew keys"));
            }
        }
        let lists = Lists::read(payload)?;
        if self.proposal.is_none() {
            self.propose()?;
        }
        let agreed = match &self.role {
            Role::Client => agree(self.spoken, &lists)?,
            Role::Server(host) => agree_as_server(self.spoken, &host.algorithms(), &lists)?,
        };
        if is_first {
            self.strict = agreed.strict;
            if self.strict && self.incoming.sequence != 1 {
                return Err(unexpected(KEXINIT, "KEXINIT as the first packet"));
            }
            self.tells_extensions = matches!(self.role, Role::Server(_)) && hears_extensions(&lists);
        }
        self.passes_over = agreed.passes_over;
        let proposal = payload.clone();
        self.waiting = Some(match self.role {
            Role::Client => {
                let side = Side::start(agreed.method)?;
                self.send(&Draft::new(ECDH_INIT).string(&side.share()).0)?;
                Waiting::Reply { side, agreed, proposal }
            }
            Role::Server(_) => Waiting::Share { agreed, proposal },
        });
        Ok(())
    }

    /// A server hears the client's share, and answers.
    fn shared(&mut self, payload: &Bytes) -> Result<(), Breach> {
        let (Role::Server(host), Some(Waiting::Share { agreed, proposal })) =
            (&self.role, self.waiting.take_if(|waiting| matches!(waiting, Waiting::Share { .. })))
        else {
            return Err(unexpected(ECDH_INIT, "KEXINIT"));
        };
        let host = Arc::clone(host);
        let share = one_string(payload).ok_or(Breach::Malformed("KEX_ECDH_INIT"))?;
        let said = Said {
            client_identification: self.theirs.as_bytes(),
            server_identification: self.opening.identification.as_bytes(),
            client_proposal: &proposal,
            server_proposal: self.proposal.as_deref().unwrap_or_default(),
        };
        let Answer { share, signature, exchanged } = answer(&host, &agreed, &said, &share)?;
        let shown = host.shown(agreed.host_key);
        self.send(&Draft::new(ECDH_REPLY).string(shown).string(&share).string(&signature).0)?;
        self.session.get_or_insert(exchanged.digest);
        self.prepare(&exchanged, &agreed)?;
        self.new_keys()
    }

    /// A client hears the server's answer.
    fn replied(&mut self, payload: &Bytes) -> Result<Option<Step>, Breach> {
        let Some(Waiting::Reply { side, agreed, proposal }) =
            self.waiting.take_if(|waiting| matches!(waiting, Waiting::Reply { .. }))
        else {
            return Err(unexpected(ECDH_REPLY, "KEXINIT"));
        };
        let mut fields = Fields(payload.slice(1..));
        let read = (fields.string(), fields.string(), fields.string());
        let (Some(host_key), Some(share), Some(signature)) = read else {
            return Err(Breach::Malformed("KEX_ECDH_REPLY"));
        };
        let said = Said {
            client_identification: self.opening.identification.as_bytes(),
            server_identification: self.theirs.as_bytes(),
            client_proposal: self.proposal.as_deref().unwrap_or_default(),
            server_proposal: &proposal,
        };
        let (host, exchanged) = conclude(side, &agreed, &said, (&host_key, &share, &signature))?;
        match &self.host {
            None => {
                self.judged = Some((exchanged, agreed, host.key.clone()));
                self.proof = Proof { host_key, signature };
                self.stage = Stage::Judging;
                Ok(Some(Step::Host(Box::new(host))))
            }
            // The host that was believed has to be the one that renews.
            Some(believed) if *believed == host.key => {
                self.prepare(&exchanged, &agreed)?;
                self.new_keys().map(|()| None)
            }
            Some(_) => Err(Breach::OtherHostKey),
        }
    }

    /// The host is who it should be. What has come meanwhile is looked at from here on; nothing goes before
    /// [`Transport::new_keys`].
    ///
    /// # Errors
    /// [`Breach::Order`] when no host waits for a judgement.
    pub(crate) fn accept_host(&mut self) -> Result<(), Breach> {
        let judged = self.judged.take().ok_or(Breach::Order("no host waits for a judgement"))?;
        let (exchanged, agreed, key) = judged;
        self.session = Some(exchanged.digest);
        self.host = Some(key);
        self.prepare(&exchanged, &agreed)?;
        self.stage = Stage::Open;
        Ok(())
    }

    /// The new keys are made; they are taken into use when each side has said NEWKEYS.
    fn prepare(&mut self, exchanged: &Exchanged, agreed: &Agreed) -> Result<(), Breach> {
        let session = self.session.as_ref().ok_or(Breach::Order("there is no session yet"))?;
        let (to_server, to_client) = exchanged.ciphers(agreed, session)?;
        let (to_peer, from_peer) = match self.role {
            Role::Client => (to_server, to_client),
            Role::Server(_) => (to_client, to_server),
        };
        self.next_out = Some(to_peer);
        self.next_in = Some(from_peer);
        Ok(())
    }

    /// Says NEWKEYS, and what was held back.
    ///
    /// # Errors
    /// [`Breach::Order`] when there are no new keys.
    pub(crate) fn new_keys(&mut self) -> Result<(), Breach> {
        let cipher = self.next_out.take().ok_or(Breach::Order("there are no new keys"))?;
        self.outgoing.put(&mut self.out, &[NEWKEYS])?;
        self.outgoing.rekey(cipher, self.strict);
        self.proposal = None;
        if std::mem::take(&mut self.tells_extensions) {
            // The next packet after the first NEWKEYS (RFC 8308 §2.4).
            let algorithms: Vec<&str> = user_signatures().collect();
            let told = Draft::new(EXT_INFO).u32(2).string(b"server-sig-algs").names(&algorithms);
            let told = told.string(HOST_BOUND).string(b"0");
            self.outgoing.put(&mut self.out, &told.0)?;
        }
        // Sending may propose again, and hold back the rest.
        for payload in std::mem::take(&mut self.held) {
            self.send(&payload)?;
        }
        Ok(())
    }
}

/// The extension by which clients name the host that they log in to (OpenSSH's PROTOCOL §1.12).
const HOST_BOUND: &[u8] = b"publickey-hostbound@openssh.com";

/// The one `string` of a message.
fn one_string(payload: &Bytes) -> Option<Bytes> {
    let mut fields = Fields(payload.slice(1..));
    let string = fields.string()?;
    fields.0.is_empty().then_some(string)
}
