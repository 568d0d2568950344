//! A packet of the lab's WAN: nothing is read past its end, and bytes behind it change nothing.

use sallyport_lab::wan::Packet;

fuzz_target!(|data: &[u8]| {
    let Some(packet) = Packet::parse(data) else { return };
    assert!(packet.payload() <= data.len());
    // The header says how long it is; what a device pads is not part of it.
    let said = match data {
        [first, _, high, low, ..] if first >> 4 == 4 => usize::from(u16::from_be_bytes([*high, *low])),
        [_, _, _, _, high, low, ..] => 40 + usize::from(u16::from_be_bytes([*high, *low])),
        _ => return,
    };
    if said <= data.len() {
        let padded = [data, &[0xff; 9]].concat();
        assert_eq!(Packet::parse(&padded), Some(packet));
        assert_eq!(Packet::parse(&data[..said]), Some(packet));
    }
});
