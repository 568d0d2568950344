//! Addresses that mean another machine to each machine that dials them, or a service of its cloud: a registered server is
//! dialled there only where an administrator has written the address itself, and never because a name resolves to it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where clouds answer their machines' questions, past the link-local ones: Amazon's and Google's by IPv6, Alibaba's, Azure's,
/// Oracle's.
const METADATA: [IpAddr; 5] = [
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x0254)),
    IpAddr::V6(Ipv6Addr::new(0xfd20, 0x00ce, 0, 0, 0, 0, 0, 0x0254)),
    IpAddr::V4(Ipv4Addr::new(100, 100, 100, 200)),
    IpAddr::V4(Ipv4Addr::new(168, 63, 129, 16)),
    IpAddr::V4(Ipv4Addr::new(192, 0, 0, 192)),
];

/// What sets an address apart; none where it means the same machine to all.
pub(crate) fn apart(ip: IpAddr) -> Option<&'static str> {
    let ip = carried(ip);
    if METADATA.contains(&ip) {
        return Some("a cloud's metadata service");
    }
    match ip {
        IpAddr::V4(ip) => match ip.octets() {
            _ if ip.is_loopback() => Some("the loopback address of the machine that dials it"),
            [169, 254, ..] => Some("a link-local address, where clouds have their metadata"),
            [0, ..] => Some("the unspecified address, which is the machine that dials it"),
            _ if ip.is_multicast() || ip.is_broadcast() => Some("an address of many machines"),
            _ => None,
        },
        IpAddr::V6(ip) => match ip.segments() {
            _ if ip.is_loopback() => Some("the loopback address of the machine that dials it"),
            _ if ip.is_unspecified() => Some("the unspecified address, which is the machine that dials it"),
            _ if ip.is_unicast_link_local() => Some("a link-local address"),
            _ if ip.is_multicast() => Some("an address of many machines"),
            _ => None,
        },
    }
}

/// The same for a host as it is written: an address, or a name that always means the machine itself (RFC 6761 §6.3).
pub(crate) fn written_apart(host: &str) -> Option<&'static str> {
    match host.parse() {
        Ok(ip) => apart(ip),
        Err(_) => is_localhost(host).then_some("the machine that dials it"),
    }
}

/// Whether the name is `localhost` or below it.
pub(super) fn is_localhost(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    host == "localhost" || host.ends_with(".localhost")
}

/// The IPv4 address that an IPv6 one leads to: mapped (RFC 4291 §2.5.5), translated (RFC 6052 §2.1), or by 6to4 (RFC 3056 §2).
fn carried(ip: IpAddr) -> IpAddr {
    let ip = match ip.to_canonical() {
        IpAddr::V6(ip) => ip,
        ip => return ip,
    };
    let embedded = |high: u16, low: u16| {
        let ([a, b], [c, d]) = (high.to_be_bytes(), low.to_be_bytes());
        IpAddr::V4(Ipv4Addr::new(a, b, c, d))
    };
    match ip.segments() {
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x2002, high, low, ..] => embedded(high, low),
        // The deprecated form; ::1 and :: are none of it.
        [0, 0, 0, 0, 0, 0, high, low] if high != 0 => embedded(high, low),
        _ => IpAddr::V6(ip),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_set_apart_in_every_form() {
        for text in [
            "127.0.0.1",
            "127.8.9.10",
            "::1",
            "0.0.0.0",
            "0.1.2.3",
            "::",
            "169.254.169.254",
            "169.254.1.1",
            "fe80::1",
            "febf::1",
            "fd00:ec2::254",
            "fd20:ce::254",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "224.0.0.1",
            "255.255.255.255",
            "ff02::1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::127.0.0.1",
            "64:ff9b::7f00:1",
            "64:ff9b::a9fe:a9fe",
            "2002:7f00:1::",
        ] {
            assert!(apart(text.parse().unwrap()).is_some(), "{text}");
        }
        for text in [
            "10.0.0.5",
            "192.168.1.1",
            "100.100.100.201",
            "fd00::1",
            "2001:db8::1",
            "64:ff9b::a00:5",
            "fec0::1",
        ] {
            assert_eq!(apart(text.parse().unwrap()), None, "{text}");
        }
    }

    #[test]
    fn names_of_the_machine_itself_count_as_written() {
        for host in ["localhost", "LOCALHOST", "localhost.", "db.localhost", "127.0.0.1", "::1"] {
            assert!(written_apart(host).is_some(), "{host}");
        }
        for host in ["localhost.example", "notlocalhost", "10.0.0.1", "db.example.com"] {
            assert_eq!(written_apart(host), None, "{host}");
        }
    }
}
