//! Seeded pseudo-random numbers.
//!
//! Owns splitmix64 (Steele, Lea, Flood 2014): one addition and three mixing steps per number, a
//! period of 2^64, and no bad seeds. It is short and will never change. It is not suitable for
//! cryptography.

/// A splitmix64 generator.
///
/// ```
/// use largefolio_trace::generate::Rng;
/// let mut rng = Rng::new(0); // the published first number of seed 0
/// assert_eq!(rng.next(), 0xe220_a839_7b1d_cdaf);
/// ```
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// Creates a generator with this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next number, uniform over 64 bits.
    pub const fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.state ^ self.state >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0, from the high half of a product.
    ///
    /// The error of a number's probability is at most `bound / 2^64`, which is negligible for page
    /// counts.
    pub const fn below(&mut self, bound: u64) -> u64 {
        ((self.next() as u128 * bound as u128) >> 64) as u64
    }

    /// Returns a rank below `bound` with a probability proportional to 1/rank (Zipf's law, exponent
    /// 1).
    ///
    /// Draws an octave of ranks, then a rank inside it. All octaves `[2^k, 2^(k+1))` are equally
    /// likely, so the probability is 1/rank within a factor of two, without floats. Ranks beyond
    /// `bound` in the last octave are drawn again.
    ///
    /// ```
    /// use largefolio_trace::generate::Rng;
    /// let mut rng = Rng::new(1);
    /// let nr_first = (0..1000).filter(|_| rng.zipf(1023) == 0).count();
    /// assert!((70..130).contains(&nr_first)); // ten octaves: one in ten is the first rank
    /// ```
    pub fn zipf(&mut self, bound: u64) -> u64 {
        if bound <= 1 {
            return 0;
        }
        let nr_octaves = u64::from(bound.ilog2()) + 1;
        loop {
            let octave = 1 << self.below(nr_octaves);
            let rank = octave + self.below(octave) - 1;
            if rank < bound {
                return rank;
            }
        }
    }

    /// Shuffles `items`; every order is equally likely (Fisher and Yates).
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            let other = self.below(last as u64 + 1);
            items.swap(last, usize::try_from(other).unwrap_or(last));
        }
    }
}
