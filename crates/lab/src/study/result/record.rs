//! A CSV record of any kind of row.

#[derive(Clone, Debug, Default)]
pub(super) struct Record {
    pub(super) study: String,
    pub(super) table: String,
    pub(super) what: String,
    /// Before, after, change.
    pub(super) published: [String; 3],
    pub(super) unit: String,
    /// Before, after, change.
    pub(super) ours: [String; 3],
    pub(super) ours_unit: String,
    /// Before, after, change.
    pub(super) in_kernel: [String; 3],
    pub(super) in_kernel_unit: String,
    pub(super) measure: &'static str,
    pub(super) distance: String,
    pub(super) closeness: String,
    pub(super) level: String,
    pub(super) score: &'static str,
    pub(super) basis: String,
    pub(super) inputs_of_series: String,
    pub(super) other_quantity: String,
    pub(super) how: String,
    pub(super) of: String,
    pub(super) note: String,
}

impl Record {
    pub(super) const HEADS: [&str; 26] = [
        "study",
        "table",
        "what",
        "published_before",
        "published_after",
        "published_change",
        "unit",
        "ours_before",
        "ours_after",
        "ours_change",
        "ours_unit",
        "in_kernel_before",
        "in_kernel_after",
        "in_kernel_change",
        "in_kernel_unit",
        "measure",
        "distance",
        "closeness",
        "level",
        "score",
        "basis",
        "inputs_of_series",
        "other_quantity",
        "how",
        "of",
        "note",
    ];

    pub(super) fn cells(self) -> [String; 26] {
        let [published_before, published_after, published_change] = self.published;
        let [ours_before, ours_after, ours_change] = self.ours;
        let [in_kernel_before, in_kernel_after, in_kernel_change] = self.in_kernel;
        [
            self.study,
            self.table,
            self.what,
            published_before,
            published_after,
            published_change,
            self.unit,
            ours_before,
            ours_after,
            ours_change,
            self.ours_unit,
            in_kernel_before,
            in_kernel_after,
            in_kernel_change,
            self.in_kernel_unit,
            self.measure.to_owned(),
            self.distance,
            self.closeness,
            self.level,
            self.score.to_owned(),
            self.basis,
            self.inputs_of_series,
            self.other_quantity,
            self.how,
            self.of,
            self.note,
        ]
    }
}
