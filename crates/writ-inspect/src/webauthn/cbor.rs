//! CBOR (RFC 8949) as far as authenticators write it: definite lengths, shortest forms, no tags, no floats.

/// The depth of nested values: an attestation needs two levels, extensions one more.
const MAX_DEPTH: u8 = 4;
/// The most values of one item, its own included: a key of COSE has ten, an attestation five.
const MAX_VALUES: usize = 64;

/// A value; what holds bytes borrows them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CborValue<'a> {
    Int(i64),
    Bytes(&'a [u8]),
    Text(&'a str),
    List(Vec<CborValue<'a>>),
    /// In the order in which they stand; no key twice.
    Map(Vec<(CborValue<'a>, CborValue<'a>)>),
    /// `false`, `true`, `null` and their relatives, by number.
    Simple(u8),
}

/// Bytes that are no CBOR of this kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NotCbor;

/// Reads one value; answers with it and with what follows it.
pub(super) fn read_value(bytes: &[u8]) -> Result<(CborValue<'_>, &[u8]), NotCbor> {
    let mut reader = CborReader { rest: bytes, values: MAX_VALUES };
    let value = reader.read_value(MAX_DEPTH)?;
    Ok((value, reader.rest))
}

struct CborReader<'a> {
    rest: &'a [u8],
    values: usize,
}

impl<'a> CborReader<'a> {
    fn take_bytes(&mut self, length: usize) -> Result<&'a [u8], NotCbor> {
        let (taken, rest) = self.rest.split_at_checked(length).ok_or(NotCbor)?;
        self.rest = rest;
        Ok(taken)
    }

    fn read_value(&mut self, depth: u8) -> Result<CborValue<'a>, NotCbor> {
        // Each value counts against one budget, so nesting cannot multiply the work.
        self.values = self.values.checked_sub(1).ok_or(NotCbor)?;
        // The depth is bounded as well, since reading is recursive.
        let depth = depth.checked_sub(1).ok_or(NotCbor)?;
        let [first] = self.take_bytes(1)? else { return Err(NotCbor) };
        let (major, low) = (first >> 5, first & 0x1f);
        if major == 7 {
            // 24 and above: longer forms, floats, and the end of what has no length.
            return if low < 24 { Ok(CborValue::Simple(low)) } else { Err(NotCbor) };
        }
        let number = self.read_number(low)?;
        // A length that no address can have is refused, and not truncated.
        let length = || usize::try_from(number).map_err(|_| NotCbor);
        match major {
            0 => i64::try_from(number).map(CborValue::Int).map_err(|_| NotCbor),
            // A negative number is stored as -1 minus itself, so this cannot overflow.
            1 => i64::try_from(number).map(|number| CborValue::Int(-1 - number)).map_err(|_| NotCbor),
            2 => Ok(CborValue::Bytes(self.take_bytes(length()?)?)),
            3 => std::str::from_utf8(self.take_bytes(length()?)?).map(CborValue::Text).map_err(|_| NotCbor),
            4 => {
                let length = self.fitting_count(length()?)?;
                (0..length).map(|_| self.read_value(depth)).collect::<Result<_, _>>().map(CborValue::List)
            }
            5 => self.read_map(length()?, depth),
            // Tags and other types have no place in an attestation.
            _ => Err(NotCbor),
        }
    }

    /// A number in its shortest form.
    fn read_number(&mut self, low: u8) -> Result<u64, NotCbor> {
        let bytes = match low {
            0..24 => return Ok(u64::from(low)),
            24 => 1,
            25 => 2,
            26 => 4,
            27 => 8,
            _ => return Err(NotCbor),
        };
        let number =
            self.take_bytes(bytes)?.iter().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
        let least = match low {
            24 => 24,
            25 => 1 << 8,
            26 => 1 << 16,
            _ => 1 << 32,
        };
        // Two encodings of one number would let two different byte strings mean the same.
        if number < least { Err(NotCbor) } else { Ok(number) }
    }

    /// A length that the bytes and bounds could hold: nothing is set aside for one that they could not.
    fn fitting_count(&self, length: usize) -> Result<usize, NotCbor> {
        if length <= self.values && length <= self.rest.len() { Ok(length) } else { Err(NotCbor) }
    }

    fn read_map(&mut self, length: usize, depth: u8) -> Result<CborValue<'a>, NotCbor> {
        let length = self.fitting_count(length)?;
        let mut pairs: Vec<(CborValue<'a>, CborValue<'a>)> = Vec::with_capacity(length);
        for _ in 0..length {
            let key = self.read_value(depth)?;
            // With a key twice, two readers could take different values.
            if pairs.iter().any(|(known, _)| *known == key) {
                return Err(NotCbor);
            }
            pairs.push((key, self.read_value(depth)?));
        }
        Ok(CborValue::Map(pairs))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        hex::decode(text).expect("hexadecimal")
    }

    #[test]
    fn the_examples_of_the_standard_are_read() {
        for (text, value) in [
            ("00", CborValue::Int(0)),
            ("17", CborValue::Int(23)),
            ("1818", CborValue::Int(24)),
            ("1903e8", CborValue::Int(1_000)),
            ("1a000f4240", CborValue::Int(1_000_000)),
            ("1b000000e8d4a51000", CborValue::Int(1_000_000_000_000)),
            ("20", CborValue::Int(-1)),
            ("3903e7", CborValue::Int(-1_000)),
            ("4401020304", CborValue::Bytes(&[1, 2, 3, 4])),
            ("6449455446", CborValue::Text("IETF")),
            ("820102", CborValue::List(vec![CborValue::Int(1), CborValue::Int(2)])),
            (
                "a201020304",
                CborValue::Map(vec![
                    (CborValue::Int(1), CborValue::Int(2)),
                    (CborValue::Int(3), CborValue::Int(4)),
                ]),
            ),
            ("a0", CborValue::Map(vec![])),
            ("f5", CborValue::Simple(21)),
        ] {
            assert_eq!(read_value(&hex(text)), Ok((value, &[][..])), "{text}");
        }
        assert_eq!(read_value(&hex("00ff")), Ok((CborValue::Int(0), &[0xff][..])), "what follows is left");
    }

    #[test]
    fn what_authenticators_do_not_write_is_refused() {
        for text in [
            "",                       // nothing
            "18",                     // cut
            "1817",                   // not the shortest form
            "190017",                 //
            "1a0000ffff",             //
            "1b00000000ffffffff",     //
            "1bffffffffffffffff",     // beyond what is counted with
            "5f42010243030405ff",     // no length
            "bf01020304ff",           //
            "9f0102ff",               //
            "c074323031332d30332d31", // a tag
            "f97e00",                 // a float
            "fb7ff8000000000000",     //
            "f820",                   // a longer simple value
            "ff",                     // an end without a beginning
            "44010203",               // too few bytes
            "62c328",                 // no UTF-8
            "a2010201",               // cut in a map
            "a201020104",             // the same key twice
            "a1",                     //
            "9bffffffffffffffff",     // a length that nothing holds
            "bb7fffffffffffffff",     //
            "5bffffffffffffffff",     //
            "8181818100",             // too deep
        ] {
            assert_eq!(read_value(&hex(text)), Err(NotCbor), "{text}");
        }
        assert!(read_value(&hex("81818100")).is_ok(), "as deep as it may be");
        let many = [&[0x98, 64][..], &[0; 64]].concat();
        assert_eq!(read_value(&many), Err(NotCbor), "too many");
        let fits = [&[0x98, 63][..], &[0; 63]].concat();
        assert!(read_value(&fits).is_ok());
    }

    /// What a length promises is in the bytes, and is no more than may come.
    #[test]
    fn nothing_is_set_aside_for_more_than_could_come() {
        let fits = |length, values, bytes: usize| {
            CborReader { rest: &[0; 9][..bytes], values }.fitting_count(length)
        };
        assert_eq!((fits(4, 4, 4), fits(0, 0, 0)), (Ok(4), Ok(0)));
        assert_eq!((fits(4, 3, 9), fits(4, 9, 3)), (Err(NotCbor), Err(NotCbor)));
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Ok((_, rest)) = read_value(&bytes) {
                prop_assert!(rest.len() < bytes.len());
            }
        }
    }
}
