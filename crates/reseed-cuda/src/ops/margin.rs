//! Device memory that is left to other processes.

/// Bytes of free memory that tensors do not use where the user has set no limit: a fraction of the GPU's memory.
pub fn free_memory_margin(total: usize) -> usize {
    (total / 32).clamp(256 << 20, 1 << 30)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_margin_is_a_fraction_between_two_bounds() {
        let margin = |gib: usize| free_memory_margin(gib << 30) >> 20;
        assert_eq!([4, 8, 16, 24, 32, 80, 140].map(margin), [256, 256, 512, 768, 1024, 1024, 1024]);
    }
}
