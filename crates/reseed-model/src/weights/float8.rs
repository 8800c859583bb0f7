//! Floats of eight bits: a sign, four bits of exponent, three of mantissa, no infinities.

/// The value of an e4m3 byte; 0x7F and 0xFF are no numbers.
pub fn e4m3(byte: u8) -> f32 {
    let sign = if byte & 0x80 == 0 { 1.0 } else { -1.0 };
    let (exponent, mantissa) = (i32::from(byte >> 3 & 15), f32::from(byte & 7));
    sign * match (exponent, mantissa) {
        (15, 7.0) => f32::NAN,
        (0, m) => m * 2f32.powi(-9),
        (e, m) => (1.0 + m / 8.0) * 2f32.powi(e - 7),
    }
}

#[cfg(test)]
mod tests {
    use super::e4m3;

    #[test]
    fn every_byte_is_the_number_it_should_be() {
        let known =
            [(0x00, 0.0), (0x01, 0.001953125), (0x07, 0.013671875), (0x08, 0.015625), (0x38, 1.0), (0x3F, 1.875)];
        let more = [(0x40, 2.0), (0x7E, 448.0), (0xB8, -1.0), (0xFE, -448.0), (0x31, 0.5625), (0x5B, 22.0)];
        assert!(known.iter().chain(&more).all(|&(byte, value)| e4m3(byte) == value));
        assert!(e4m3(0x7F).is_nan() && e4m3(0xFF).is_nan() && e4m3(0x80).is_sign_negative());
        // The numbers of one sign are in the order of their bytes.
        assert!((0..0x7E).all(|byte| e4m3(byte) < e4m3(byte + 1)));
    }
}
