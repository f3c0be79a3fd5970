"""Programs about MADV_COLLAPSE of files on a disk: when it is allowed, and the state after a write."""

# A file of two huge folios; the window fits both and an unaligned mapping.
HEAD = "program {} pages=1536 sizes=- disk=1024"

# `@` is a mapping's sharing and protection: r-- shared, r-- private, r-x private.
MAPPINGS = ["sr", "pr", "px"]
PROGRAMS = [
    # Clean and cached, no writer; then a process opens it for writing.
    "load 0 1024;share 0 512 0 @;read 5;collapse 0 512;read 100;open;read 100;close;read 7",
    # A writer exists from the start.
    "load 0 1024;open;share 0 512 0 @;collapse 0 512;read 5;close;collapse 0 512;read 5",
    # No page is cached, or some.
    "share 0 512 0 @;collapse 0 512;read 5",
    "load 0 10;share 0 512 0 @;collapse 0 512;read 5",
    # Dirty pages: collapse twice, then after a sync.
    "open;put 3;close;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;read 3",
    "open;put 0 512;close;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;read 3",
    "open;put 3;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;close;"
    "collapse 0 512;read 3",
    "open;put 0 512;sync;close;share 0 512 0 @;read 9;collapse 0 512;read 10",
    # Requests with no whole block, one, and two.
    "load 0 1024;share 0 1024 0 @;collapse 1 100;collapse 500 30;collapse 1 600;collapse 1 1023;"
    "collapse 0 1024;read 5;read 600",
    # The mapping is not aligned with the file, or is too small for a block.
    "load 0 1024;share 0 512 1 @;collapse 0 512;read 5",
    "load 0 1024;share 0 500 0 @;collapse 0 500;read 5",
    # A page that a pipe refers to.
    "load 0 1024;share 0 512 0 @;pin 5;collapse 0 512;unpin;collapse 0 512;read 5",
    # Two processes.
    "load 0 1024;share 0 512 0 @;read 5;fork 1;1 read 6;collapse 0 512;read 7;1 read 8;1 open;"
    "1 put 9;1 close;read 9;1 read 9;collapse 0 512",
    # Writes to a huge folio, then another collapse.
    "load 0 1024;share 0 512 0 @;collapse 0 512;read 5;open;put 5;read 5;collapse 0 512;sync;close;"
    "collapse 0 512;read 5",
]
# A private mapping with its own copies.
COPIES = [
    "load 0 1024;share 0 512 0 p;collapse 0 512;read 5;write 3;read 4;collapse 0 512",
    "load 0 1024;share 0 512 0 p;write 3;collapse 0 512;read 5",
]


def programs():
    """The text of all programs."""
    texts = [text.replace("@", how) for text in PROGRAMS for how in MAPPINGS] + COPIES
    lines = []
    for seed, text in enumerate(texts, 1):
        lines.append(HEAD.format(seed))
        for step in text.split(";"):
            lines.append(step if step[0].isdigit() else f"0 {step}")
    return "\n".join(lines) + "\n"
