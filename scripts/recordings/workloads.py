"""The workload set: what each kernel is asked to do.

A workload is a name and the probe's `key=value` words. Names follow recordings/README.md:
FS_raKB_PROT_ADVICE_PATTERN_sSEED.
"""

MIB = 1 << 20


def files(filesystem, page):
    """Name and length of every file of a filesystem."""
    if filesystem == "ext4-slow":
        return {"data": 64 * MIB}
    return {
        "data": 64 * MIB if page == 4096 else 192 * MIB,
        "odd": 3 * MIB + 13 * page + 100,        # ends inside a page
        "tail": 2 * MIB + 37 * page,             # ends inside a folio
        "exact": 4 * MIB if page == 4096 else 64 * MIB,
    }


def sparse_files(page):
    """Files of holes: no I/O, so no folio is ever locked when a fault is tried again."""
    return {
        "sparse": 320 * MIB,                     # room for a hundred forced windows
        "holes": 64 * MIB if page == 4096 else 192 * MIB,
        "p12": 12 * page,
        "p13": 13 * page,
        **{f"made{nr}": page for nr in range(6)},  # grow by write(2)
    }


def simple(prot, advice, pattern, n, seed=0, **more):
    share = "shared" if prot == "r" else "private"
    words = {"prot": prot, "map": share, "advice": advice, "pattern": pattern, "n": n, "seed": seed}
    words.update(more)
    return f"{prot}_{advice}_{pattern}_s{seed}", words


def reading(pattern, n, seed=0, **more):
    words = {"map": "none", "pattern": pattern, "n": n, "seed": seed, **more}
    return f"read_plain_{pattern}_s{seed}", words


def scripted(name, ops, prot="r", advice="plain", **more):
    share = "private" if prot in ("rx", "rxc") else "shared"
    words = {"prot": prot, "map": share, "advice": advice, "pattern": "ops", "ops": ops, **more}
    return f"{prot}_{advice}_{name}_s0", words


def mapped(window_kb):
    """The grid: protections, advices and patterns; short where windows are long."""
    n = 150 if window_kb <= 128 else 40
    for prot in ("r", "rx"):
        for pattern, count in (("seq", n), ("mid1001", n), ("stride7", n), ("back", n),
                               ("rand", 40 if window_kb <= 128 else 15)):
            yield simple(prot, "plain", pattern, count, seed=int(pattern == "rand"))
        yield simple(prot, "plain", "rand", n, seed=11, file="holes")
        yield simple(prot, "huge", "stride999", 12)
        yield simple(prot, "huge", "seq", 60)
        yield simple(prot, "random", "rand", 40, seed=2)
        yield simple(prot, "seq", "mid1001", 60)
        yield simple(prot, "seq", "rand", 30, seed=3)


def written(page):
    """Pages inside and at the edge of what eight writes of 1 MiB have cached."""
    return f"s0.0+1048576x8,t300,p,t301,t{900 if page == 4096 else 500},p"


def special(page):
    """Recorded with the 128 KiB window only."""
    yield simple("rxc", "plain", "stride7", 60)
    yield simple("r", "plain", "two", 120)
    yield simple("r", "plain", "two3", 80)
    yield simple("r", "plain", "hot", 150, seed=4)
    yield simple("rx", "plain", "hot", 150, seed=4)
    yield simple("r", "plain", "stride64", 160)
    yield simple("rx", "plain", "stride64", 160)
    yield simple("r", "huge", "stride64", 160)
    yield simple("r", "hugerandom", "stride999", 12)
    yield simple("rx", "hugeseq", "stride999", 12)
    yield simple("r", "nohuge", "stride7", 60)
    yield simple("rw", "plain", "stride7", 60)
    yield "rwp_plain_stride7_s0", simple("rw", "plain", "stride7", 60)[1] | {"map": "private"}
    # Parts of the file, not aligned to anything.
    for prot in ("r", "rx"):
        name, words = simple(prot, "plain", "seq", 120)
        yield name.replace("seq", "part"), words | {"first": 10, "pages": 64}
        name, words = simple(prot, "plain", "stride7", 100)
        yield name.replace("stride7", "part7"), words | {"first": 333, "pages": 601, "skew": 3}
        name, words = simple(prot, "huge", "stride999", 12)
        part = {"file": "holes", "first": 700, "pages": 3000}
        yield name.replace("stride999", "parthuge"), words | part
        # Ends of files.
        for file in ("odd", "tail"):
            for pattern in ("seq", "back", "stride7"):
                name, words = simple(prot, "plain", pattern, 120)
                yield name.replace(pattern, f"{file}-{pattern}"), words | {"file": file}
            name, words = simple(prot, "huge", "stride7", 60)
            yield name.replace("stride7", f"{file}-stride7"), words | {"file": file}
    yield scripted("eof12", "b0.0+4096,b1.0+4096,t4,p,t11", file="p12")
    yield scripted("eof13", "b0.0+4096,b1.0+4096,t4,p,t11", file="p13")
    yield scripted("lastpmd", "t0,t600,p", file="exact", advice="huge")
    yield scripted("lastpmd-read", "b0.0+1048576x4,b0.0+4096x4/1,t0,t600,p", file="exact", opens=2)
    # Written, not dropped: inner folios of large order, no markers.
    yield scripted("written", written(page), file="made0", settle=20000, pages=2048)
    yield scripted("written-rx", written(page), prot="rx", file="made1", settle=20000, pages=2048)
    small = "s0.0+5000x20,s40.100+70000x5,s200.0+16384x4,s333.0+12288x3,t3,t50,t205,p"
    yield scripted("writes", small, file="made2", pages=512)
    yield scripted("willneed", "a:willneed/0,t5,t90,t3000,p", pages=4000)
    # Several opens and mappings of one file.
    yield scripted("opens", "b0.0+4096x12,b12.0+4096/1,b16.0+4096x3/1,b12.0+4096x4", opens=2)
    name, words = simple("r", "plain", "seq", 100)
    yield name.replace("seq", "maps"), words | {"opens": 2, "also": "rx,private,plain,1,0,4000"}
    name, words = simple("r", "plain", "rand", 100, seed=5)
    yield name.replace("rand", "mapsone"), words | {"also": "rx,private,plain,0,0,9000"}
    yield scripted("advised", "t0,a:random/0,t100,t101,a:seq/0,t200x4,a:normal/0,t300x40")
    yield scripted("readmap", "b0.0+4096x20,t0x80,b100.0+65536x3,t120x30")


