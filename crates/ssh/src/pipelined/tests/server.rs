//! A server of a few lines, which can misbehave.

use super::*;

/// Bytes that differ from those beside them.
pub(super) fn noise(length: usize) -> Vec<u8> {
    (0_u8..251).cycle().zip((0_u8..=255).cycle()).map(|(one, other)| one ^ other).take(length).collect()
}

/// What is out of the ordinary about a server.
#[derive(Clone)]
pub(super) struct Quirks {
    pub(super) greeting: &'static str,
    pub(super) kex: Vec<&'static str>,
    /// A guessed packet follows its proposal.
    pub(super) guesses: bool,
    /// Says IGNORE before its answer.
    pub(super) chatters: bool,
    /// Signs something else.
    pub(super) forges: bool,
    /// The number of the client's channel there.
    pub(super) number: u32,
    pub(super) window: u32,
}

impl Default for Quirks {
    fn default() -> Self {
        Self {
            greeting: OPENSSH,
            kex: vec!["curve25519-sha256", STRICT],
            guesses: false,
            chatters: false,
            forges: false,
            number: 0,
            window: 1 << 20,
        }
    }
}

/// A server that lets every client in, with a plain host key.
pub(crate) struct Server {
    pub(super) quirks: Quirks,
    pub(super) key: MemoryKey,
    pub(super) incoming: Incoming,
    pub(super) outgoing: Outgoing,
    pub(crate) out: BytesMut,
    pub(super) theirs: Option<String>,
    pub(super) our_proposal: Vec<u8>,
    pub(super) proposing: bool,
    pub(super) their_proposal: Bytes,
    pub(super) next_in: Option<Cipher>,
    pub(super) session: Option<Vec<u8>>,
    /// The messages that came once keys were exchanged.
    pub(super) heard: Vec<Bytes>,
    pub(super) input: Vec<u8>,
    pub(super) exchanges: usize,
    /// Bytes that the client may still send.
    pub(super) window: u32,
}

impl Server {
    pub(crate) fn usual() -> Self {
        Self::new(Quirks::default())
    }

    pub(super) fn new(quirks: Quirks) -> Self {
        let mut server = Self {
            window: quirks.window,
            key: MemoryKey::generate(KeyAlgorithm::Ed25519).unwrap(),
            incoming: Incoming::default(),
            outgoing: Outgoing::default(),
            out: BytesMut::new(),
            theirs: None,
            our_proposal: Vec::new(),
            proposing: false,
            their_proposal: Bytes::new(),
            next_in: None,
            session: None,
            heard: Vec::new(),
            input: Vec::new(),
            exchanges: 0,
            quirks,
        };
        server.out.extend_from_slice(b"a word before\r\n");
        server.out.extend_from_slice(server.quirks.greeting.as_bytes());
        server.out.extend_from_slice(b"\r\n");
        server.propose();
        server
    }

    pub(super) fn propose(&mut self) {
        let ciphers = ["chacha20-poly1305@openssh.com", "aes256-gcm@openssh.com"];
        let draft = Draft::new(KEXINIT).raw(&[7; 16]).names(&self.quirks.kex).names(&["ssh-ed25519"]);
        let draft = draft.names(&ciphers).names(&ciphers).names(&["umac"]).names(&["umac"]).names(&["none"]);
        let draft = draft.names(&["none"]).names(&[]).names(&[]).flag(self.quirks.guesses).u32(0);
        self.our_proposal = draft.0.clone();
        self.proposing = true;
        self.say(&draft);
        if self.quirks.guesses {
            self.say(&Draft::new(ECDH_REPLY).string(b"a guess that is wrong"));
        }
    }

    pub(super) fn say(&mut self, draft: &Draft) {
        self.outgoing.put(&mut self.out, &draft.0).unwrap();
    }

    pub(crate) fn hear(&mut self, bytes: &[u8]) {
        self.incoming.bytes.extend_from_slice(bytes);
        if self.theirs.is_none() {
            let end = self.incoming.bytes.iter().position(|byte| *byte == b'\n');
            let Some(end) = end else { return };
            let line = self.incoming.bytes.split_to(end + 1);
            self.theirs = Some(String::from_utf8(line[..end - 1].to_vec()).unwrap());
        }
        while let Some(payload) = self.incoming.next().unwrap() {
            self.take(&payload);
        }
    }

    pub(super) fn take(&mut self, payload: &Bytes) {
        match payload[0] {
            KEXINIT => {
                if !self.proposing {
                    self.propose();
                }
                self.their_proposal = payload.clone();
                if self.quirks.chatters {
                    self.say(&Draft::new(IGNORE).string(b""));
                }
            }
            ECDH_INIT => self.reply(&payload[5..]),
            NEWKEYS => {
                let strict = self.quirks.kex.contains(&STRICT);
                self.incoming.rekey(self.next_in.take().unwrap(), strict);
            }
            number => {
                self.heard.push(payload.clone());
                self.serve(number, payload);
            }
        }
    }

