//! What is opened, and how it is asked for.

use bytes::{BufMut, BytesMut};

use super::fields::{Reader, Unreadable, Write};
use crate::client::Endpoint;
use crate::request::{DisplayOffer, Program, SessionRequest};
use crate::session::{Size, Terminal};

/// Variables and terminal modes in one frame. The node takes fewer.
const MOST_ITEMS: usize = 1024;

/// What a channel is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Open {
    /// A session of the client's.
    Session(Box<SessionRequest>),
    /// A connection from the node to somewhere.
    Direct {
        /// Where to.
        to: Endpoint,
        /// Who wants it, as an address and a port.
        from: (String, u16),
    },
    /// A connection that was made to where the node listens.
    Forwarded {
        /// There, in the client's words, with the port as allocated.
        at: Endpoint,
        /// Who made it, as an address and a port.
        from: (String, u16),
    },
    /// A connection to the client's agent.
    Agent,
    /// A connection to the client's display.
    X11 {
        /// Who made it, as an address and a port.
        from: (String, u16),
    },
}

pub(super) fn put_endpoint(out: &mut BytesMut, endpoint: &Endpoint) {
    match endpoint {
        Endpoint::Port { host, port } => {
            out.put_u8(0);
            out.text(host);
            out.put_u16(*port);
        }
        Endpoint::Socket { path } => {
            out.put_u8(1);
            out.text(path);
        }
    }
}

pub(super) fn endpoint(fields: &mut Reader<'_>) -> Result<Endpoint, Unreadable> {
    match fields.u8()? {
        0 => Ok(Endpoint::Port { host: fields.text()?, port: fields.u16()? }),
        1 => Ok(Endpoint::Socket { path: fields.text()? }),
        _ => Err(Unreadable),
    }
}

pub(super) fn put_size(out: &mut BytesMut, size: Size) {
    for number in [size.columns, size.rows, size.width, size.height] {
        out.put_u32(number);
    }
}

pub(super) fn size(fields: &mut Reader<'_>) -> Result<Size, Unreadable> {
    let (columns, rows) = (fields.u32()?, fields.u32()?);
    Ok(Size { columns, rows, width: fields.u32()?, height: fields.u32()? })
}

pub(super) fn put_open(out: &mut BytesMut, open: &Open) {
    match open {
        Open::Session(session) => {
            out.put_u8(0);
            put_session(out, session);
        }
        Open::Direct { to, from: (host, port) } => {
            out.put_u8(1);
            put_endpoint(out, to);
            out.text(host);
            out.put_u16(*port);
        }
        Open::Forwarded { at, from: (host, port) } => {
            out.put_u8(2);
            put_endpoint(out, at);
            out.text(host);
            out.put_u16(*port);
        }
        Open::Agent => out.put_u8(3),
        Open::X11 { from: (host, port) } => {
            out.put_u8(4);
            out.text(host);
            out.put_u16(*port);
        }
    }
}

pub(super) fn open(fields: &mut Reader<'_>) -> Result<Open, Unreadable> {
    let from = |fields: &mut Reader<'_>| Ok((fields.text()?, fields.u16()?));
    Ok(match fields.u8()? {
        0 => Open::Session(Box::new(session(fields)?)),
        1 => Open::Direct { to: endpoint(fields)?, from: from(fields)? },
        2 => Open::Forwarded { at: endpoint(fields)?, from: from(fields)? },
        3 => Open::Agent,
        4 => Open::X11 { from: from(fields)? },
        _ => return Err(Unreadable),
    })
}

pub(super) fn put_session(out: &mut BytesMut, session: &SessionRequest) {
    match &session.program {
        Program::Shell => out.put_u8(0),
        Program::Exec(line) => {
            out.put_u8(1);
            Write::bytes(out, line);
        }
        Program::Subsystem(name) => {
            out.put_u8(2);
            out.text(name);
        }
    }
    out.flag(session.terminal.is_some());
    if let Some(Terminal { term, size, modes }) = &session.terminal {
        out.text(term);
        put_size(out, *size);
        out.count(modes.len());
        for (code, value) in modes.iter().take(usize::from(u16::MAX)) {
            out.put_u8(*code);
            out.put_u32(*value);
        }
    }
    out.count(session.environment.len());
    for (name, value) in session.environment.iter().take(usize::from(u16::MAX)) {
        out.text(name);
        out.text(value);
    }
    out.flag(session.forward_agent);
    out.flag(session.display.is_some());
    if let Some(DisplayOffer { single, protocol, cookie, screen }) = &session.display {
        out.flag(*single);
        out.text(protocol);
        out.text(cookie);
        out.put_u32(*screen);
    }
}

pub(super) fn session(fields: &mut Reader<'_>) -> Result<SessionRequest, Unreadable> {
    let program = match fields.u8()? {
        0 => Program::Shell,
        1 => Program::Exec(fields.bytes()?.to_owned()),
        2 => Program::Subsystem(fields.text()?),
        _ => return Err(Unreadable),
    };
    let terminal = match fields.flag()? {
        true => {
            let (term, size) = (fields.text()?, size(fields)?);
            let modes = fields.list(MOST_ITEMS, |fields| Ok((fields.u8()?, fields.u32()?)))?;
            Some(Terminal { term, size, modes })
        }
        false => None,
    };
    let environment = fields.list(MOST_ITEMS, |fields| Ok((fields.text()?, fields.text()?)))?;
    let forward_agent = fields.flag()?;
    let display = match fields.flag()? {
        true => {
            let (single, protocol) = (fields.flag()?, fields.text()?);
            Some(DisplayOffer { single, protocol, cookie: fields.text()?, screen: fields.u32()? })
        }
        false => None,
    };
    Ok(SessionRequest { program, terminal, environment, forward_agent, display })
}
