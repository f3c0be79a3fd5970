//! Name patterns.

/// Returns whether `pattern` is part of `name`. With `*` it must match the whole name.
pub(super) fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let (Some(first), Some(last)) = (parts.next(), parts.next_back()) else {
        return name.contains(pattern);
    };
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::fits;

    #[test]
    fn a_star_stands_for_anything_and_without_one_a_part_is_enough() {
        let name = "xfs_ra128_r_plain_seq_s0";
        for pattern in ["plain_seq", "", "xfs*", "*_s0", "xfs*plain*s0", "*", "*r_plain*"] {
            assert!(fits(pattern, name), "{pattern}");
        }
        for pattern in ["ext4", "ext4*", "*_s1", "xfs*rand*", "xfs_ra128_r_plain_seq_s0*0"] {
            assert!(!fits(pattern, name), "{pattern}");
        }
    }
}
