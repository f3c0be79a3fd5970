//! The built-in kernel files.

use crate::datafile::DataFiles;

macro_rules! kernel {
    ($name:literal) => {
        ($name, include_str!(concat!("../../kernels/", $name, ".toml")))
    };
}

pub(super) static KERNELS: DataFiles = DataFiles {
    what: "kernel",
    own: " (name a kernel file by its path, ending in .toml)",
    built_in: BUILT_IN,
    bytes_max: 1 << 20,
};

/// The name and text of each kernel, oldest first; the recorded ones come last.
const BUILT_IN: &[(&str, &str)] = &[
    kernel!("5.14"),
    kernel!("5.15"),
    kernel!("6.1"),
    kernel!("6.6"),
    kernel!("6.8"),
    kernel!("6.12"),
    kernel!("6.16"),
    kernel!("6.17"),
    kernel!("6.18"),
    kernel!("6.19"),
    kernel!("7.0"),
    kernel!("7.1"),
    kernel!("7.2"),
    kernel!("7.3"),
    kernel!("recorded/73_areas_64k"),
    kernel!("recorded/73_collapse_sizes"),
    kernel!("recorded/73_copy"),
    kernel!("recorded/73_file_thp_exec"),
    kernel!("recorded/73_file_thp_readers"),
    kernel!("recorded/73_owners_max_40"),
    kernel!("recorded/73_pmd_counts"),
    kernel!("recorded/73_pmd_counts_owners_max_1000"),
    kernel!("recorded/73_sizes_16k_256k"),
    kernel!("recorded/73_sizes_2m"),
    kernel!("recorded/73_sizes_64k_2m"),
    kernel!("recorded/a_612_64k_stock"),
    kernel!("recorded/b64_612_64k_s000"),
    kernel!("recorded/b_612_4k_s000"),
    kernel!("recorded/c_612_64k_exec"),
    kernel!("recorded/d_612_4k_exec_final"),
    kernel!("recorded/d_612_4k_exec_s002"),
    kernel!("recorded/d_612_64k_exec_s002"),
    kernel!("recorded/e_612_4k_stock"),
    kernel!("recorded/f_612_4k_exec"),
    kernel!("recorded/g_72_64k_stock"),
    kernel!("recorded/h_72_64k_pre002"),
    kernel!("recorded/i_72_64k_s002v5"),
    kernel!("recorded/built_6.1-read-only-thp_amd64"),
    kernel!("recorded/built_6.12-read-only-thp_amd64"),
    kernel!("recorded/built_7.2-no-page-mapcount_amd64"),
    kernel!("recorded/built_7.2-no-page-mapcount_arm64_64k"),
    kernel!("recorded/built_7.3-largefolio_amd64"),
];