def around_off(page):
    """With fault-around set to one page."""
    off = {"around": 4096}
    rows = [simple("r", "plain", "stride64", 160), simple("rx", "plain", "stride64", 160),
            simple("r", "plain", "seq", 100), simple("rx", "plain", "mid1001", 100),
            simple("r", "huge", "stride999", 12),
            scripted("lastpmd", "t0,t600,p", file="exact", advice="huge"),
            scripted("written", written(page), file="made3", settle=20000, pages=2048),
            scripted("written-rx", written(page), prot="rx", file="made4",
                     settle=20000, pages=2048),
            simple("r", "plain", "stride7", 60)]
    for name, words in rows:
        yield name.replace("plain", "around").replace("huge", "aroundhuge"), words | off


def gates():
    """More than a hundred cold forced windows, on a file of holes."""
    for prot in ("r", "rx"):
        yield simple(prot, "hugerandom", "stride512", 120, file="sparse")
        yield simple(prot, "huge", "stride1024", 79, file="sparse")


def without_large_folios():
    """On a filesystem whose files have no large folios (ext4 with the encrypt feature)."""
    for prot in ("r", "rx"):
        yield simple(prot, "plain", "mid1001", 100)
        yield simple(prot, "plain", "seq", 100)
        yield simple(prot, "plain", "rand", 60, seed=8)
        yield simple(prot, "huge", "stride999", 12)
        yield simple(prot, "huge", "mid1001", 60)
        yield simple(prot, "seq", "mid1001", 60)
    yield scripted("eof12", "b0.0+4096,b1.0+4096,t4,p,t11", file="p12")
    yield scripted("eof13", "b0.0+4096,b1.0+4096,t4,p,t11", file="p13")
    yield reading("read4096", 100)
    yield reading("read1048576", 6)


