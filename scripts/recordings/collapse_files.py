"""Programs about MADV_COLLAPSE of files on a disk: who may, what is left when somebody writes."""

# A file of two huge folios; the window has room for both and for a mapping that is not aligned.
HEAD = "program {} pages=1536 sizes=- disk=1024"

# `@` stands for a mapping's sharing and protection: r-- shared, r-- private, r-x private.
MAPPINGS = ["sr", "pr", "px"]
PROGRAMS = [
    # Clean and cached, no writer; then somebody opens it for write.
    "load 0 1024;share 0 512 0 @;read 5;collapse 0 512;read 100;open;read 100;close;read 7",
    # A writer is there already.
    "load 0 1024;open;share 0 512 0 @;collapse 0 512;read 5;close;collapse 0 512;read 5",
    # Nothing is cached, or some.
    "share 0 512 0 @;collapse 0 512;read 5",
    "load 0 10;share 0 512 0 @;collapse 0 512;read 5",
    # Dirty pages: once more, and after a sync.
    "open;put 3;close;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;read 3",
    "open;put 0 512;close;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;read 3",
    "open;put 3;share 0 512 0 @;collapse 0 512;collapse 0 512;sync;collapse 0 512;close;"
    "collapse 0 512;read 3",
    "open;put 0 512;sync;close;share 0 512 0 @;read 9;collapse 0 512;read 10",
    # Requests without a whole block, with one, with two.
    "load 0 1024;share 0 1024 0 @;collapse 1 100;collapse 500 30;collapse 1 600;collapse 1 1023;"
    "collapse 0 1024;read 5;read 600",
    # The mapping is not aligned with the file, or has no room for a block.
    "load 0 1024;share 0 512 1 @;collapse 0 512;read 5",
    "load 0 1024;share 0 500 0 @;collapse 0 500;read 5",
    # A page that a pipe refers to.
    "load 0 1024;share 0 512 0 @;pin 5;collapse 0 512;unpin;collapse 0 512;read 5",
    # Two processes.
    "load 0 1024;share 0 512 0 @;read 5;fork 1;1 read 6;collapse 0 512;read 7;1 read 8;1 open;"
    "1 put 9;1 close;read 9;1 read 9;collapse 0 512",
    # What is written into a huge folio, and whether it can be collapsed again.
    "load 0 1024;share 0 512 0 @;collapse 0 512;read 5;open;put 5;read 5;collapse 0 512;sync;close;"
    "collapse 0 512;read 5",
]
# A private mapping with copies of its own.
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
