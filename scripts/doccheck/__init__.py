"""Parts of scripts/docs.py: reads documents, runs their commands, compares the output."""
