//! What is read of a packet: whence and whither, and what of TCP or UDP tells round trips apart.
//!
//! Bytes come from programs that run in the WAN. What is not understood of them is nothing.

use std::net::{IpAddr, SocketAddr};

use etherparse::{
    IpAuthHeaderSlice, IpNumber, Ipv6FragmentHeaderSlice, Ipv6RawExtHeaderSlice, LaxIpSlice, TcpSlice,
    UdpSlice,
};

/// A packet of QUIC with a short header (RFC 9000 §17.3.1): the first byte, an identifier of 8 bytes, a number and 16 bytes of
/// tag. An acknowledgement of one range fits beside them; the shortest data of HTTP/2, a frame's header in a stream's frame,
/// does not.
const QUIC_BARE_BYTES: usize = 37;

/// The fixed header of IPv6 (RFC 8200 §3).
const IPV6_HEADER_BYTES: usize = 40;

/// One IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Packet {
    /// Whence.
    pub source: IpAddr,
    /// Whither.
    pub destination: IpAddr,
    /// What it carries.
    pub carries: Carries,
}

/// What a packet carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Carries {
    /// A segment of TCP.
    Tcp(Segment),
    /// A datagram of UDP.
    Udp {
        /// The sender's port.
        source_port: u16,
        /// The receiver's port.
        destination_port: u16,
        /// Bytes of payload.
        payload: usize,
        /// It looks like a packet of QUIC that has room for an acknowledgement and not for data.
        bare: bool,
    },
    /// Another protocol, a later fragment, or one that is cut off.
    Other {
        /// The protocol's number (IANA); 0 where the packet ends before it.
        protocol: u8,
    },
}

/// What is read of a segment of TCP (RFC 9293 §3.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Segment {
    /// The sender's port.
    pub source_port: u16,
    /// The receiver's port.
    pub destination_port: u16,
    /// The number of its first byte.
    pub sequence: u32,
    /// The number of the byte that is expected next, where there is one.
    pub acknowledged: Option<u32>,
    /// It begins a connection.
    pub syn: bool,
    /// It ends one direction.
    pub fin: bool,
    /// It breaks the connection off.
    pub reset: bool,
    /// Bytes of payload.
    pub payload: usize,
}

impl Segment {
    /// The number after its last byte; beginning and end count as one byte each (RFC 9293 §3.4).
    #[must_use]
    pub fn next_sequence(&self) -> u32 {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "sequence numbers wrap; a packet has at most 64 KiB"
        )]
        let payload = self.payload as u32;
        self.sequence
            .wrapping_add(payload)
            .wrapping_add(u32::from(self.syn))
            .wrapping_add(u32::from(self.fin))
    }
}

impl Packet {
    /// Reads a packet as a TUN device gives it: it begins with the header of IP. None when that is not whole. A packet that
    /// was cut off is as long as what is there of it.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let (ip, _) = LaxIpSlice::from_slice(within(bytes)?).ok()?;
        let rest = ip.payload();
        let protocol = rest.ip_number;
        // Only the first fragment has the ports.
        let other = later_fragment(&ip).map(|protocol| Carries::Other { protocol: protocol.0 });
        let carries = other
            .or_else(|| carried(protocol, rest.payload))
            .unwrap_or(Carries::Other { protocol: protocol.0 });
        Some(Self { source: ip.source_addr(), destination: ip.destination_addr(), carries })
    }

    /// Both ends, where it has ports.
    #[must_use]
    pub fn ends(&self) -> Option<(SocketAddr, SocketAddr)> {
        let (source, destination) = match self.carries {
            Carries::Tcp(segment) => (segment.source_port, segment.destination_port),
            Carries::Udp { source_port, destination_port, .. } => (source_port, destination_port),
            Carries::Other { .. } => return None,
        };
        Some((SocketAddr::new(self.source, source), SocketAddr::new(self.destination, destination)))
    }

    /// Whether it has a payload that can be a program's data.
    #[must_use]
    pub fn says_something(&self) -> bool {
        self.payload() > 0 && !matches!(self.carries, Carries::Udp { bare: true, .. })
    }

    /// Bytes of payload of TCP or UDP.
    #[must_use]
    pub fn payload(&self) -> usize {
        match self.carries {
            Carries::Tcp(segment) => segment.payload,
            Carries::Udp { payload, .. } => payload,
            Carries::Other { .. } => 0,
        }
    }
}

/// The packet without what a device pads behind it, as its header says. The library takes a length of 0 for one that it is to find
/// out; a device gives none such. None for one that is shorter than its header.
fn within(bytes: &[u8]) -> Option<&[u8]> {
    let length = match *bytes {
        [first, _, high, low, ..] if first >> 4 == 4 => {
            let length = usize::from(u16::from_be_bytes([high, low]));
            (length >= usize::from(first & 0xf) * 4).then_some(length)?
        }
        [_, _, _, _, high, low, ..] => IPV6_HEADER_BYTES + usize::from(u16::from_be_bytes([high, low])),
        _ => return None,
    };
    Some(bytes.get(..length).unwrap_or(bytes))
}

