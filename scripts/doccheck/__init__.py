"""Parts of scripts/docs.py: documents are read, their commands run, what they print is compared."""
