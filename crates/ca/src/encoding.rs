//! The three signature encodings of ECDSA, and the strings of the SSH wire format.

/// Appends a `string` (RFC 4251 §5). Everything that is signed here is far below the 4 GiB limit.
pub(crate) fn put_string(out: &mut Vec<u8>, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(bytes);
}

/// The DER of an ECDSA signature (RFC 3279 §2.2.3) as the two `mpint` of SSH (RFC 5656 §3.1.2). Both write integers in
/// two's complement, so only the framing differs.
pub(crate) fn ecdsa_der_to_ssh(der: &[u8]) -> Option<Vec<u8>> {
    let (sequence, rest) = take_der(der, 0x30)?;
    let (r, tail) = take_der(sequence, 0x02)?;
    let (s, end) = take_der(tail, 0x02)?;
    if !rest.is_empty() || !end.is_empty() {
        return None;
    }
    let mut out = Vec::with_capacity(der.len() + 4);
    put_string(&mut out, r);
    put_string(&mut out, s);
    Some(out)
}

/// The reverse of [`ecdsa_der_to_ssh`].
pub(crate) fn ecdsa_ssh_to_der(ssh: &[u8]) -> Option<Vec<u8>> {
    let (r, rest) = take_string(ssh)?;
    let (s, end) = take_string(rest)?;
    if !end.is_empty() {
        return None;
    }
    let mut body = Vec::with_capacity(ssh.len());
    for integer in [r, s] {
        body.push(0x02);
        put_der_length(&mut body, integer)?;
        body.extend_from_slice(integer);
    }
    let mut der = vec![0x30];
    put_der_length(&mut der, &body)?;
    der.extend_from_slice(&body);
    Some(der)
}

/// The DER of an ECDSA signature as JOSE has it (RFC 7518 §3.4): `r` and `s` as two numbers of `bytes` bytes each.
pub(crate) fn ecdsa_der_to_jose(der: &[u8], bytes: usize) -> Option<Vec<u8>> {
    let ssh = ecdsa_der_to_ssh(der)?;
    let (r, rest) = take_string(&ssh)?;
    let (s, _) = take_string(rest)?;
    let mut out = Vec::with_capacity(2 * bytes);
    for integer in [r, s] {
        // Two's complement: a number whose top bit is set has a zero byte before it, which JOSE does not.
        let digits = match integer {
            [0, digits @ ..] => digits,
            digits => digits,
        };
        out.resize(out.len() + bytes.checked_sub(digits.len())?, 0);
        out.extend_from_slice(digits);
    }
    Some(out)
}

/// The reverse of [`ecdsa_der_to_jose`].
pub(crate) fn ecdsa_jose_to_der(jose: &[u8], bytes: usize) -> Option<Vec<u8>> {
    if jose.len() != 2 * bytes {
        return None;
    }
    let mut ssh = Vec::with_capacity(jose.len() + 10);
    let (r, s) = jose.split_at(bytes);
    for number in [r, s] {
        let digits = number.iter().position(|byte| *byte != 0).and_then(|start| number.get(start..))?;
        match digits {
            [0x80..=0xff, ..] => put_string(&mut ssh, &[&[0], digits].concat()),
            _ => put_string(&mut ssh, digits),
        }
    }
    ecdsa_ssh_to_der(&ssh)
}

/// A length in DER (X.690 §8.1.3), of at most 255 bytes: a signature on P-521 has up to 139.
fn put_der_length(out: &mut Vec<u8>, bytes: &[u8]) -> Option<()> {
    match u8::try_from(bytes.len()).ok()? {
        0 => return None,
        short @ 1..=0x7f => out.push(short),
        long => out.extend_from_slice(&[0x81, long]),
    }
    Some(())
}

fn take_der(input: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let (length, rest) = match input {
        [found, short @ 1..=0x7f, rest @ ..] if *found == tag => (short, rest),
        [found, 0x81, long @ 0x80..=0xff, rest @ ..] if *found == tag => (long, rest),
        _ => return None,
    };
    rest.split_at_checked(usize::from(*length))
}

pub(crate) fn take_string(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = input.split_first_chunk::<4>()?;
    rest.split_at_checked(usize::try_from(u32::from_be_bytes(*length)).ok()?)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn the_numbers_of_jose_have_one_length() {
        for (r, s) in [([0x80; 32], [0x01; 32]), ([0x00; 32], [0xff; 32])] {
            let mut jose = [r, s].concat();
            jose[31] = 7;
            let der = ecdsa_jose_to_der(&jose, 32).unwrap();
            assert_eq!(ecdsa_der_to_jose(&der, 32).unwrap(), jose);
            assert!(ecdsa_der_to_jose(&der, 31).is_none(), "a number that is too long");
        }
        assert_eq!(ecdsa_jose_to_der(&[1; 63], 32), None);
        assert_eq!(ecdsa_jose_to_der(&[0; 64], 32), None, "zero is no signature");
    }

    #[test]
    fn ecdsa_signatures_change_dress_and_back() {
        // r has its top bit set and needs the leading zero, s is short.
        let mut der = vec![0x30, 2 + 33 + 2 + 31, 0x02, 33, 0x00];
        der.extend([0x80; 32]);
        der.extend([0x02, 31]);
        der.extend([0x11; 31]);
        let ssh = ecdsa_der_to_ssh(&der).unwrap();
        assert_eq!(ssh.len(), 4 + 33 + 4 + 31);
        assert_eq!(ecdsa_ssh_to_der(&ssh).unwrap(), der);
        for cut in 0..der.len() {
            assert_eq!(ecdsa_der_to_ssh(&der[..cut]), None, "cut at {cut}");
        }
        for cut in 0..ssh.len() {
            assert_eq!(ecdsa_ssh_to_der(&ssh[..cut]), None, "cut at {cut}");
        }
        assert_eq!(ecdsa_der_to_ssh(&[der.as_slice(), &[0]].concat()), None);
        assert_eq!(ecdsa_ssh_to_der(&[ssh.as_slice(), &[0]].concat()), None);
    }
}
