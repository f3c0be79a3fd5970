"""Objects of many sizes: a dictionary of lists, sorted and joined."""

import random

random.seed(7)
words: dict[str, list[int]] = {}
for number in range(120_000):
    word = "".join(random.choices("abcdefgh", k=6))
    words.setdefault(word, []).append(number)
longest = sorted(words, key=lambda word: (-len(words[word]), word))[:5]
print(len(words), " ".join(longest), sum(len(numbers) ** 2 for numbers in words.values()))