/// What a fragment behind the first one is of: the protocol of IPv4's header, or IPv6's fragment header itself.
fn later_fragment(ip: &LaxIpSlice<'_>) -> Option<IpNumber> {
    match ip {
        LaxIpSlice::Ipv4(v4) => {
            (v4.header().fragments_offset().value() > 0).then_some(v4.payload().ip_number)
        }
        LaxIpSlice::Ipv6(v6) => {
            later_fragment_of_ipv6(v6.extensions().first_header()?, v6.extensions().slice())
        }
    }
}

/// The same of a chain of extension headers, each read with a check: the library's own iterator takes the first of a chain that is
/// cut off for whole, and reads past its end (etherparse 0.21.0).
fn later_fragment_of_ipv6(mut next: IpNumber, mut chain: &[u8]) -> Option<IpNumber> {
    loop {
        let length = match next {
            IpNumber::IPV6_FRAGMENTATION_HEADER => {
                let header = Ipv6FragmentHeaderSlice::from_slice(chain).ok()?;
                if header.fragment_offset().value() > 0 {
                    return Some(next);
                }
                next = header.next_header();
                header.slice().len()
            }
            IpNumber::AUTHENTICATION_HEADER => {
                let header = IpAuthHeaderSlice::from_slice(chain).ok()?;
                next = header.next_header();
                header.slice().len()
            }
            other if Ipv6RawExtHeaderSlice::header_type_supported(other) => {
                let header = Ipv6RawExtHeaderSlice::from_slice(chain).ok()?;
                next = header.next_header();
                header.slice().len()
            }
            _ => return None,
        };
        chain = chain.get(length..)?;
    }
}

