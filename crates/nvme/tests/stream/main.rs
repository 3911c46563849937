//! The receiver against every way a stream can be cut, read past, or broken.

mod errors;
mod feed;
mod sent;

use ashlar_nvme::pdu::{Digests, Framing, Role};
use ashlar_nvme::stream::{Header, Limits, Pdu, Receiver};
use feed::{Seen, opened, receive};
use proptest::prelude::*;
use sent::Sent;

fn expected(sent: &[Sent]) -> Vec<Seen> {
    let mut seen = Vec::new();
    for pdu in sent {
        let payload = pdu.payload();
        seen.push(Seen::Pdu(Pdu {
            header: pdu.header(),
            data_len: payload.len(),
        }));
        if !payload.is_empty() {
            seen.push(Seen::Payload(payload.to_vec()));
            seen.push(Seen::End(true));
        }
    }
    seen
}

fn bytes_of(sent: &[Sent], framing: Framing) -> Vec<u8> {
    let mut stream = Vec::new();
    for pdu in sent {
        pdu.write(&mut stream, framing);
    }
    stream
}

fn payload(range: std::ops::Range<usize>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), range)
}

fn to(role: Role) -> BoxedStrategy<Sent> {
    match role {
        Role::Controller => prop_oneof![
            payload(0..700).prop_map(Sent::Command),
            (payload(1..700), any::<u16>()).prop_map(|(data, ttag)| Sent::H2cData(data, ttag)),
            payload(0..129).prop_map(|header| Sent::TermReq(Role::Host, header)),
        ]
        .boxed(),
        Role::Host => prop_oneof![
            (payload(1..700), any::<bool>()).prop_map(|(data, last)| Sent::C2hData(data, last)),
            any::<u16>().prop_map(Sent::Response),
            (1..u32::MAX / 2).prop_map(Sent::R2t),
            payload(0..129).prop_map(|header| Sent::TermReq(Role::Controller, header)),
        ]
        .boxed(),
    }
}

fn framing() -> impl Strategy<Value = Framing> {
    (0u8..4, 0u8..32).prop_map(|(bits, pda)| Framing {
        digests: Digests::from_bits(bits),
        pda,
    })
}

fn conversation() -> impl Strategy<Value = (Role, Vec<Sent>)> {
    prop_oneof![Just(Role::Controller), Just(Role::Host)]
        .prop_flat_map(|role| (Just(role), prop::collection::vec(to(role), 1..8)))
}

proptest! {
    #[test]
    fn any_cut_gives_the_same_steps(
        said in conversation(),
        framing in framing(),
        pieces in prop::collection::vec(1usize..400, 1..12),
        direct in any::<bool>(),
    ) {
        let (role, sent) = said;
        let stream = bytes_of(&sent, framing);
        let whole = receive(opened(role, framing), &stream, &[usize::MAX], false);
        prop_assert_eq!(&whole, &expected(&sent));
        let cut = receive(opened(role, framing), &stream, &pieces, direct);
        prop_assert_eq!(&cut, &whole);
        let bytewise = receive(opened(role, framing), &stream, &[1], direct);
        prop_assert_eq!(&bytewise, &whole);
    }

    #[test]
    fn a_flipped_bit_is_detected_with_both_digests(
        said in conversation(),
        pda in 0u8..4,
        at in any::<prop::sample::Index>(),
        bit in 0u8..8,
        pieces in prop::collection::vec(1usize..400, 1..12),
    ) {
        let (role, sent) = said;
        // Terminate requests carry no digest.
        let sent: Vec<Sent> =
            sent.into_iter().filter(|pdu| !matches!(pdu, Sent::TermReq(..))).collect();
        if sent.is_empty() {
            return Ok(());
        }
        let framing = Framing { digests: Digests::BOTH, pda };
        let mut stream = bytes_of(&sent, framing);
        let at = at.index(stream.len());
        stream[at] ^= 1 << bit;
        let seen = receive(opened(role, framing), &stream, &pieces, false);
        // Only padding is not covered by a digest, and then nothing may differ. A length that grew can
        // also leave the receiver waiting for more.
        let intact = expected(&sent);
        //
        // A flipped type can make a terminate request of a data PDU, and those carry no digest: it ends
        // the connection, which is detection enough.
        let ends = |s: &Seen| match s {
            Seen::Fatal(_) | Seen::End(false) => true,
            Seen::Pdu(pdu) => matches!(pdu.header, Header::H2cTermReq(_) | Header::C2hTermReq(_)),
            Seen::Payload(_) | Seen::End(true) => false,
        };
        let end = seen.iter().position(ends);
        prop_assert!(end.is_some() || seen == intact || seen.len() < intact.len());
        for (got, meant) in seen.iter().zip(&intact).take(end.unwrap_or(seen.len())) {
            // A header that comes through is the header that was sent.
            if let (Seen::Pdu(got), Seen::Pdu(meant)) = (got, meant) {
                prop_assert_eq!(got, meant);
            }
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_cuts_agree(
        noise in prop::collection::vec(any::<u8>(), 0..600),
        kind in 0u8..10,
        hlen in prop::sample::select(vec![24u8, 72, 128]),
        plen in 0u32..300,
        framing in framing(),
        host in any::<bool>(),
        open in any::<bool>(),
        pieces in prop::collection::vec(1usize..90, 1..8),
        direct in any::<bool>(),
    ) {
        let mut stream = vec![kind, framing.digests.bits(), hlen, hlen];
        stream.extend_from_slice(&plen.to_le_bytes());
        stream.extend_from_slice(&noise);
        let role = if host { Role::Host } else { Role::Controller };
        let fresh = || if open {
            opened(role, Framing { pda: 0, ..framing })
        } else {
            Receiver::new(role, Limits::default())
        };
        let whole = receive(fresh(), &stream, &[usize::MAX], false);
        let cut = receive(fresh(), &stream, &pieces, direct);
        prop_assert_eq!(whole, cut);
        let _ = receive(fresh(), &noise, &pieces, direct);
    }
}
