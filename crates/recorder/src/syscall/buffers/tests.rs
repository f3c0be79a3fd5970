use super::*;

fn len_of(arch: Arch, number: i64) -> Vec<(usize, bool)> {
    table::buffers_of(arch, number).iter().map(|buffer| (buffer.arg, buffer.is_stored)).collect()
}

#[test]
fn a_call_has_its_buffers_on_each_architecture() {
    // newfstatat: the path is loaded, the stat stored.
    for (arch, number) in [(Arch::X86_64, 262), (Arch::Arm64, 79)] {
        assert_eq!(len_of(arch, number), [(1, false), (2, true)]);
    }
    for arch in Arch::ALL {
        for number in [-1, 511, 512, i64::MIN, i64::MAX] {
            assert!(len_of(arch, number).is_empty());
        }
    }
}

#[test]
fn a_request_says_what_is_moved() {
    use Direction::{KernelReads, KernelWrites};
    const TCGETS: u32 = 0x5401;
    const TCGETS2: u32 = 0x802c_542a;
    const FIFREEZE: u32 = 0xc004_5877;
    const FIOCLEX: u32 = 0x5451;
    assert_eq!((ioctl(TCGETS, KernelReads), ioctl(TCGETS, KernelWrites)), (0, 36));
    assert_eq!((ioctl(TCGETS2, KernelReads), ioctl(TCGETS2, KernelWrites)), (0, 44));
    assert_eq!((ioctl(FIFREEZE, KernelReads), ioctl(FIFREEZE, KernelWrites)), (4, 4));
    assert_eq!((ioctl(FIOCLEX, KernelReads), ioctl(FIOCLEX, KernelWrites)), (0, 0));
    assert_eq!((futex(128, 0), futex(129, 0), futex(128, 3)), (4, 0, 16));
    assert_eq!(
        (fcntl(5, KernelWrites), fcntl(6, KernelWrites), fcntl(6, KernelReads)),
        (32, 0, 32)
    );
}

#[test]
fn vectors_without_gaps_are_one_piece() {
    assert_eq!(whole(&[0x1000, 16, 0x1010, 4]), Some(0x1000));
    assert_eq!(
        whole(&[5, 0, 0x1000, 16, 9, 0, 0x1010, 4]),
        Some(0x1000),
        "empty ones do not count"
    );
    assert_eq!(whole(&[0x1000, 16, 0x1011, 4]), None);
    assert_eq!(whole(&[0x1000, 16, 0xff0, 16]), None);
    assert_eq!(whole(&[u64::MAX, 2]), None);
    assert_eq!(whole(&[]), None);
}
