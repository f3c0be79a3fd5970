//! A logarithmic axis in powers of ten, and the ticks of both axes of a chart.

use super::markup::Markup;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Area {
    pub left: f64,
    pub right: f64,
    pub top: f64,
    pub bottom: f64,
}

/// The powers of ten that the values span, from the bottom of an area to its top. Zero is at the
/// bottom.
pub(crate) struct Decades {
    area: Area,
    low: i32,
    high: i32,
}

impl Decades {
    pub(crate) fn over(values: impl Iterator<Item = f64>, area: Area) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        if low > high {
            return Self { area, low: 0, high: 1 };
        }
        let (low, high) = (decade(low.floor()), decade(high.ceil()));
        Self { area, low, high: high.max(low + 1) }
    }

    pub(crate) fn y_of(&self, value: f64) -> f64 {
        if value <= 0.0 { self.area.bottom } else { self.y_of_log(value.log10()) }
    }

    fn y_of_log(&self, log10: f64) -> f64 {
        let part = (log10 - f64::from(self.low)) / f64::from(self.high - self.low);
        self.area.bottom - part.clamp(0.0, 1.0) * (self.area.bottom - self.area.top)
    }

    pub(crate) fn axis(&self) -> Markup {
        let Area { left, right, .. } = self.area;
        let mut axis = Markup::new();
        for decade in self.low..=self.high {
            let y = self.y_of_log(f64::from(decade));
            axis.raw(&format!("<path class=\"grid\" d=\"M{left} {y:.1}H{right}\"/>"));
            axis.raw(&format!(
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 5.0,
                y + 4.0,
                power_of_ten(decade)
            ));
        }
        axis
    }
}

impl Area {
    pub(crate) fn mark(&self, x: f64, name: &str) -> Markup {
        let mut mark = Markup::new();
        mark.raw(&format!("<path class=\"grid\" d=\"M{x:.1} {}v4\"/>", self.bottom));
        mark.raw(&format!(
            "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">",
            self.bottom + 17.0
        ));
        mark.text(name).raw("</text>");
        mark
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the logarithm of an f64: a few hundred at most"
)]
const fn decade(log10: f64) -> i32 {
    log10 as i32
}

/// `0.01`, `100`, `10K`.
fn power_of_ten(decade: i32) -> String {
    match decade {
        ..0 => format!("0.{}1", "0".repeat((-decade - 1).unsigned_abs() as usize)),
        0..3 => format!("1{}", "0".repeat(decade.unsigned_abs() as usize)),
        3..6 => format!("1{}K", "0".repeat((decade - 3).unsigned_abs() as usize)),
        _ => format!("1{}M", "0".repeat((decade - 6).unsigned_abs() as usize)),
    }
}
