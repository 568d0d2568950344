//! Whether an address is this machine's own.

use std::io;
use std::net::{IpAddr, SocketAddr, SocketAddrV6};

use rustix::io::Errno;
use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// Whether what connects to this address stays on this machine. Where the kernel does not say, it could.
pub(super) fn is_here(address: SocketAddr) -> bool {
    let ip = address.ip().to_canonical();
    if ip.is_loopback() || ip.is_unspecified() {
        return true;
    }
    stays(ip, interface(address)).unwrap_or_else(|error| {
        tracing::debug!(%error, %address, "cannot learn whether an address is this machine's own; taken for one");
        true
    })
}

/// The interface that an address names (RFC 4007 §11), or 0. As connect(2) takes it: of an address that is not link-local the scope
/// is passed over, whatever it says.
pub(super) fn interface(address: SocketAddr) -> u32 {
    match address {
        SocketAddr::V6(address) if address.ip().is_unicast_link_local() => address.scope_id(),
        SocketAddr::V4(_) | SocketAddr::V6(_) => 0,
    }
}

/// An address without a scope that is passed over.
pub(super) fn plain(address: SocketAddr) -> SocketAddr {
    match address {
        SocketAddr::V6(v6) => {
            SocketAddrV6::new(*v6.ip(), v6.port(), v6.flowinfo(), interface(address)).into()
        }
        SocketAddr::V4(_) => address,
    }
}

/// struct nlmsghdr (netlink(7)).
const HEADER_BYTES: usize = 16;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
const RTM_NEWROUTE: u16 = 24;
const RTM_GETROUTE: u16 = 26;
const RTA_DST: u16 = 1;
const RTA_OIF: u16 = 4;
/// Kinds of routes that end at this machine.
const RTN_LOCAL: u8 = 2;
const RTN_ANYCAST: u8 = 4;
/// Where the kind is in struct rtmsg (rtnetlink(7)).
const KIND_AT: usize = HEADER_BYTES + 7;

/// Asks the kernel for the route to an address, by this interface if it is not 0, and whether it ends here. Neither binding to
/// the address nor the interfaces' addresses tell: `ip_nonlocal_bind` lets any be bound, and a local route makes whole networks
/// this machine's that no interface has.
fn stays(ip: IpAddr, interface: u32) -> io::Result<bool> {
    // NETLINK_ROUTE is 0.
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    let kernel = SocketAddrNetlink::new(0, 0);
    rustix::net::sendto(&socket, &question(ip, interface), SendFlags::empty(), &kernel)?;
    // The kernel has answered when it has taken the question.
    let mut answer = [0; 4096];
    let (length, _) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::DONTWAIT)?;
    read(answer.get(..length).unwrap_or_default())
}

