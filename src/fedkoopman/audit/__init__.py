"""The leak meter: what an honest-but-curious server can learn from the updates that it sees.

One file per attack. Each takes updates as the server saw them, and what the auditor knows (who sent
them, what they were computed from), and says how often the attack is right, beside chance.
"""