    /// The other end of the first of its methods.
    pub(super) fn reply(&mut self, theirs: &[u8]) {
        let (group, algorithm) = match self.quirks.kex[0] {
            "ecdh-sha2-nistp256" => (DhGroup::P256, HashAlgorithm::Sha256),
            "ecdh-sha2-nistp384" => (DhGroup::P384, HashAlgorithm::Sha384),
            _ => (DhGroup::X25519, HashAlgorithm::Sha256),
        };
        strict::check_share(group, theirs).unwrap();
        let side =
            selection::global().run(Primitive::Agree(group), |provider| provider.start_agreement(group));
        let side = side.unwrap();
        let ours = side.share().to_vec();
        let secret = side.finish(theirs).unwrap();
        let number = {
            let zeros = secret.as_bytes().iter().take_while(|byte| **byte == 0).count();
            let bytes = &secret.as_bytes()[zeros..];
            let sign: &[u8] = if bytes[0] & 0x80 != 0 { &[0] } else { &[] };
            let mut out = Vec::new();
            put_string(&mut out, &[sign, bytes].concat());
            out
        };
        let public = ssh_key::PublicKey::from(ssh_public_key(&self.key.public_key()).unwrap());
        let host_key = public.to_bytes().unwrap();
        let mut hashed = Vec::new();
        for part in [
            self.theirs.as_ref().unwrap().as_bytes(),
            self.quirks.greeting.as_bytes(),
            &self.their_proposal,
            &self.our_proposal,
            &host_key,
            theirs,
            &ours,
        ] {
            put_string(&mut hashed, part);
        }
        hashed.extend_from_slice(&number);
        let mut digest = vec![0; algorithm.bytes()];
        hash::digest(algorithm, &[&hashed], &mut digest);
        let signed = if self.quirks.forges { vec![0; 32] } else { digest.clone() };
        let signature = ssh_signature(&self.key, &signed).unwrap();
        self.say(&Draft::new(ECDH_REPLY).string(&host_key).string(&ours).string(&signature));
        let session = self.session.get_or_insert_with(|| digest.clone()).clone();
        let cipher = |nonce: u8, key: u8| {
            let derived = |letter: u8| {
                let mut out = vec![0; algorithm.bytes()];
                let parts: [&[u8]; 4] = [&number, &digest, &[letter], &session];
                hash::digest(algorithm, &parts, &mut out);
                out
            };
            let nonce = derived(nonce)[..12].try_into().unwrap();
            Cipher::new(AeadAlgorithm::Aes256Gcm, &derived(key)[..32], nonce).unwrap()
        };
        self.say(&Draft::new(NEWKEYS));
        self.outgoing.rekey(cipher(b'B', b'D'), true);
        self.next_in = Some(cipher(b'A', b'C'));
        self.proposing = false;
        self.exchanges += 1;
        if self.exchanges == 1 {
            self.say(&Draft::new(EXT_INFO).u32(0));
        }
    }

    pub(super) fn serve(&mut self, number: u8, payload: &Bytes) {
        let there = self.quirks.number;
        match number {
            SERVICE_REQUEST => self.say(&Draft::new(SERVICE_ACCEPT).string(b"ssh-userauth")),
            USERAUTH_REQUEST => {
                self.say(&Draft::new(USERAUTH_BANNER).string(b"hello\x1b[2J\n").string(b""));
                self.say(&Draft::new(USERAUTH_SUCCESS));
            }
            CHANNEL_OPEN => {
                let window = self.quirks.window;
                self.say(&Draft::new(CHANNEL_OPEN_CONFIRMATION).u32(0).u32(there).u32(window).u32(32768));
            }
            CHANNEL_REQUEST if payload[1..5] == there.to_be_bytes() => {
                let length = u32::from_be_bytes(payload[5..9].try_into().unwrap()) as usize;
                if payload[9 + length] != 0 {
                    self.say(&Draft::new(CHANNEL_SUCCESS).u32(0));
                }
            }
            CHANNEL_DATA => {
                self.input.extend_from_slice(&payload[9..]);
                self.window = self.window.checked_sub(u32::try_from(payload.len() - 9).unwrap()).unwrap();
                if self.window < self.quirks.window / 2 {
                    let by = self.quirks.window - self.window;
                    self.window += by;
                    self.say(&Draft::new(CHANNEL_WINDOW_ADJUST).u32(0).u32(by));
                }
            }
            _ => {}
        }
    }

    pub(crate) fn shows(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(16 * 1024) {
            self.say(&Draft::new(CHANNEL_DATA).u32(0).string(part));
        }
    }

    pub(crate) fn ends(&mut self, status: u32) {
        self.say(&Draft::new(CHANNEL_EOF).u32(0));
        self.say(&Draft::new(CHANNEL_REQUEST).u32(0).string(b"exit-status").flag(false).u32(status));
        self.say(&Draft::new(CHANNEL_CLOSE).u32(0));
    }

    pub(crate) fn numbers(&self) -> Vec<u8> {
        self.heard.iter().map(|payload| payload[0]).collect()
    }
}