/// RTM_GETROUTE (rtnetlink(7)).
fn question(ip: IpAddr, interface: u32) -> Vec<u8> {
    let (family, bytes) = match ip {
        IpAddr::V4(ip) => (AddressFamily::INET, ip.octets().to_vec()),
        IpAddr::V6(ip) => (AddressFamily::INET6, ip.octets().to_vec()),
    };
    let family = u8::try_from(family.as_raw()).unwrap_or(0);
    let bits = if ip.is_ipv4() { 32 } else { 128 };
    // struct rtmsg: of the rest nothing is asked.
    let mut body = vec![family, bits, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    attribute(&mut body, RTA_DST, &bytes);
    if interface != 0 {
        attribute(&mut body, RTA_OIF, &interface.to_ne_bytes());
    }
    let length = u32::try_from(HEADER_BYTES + body.len()).unwrap_or(0);
    let mut message = length.to_ne_bytes().to_vec();
    message.extend_from_slice(&RTM_GETROUTE.to_ne_bytes());
    message.extend_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    // Its number and the asker's: there is one question on the socket.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&body);
    message
}

/// struct rtattr; every value here fills whole words.
fn attribute(message: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(0);
    message.extend_from_slice(&length.to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
}

fn read(answer: &[u8]) -> io::Result<bool> {
    let short =
        || io::Error::new(io::ErrorKind::InvalidData, "the kernel's answer about a route is too short");
    let kind =
        answer.get(4..6).and_then(|two| two.try_into().ok()).map(u16::from_ne_bytes).ok_or_else(short)?;
    match kind {
        RTM_NEWROUTE => {
            let route = answer.get(KIND_AT).ok_or_else(short)?;
            Ok(matches!(*route, RTN_LOCAL | RTN_ANYCAST))
        }
        NLMSG_ERROR => {
            let code = answer.get(HEADER_BYTES..HEADER_BYTES + 4).and_then(|four| four.try_into().ok());
            let code = i32::from_ne_bytes(code.ok_or_else(short)?);
            match Errno::from_raw_os_error(code.wrapping_neg()) {
                // There is no way there, nor here.
                Errno::NETUNREACH | Errno::HOSTUNREACH | Errno::NODEV => Ok(false),
                // A route of the kind blackhole or prohibit: connect(2) ends with the same.
                Errno::INVAL | Errno::ACCESS => Ok(false),
                error => Err(error.into()),
            }
        }
        other => {
            let problem = format!("the kernel answers a question about a route by message {other}");
            Err(io::Error::new(io::ErrorKind::InvalidData, problem))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use std::net::SocketAddrV6;
    use std::process::Command;

    use super::super::Apart;
    use super::*;

    /// Set in a network of the test's own.
    const WITHIN: &str = "SALLYPORT_TEST_NETWORK";
    const NETWORK: &str = "set -e
        sysctl -q -w net.ipv4.ip_nonlocal_bind=1 net.ipv6.ip_nonlocal_bind=1
        ip link set lo up
        ip link add one type veth peer name other
        ip link set one up; ip link set other up
        ip addr add 10.9.0.1/24 dev one
        ip addr add fe80::9/64 dev one nodad; ip addr add fd00::1/64 dev one nodad
        ip route add blackhole 10.66.0.0/16; ip route add prohibit 10.67.0.0/16
        ip route add local 10.77.0.0/16 dev lo; ip route add local fd77::/64 dev lo
        index() { ip -o link show \"$1\" | cut -d: -f1; }
        export SALLYPORT_TEST_INTERFACES=\"$(index one) $(index other)\"
        exec \"$@\"";

    fn at(address: &str) -> SocketAddr {
        SocketAddr::new(address.parse().unwrap(), 3023)
    }

    #[test]
    fn loopback_and_what_is_unspecified_are_the_machines_own_however_they_are_written() {
        for own in ["127.0.0.1", "127.9.9.9", "0.0.0.0", "::1", "::", "::ffff:127.0.0.1", "::ffff:0.0.0.0"] {
            assert!(is_here(at(own)), "{own}");
        }
        // Of RFC 5737 and RFC 3849: for documentation, and no machine's.
        for other in ["192.0.2.1", "::ffff:192.0.2.1", "2001:db8::1"] {
            assert!(!is_here(at(other)), "{other}");
        }
    }

    #[test]
    fn an_answer_that_says_nothing_is_an_error() {
        for answer in [&[][..], &[0; 5], &[0; 16], &[0, 0, 0, 0, 24, 0], &[0, 0, 0, 0, 2, 0, 1, 1]] {
            assert!(read(answer).is_err(), "{answer:?}");
        }
    }

    /// In a network of the test's own, in which any address can be bound.
    #[test]
    fn the_kernel_says_which_addresses_are_the_machines_own() {
        if std::env::var_os(WITHIN).is_some() {
            return within();
        }
        let mut own = Command::new("unshare");
        if !nix::unistd::geteuid().is_root() {
            own.arg("--map-root-user");
        }
        own.args(["--net", "sh", "-c", NETWORK, "sh"]).arg(std::env::current_exe().unwrap());
        own.args([
            "--exact",
            concat!(module_path!(), "::the_kernel_says_which_addresses_are_the_machines_own")
                .split_once("::")
                .unwrap()
                .1,
        ]);
        let ran = own.env(WITHIN, "1").output().unwrap();
        let said =
            format!("{}{}", String::from_utf8_lossy(&ran.stdout), String::from_utf8_lossy(&ran.stderr));
        assert!(ran.status.success() && said.contains("1 passed"), "{said}");
    }

    fn within() {
        let interfaces = std::env::var("SALLYPORT_TEST_INTERFACES").unwrap();
        let (one, other) = interfaces.split_once(' ').unwrap();
        let (one, other): (u32, u32) = (one.parse().unwrap(), other.parse().unwrap());
        let scoped = |address: &str, scope| {
            SocketAddr::V6(SocketAddrV6::new(address.parse().unwrap(), 3023, 0, scope))
        };
        // What binds says nothing here.
        std::net::UdpSocket::bind(("192.0.2.1", 0)).unwrap();
        for own in ["10.9.0.1", "::ffff:10.9.0.1", "10.77.3.4", "fd00::1", "fd77::9", "127.0.0.2", "::1"] {
            assert!(is_here(at(own)), "{own}");
        }
        for another in ["10.9.0.2", "::ffff:10.9.0.2", "10.9.0.255", "192.0.2.1", "fd00::2", "2001:db8::1"] {
            assert!(!is_here(at(another)), "{another}");
        }
        assert!(is_here(scoped("fe80::9", one)));
        assert!(!is_here(scoped("fe80::8", one)));
        assert!(!is_here(scoped("fe80::9", other)), "that is another machine's, on another link");
        assert!(!is_here(scoped("fe80::9", one + other + 1000)), "there is no such interface");
        // Only that of a link-local address counts when it is connected to.
        for scope in [one, other, one + other + 1000] {
            assert!(is_here(scoped("fd00::1", scope)) && is_here(scoped("fd77::9", scope)), "{scope}");
            assert!(!is_here(scoped("fd00::2", scope)), "{scope}");
        }
        assert!(!is_here(at("10.66.0.1")) && !is_here(at("10.67.0.1")), "nothing reaches those");

        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("[::]:0").await.unwrap();
            let port = listener.local_addr().unwrap().port();
            let own = Apart { named: Vec::new(), own_ports: vec![port] };
            let hosts = [
                "10.9.0.1",
                "10.77.0.1",
                "fe80::9%one",
                "fd00::1",
                "fd00::1%2",
                "fd00::1%99999",
                "::ffff:10.9.0.1",
            ];
            for host in hosts {
                // Without the setting it is reached.
                Apart::default().connect(host, port).await.unwrap();
                let refused = own.connect(host, port).await.unwrap_err();
                assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied, "{host}: {refused}");
            }
            // By a name of the cluster's, too, and another's link-local address is not taken for it.
            let named = Apart { named: vec![("fe80::9%one".to_owned(), port)], own_ports: Vec::new() };
            assert!(
                named.has(SocketAddr::V6(SocketAddrV6::new("fe80::9".parse().unwrap(), port, 0, one))).await
            );
            assert!(named.has(SocketAddr::new("10.9.0.1".parse().unwrap(), port)).await);
            assert!(
                !named
                    .has(SocketAddr::V6(SocketAddrV6::new("fe80::9".parse().unwrap(), port, 0, other)))
                    .await
            );
            let away = Apart { named: vec![("10.9.0.2".to_owned(), port)], own_ports: vec![port] };
            assert!(away.has(SocketAddr::new("::ffff:10.9.0.2".parse().unwrap(), port)).await);
            assert!(!away.has(SocketAddr::new("10.9.0.3".parse().unwrap(), port)).await);
        });
    }
}
