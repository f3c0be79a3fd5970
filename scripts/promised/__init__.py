"""The parts of `promises.py`: random cases, the program that makes their memory, and measuring it."""
