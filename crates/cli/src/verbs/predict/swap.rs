//! `--swap`: swap space, and zswap in front of it.
//!
//! zswap's settings are rules of the kernel, so they become edits of every kernel.

use std::fmt::Write as _;
use std::str::FromStr;

use largefolio_sim::size;

/// Largest ratio: a page of 64K compresses to 64 bytes at best.
const RATIO_MAX: f64 = 1024.0;

/// Swap space, and the edits of each kernel that come with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SwapSpace {
    pub(super) bytes: u64,
    pub(super) edits: String,
}

impl FromStr for SwapSpace {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(zswap) = text.strip_prefix("zswap:") else {
            return Ok(Self { bytes: size::swap(text)?, edits: String::new() });
        };
        let mut words = zswap.split(',');
        let bytes = size::swap(words.next().unwrap_or_default())
            .map_err(|expected| format!("zswap: needs a size; {expected}"))?;
        if bytes == 0 {
            return Err(
                "zswap stores pages that have a slot, so it needs swap space: zswap:1G".into()
            );
        }
        let mut edits = "+zswap=on".to_owned();
        let mut device = "disk";
        for word in words {
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            if name == "device" {
                device = one_of(value, ["disk", "zram"])?;
                continue;
            }
            let _ = write!(edits, "+zswap.{}", setting(name, value)?);
        }
        Ok(Self { bytes, edits: format!("+reclaim.swap_device={device}{edits}") })
    }
}

fn setting(name: &str, value: &str) -> Result<String, String> {
    Ok(match name {
        "pool" => format!("max_pool_percent={}", percent(value)?),
        "accept" => format!("accept_threshold_percent={}", percent(value)?),
        "ratio" => format!("ratio_percent={}", ratio_percent(value)?),
        "raw" => format!("incompressible_percent={}", percent(value)?),
        "max" => format!("group_max_bytes={}", size::swap(value)?),
        "writeback" => format!("writeback={}", one_of(value, ["on", "off"])? == "on"),
        _ => return Err(unknown()),
    })
}

fn unknown() -> String {
    "expected SIZE or zswap:SIZE, then any of pool=20%, accept=90%, ratio=3, raw=5%, max=64M, \
     writeback=off, device=zram"
        .to_owned()
}

fn percent(text: &str) -> Result<u32, String> {
    let number = text.strip_suffix('%').unwrap_or(text).parse().ok();
    let known = number.filter(|percent| *percent <= 100);
    known.ok_or_else(|| format!("expected a percentage, such as 20%, not {text:?}"))
}

/// Reads `2.5` as 250.
fn ratio_percent(text: &str) -> Result<u32, String> {
    let ratio = text.parse::<f64>().ok().filter(|ratio| (1.0..=RATIO_MAX).contains(ratio));
    let ratio =
        ratio.ok_or_else(|| format!("expected a ratio of 1 or more, such as 3, not {text:?}"))?;
    // At most 102400: exact.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "1 to 1024")]
    let percent = (ratio * 100.0).round() as u32;
    Ok(percent)
}

fn one_of<'a>(text: &str, known: [&'a str; 2]) -> Result<&'a str, String> {
    let found = known.into_iter().find(|word| *word == text);
    found.ok_or_else(|| format!("expected {} or {}, not {text:?}", known[0], known[1]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zswap_has_settings_and_swap_space_has_a_size() {
        let of = |text: &str| text.parse::<SwapSpace>().map(|swap| (swap.bytes, swap.edits));
        assert_eq!(of("1G"), Ok((1 << 30, String::new())));
        assert_eq!(of("zswap:1G"), Ok((1 << 30, "+reclaim.swap_device=disk+zswap=on".to_owned())));
        let (_, edits) = of("zswap:64M,pool=10%,ratio=2.5,writeback=off,device=zram").unwrap();
        assert_eq!(
            edits,
            "+reclaim.swap_device=zram+zswap=on+zswap.max_pool_percent=10\
             +zswap.ratio_percent=250+zswap.writeback=false"
        );
        assert!(
            of("zswap:64M,max=1M,raw=5")
                .unwrap()
                .1
                .ends_with("+zswap.group_max_bytes=1048576+zswap.incompressible_percent=5")
        );
        for wrong in ["zswap:", "zswap:0", "zswap:20%", "zswap:1G,ratio=0.5", "zswap:1G,pool=101"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
        assert!(of("zswap:1G,nothing=1").unwrap_err().contains("writeback=off"));
    }
}