fn carried(protocol: IpNumber, bytes: &[u8]) -> Option<Carries> {
    match protocol {
        IpNumber::TCP => {
            let segment = TcpSlice::from_slice(bytes).ok()?;
            Some(Carries::Tcp(Segment {
                source_port: segment.source_port(),
                destination_port: segment.destination_port(),
                sequence: segment.sequence_number(),
                acknowledged: segment.ack().then(|| segment.acknowledgment_number()),
                syn: segment.syn(),
                fin: segment.fin(),
                reset: segment.rst(),
                payload: segment.payload().len(),
            }))
        }
        IpNumber::UDP => {
            let datagram = UdpSlice::from_slice_lax(bytes).ok()?;
            let payload = datagram.payload();
            // The form of the header, and the bit that is always set.
            let is_short = payload.first().is_some_and(|first| first & 0xc0 == 0x40);
            Some(Carries::Udp {
                source_port: datagram.source_port(),
                destination_port: datagram.destination_port(),
                payload: payload.len(),
                bare: is_short && (25..=QUIC_BARE_BYTES).contains(&payload.len()),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    const TCP: u8 = IpNumber::TCP.0;
    const UDP: u8 = IpNumber::UDP.0;

    /// A packet of TCP over IPv4, as a kernel would send it, checksums aside.
    pub(in crate::wan) fn tcp(
        from: &str,
        to: &str,
        flags: u8,
        numbers: (u32, u32),
        payload: usize,
    ) -> Vec<u8> {
        let (from, to): (SocketAddr, SocketAddr) = (from.parse().unwrap(), to.parse().unwrap());
        let mut segment = Vec::new();
        segment.extend(from.port().to_be_bytes());
        segment.extend(to.port().to_be_bytes());
        segment.extend(numbers.0.to_be_bytes());
        segment.extend(numbers.1.to_be_bytes());
        // Eight words: twelve bytes of options, as Linux sends them.
        segment.extend([0x80, flags, 0xff, 0xff, 0, 0, 0, 0]);
        segment.extend([1; 12]);
        segment.extend(vec![b'x'; payload]);
        ip(from.ip(), to.ip(), TCP, &segment)
    }

    fn ip(from: IpAddr, to: IpAddr, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let mut bytes = Vec::new();
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                let total = u16::try_from(20 + payload.len()).unwrap().to_be_bytes();
                bytes.extend([0x45, 0, total[0], total[1], 0, 0, 0x40, 0, 64, protocol, 0, 0]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                let length = u16::try_from(payload.len()).unwrap().to_be_bytes();
                bytes.extend([0x60, 0, 0, 0, length[0], length[1], protocol, 64]);
                bytes.extend(from.octets());
                bytes.extend(to.octets());
            }
            _ => panic!("two versions"),
        }
        bytes.extend(payload);
        bytes
    }

    fn segment(bytes: &[u8]) -> Segment {
        match Packet::parse(bytes).unwrap().carries {
            Carries::Tcp(segment) => segment,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn segments_of_both_versions_are_read() {
        let read = segment(&tcp("10.0.0.1:40000", "10.0.0.2:22", 0x18, (7, 9), 21));
        assert_eq!((read.source_port, read.destination_port), (40000, 22));
        assert_eq!((read.sequence, read.acknowledged, read.payload), (7, Some(9), 21));
        assert!(!read.syn && !read.fin && !read.reset);
        assert_eq!(read.next_sequence(), 28);
        let read = segment(&tcp("[fd00::1]:40000", "[fd00::2]:22", 0x02, (u32::MAX, 0), 0));
        assert!(read.syn && read.acknowledged.is_none());
        assert_eq!(read.next_sequence(), 0, "numbers wrap");
        let packet = Packet::parse(&tcp("[fd00::1]:4", "[fd00::2]:22", 0x11, (1, 1), 0)).unwrap();
        assert_eq!(packet.ends().unwrap().1.to_string(), "[fd00::2]:22");
    }

    #[test]
    fn options_padding_and_extension_headers_are_passed() {
        // Four bytes of options of IPv4, and padding behind the packet.
        let mut bytes = tcp("10.0.0.1:1", "10.0.0.2:2", 0x10, (1, 2), 5);
        bytes[0] = 0x46;
        let total = u16::try_from(bytes.len() + 4).unwrap().to_be_bytes();
        bytes[2..4].copy_from_slice(&total);
        bytes.splice(20..20, [1, 1, 1, 1]);
        bytes.extend([0; 6]);
        assert_eq!(segment(&bytes).payload, 5);
        // Destination options, then the first fragment.
        let plain = tcp("[fd00::1]:1", "[fd00::2]:2", 0x10, (1, 2), 5);
        let mut behind = vec![44, 0, 1, 4, 0, 0, 0, 0, TCP, 0, 0, 1, 0, 0, 0, 9];
        behind.extend(&plain[40..]);
        let (from, to) = ("fd00::1".parse().unwrap(), "fd00::2".parse().unwrap());
        assert_eq!(segment(&ip(from, to, 60, &behind)).payload, 5);
        // A later fragment has no ports.
        behind[10..12].copy_from_slice(&[0x05, 0xa8]);
        let later = Packet::parse(&ip(from, to, 60, &behind)).unwrap();
        assert_eq!((later.carries, later.ends()), (Carries::Other { protocol: 44 }, None));
    }

    #[test]
    fn datagrams_and_others_are_told_apart() {
        let (from, to) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let datagram = [0x12, 0x34, 0, 53, 0, 12, 0, 0, 1, 2, 3, 4];
        let read = Packet::parse(&ip(from, to, UDP, &datagram)).unwrap();
        assert_eq!(
            read.carries,
            Carries::Udp { source_port: 0x1234, destination_port: 53, payload: 4, bare: false }
        );
        // Of QUIC, what has room for data, and what has none.
        for (first, length, bare) in
            [(0x40, 34, true), (0x7f, 37, true), (0x40, 38, false), (0xc0, 34, false), (0x07, 34, false)]
        {
            let mut datagram = vec![0x12, 0x34, 0, 53, 0, 8 + length, 0, 0];
            datagram.extend(std::iter::once(first).chain(std::iter::repeat_n(0, usize::from(length) - 1)));
            let read = Packet::parse(&ip(from, to, UDP, &datagram)).unwrap();
            assert_eq!(read.says_something(), !bare, "{first:#x}, {length}");
        }
        assert_eq!(Packet::parse(&ip(from, to, 1, &[8, 0])).unwrap().carries, Carries::Other { protocol: 1 });
        let cut = Packet::parse(&ip(from, to, TCP, &[0; 12])).unwrap();
        assert_eq!(cut.carries, Carries::Other { protocol: TCP });
        for nothing in [&[][..], &[0x45], &[0x45; 19], &[0x60; 39], &[0x10; 60]] {
            assert_eq!(Packet::parse(nothing), None);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_reaching_past_them(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(packet) = Packet::parse(&bytes) {
                prop_assert!(packet.payload() <= bytes.len());
            }
        }

        #[test]
        fn a_whole_packet_is_read_whole_and_a_cut_one_never_longer(
            payload in 0_usize..1400, flags: u8, numbers: (u32, u32), six: bool, cut in 0_usize..1500,
        ) {
            let (from, to) = if six { ("[fd00::1]:7", "[fd00::2]:8") } else { ("10.0.0.1:7", "10.0.0.2:8") };
            let bytes = tcp(from, to, flags, numbers, payload);
            let read = segment(&bytes);
            prop_assert_eq!((read.payload, read.sequence), (payload, numbers.0));
            prop_assert_eq!(read.acknowledged, (flags & 0x10 != 0).then_some(numbers.1));
            if let Some(packet) = Packet::parse(&bytes[..cut.min(bytes.len())]) {
                prop_assert!(packet.payload() <= payload);
            }
        }
    }
}