def decisive(page):
    """Each tells two rules of BEHAVIOUR.md apart that no other workload does."""
    window = 128 * 1024 // page
    # A.4.6: a read of M - 1 pages behind M cached ones: at random, or the start of a stream.
    reads_at = ((10 * window, window), (99 * window, 1), (11 * window, window - 1))
    ops = ",".join(f"b{at}.0+{nr * page}" for at, nr in reads_at)
    yield "read_plain_backfull_s0", {"map": "none", "pattern": "ops", "ops": ops}
    # B.5.6: sixty misses, the last PMD folio of the file mapped seventy times, sixty misses. If
    # fault-around leaves that folio to the handler, the first misses are given back.
    pmd = page // 8
    last = files("", page)["data"] // page - pmd
    misses = [f"w{window // 2 + 2 * window * nr}" for nr in range(120)]
    mapped_again = [f"t{last + 300}/1", *["a:dontneed/1", f"t{last + 300}/1"] * 70]
    ops = ",".join(misses[:60] + mapped_again + misses[60:])
    yield scripted("eofguard", ops, prot="rw", also=f"r,shared,huge,0,{last},{pmd}")
    # B.6.3: a PMD folio through a mapping that asked for none.
    also = f"r,shared,nohuge,0,0,{2 * pmd}"
    yield scripted("nohugepmd", "t0,t5/1,p/1", advice="huge", also=also)
    # B.3.1.1: two misses and one marker hit a round, without fault-around. A marker hit that is
    # repeated as a first try gives both misses back.
    starts = (3 * window * nr for nr in range(110))
    offsets = (window // 2, 3 * window // 4, 5 * window // 2)
    ops = ",".join(f"t{start + offset}" for start in starts for offset in offsets)
    name, words = scripted("markers", ops, around=4096)
    yield name.replace("plain", "around"), words


def refault(page):
    """Sixty misses, four fault-arounds over refaulted pages, sixty misses (B.5.8).

    256 KiB and then 16 MiB are read twice, so that they are active; the older ones are reclaimed
    and read again, by exact reads that leave no marker.
    """
    pages_64k = 65536 // page
    first, other, big = 63 * pages_64k, 320 * pages_64k, 512 * pages_64k
    twice = [f"b{first}.0+131072", f"b{other}.0+{page}", f"b{first + 2 * pages_64k}.0+131072",
             f"b{other + 40}.0+{page}"]
    actives = [f"b{big}.0+65536x256"] * 2
    misses = [f"w{12 * big // 8 + 3 * pages_64k + 2 * pages_64k * nr}" for nr in range(120)]
    arounds = [f"t{first + pages_64k * nr}/1" for nr in range(4)]
    ops = [*twice, *twice, *actives, "z", "m1048576", *twice, "z", *misses[:60], *arounds,
           *misses[60:]]
    also = f"r,shared,plain,0,{first},{4 * pages_64k}"
    return scripted("refault", ",".join(ops), prot="rw", also=also, cgroup="/cg/a")


def short_windows():
    """Windows of two pages (A.5.1)."""
    yield simple("r", "plain", "seq", 40)
    yield simple("r", "plain", "mid1001", 40)
    yield simple("rx", "plain", "seq", 40)
    yield reading("read4096", 60)


def in_flight(page):
    """Two misses and one hit on a page still being read a round, without fault-around (B.3).

    The window has a page in it that was read before, so it takes two requests, and the miss waits
    for the first alone. Ten misses before use up what the slow disk lets through at once.
    """
    window = 256 * 1024 // page
    middles = [window * nr + window // 2 for nr in range(230)]
    ops = [f"t{at}" for at in middles[:10]]
    for at, other in zip(middles[10::2], middles[11::2]):
        ops += [f"b{at + 5 * window // 16}.0+{page}", f"t{at}", f"t{at + window // 2 - 1}",
                f"t{other}"]
    name, words = scripted("inflight", ",".join(ops), around=4096, settle=0)
    return name.replace("plain", "around"), words


def on_btrfs():
    """(window, name, words): which folios btrfs uses (A.8)."""
    for prot in ("r", "rx"):
        yield 128, *simple(prot, "plain", "seq", 100)
        yield 128, *simple(prot, "plain", "stride7", 100)
        yield 128, *simple(prot, "huge", "stride999", 12)
    yield 128, *reading("read4096", 100)
    for window in (128, 4096):
        yield window, *reading("read1048576", 8)
    yield 4096, *simple("r", "plain", "seq", 40)


def reads(window_kb):
    yield reading("read4096", 120)
    yield reading("read65536", 40)
    yield reading("read1048576", 6)
    if window_kb == 128:
        yield reading("readback4096", 60)
        yield reading("readrand4096", 60, seed=6)
        yield reading("readrand65536", 30, seed=7)
        yield reading("readtwo4096", 120)
        yield reading("readopens4096", 120, opens=2)
        yield reading("read6000", 80)
        yield reading("read4096", 80, file="odd", seed=9)
        yield reading("read65536", 60, file="tail", seed=9)


def workloads(filesystem, page):
    """(name, read_ahead_kb, words) of one filesystem."""
    if filesystem == "ext4-encrypt":
        for name, words in without_large_folios():
            yield f"{filesystem}_ra128_{name}", 128, words
        if page == 4096:
            name, words = refault(page)
            yield f"{filesystem}_ra128_{name}", 128, words
        return
    if filesystem == "btrfs":
        for window, name, words in on_btrfs():
            yield f"{filesystem}_ra{window}_{name}", window, words
        return
    if filesystem == "ext4-slow":
        name, words = in_flight(page)
        yield f"{filesystem}_ra256_{name}", 256, words
        return
    for window in (128, 512, 2048):
        rows = [*mapped(window), *reads(window)]
        if window == 128:
            rows += special(page)
            rows += decisive(page)
            rows += around_off(page) if page == 4096 else []
            rows += gates() if page == 4096 else []
        for name, words in rows:
            yield f"{filesystem}_ra{window}_{name}", window, words
    for name, words in (simple("r", "plain", "seq", 20), simple("rx", "plain", "rand", 5, seed=1),
                        reading("read4096", 60), reading("read1048576", 8)):
        yield f"{filesystem}_ra8192_{name}", 8192, words
    two_pages_kb = 2 * page // 1024
    for name, words in short_windows():
        yield f"{filesystem}_ra{two_pages_kb}_{name}", two_pages_kb, words
    name, words = simple("rx", "plain", "stride7", 12)
    yield f"{filesystem}_ra0_{name}", 0, words
